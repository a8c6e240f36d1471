package zkrecipes

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// Remove lets everybody pass who waits, also when the barrier is set again before a waiter has learned of it.
func TestBarrierRemovedAndSetAgain(t *testing.T) {
	t.Parallel()
	forEachWay(t, func(t testing.TB) {
		path, ctx := newPath(t), within(t, 30*time.Second)
		b := NewBarrier(dialShared(t), path)
		s, p := dialProxy(t)
		for _, cut := range []bool{false, true} {
			require.NoError(t, b.Set(ctx))
			p.ResetCounters()
			passed := goCall(func() error { return NewBarrier(s, path).Wait(ctx) })
			eventually(t, 5*time.Second, "it has set its watch", func() bool {
				reads := 0
				for _, r := range p.Requests() {
					if r.Op == zktest.OpGetData && r.Answered {
						reads++
					}
				}
				return reads == 2
			})
			still(t, passed)
			gate := zktest.NewGate()
			p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpEvent, path), Times: 1, Do: zktest.HoldReply(gate)})
			require.NoError(t, b.Remove(ctx))
			next(t, gate.Reached())
			require.NoError(t, b.Set(ctx))
			waits := goCall(func() error { return NewBarrier(s, path).Wait(ctx) }) // begins when it is set again
			if cut {
				p.Cut()
			}
			gate.Open()
			require.NoError(t, next(t, passed))
			still(t, waits)
			require.NoError(t, b.Remove(ctx))
			require.NoError(t, next(t, waits))
		}
	})
}

// The directory vanishes while Set is under way, as one that is a container does when the session of the ticket ends: it is made again.
func TestBarrierSetWhoseParentVanishes(t *testing.T) {
	t.Parallel()
	dir, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	s, p := dialProxy(t)
	b := NewBarrier(s, dir+"/barrier")
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldRequest(gate)})
	set := goCall(func() error { return b.Set(ctx) })
	next(t, gate.Reached())
	for _, name := range children(t, c, dir) {
		require.NoError(t, c.Delete(dir+"/"+name, -1))
	}
	if err := c.Delete(dir, -1); err != nil {
		require.ErrorIs(t, err, zk.ErrNoNode, "it is a container: the server may have deleted it first")
	}
	gate.Open()
	require.NoError(t, next(t, set))
	require.Equal(t, []string{"barrier"}, children(t, c, dir))
}

// Somebody deletes the ticket of a call before its transaction comes: the call does not take that for its own success.
func TestBarrierTicketIsDeleted(t *testing.T) {
	t.Parallel()
	dir, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	put(t, c, dir)
	s, p := dialProxy(t)
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldRequest(gate)})
	set := goCall(func() error { return NewBarrier(s, dir+"/barrier").Set(ctx) })
	next(t, gate.Reached())
	require.NoError(t, c.Delete(dir+"/"+children(t, c, dir)[0], -1))
	gate.Open()
	require.NoError(t, next(t, set))
	require.Equal(t, []string{"barrier"}, children(t, c, dir))
}

