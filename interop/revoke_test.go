package interop

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes"
)

type outcome struct {
	lease *zkrecipes.Lease
	err   error
}

func inBackground(ctx context.Context, lock func(context.Context) (*zkrecipes.Lease, error)) <-chan outcome {
	got := make(chan outcome, 1)
	go func() {
		l, err := lock(ctx)
		got <- outcome{l, err}
	}()
	return got
}

// participant waits until a session stands in the queue of a path, behind so many, and returns what Inspect says of it.
func participant(t testing.TB, s *zkrecipes.Session, path string, session int64, position int) (p zkrecipes.Participant) {
	t.Helper()
	eventually(t, "it stands in the queue", func() bool {
		ps := inspect(t, s, path)
		i := slices.IndexFunc(ps, func(p zkrecipes.Participant) bool { return p.Session == session })
		if i >= 0 {
			p = ps[i]
		}
		return i == position
	})
	return p
}

// Revoke makes the listener of a Curator lock fire; the lock is its own until it releases.
func TestRevokeOfCurator(t *testing.T) {
	for _, side := range []Side{Mutex, Reader, Writer} {
		exclusive := side
		if side == Reader {
			exclusive = Writer // ours, to stand in the way or to wait
		}
		t.Run("holder "+string(side), func(t *testing.T) {
			t.Parallel()
			ctx, path, p, s := within(t, 30*time.Second), newPath(t), open(t, Curator), dial(t)
			require.NoError(t, p.MakeRevocable(ctx, side, path))
			node, err := p.Lock(ctx, side, path)
			require.NoError(t, err)
			got := inBackground(ctx, ourSide(s, exclusive, path))
			participant(t, s, path, s.ID(), 1)
			holder := inspect(t, s, path).Holders()
			require.Len(t, holder, 1)
			require.Equal(t, node, holder[0].Node)
			require.NoError(t, zkrecipes.Revoke(ctx, s, holder[0].Node))
			require.NoError(t, p.AwaitRevocation(ctx))
			require.Equal(t, node, inspect(t, s, path).Holders()[0].Node, "a request takes nothing away")
			require.NoError(t, p.Release(ctx, side, path))
			o := <-got
			require.NoError(t, o.err)
			require.NoError(t, o.lease.Release(ctx))
			require.NoError(t, zkrecipes.Revoke(ctx, s, node), "it has gone, and needs no request")
		})
		t.Run("waiter "+string(side), func(t *testing.T) {
			t.Parallel()
			ctx, path, p, s := within(t, 30*time.Second), newPath(t), open(t, Curator), dial(t)
			l, err := ourSide(s, exclusive, path)(ctx)
			require.NoError(t, err)
			require.NoError(t, p.MakeRevocable(ctx, side, path))
			theirs := make(chan error, 1)
			go func() {
				_, err := p.Lock(ctx, side, path)
				theirs <- err
			}()
			waiter := participant(t, s, path, p.Session(), 1)
			require.False(t, waiter.Holding)
			// Curator sets its watch after it has made its znode and does not look at what it reads then, so it misses a request in between.
			eventually(t, "the waiter's listener is called", func() bool {
				require.NoError(t, zkrecipes.Revoke(ctx, s, waiter.Node))
				soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				return p.AwaitRevocation(soon) == nil
			})
			select {
			case err := <-theirs:
				t.Fatalf("Curator waits no longer: %v", err)
			default:
			}
			require.NoError(t, l.Release(ctx))
			require.NoError(t, <-theirs)
			require.NoError(t, p.Release(ctx, side, path))
		})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// revokeByCurator lets Curator's Revoker ask for a znode that Curator itself finds, and looks at what Inspect says before and after.
func revokeByCurator(ctx context.Context, t testing.TB, p *Peer, s *zkrecipes.Session, side Side, path, node string) {
	t.Helper()
	find := func() zkrecipes.Participant {
		ps := inspect(t, s, path)
		i := slices.IndexFunc(ps, func(p zkrecipes.Participant) bool { return p.Node == node })
		require.GreaterOrEqual(t, i, 0)
		return ps[i]
	}
	require.NotEmpty(t, find().Owner)
	nodes, err := p.Participants(ctx, side, path)
	require.NoError(t, err)
	require.Contains(t, nodes, node)
	require.NoError(t, p.AttemptRevoke(ctx, node))
	require.Empty(t, find().Owner)
	require.Equal(t, s.ID(), find().Session)
}

// Curator's Revoker on a lease closes its Revoked, and nothing else.
func TestRevokeByCurator(t *testing.T) {
	for _, side := range []Side{Mutex, Reader, Writer} {
		t.Run("holder "+string(side), func(t *testing.T) {
			t.Parallel()
			ctx, path, p, s := within(t, 30*time.Second), newPath(t), open(t, Curator), dial(t)
			l, err := ourSide(s, side, path)(ctx)
			require.NoError(t, err)
			require.False(t, isClosed(l.Revoked()))
			revokeByCurator(ctx, t, p, s, side, path, l.Node())
			eventually(t, "Revoked is closed", func() bool { return isClosed(l.Revoked()) })
			require.NoError(t, l.Err())
			require.NoError(t, l.Release(ctx))
		})
		t.Run("waiter "+string(side), func(t *testing.T) {
			t.Parallel()
			ctx, path, p, s := within(t, 30*time.Second), newPath(t), open(t, Curator), dial(t)
			theirs := side
			if side == Reader {
				theirs = Writer
			}
			_, err := p.Lock(ctx, theirs, path)
			require.NoError(t, err)
			got := inBackground(ctx, ourSide(s, side, path))
			waiter := participant(t, s, path, s.ID(), 1)
			revokeByCurator(ctx, t, p, s, side, path, waiter.Node)
			select {
			case o := <-got:
				t.Fatalf("our waiter returned: %v", o.err)
			default:
			}
			require.NoError(t, p.Release(ctx, theirs, path))
			o := <-got
			require.NoError(t, o.err)
			require.Equal(t, waiter.Node, o.lease.Node())
			eventually(t, "the lease knows that it was asked for while it was waited for", func() bool { return isClosed(o.lease.Revoked()) })
			require.NoError(t, o.lease.Release(ctx))
		})
	}
	t.Run("nested read", func(t *testing.T) {
		t.Parallel()
		ctx, path, p, s := within(t, 30*time.Second), newPath(t), open(t, Curator), dial(t)
		w, err := ourSide(s, Writer, path)(ctx)
		require.NoError(t, err)
		r, err := ourSide(s, Reader, path)(w.Context())
		require.NoError(t, err)
		require.NotEqual(t, w.Node(), r.Node())
		revokeByCurator(ctx, t, p, s, Reader, path, r.Node())
		eventually(t, "the read's Revoked is closed", func() bool { return isClosed(r.Revoked()) })
		require.False(t, isClosed(w.Revoked()), "the writer was not asked")
		revokeByCurator(ctx, t, p, s, Writer, path, w.Node())
		eventually(t, "the writer's Revoked is closed", func() bool { return isClosed(w.Revoked()) })
		require.NoError(t, w.Release(ctx))
		require.NoError(t, r.Err())
		require.NoError(t, r.Release(ctx))
	})
	t.Run("read under a mutex", func(t *testing.T) {
		t.Parallel()
		ctx, path, p, s := within(t, 30*time.Second), newPath(t), open(t, Curator), dial(t)
		m, err := ourSide(s, Mutex, path)(ctx)
		require.NoError(t, err)
		r, err := ourSide(s, Reader, path)(m.Context())
		require.NoError(t, err)
		revokeByCurator(ctx, t, p, s, Mutex, path, r.Node())
		eventually(t, "both are asked", func() bool { return isClosed(r.Revoked()) && isClosed(m.Revoked()) })
		require.NoError(t, r.Release(ctx))
		require.NoError(t, m.Release(ctx))
	})
}
