package interop

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What the client says against a request comes back, and the peer goes on.
func TestErrorsOfAPeer(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Curator, Kazoo} {
		p, path := open(t, kind), newPath(t)
		_, err := p.call(t.Context(), "dance", path)
		require.ErrorContains(t, err, "dance")
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		_, err = p.Lock(t.Context(), Mutex, path)
		require.NoError(t, err)
		require.NoError(t, p.Release(t.Context(), Mutex, path))
		require.NoError(t, p.Close(t.Context()))
		_, err = p.Lock(t.Context(), Mutex, path)
		require.ErrorContains(t, err, "no such peer")
	}
}

// A wait ends with its ctx; Close ends a wait, and the znode goes with it.
func TestWaitOfAPeerEnds(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Curator, Kazoo} {
		s, path := dial(t), newPath(t)
		l, err := ourSide(s, Mutex, path)(t.Context())
		require.NoError(t, err)
		p := open(t, kind)
		_, err = p.Lock(within(t, 50*time.Millisecond), Mutex, path)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		participant(t, s, path, p.Session(), 1)
		require.NoError(t, p.Close(t.Context()))
		require.Len(t, inspect(t, s, path), 1)
		require.NoError(t, l.Release(t.Context()))
	}
}

// Calls of a process that has died fail at once, with what it wrote to its standard error.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	process := Start(t, Kazoo)
	p, path := process.Open(t, servers(t)), newPath(t)
	_, err := p.Lock(t.Context(), Mutex, path)
	require.NoError(t, err)
	waiter := process.Open(t, servers(t))
	failed := make(chan error, 1)
	go func() {
		_, err := waiter.Lock(t.Context(), Mutex, path)
		failed <- err
	}()
	participant(t, dial(t), path, waiter.Session(), 1)
	process.Kill()
	require.ErrorContains(t, <-failed, "the process has ended")
	require.ErrorContains(t, p.Release(t.Context(), Mutex, path), "the process has ended")
	require.ErrorContains(t, p.AwaitRevocation(t.Context()), "the process has ended")
}