// A call that returns what the server has decided leaves no ticket behind, by which an attempt that was not answered could still come into effect.
func TestBarrierLeavesNoTicket(t *testing.T) {
	t.Parallel()
	dir, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	put(t, c, dir)
	b := NewBarrier(dialShared(t), dir+"/barrier")
	for range rounds(t, 100) {
		require.NoError(t, b.Set(ctx))
		require.NoError(t, b.Set(ctx))
		require.Equal(t, []string{"barrier"}, children(t, c, dir))
		require.NoError(t, b.Remove(ctx))
		require.NoError(t, b.Remove(ctx))
		require.Empty(t, children(t, c, dir))
	}
	_, err := c.Create(dir+"/barrier", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	put(t, c, dir+"/barrier/child")
	require.ErrorIs(t, b.Remove(ctx), zk.ErrNotEmpty)
	require.Equal(t, "barrier", strings.Join(children(t, c, dir), " "))
}

// Data that fill a request together with long paths are refused here: the server would drop the connection for them, again and again.
func TestBarrierTooLargeWithItsPath(t *testing.T) {
	t.Parallel()
	s := dialShared(t)
	conn := s.engine.Epoch()
	b := NewBarrier(s, newPath(t)+"/"+strings.Repeat("x", 600)+"/barrier", WithData(make([]byte, 1<<20-1<<10)))
	require.ErrorIs(t, b.Set(within(t, 20*time.Second)), ErrInvalid)
	require.Equal(t, conn, s.engine.Epoch())
}

// What Wait asks for, and again on each connection: a server that lags behind may not know yet that the barrier was set.
func TestBarrierWaitAsksAfterASync(t *testing.T) {
	t.Parallel()
	path, ctx := newPath(t), within(t, 20*time.Second)
	b := NewBarrier(dialShared(t), path)
	s, p := dialProxy(t)
	asked := func() (all []zktest.Op) {
		for _, r := range p.Requests() {
			if r.Op == zktest.OpSync || r.Op == zktest.OpGetData {
				all = append(all, r.Op)
			}
		}
		return all
	}
	p.ResetCounters()
	require.NoError(t, NewBarrier(s, path).Wait(ctx))
	require.Equal(t, []zktest.Op{zktest.OpSync, zktest.OpGetData}, asked())
	require.NoError(t, b.Set(ctx))
	p.ResetCounters()
	waits := goCall(func() error { return NewBarrier(s, path).Wait(ctx) })
	eventually(t, 5*time.Second, "it has asked", func() bool { return len(asked()) >= 3 })
	still(t, waits)
	require.Equal(t, []zktest.Op{zktest.OpSync, zktest.OpGetData, zktest.OpGetData}, asked())
	p.ResetCounters()
	p.Cut()
	eventually(t, 5*time.Second, "it asks again", func() bool {
		ops := asked()
		i := slices.Index(ops, zktest.OpSync)
		return i >= 0 && slices.Contains(ops[i:], zktest.OpGetData)
	})
	require.NoError(t, b.Remove(ctx))
	require.NoError(t, next(t, waits))
}

// The Session on a connection of the service's is closed while a call is on its way: Close waits for it, and leaves nothing of it.
func TestAdoptedCloseKnowsOfBarrierCalls(t *testing.T) {
	t.Parallel()
	ctx := within(t, 20*time.Second)
	for _, call := range []func(s *Session, path string) error{
		func(s *Session, path string) error { return NewBarrier(s, path+"/barrier").Set(ctx) },
		func(s *Session, path string) error { return NewDoubleBarrier(s, path, 1).Enter(ctx) },
	} {
		r, _ := newAdopted(t, 10*time.Second)
		gate := zktest.NewGate()
		r.p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldRequest(gate)})
		done := goCall(func() error { return call(r.s, r.path) })
		next(t, gate.Reached())
		closed := goCall(r.s.Close)
		for range 5 { // it gives what has nothing to wait for a tenth of a second
			still(t, closed)
		}
		gate.Open()
		require.NoError(t, next(t, closed))
		if err := next(t, done); err != nil {
			require.ErrorIs(t, err, ErrClosed)
		}
		for _, name := range children(t, r.admin, r.path) {
			require.Contains(t, []string{"barrier", readyName}, name)
		}
	}
}

// Close takes a member along that is inside, where the session goes on.
func TestAdoptedCloseTakesWhoIsInside(t *testing.T) {
	t.Parallel()
	r, _ := newAdopted(t, 10*time.Second)
	require.NoError(t, NewDoubleBarrier(r.s, r.path, 1).Enter(within(t, 10*time.Second)))
	require.NoError(t, r.s.Close())
	require.Equal(t, []string{readyName}, children(t, r.admin, r.path))
}
