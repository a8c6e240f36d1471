package zkrecipes

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/znode"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// forgetting lets a Session ask for a new ZooKeeper session each time it connects, while forget is set. The old one lives on at the server, for its timeout, and
// cannot be ended either.
func forgetting(forget *atomic.Bool) DialOption {
	return WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		c, err := net.DialTimeout(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &forgettingConn{Conn: c, forget: forget.Load()}, nil
	})
}

type forgettingConn struct {
	net.Conn
	forget bool
	begun  bool
}

func (c *forgettingConn) Write(b []byte) (int, error) {
	if !c.begun && c.forget {
		const session = 4 + 4 + 8 + 4 // behind the length, the version, the last zxid and the timeout
		b = slices.Clone(b)
		clear(b[session : session+8])
		clear(b[session+8+4:]) // the password
	}
	c.begun = true
	return c.Conn.Write(b)
}

// replace gives a Session another ZooKeeper session, while the old one lives on.
func replace(t testing.TB, s *Session, forget *atomic.Bool, cut func()) {
	t.Helper()
	old := s.ID()
	forget.Store(true)
	cut()
	eventually(t, 5*time.Second, "it has another session", func() bool { return s.ID() != 0 && s.ID() != old && s.engine.Ready() })
}

// shown makes of the answer to a list one that shows names that have gone, as a server that lags does.
func shown(names ...string) func(zktest.Frame) []byte {
	return func(f zktest.Frame) []byte {
		const header = 4 + 8 + 4
		list := f.Bytes[header:]
		b := binary.BigEndian.AppendUint32(slices.Clone(f.Bytes[:header]), binary.BigEndian.Uint32(list)+uint32(len(names)))
		for _, name := range names {
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(name))), name...)
		}
		return append(b, list[4:]...)
	}
}

// hidden makes of the answer to a list one that does not show a name yet.
func hidden(name string) func(zktest.Frame) []byte {
	return func(f zktest.Frame) []byte {
		const header = 4 + 8 + 4
		b := slices.Clone(f.Bytes)
		at := strings.Index(string(b), name)
		if at < 0 {
			return b
		}
		binary.BigEndian.PutUint32(b[header:], binary.BigEndian.Uint32(b[header:])-1)
		return slices.Delete(b, at-4, at+len(name))
	}
}

// The server does not say in time what has become of a withdrawal. Then Enter does not claim to know it; and when the barrier had opened with this member, it
// is out as soon as that is known: the others do not wait for it.
func TestDoubleBarrierWithdrawalIsAnsweredLate(t *testing.T) {
	t.Parallel()
	for _, opened := range []bool{true, false} {
		path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
		s, p := dialProxy(t, WithTimeout(30*time.Second)) // the end of its session removes nothing here
		a, b := NewDoubleBarrier(s, path, 2), NewDoubleBarrier(dialShared(t, calm), path, 2)
		gate := zktest.NewGate()
		p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpSetData), Times: 1, Do: zktest.HoldRequest(gate)})
		short, cancel := context.WithCancel(ctx)
		entered := goCall(func() error { return a.Enter(short) })
		assembled(t, c, path, 1)
		cancel()
		next(t, gate.Reached())
		if opened {
			enterAll(t, b)
		}
		err := next(t, entered)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "not known")
		gate.Open()
		if opened {
			leaveAll(t, b)
		}
		eventually(t, 5*time.Second, "nothing is left", func() bool { return len(children(t, c, path)) == 0 })
	}
}

// The server refuses a withdrawal: then nobody knows either.
func TestDoubleBarrierWithdrawalIsRefused(t *testing.T) {
	t.Parallel()
	server := zktest.NewServer(t)
	path := newPath(t)
	b := NewDoubleBarrier(dial(t, []string{server.Addr()}, calm), path, 2)
	const noAuth = -102
	server.Fail(zktest.OpSetData, path+"/", noAuth)
	ctx, cancel := context.WithCancel(context.Background())
	entered := goCall(func() error { return b.Enter(ctx) })
	eventually(t, 5*time.Second, "it is there", func() bool { return len(znodes(server, path)) == 1 })
	cancel()
	err := next(t, entered)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "not known")
	eventually(t, 5*time.Second, "nothing is left", func() bool { return len(znodes(server, path)) == 0 })
}

// A member that withdraws finds the barrier open and joins, and the answer to that is lost: it is inside all the same, since it asks again.
func TestDoubleBarrierWithdrawsAndJoinsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 30*time.Second)
	s, p := dialProxy(t, calm)
	a, b := NewDoubleBarrier(s, path, 1), NewDoubleBarrier(dialShared(t, calm), path, 1)
	inTime := false
	for lap := 0; lap < 20 && !inTime; lap++ {
		enterAll(t, b)
		short, cancel := context.WithCancel(ctx)
		multi := zktest.MatchOp(zktest.OpMulti)
		p.OnRequest(zktest.Rule{Times: 1, Do: zktest.CutBefore(), Match: func(f zktest.Frame) bool {
			if multi(f) {
				cancel()
				return true
			}
			return false
		}})
		p.OnRequest(zktest.Rule{Match: zktest.Nth(1, multi), Times: 1, Do: zktest.CutAfter()})
		began := time.Now()
		if err := a.Enter(short); err != nil { // the connection was not back in time
			require.ErrorContains(t, err, "not known")
			require.Greater(t, time.Since(began), withdrawal)
			leaveAll(t, b)
		} else {
			inTime = true
			leaveAll(t, a, b)
		}
		eventually(t, 5*time.Second, "nothing is left", func() bool { return len(children(t, c, path)) == 0 })
	}
	require.True(t, inTime)
}

