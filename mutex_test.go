package zkrecipes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

func TestMutexLockRelease(t *testing.T) {
	s := dialShared(t, calm)
	m := NewMutex(s, newPath(t))
	l, err := m.Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	require.NoError(t, l.Err())
	require.NotZero(t, l.Token())
	c := admin(t)
	data, stat, err := c.Get(l.Node())
	require.NoError(t, err)
	require.Equal(t, string(l.Owner()), string(data))
	require.Equal(t, int64(l.Token()), stat.Czxid)
	require.Equal(t, s.ID(), stat.EphemeralOwner)
	ps, err := m.Participants(within(t, 10*time.Second))
	require.NoError(t, err)
	require.Len(t, ps, 1)
	require.True(t, ps[0].Holding)
	require.Equal(t, l.Owner(), ps[0].Owner)
	require.NoError(t, l.Release(context.Background()))
	require.ErrorIs(t, l.Err(), ErrReleased)
	require.ErrorIs(t, context.Cause(l.Context()), ErrReleased)
	require.NoError(t, l.Release(context.Background()))
	require.Empty(t, children(t, c, m.Path()))
}

func TestMutexContended(t *testing.T) {
	t.Parallel()
	a, b := dialShared(t, calm), dialShared(t, calm)
	path := newPath(t)
	la, err := NewMutex(a, path).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	_, err = NewMutex(b, path).TryLock(within(t, 5*time.Second))
	require.ErrorIs(t, err, ErrHeld)
	t.Log(err)
	_, err = NewMutex(b, path).Lock(within(t, 2*time.Second))
	require.ErrorIs(t, err, ErrHeld)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	t.Log(err)
	var e *Error
	require.True(t, errors.As(err, &e))
	require.Equal(t, la.Owner(), e.Ahead[0].Owner)
	require.Equal(t, la.Token(), e.Ahead[0].Token)
	got := make(chan *Lease, 1)
	go func() {
		l, err := NewMutex(b, path).Lock(context.Background())
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	eventually(t, 5*time.Second, "b waits", func() bool { return len(children(t, admin(t), path)) == 2 })
	require.NoError(t, la.Release(context.Background()))
	lb := <-got
	require.Greater(t, lb.Token(), la.Token())
	require.NoError(t, lb.Release(context.Background()))
}

// Who works under a lease's ctx is told of its end before the znode can go.
func TestReleaseEndsTheContextBeforeTheZnode(t *testing.T) {
	s, p := dialProxy(t, calm)
	l, err := NewMutex(s, newPath(t)).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	ended := make(chan bool, 1)
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpDelete), Times: 1, Do: zktest.Call(func(zktest.Frame) {
		ended <- l.Context().Err() != nil
	})})
	require.NoError(t, l.Release(context.Background()))
	require.True(t, <-ended)
}
