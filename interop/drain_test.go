package interop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A peer's threads queue behind its own lock, and all of them come through once it is given back.
func TestDrain(t *testing.T) {
	for _, kind := range []Kind{Curator, Kazoo} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s, peer, path, ctx := dial(t), open(t, kind), newPath(t), within(t, 20*time.Second)
			_, err := peer.Lock(ctx, Mutex, path)
			require.NoError(t, err)
			const n = 5
			done := make(chan error, 1)
			go func() { done <- peer.Drain(ctx, path, n) }()
			eventually(t, "all queue", func() bool { return len(inspect(t, s, path)) == n+1 })
			require.Empty(t, done, "it waits")
			require.NoError(t, peer.Release(ctx, Mutex, path))
			require.NoError(t, <-done)
			require.Empty(t, inspect(t, s, path))
			require.Error(t, peer.Drain(ctx, "no path", 1))
		})
	}
}

func TestOpenFor(t *testing.T) {
	const timeout = 7 * time.Second
	for _, kind := range []Kind{Curator, Kazoo} {
		p := zktest.NewProxy(t, servers(t)[0])
		Shared(t, kind).OpenFor(t, []string{p.Addr()}, timeout)
		_, _, granted := p.Session()
		require.Equal(t, timeout, granted, kind)
	}
}