// A child of ready that no member made is somebody else's: it is not deleted, and Leave says why it cannot remove ready.
func TestDoubleBarrierKeepsAChildOfReady(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"x", znode.NewUUID(), "_c_" + znode.NewUUID() + "-other"} {
		path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
		b := NewDoubleBarrier(dialShared(t, calm), path, 1)
		enterAll(t, b)
		child := path + "/" + readyName + "/" + name
		put(t, c, child)
		require.ErrorContains(t, b.Leave(ctx), fmt.Sprintf("%q", name))
		require.Equal(t, []string{name}, children(t, c, path+"/"+readyName))
	}
}

// A Session on an adopted connection is closed in the moment in which a member gets inside. It does not stay there, though the connection lives on.
func TestAdoptedDoubleBarrierGetsInsideAClosedSession(t *testing.T) {
	forAdoptions(t, func(t testing.TB) {
		r, sv := newAdopted(t, 10*time.Second)
		b := NewDoubleBarrier(r.s, r.path, 1)
		gate := zktest.NewGate()
		defer gate.Open()
		r.p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldReply(gate)})
		entered := goCall(func() error { return b.Enter(within(t, 20*time.Second)) })
		next(t, gate.Reached())
		session := r.s.ID()
		r.s.mu.Lock()
		closing := goCall(r.s.Close) // the next one to have it
		still(t, closing)
		gate.Open()
		still(t, entered)
		r.s.mu.Unlock()
		require.ErrorIs(t, next(t, entered), ErrClosed)
		require.NoError(t, next(t, closing))
		require.Equal(t, []string{readyName}, children(t, r.admin, r.path))
		sv.usable(t, session)
	})
}

// A transaction by which a member would join a round, or take away what a dead one left, comes when its own znode has gone: somebody has deleted that, or all
// there was, and there is another round at the same path, whose versions are the same.
func TestDoubleBarrierTransactionOfAMemberThatIsGone(t *testing.T) {
	t.Parallel()
	for _, buries := range []bool{false, true} {
		path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
		s, p := dialProxy(t, calm)
		first, late := NewDoubleBarrier(dialShared(t, calm), path, 1), NewDoubleBarrier(s, path, 1)
		enterAll(t, first)
		if buries {
			require.NoError(t, c.Delete(path+"/"+first.in.name(), -1))
			require.ErrorIs(t, first.Leave(ctx), ErrLost)
		}
		gate := zktest.NewGate()
		p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldRequest(gate)})
		entered := goCall(func() error { return late.Enter(ctx) })
		next(t, gate.Reached())
		for _, name := range membersAt(t, c, path) {
			if buries || name != first.in.name() {
				require.NoError(t, c.Delete(path+"/"+name, -1))
			}
		}
		if buries {
			require.NoError(t, c.Delete(path+"/"+readyName, -1))
			require.NoError(t, c.Delete(path, -1))
			enterAll(t, first)
		}
		_, before, err := c.Get(path + "/" + readyName)
		require.NoError(t, err)
		gate.Open()
		require.NoError(t, next(t, entered))
		ready, stat, err := c.Get(path + "/" + readyName)
		require.NoError(t, err)
		require.Equal(t, before.Czxid, stat.Czxid)
		require.ElementsMatch(t, []string{first.in.name(), late.in.name()}, rollNames(ready))
		require.ElementsMatch(t, rollNames(ready), membersAt(t, c, path))
		leaveAll(t, first, late)
		require.Empty(t, children(t, c, path))
	}
}

