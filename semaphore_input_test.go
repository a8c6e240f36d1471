package zkrecipes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What cannot be is told at once, with the path and the cause, and nothing is left behind.
func TestSemaphoreBadInput(t *testing.T) {
	s, closed := dialShared(t), dialShared(t)
	require.NoError(t, closed.Close())
	ctx, path := within(t, 10*time.Second), newPath(t)
	for why, call := range map[string]func(context.Context) (*Lease, error){
		"a semaphore of 0 permits":               NewSemaphore(s, path, 0).Locker(1).Lock,
		"a semaphore of -1 permits":              NewSemaphore(s, path, -1).Locker(1).TryLock,
		"0 permits: at least one":                NewSemaphore(s, path, 3).Locker(0).Lock,
		"-7 permits: at least one":               NewSemaphore(s, path, 3).Locker(-7).TryLock,
		"4 permits of a semaphore":               NewSemaphore(s, path, 3).Locker(4).Lock,
		"5 permits of a semaphore that has 3":    NewSemaphore(s, path, 3).Locker(5).TryLock,
		"no Session":                             NewSemaphore(nil, path, 3).Locker(1).Lock,
		"relative path":                          NewSemaphore(s, "x", 3).Locker(1).Lock,
		"relative":                               NewCountedSemaphore(s, path, "count").Locker(1).TryLock,
		"there is no count at " + path + "/none": NewCountedSemaphore(s, path, path+"/none").Locker(1).Lock,
		"WithMaxHold":                            NewSemaphore(s, path, 3, WithMaxHold(-1)).Locker(1).Lock,
	} {
		l, err := call(ctx)
		require.Nil(t, l, why)
		require.ErrorIs(t, err, ErrInvalid, why)
		require.ErrorContains(t, err, why)
		var e *Error
		require.ErrorAs(t, err, &e)
	}
	for _, call := range []func(context.Context) (*Lease, error){NewSemaphore(closed, path, 3).Locker(1).Lock, NewSemaphore(closed, path, 3).Locker(1).TryLock} {
		_, err := call(ctx)
		require.ErrorIs(t, err, ErrClosed)
	}
	eventually(t, 5*time.Second, "nothing is left", func() bool {
		return len(leasesOf(t, s.Conn(), path)) == 0 && len(children(t, s.Conn(), path+"/locks")) == 0
	})
	require.Empty(t, s.Leases())
}
