package zkrecipes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// underWay gives the lock back and waits until the transaction that hands it over is where a rule has stopped it. The next ones pass.
func (h *handOver) underWay(do func(*zktest.Gate) zktest.Action) (gate *zktest.Gate, released <-chan error) {
	h.Helper()
	gate = zktest.NewGate()
	h.Cleanup(gate.Open)
	h.p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpMulti, h.l.Node()), Times: 1, Do: do(gate)})
	done := make(chan error, 1)
	go func() { done <- h.l.Release(context.Background()) }()
	next(h, gate.Reached())
	require.ErrorIs(h, h.l.Err(), ErrReleased, "before it is sent")
	return gate, done
}

// Somebody deletes the znode of the waiter, or that of the holder, before the transaction arrives. It fails then; the other znode is seen to alone.
func TestHandOverMissesAZnode(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	t.Run("the waiter's", func(t *testing.T) {
		t.Parallel()
		h := newHandOver(t)
		got, node := h.behind(bg, h.l.Node(), NewMutex(h.s, h.path))
		gate, released := h.underWay(zktest.HoldRequest)
		require.NoError(t, h.c.Delete(node, -1))
		gate.Open()
		require.NoError(t, next(t, released))
		l := mustLease(t, got)
		require.NotEqual(t, node, l.Node())
		require.Equal(t, 1, requestsOn(h.p, zktest.OpDelete, h.l.Node()))
		require.NoError(t, l.Release(bg))
		require.Empty(t, children(t, h.c, h.path))
	})
	t.Run("the holder's", func(t *testing.T) {
		t.Parallel()
		h := newHandOver(t)
		got, node := h.behind(bg, h.l.Node(), NewMutex(h.s, h.path))
		gate, released := h.underWay(zktest.HoldRequest)
		require.NoError(t, h.c.Delete(h.l.Node(), -1))
		gate.Open()
		require.ErrorIs(t, next(t, released), ErrLost, "it was not this release that removed it")
		l := mustLease(t, got)
		require.Equal(t, node, l.Node(), "it kept its place")
		require.Zero(t, requestsOn(h.p, zktest.OpDelete, h.l.Node()))
		require.NoError(t, l.Release(bg))
	})
}

// The connection breaks before the transaction or after it, so that nobody knows: that decides nothing, and the waiter lists. It keeps its znode.
func TestHandOverWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for name, do := range map[string]zktest.Action{"before": zktest.CutBefore(), "after": zktest.CutAfter()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHandOver(t)
			got, node := h.behind(bg, h.l.Node(), NewMutex(h.s, h.path))
			h.p.ResetCounters()
			h.p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpMulti, h.l.Node()), Times: 1, Do: do})
			require.NoError(t, h.l.Release(bg))
			l := mustLease(t, got)
			require.Equal(t, node, l.Node())
			require.Equal(t, 1, h.sent()[zktest.OpMulti], "there is one attempt")
			require.Positive(t, h.sent()[zktest.OpGetChildren2])
			require.NoError(t, l.Release(bg))
			require.Empty(t, children(t, h.c, h.path))
			require.Zero(t, h.s.engine.Owing())
		})
	}
}

// The caller of the waiter leaves while the transaction is under way: nobody is granted, nothing is left, and whoever is behind goes on.
func TestHandOverToOneWhoHasLeft(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for name, do := range map[string]func(*zktest.Gate) zktest.Action{"request held": zktest.HoldRequest, "reply held": zktest.HoldReply} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHandOver(t)
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			got, node := h.behind(ctx, h.l.Node(), NewMutex(h.s, h.path))
			third, _ := h.behind(bg, node, NewMutex(h.s, h.path))
			gate, released := h.underWay(do)
			cancel()
			r := next(t, got)
			require.Nil(t, r.lease)
			require.ErrorIs(t, r.err, context.Canceled)
			require.Empty(t, third)
			gate.Open()
			require.NoError(t, next(t, released))
			l := mustLease(t, third)
			require.NoError(t, l.Release(bg))
			eventually(t, 10*time.Second, "nothing is left", func() bool { return len(children(t, h.c, h.path)) == 0 })
			require.Empty(t, h.s.Leases())
		})
	}
}