// The member's ZooKeeper session is replaced by another one while the server has the old one, with its znode, and does not delete that yet. Nobody counts it
// twice; and when the znode has gone there is another one, of the session of now.
func TestDoubleBarrierOldSessionLivesOn(t *testing.T) {
	t.Parallel()
	server := zktest.NewServer(t)
	path, ctx := newPath(t), within(t, 30*time.Second)
	var forget atomic.Bool
	s := dial(t, []string{server.Addr()}, WithTimeout(20*time.Second), forgetting(&forget))
	var bs []*DoubleBarrier
	for range 2 {
		bs = append(bs, NewDoubleBarrier(dial(t, []string{server.Addr()}, calm), path, 3))
	}
	a := NewDoubleBarrier(s, path, 3)
	entered := goCall(func() error { return a.Enter(ctx) })
	eventually(t, 5*time.Second, "it is there", func() bool { return len(znodes(server, path)) == 1 })
	old := znodes(server, path)[0]
	for range 100 {
		server.Fail(zktest.OpDelete, old, -127) // throttled
	}
	session := s.ID()
	replace(t, s, &forget, func() { server.Disconnect(session) })
	still(t, entered)
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, bs[0].Enter(short), context.DeadlineExceeded)
	eventually(t, 5*time.Second, "it has withdrawn", func() bool { return len(znodes(server, path)) == 1 })
	require.Equal(t, []string{old}, znodes(server, path))
	server.Forget()
	eventually(t, 5*time.Second, "it has a znode of its session", func() bool {
		for z := range server.Znodes(path) {
			if z.Path != path && z.Owner == s.ID() {
				return true
			}
		}
		return false
	})
	enterAll(t, bs...)
	require.NoError(t, next(t, entered))
	leaveAll(t, append(bs, a)...)
	require.Empty(t, znodes(server, path))
}

// The same, but the member is inside: it is lost, though its znode is there.
func TestDoubleBarrierLostInsideWhileTheOldSessionLivesOn(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	var forget atomic.Bool
	a, b := NewDoubleBarrier(dial(t, []string{p.Addr()}, calm, forgetting(&forget)), path, 2), NewDoubleBarrier(dialShared(t, calm), path, 2)
	enterAll(t, a, b)
	replace(t, a.spec.s, &forget, p.Cut)
	require.Len(t, membersAt(t, c, path), 2)
	left := goCall(func() error { return b.Leave(ctx) })
	still(t, left)
	err := a.Leave(ctx)
	require.ErrorIs(t, err, ErrLost)
	require.ErrorContains(t, err, "session expired")
	require.NoError(t, next(t, left))
	require.Empty(t, children(t, c, path))
}

// The last one inside has read who is, as one of them came in, when its session is replaced and the old one lives on with its znode. The server of the new one
// lags behind of what the old one was told: it does not show who came. Leave does not believe that.
func TestDoubleBarrierLeaveInAnotherSessionSeesWhoComesLate(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	var forget atomic.Bool
	a, late := NewDoubleBarrier(dial(t, []string{p.Addr()}, calm, forgetting(&forget)), path, 1), NewDoubleBarrier(dialShared(t, calm), path, 1)
	enterAll(t, a)
	list := zktest.MatchPath(zktest.OpGetChildren2, path)
	gate := zktest.NewGate()
	lists := 0
	p.OnRequest(zktest.Rule{Match: zktest.Nth(0, list), Times: 1, Do: zktest.HoldReply(gate)})
	p.OnRequest(zktest.Rule{Times: 1, Do: zktest.CutBefore(), Match: func(f zktest.Frame) bool {
		if list(f) {
			lists++
			forget.Store(lists == 2)
		}
		return list(f) && lists == 2
	}})
	p.OnRequest(zktest.Rule{Match: zktest.Nth(2, list), Times: 1, Do: zktest.RewriteReply(func(f zktest.Frame) []byte { return hidden(late.in.name())(f) })})
	session := a.spec.s.ID()
	left := goCall(func() error { return a.Leave(ctx) })
	next(t, gate.Reached())
	enterAll(t, late)
	gate.Open()
	eventually(t, 5*time.Second, "it waits for who came", func() bool { return requestsOn(p, zktest.OpGetData, path+"/"+late.in.name()) > 0 || len(left) > 0 })
	still(t, left)
	require.NotEqual(t, session, a.spec.s.ID())
	require.Contains(t, children(t, c, path), readyName)
	leaveAll(t, late)
	require.NoError(t, next(t, left))
	require.Empty(t, children(t, c, path))
}

// All who were inside have died, and the server of a member that comes late lags: it shows one of them yet. It does not pass alone.
func TestDoubleBarrierIsNotPassedWithTheDead(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	s, p := dialProxy(t, calm)
	first, late, other := NewDoubleBarrier(dialShared(t, calm), path, 2), NewDoubleBarrier(s, path, 2), NewDoubleBarrier(dialShared(t, calm), path, 2)
	enterAll(t, first, other)
	var dead []string
	for _, b := range []*DoubleBarrier{first, other} {
		dead = append(dead, b.in.name())
		require.NoError(t, c.Delete(path+"/"+b.in.name(), -1))
		require.ErrorIs(t, b.Leave(ctx), ErrLost)
	}
	if !slices.Contains(children(t, c, path), readyName) {
		t.Fatal("ready is gone")
	}
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpGetChildren2, path), Times: 1, Do: zktest.RewriteReply(shown(dead...))})
	entered := goCall(func() error { return late.Enter(ctx) })
	eventually(t, 5*time.Second, "ready is removed", func() bool { return !slices.Contains(children(t, c, path), readyName) || len(entered) > 0 })
	still(t, entered)
	enterAll(t, first)
	require.NoError(t, next(t, entered))
	leaveAll(t, first, late)
	require.Empty(t, children(t, c, path))
}
