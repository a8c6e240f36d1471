package zkrecipes

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLateChan(t *testing.T) {
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	var l lateChan
	before := l.channel()
	require.False(t, closed(before))
	require.False(t, l.isClosed())
	require.True(t, l.close())
	require.False(t, l.close())
	require.True(t, closed(before))
	l.drop()
	require.True(t, closed(l.channel()))
	require.True(t, l.isClosed())

	var late lateChan
	require.True(t, late.close())
	require.True(t, closed(late.channel()), "made behind the end")

	var q quit
	require.NoError(t, q.Err())
	_ = q.Done()
	q.rest()
	require.Nil(t, q.over.c, "an idle one has none")
	again := q.Done()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(q.end)
	}
	wg.Wait()
	require.True(t, closed(again))
	require.ErrorIs(t, q.Err(), context.Canceled)
}
