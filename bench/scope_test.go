package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestScope(t *testing.T) {
	var order []int
	broken := errors.New("broken")
	err := inScope(t.Context(), "x", time.Minute, func(_ context.Context, s *scope) {
		s.Cleanup(func() { order = append(order, 1) })
		s.Cleanup(func() {
			s.Cleanup(func() { order = append(order, 3) })
			order = append(order, 2)
		})
		s.each(3, func(i int) error {
			if i == 1 {
				return broken
			}
			return nil
		})
		order = append(order, 4)
	})
	require.ErrorIs(t, err, broken)
	require.Equal(t, []int{2, 3, 1}, order, "in reverse order, and nothing behind the failure")
	require.NoError(t, inScope(t.Context(), "x", time.Minute, func(context.Context, *scope) {}))
}

func TestScopeEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := inScope(t.Context(), "x", cellLimit, func(ctx context.Context, s *scope) { s.must(pause(ctx, time.Hour)) })
		require.EqualError(t, err, "not finished in 30s")
		require.Equal(t, cellLimit, time.Since(began))
	})
}