// The Session is closed, or its ZooKeeper session ends, while the transaction is under way.
func TestHandOverInASessionThatEnds(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for name, do := range map[string]func(*zktest.Gate) zktest.Action{"request held": zktest.HoldRequest, "reply held": zktest.HoldReply} {
		t.Run("closed, "+name, func(t *testing.T) {
			t.Parallel()
			h := newHandOver(t)
			got, _ := h.behind(bg, h.l.Node(), NewMutex(h.s, h.path))
			_, released := h.underWay(do)
			require.NoError(t, h.s.Close())
			r := next(t, got)
			require.Nil(t, r.lease)
			require.ErrorIs(t, r.err, ErrClosed)
			next(t, released)
			require.Empty(t, children(t, h.c, h.path))
		})
		t.Run("expired, "+name, func(t *testing.T) {
			t.Parallel()
			h := newHandOver(t)
			session := h.s.ID()
			got, node := h.behind(bg, h.l.Node(), NewMutex(h.s, h.path))
			gate, released := h.underWay(do)
			expireSession(t, h.p)
			gate.Open()
			next(t, released)
			l := mustLease(t, got)
			if h.s.ID() == session || l.Node() == node {
				// The answer came before the word of the end: then that is told.
				next(t, l.Done())
			}
			_ = l.Release(bg)
			eventually(t, 10*time.Second, "nothing is left", func() bool { return len(children(t, h.c, h.path)) == 0 })
		})
	}
}

// Somebody asks for the waiter's znode back while it is handed over: that is not forgotten.
func TestHandOverOfARevokedZnode(t *testing.T) {
	t.Parallel()
	bg, h := context.Background(), newHandOver(t)
	got, node := h.behind(bg, h.l.Node(), NewMutex(h.s, h.path))
	gate, released := h.underWay(zktest.HoldRequest)
	other := dialShared(t, calm)
	require.NoError(t, Revoke(within(t, 10*time.Second), other, node))
	gate.Open()
	require.NoError(t, next(t, released))
	l := mustLease(t, got)
	require.Equal(t, node, l.Node())
	next(t, l.Revoked())
	require.NoError(t, l.Release(bg))
}

// A hold that ends by WithMaxHold, and one whose last nested lease is given back, are handed over as any other; its leases have ended by then.
func TestHandOverOfEveryHold(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	t.Run("hold limit", func(t *testing.T) {
		t.Parallel()
		h := newHandOver(t)
		got, _ := h.behind(bg, h.l.Node(), NewMutex(h.s, h.path))
		gate := zktest.NewGate()
		defer gate.Open()
		h.p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpMulti, h.l.Node()), Times: 1, Do: zktest.HoldRequest(gate)})
		_, err := NewMutex(h.s, h.path, WithMaxHold(50*time.Millisecond)).Lock(h.l.Context()) // the limit of both
		require.NoError(t, err)
		next(t, gate.Reached())
		require.ErrorIs(t, context.Cause(h.l.Context()), ErrLost, "before it is sent")
		require.Empty(t, got)
		gate.Open()
		require.NoError(t, mustLease(t, got).Release(bg))
	})
	t.Run("entered again", func(t *testing.T) {
		t.Parallel()
		h := newHandOver(t)
		again, err := NewMutex(h.s, h.path).Lock(h.l.Context())
		require.NoError(t, err)
		read, err := NewRWLock(h.s, h.path).RLock(h.l.Context()) // on the same znode
		require.NoError(t, err)
		got, _ := h.behind(bg, h.l.Node(), NewMutex(h.s, h.path))
		h.p.ResetCounters()
		require.NoError(t, h.l.Release(bg))
		require.NoError(t, again.Release(bg))
		require.Empty(t, h.sent())
		require.NoError(t, read.Release(bg))
		require.NoError(t, mustLease(t, got).Release(bg))
		require.Equal(t, map[zktest.Op]int{zktest.OpMulti: 1, zktest.OpDelete: 1}, h.sent())
	})
}

// After a reconnect the order is learnt again, and only then is anything handed over.
func TestHandOverAfterAReconnect(t *testing.T) {
	t.Parallel()
	bg, h := context.Background(), newHandOver(t)
	got, _ := h.behind(bg, h.l.Node(), NewMutex(h.s, h.path))
	before := h.s.engine.Epoch()
	h.p.Cut()
	eventually(t, 10*time.Second, "it claims the place again", func() bool {
		h.s.heirs.mu.Lock()
		c := h.s.heirs.m[h.l.Node()]
		claims := c != nil && c.epoch != before && c.epoch == h.s.engine.Epoch()
		h.s.heirs.mu.Unlock()
		if !claims {
			return false
		}
		c.by.machine.mu.Lock() // it may be woken twice, and then withdraws the claim to look again
		defer c.by.machine.mu.Unlock()
		return !c.by.running && !c.by.again
	})
	h.p.ResetCounters()
	require.NoError(t, h.l.Release(bg))
	require.NoError(t, mustLease(t, got).Release(bg))
	require.Equal(t, 1, h.sent()[zktest.OpMulti])
	require.Zero(t, h.sent()[zktest.OpGetChildren2])
}
