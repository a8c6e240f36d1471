package zkrecipes

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A lease's ctx is one and the same whenever it is asked for, with the values of the acquiring ctx. Asked for after the end it has ended, with the reason.
func TestContextOfALeaseWhenItIsAskedForLate(t *testing.T) {
	type key struct{}
	bg, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "value"))
	s := dialShared(t)
	path := newPath(t)
	held, err := NewMutex(s, path).Lock(bg)
	require.NoError(t, err)
	cancel()
	require.NoError(t, held.Context().Err(), "it has not the cancellation")
	require.Equal(t, "value", held.Context().Value(key{}))
	require.Same(t, held.Context(), held.Context())
	from, ok := LeaseFromContext(held.Context())
	require.True(t, ok)
	require.Same(t, held, from)

	again, err := NewMutex(s, path).Lock(held.Context())
	require.NoError(t, err)
	require.NoError(t, again.Release(context.Background()))
	require.Nil(t, again.made.Load(), "nobody has asked")
	late := again.Context()
	require.ErrorIs(t, context.Cause(late), ErrReleased)
	require.Equal(t, "value", late.Value(key{}))
	require.Same(t, late, again.Context())

	again, err = NewMutex(s, path).Lock(held.Context())
	require.NoError(t, err)
	early := held.Context()
	require.NoError(t, admin(t).Delete(held.Node(), -1))
	eventually(t, 5*time.Second, "it is told", func() bool { return again.end.Load() != nil && held.end.Load() != nil })
	require.ErrorIs(t, context.Cause(early), ErrLost, "before anybody asks again")
	for _, l := range []*Lease{again, held} {
		require.ErrorIs(t, context.Cause(l.Context()), ErrLost)
		select {
		case <-l.Done():
		default:
			t.Fatal("Done is open after the loss")
		}
	}
}

// Whoever asks for the ctx while the lease ends, and is first or not, has none that goes on when the end is known.
func TestContextOfALeaseThatEndsMeanwhile(t *testing.T) {
	bg := context.Background()
	s := dialShared(t)
	m := NewMutex(s, newPath(t), WithOwner("same"))
	held, err := m.Lock(bg)
	require.NoError(t, err)
	for range rounds(t, 2000) {
		l, err := m.Lock(bg)
		require.NoError(t, err)
		var begin, wg sync.WaitGroup
		begin.Add(1)
		ctxs := make([]context.Context, 3)
		for i := range ctxs {
			wg.Go(func() {
				begin.Wait()
				for {
					known := l.end.Load() != nil
					ctx := l.Context()
					if known && ctx.Err() == nil {
						t.Error("the end was known, and this ctx goes on")
					}
					if ctxs[i] = ctx; known {
						return
					}
				}
			})
		}
		wg.Go(func() {
			begin.Wait()
			s.give(l, callHook)
		})
		begin.Done()
		wg.Wait()
		for _, ctx := range ctxs {
			require.ErrorIs(t, context.Cause(ctx), ErrReleased)
			require.Same(t, l.Context(), ctx)
		}
	}
	require.NoError(t, held.Release(bg))
}

// To enter again makes one object, the lease; its ctx, of three, is made for who asks for it.
func TestReentryAllocatesTheLease(t *testing.T) {
	bg := context.Background()
	m := NewMutex(dialShared(t), newPath(t), WithOwner("same"))
	held, err := m.Lock(bg)
	require.NoError(t, err)
	cycle := func() {
		l, err := m.Lock(bg)
		if err != nil || l.Release(bg) != nil {
			t.Error("not entered and left again")
		}
	}
	if n := testing.AllocsPerRun(5000, cycle); !raceEnabled { // a heartbeat now and then makes a part of one
		require.LessOrEqual(t, n, 1.0)
	}
	require.NoError(t, held.Release(bg))
}
