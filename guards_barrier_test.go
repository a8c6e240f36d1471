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

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/core"
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
		if f.Err != 0 {
			return f.Bytes
		}
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
		gate.Open()
		still(t, entered)
		r.s.closed = true // the first step of Close, which has seen to those inside with it
		r.s.mu.Unlock()
		err := next(t, entered)
		r.s.mu.Lock()
		r.s.closed = false
		r.s.mu.Unlock()
		require.ErrorIs(t, err, ErrClosed)
		require.NoError(t, r.s.Close())
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
		put(t, c, path) // no container, which would go by itself
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
			put(t, c, path)
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
	eventually(t, 5*time.Second, "it is there, and knows it", func() bool { return server.Counts().Requests[zktest.OpExists] > 0 })
	old := znodes(server, path)[0]
	for range 100 {
		server.Fail(zktest.OpDelete, old, -127) // throttled
	}
	session := s.ID()
	replace(t, s, &forget, func() { server.Disconnect(session) })
	still(t, entered)
	short, cancel := context.WithTimeout(ctx, time.Second)
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

// All who were inside have died, and the server of a member that comes late lags: it shows them yet, until it has to answer a sync. It does not pass alone, nor
// wait until that server knows by itself.
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
	require.Contains(t, children(t, c, path), readyName)
	joins, lags := 0, true
	p.OnRequest(zktest.Rule{Do: zktest.RewriteReply(shown(dead...)), Match: func(f zktest.Frame) bool {
		switch f.Op {
		case zktest.OpMulti:
			joins++
		case zktest.OpSync:
			lags = lags && joins == 0
		}
		return lags && f.Op == zktest.OpGetChildren2 && f.Path == path
	}})
	entered := goCall(func() error { return late.Enter(ctx) })
	eventually(t, 5*time.Second, "ready is removed", func() bool { return !slices.Contains(children(t, c, path), readyName) || len(entered) > 0 })
	still(t, entered)
	enterAll(t, first)
	require.NoError(t, next(t, entered))
	leaveAll(t, first, late)
	require.Empty(t, children(t, c, path))
}

// An Enter that was refused leaves a znode behind that the server does not delete yet. The member that enters anew is not counted beside it.
func TestDoubleBarrierCountsNobodyTwiceWhoWasRefused(t *testing.T) {
	t.Parallel()
	server := zktest.NewServer(t)
	path, ctx := newPath(t), within(t, 20*time.Second)
	a, b := NewDoubleBarrier(dial(t, []string{server.Addr()}, calm), path, 1), NewDoubleBarrier(dial(t, []string{server.Addr()}, calm), path, 3)
	const throttled, noAuth = -127, -102
	for range 50 {
		server.Fail(zktest.OpDelete, path+"/", throttled)
	}
	server.Fail(zktest.OpMulti, path, noAuth)
	require.ErrorIs(t, a.Enter(ctx), zk.ErrNoAuth)
	require.Len(t, znodes(server, path), 1)
	a.members = 3
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	entered := goCall(func() error { return a.Enter(short) })
	still(t, entered)
	require.ErrorIs(t, b.Enter(short), context.DeadlineExceeded)
	require.ErrorIs(t, next(t, entered), context.DeadlineExceeded)
	server.Forget()
}

// All there was is deleted between the list and the read of path's data that comes with an opening. The member begins anew.
func TestDoubleBarrierWhoseDirectoryGoes(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	put(t, c, path) // no container, which would go by itself
	s, p := dialProxy(t, calm)
	b := NewDoubleBarrier(s, path, 1)
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Times: 1, Do: zktest.HoldRequest(gate), Match: func(f zktest.Frame) bool { return f.Op == zktest.OpGetData && f.Path == path }})
	entered := goCall(func() error { return b.Enter(ctx) })
	next(t, gate.Reached())
	for _, name := range membersAt(t, c, path) {
		require.NoError(t, c.Delete(path+"/"+name, -1))
	}
	require.NoError(t, c.Delete(path, -1))
	gate.Open()
	require.NoError(t, next(t, entered))
	require.Contains(t, membersAt(t, c, path), b.in.name())
	leaveAll(t, b)
}

// The session is replaced between the list and the read of path's data, the old one lives on, and the server of the new one lags: the data that it gives are older.
// They are not written back.
func TestDoubleBarrierKeepsTheDataOfItsPathInAnotherSession(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	_, err := c.Create(path, []byte("old"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, err = c.Set(path, []byte("new"), -1)
	require.NoError(t, err)
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	var forget atomic.Bool
	b := NewDoubleBarrier(dial(t, []string{p.Addr()}, calm, forgetting(&forget)), path, 1)
	session := b.spec.s.ID()
	reads := func(f zktest.Frame) bool { return f.Op == zktest.OpGetData && f.Path == path }
	n := 0
	p.OnRequest(zktest.Rule{Times: 1, Do: zktest.CutBefore(), Match: func(f zktest.Frame) bool {
		if !reads(f) {
			return false
		}
		n++
		forget.Store(n == 1)
		return n == 1
	}})
	p.OnRequest(zktest.Rule{Match: zktest.Nth(1, reads), Times: 1, Do: zktest.RewriteReply(func(f zktest.Frame) []byte {
		const header, version = 4 + 8 + 4, 4 * 8 // of a reply; where a Stat has it
		answer := slices.Clone(f.Bytes)
		data := answer[header:]
		copy(data[4:], "old")
		binary.BigEndian.PutUint32(data[4+3+version:], 0)
		return answer
	})})
	require.NoError(t, b.Enter(ctx))
	require.NotEqual(t, session, b.spec.s.ID())
	data, _, err := c.Get(path)
	require.NoError(t, err)
	require.Equal(t, "new", string(data))
	leaveAll(t, b)
	require.Empty(t, children(t, c, path))
}

// Leave has made a ticket, to close a round whose last one has died, and is refused. It takes the ticket along.
func TestDoubleBarrierLeaveThatIsRefusedLeavesNoTicket(t *testing.T) {
	t.Parallel()
	server := zktest.NewServer(t)
	path, ctx := newPath(t), within(t, 20*time.Second)
	var bs []*DoubleBarrier
	for range 2 {
		bs = append(bs, NewDoubleBarrier(dial(t, []string{server.Addr()}, calm), path, 2))
	}
	enterAll(t, bs...)
	slices.SortFunc(bs, func(a, b *DoubleBarrier) int { return strings.Compare(a.in.name(), b.in.name()) })
	left := goCall(func() error { return bs[1].Leave(ctx) })
	eventually(t, 5*time.Second, "it waits for the other one", func() bool { return len(znodes(server, path)) == 2 })
	const noAuth = -102
	server.Fail(zktest.OpMulti, path+"/"+readyName, noAuth)
	require.NoError(t, bs[0].spec.s.Conn().Delete(path+"/"+bs[0].in.name(), -1))
	require.ErrorIs(t, next(t, left), zk.ErrNoAuth)
	eventually(t, 5*time.Second, "there is no ticket", func() bool { return slices.Equal(znodes(server, path), []string{path + "/" + readyName}) })
}

// The server refuses to delete the znode of a Leave that gave up. The next Enter says so, since it waits for that znode to go.
func TestDoubleBarrierEnterBehindARefusedLeave(t *testing.T) {
	t.Parallel()
	server := zktest.NewServer(t)
	path, ctx := newPath(t), within(t, 5*time.Second)
	a, b := NewDoubleBarrier(dial(t, []string{server.Addr()}, calm), path, 2), NewDoubleBarrier(dial(t, []string{server.Addr()}, calm), path, 2)
	enterAll(t, a, b)
	const noAuth = -102
	for range 10 {
		server.Fail(zktest.OpDelete, path+"/"+a.in.name(), noAuth)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	require.Error(t, a.Leave(over))
	require.ErrorIs(t, a.Enter(ctx), zk.ErrNoAuth)
}

// What has gone is not deleted once more.
func TestDoubleBarrierDeletesNothingTwice(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s, p := dialProxy(t, calm)
	a, b := NewDoubleBarrier(s, path, 2), NewDoubleBarrier(s, path, 2)
	enterAll(t, a, b)
	leaveAll(t, a, b)
	enterAll(t, a, b) // each when its former znode has gone
	leaveAll(t, a, b)
	eventually(t, 5*time.Second, "nothing is owed", func() bool { return s.engine.Owing() == 0 })
	require.Equal(t, 2, p.Counts().Requests[zktest.OpDelete], "of who did not take ready along")
}

// Somebody deletes the znodes of all who are inside, first that of the one who waits in Leave for the others. It ends the round all the same.
func TestDoubleBarrierAllAreDeletedWhileOneLeaves(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 10*time.Second)
	bs := []*DoubleBarrier{NewDoubleBarrier(dialShared(t, calm), path, 2), NewDoubleBarrier(dialShared(t, calm), path, 2)}
	enterAll(t, bs...)
	slices.SortFunc(bs, func(a, b *DoubleBarrier) int { return strings.Compare(a.in.name(), b.in.name()) })
	left := goCall(func() error { return bs[0].Leave(ctx) })
	still(t, left) // it is the one who stays until it is alone
	for _, b := range bs {
		require.NoError(t, c.Delete(path+"/"+b.in.name(), -1))
	}
	require.NoError(t, next(t, left))
	require.ErrorIs(t, bs[1].Leave(ctx), ErrLost)
	require.Empty(t, children(t, c, path))
}

// Where a ready that names nobody lets everybody in, one comes while another has just made a ticket to close: that waits for it, and takes the ticket back, since
// Curator's members cannot remove a ready that has a child.
func TestDoubleBarrierTakesItsTicketBack(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	put(t, c, path, path+"/"+readyName)
	proxies := make(map[*DoubleBarrier]*zktest.Proxy)
	var bs []*DoubleBarrier
	for range 2 {
		s, p := dialProxy(t, calm)
		b := NewDoubleBarrier(s, path, 5)
		bs, proxies[b] = append(bs, b), p
	}
	enterAll(t, bs...)
	slices.SortFunc(bs, func(a, b *DoubleBarrier) int { return strings.Compare(a.in.name(), b.in.name()) })
	gate := zktest.NewGate()
	proxies[bs[1]].OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, path+"/"+readyName+"/"), Times: 1, Do: zktest.HoldReply(gate)})
	left := goCall(func() error { return bs[1].Leave(ctx) })
	assembled(t, c, path, 1)
	require.NoError(t, c.Delete(path+"/"+bs[0].in.name(), -1))
	next(t, gate.Reached())
	late := NewDoubleBarrier(dialShared(t, calm), path, 5)
	enterAll(t, late)
	gate.Open()
	eventually(t, 5*time.Second, "there is no ticket", func() bool { return len(children(t, c, path+"/"+readyName)) == 0 })
	still(t, left)
	leaveAll(t, late)
	require.NoError(t, next(t, left))
	require.ErrorIs(t, bs[0].Leave(ctx), ErrLost)
	require.Empty(t, children(t, c, path))
}

// The last one inside has died, and may be one of Curator's on its way to remove ready, which it cannot when there is a ticket in it: nobody makes one at once.
func TestDoubleBarrierWaitsBeforeItMakesATicket(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	s, p := dialProxy(t, calm)
	bs := []*DoubleBarrier{NewDoubleBarrier(s, path, 2), NewDoubleBarrier(s, path, 2)}
	enterAll(t, bs...)
	slices.SortFunc(bs, func(a, b *DoubleBarrier) int { return strings.Compare(a.in.name(), b.in.name()) })
	left := goCall(func() error { return bs[1].Leave(ctx) })
	assembled(t, c, path, 1)
	began := time.Now()
	require.NoError(t, c.Delete(path+"/"+bs[0].in.name(), -1))
	require.NoError(t, next(t, left))
	tickets := 0
	for _, q := range p.Requests() {
		if q.Op == zktest.OpCreate && strings.HasPrefix(q.Path, path+"/"+readyName+"/") {
			tickets++
			require.GreaterOrEqual(t, q.Time.Sub(began), courtesy)
		}
	}
	require.Positive(t, tickets)
	require.Empty(t, children(t, c, path))
	eventually(t, 5*time.Second, "nothing is watched", func() bool { return s.engine.Watched() == 0 })
}

// Somebody removes all there was when a member makes its ticket, which lands in the ready of another round at the same path, of the same versions. Then the session
// is replaced, the old one lives on with that ticket, and the server of the new one lags: it shows the ready of the member's own round. That is not this ready.
func TestDoubleBarrierTicketOfAnotherSession(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	ready := path + "/" + readyName
	put(t, c, path)
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	var forget atomic.Bool
	s := dial(t, []string{p.Addr()}, calm, forgetting(&forget))
	bs := []*DoubleBarrier{NewDoubleBarrier(s, path, 2), NewDoubleBarrier(s, path, 2)}
	enterAll(t, bs...)
	slices.SortFunc(bs, func(a, b *DoubleBarrier) int { return strings.Compare(a.in.name(), b.in.name()) })
	roll, _, err := c.Get(ready)
	require.NoError(t, err)
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, ready+"/"), Times: 1, Do: zktest.HoldRequest(gate)})
	left := goCall(func() error { return bs[1].Leave(ctx) })
	assembled(t, c, path, 1)
	require.NoError(t, c.Delete(path+"/"+bs[0].in.name(), -1))
	next(t, gate.Reached())
	require.NoError(t, c.Delete(ready, -1))
	require.NoError(t, c.Delete(path, -1))
	put(t, c, path)
	other := NewDoubleBarrier(dialShared(t, calm), path, 1)
	enterAll(t, other)
	_, before, err := c.Get(ready)
	require.NoError(t, err)
	session := s.ID()
	p.OnRequest(zktest.Rule{Times: 1, Do: zktest.CutBefore(), Match: func(f zktest.Frame) bool { // the first list with a ticket
		if f.Op != zktest.OpGetChildren2 || f.Path != path || forget.Load() {
			return false
		}
		forget.Store(true)
		return true
	}})
	p.OnRequest(zktest.Rule{
		Times: 1,
		Match: func(f zktest.Frame) bool { return f.Op == zktest.OpGetData && f.Path == ready && forget.Load() },
		Do: zktest.RewriteReply(func(f zktest.Frame) []byte {
			const header = 4 + 8 + 4
			data := f.Bytes[header:]
			answer := binary.BigEndian.AppendUint32(slices.Clone(f.Bytes[:header]), uint32(len(roll)))
			return append(append(answer, roll...), data[4+binary.BigEndian.Uint32(data):]...)
		}),
	})
	gate.Open()
	require.NoError(t, next(t, left))
	require.NotEqual(t, session, s.ID())
	_, stat, err := c.Get(ready)
	require.NoError(t, err)
	require.Equal(t, before.Czxid, stat.Czxid)
	eventually(t, 5*time.Second, "both tickets are gone", func() bool { return len(children(t, c, ready)) == 0 })
	leaveAll(t, other)
	require.ErrorIs(t, bs[0].Leave(ctx), ErrLost)
}

// The last one inside has died, and somebody deletes ready before another one has made its ticket in it. The round is over with that.
func TestDoubleBarrierReadyGoesBeforeTheTicket(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	s, p := dialProxy(t, calm)
	bs := []*DoubleBarrier{NewDoubleBarrier(s, path, 2), NewDoubleBarrier(s, path, 2)}
	enterAll(t, bs...)
	slices.SortFunc(bs, func(a, b *DoubleBarrier) int { return strings.Compare(a.in.name(), b.in.name()) })
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, path+"/"+readyName+"/"), Times: 1, Do: zktest.HoldRequest(gate)})
	left := goCall(func() error { return bs[1].Leave(ctx) })
	assembled(t, c, path, 1)
	require.NoError(t, c.Delete(path+"/"+bs[0].in.name(), -1))
	next(t, gate.Reached())
	require.NoError(t, c.Delete(path+"/"+readyName, -1))
	gate.Open()
	require.NoError(t, next(t, left))
	require.ErrorIs(t, bs[0].Leave(ctx), ErrLost)
	require.Empty(t, children(t, c, path))
}

// Somebody removes all there was while a member with a ticket asks which tickets there are, and there is another round at the same path, of the same versions. Its
// ready, in which there is no such ticket, stays.
func TestDoubleBarrierTicketIsGone(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	ready := path + "/" + readyName
	put(t, c, path)
	s, p := dialProxy(t, calm)
	bs := []*DoubleBarrier{NewDoubleBarrier(s, path, 2), NewDoubleBarrier(s, path, 2)}
	enterAll(t, bs...)
	slices.SortFunc(bs, func(a, b *DoubleBarrier) int { return strings.Compare(a.in.name(), b.in.name()) })
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpGetChildren2, ready), Times: 1, Do: zktest.HoldRequest(gate)})
	left := goCall(func() error { return bs[1].Leave(ctx) })
	assembled(t, c, path, 1)
	require.NoError(t, c.Delete(path+"/"+bs[0].in.name(), -1))
	next(t, gate.Reached())
	for _, ticket := range children(t, c, ready) {
		require.NoError(t, c.Delete(ready+"/"+ticket, -1))
	}
	require.NoError(t, c.Delete(ready, -1))
	require.NoError(t, c.Delete(path, -1))
	put(t, c, path)
	other := NewDoubleBarrier(dialShared(t, calm), path, 1)
	enterAll(t, other)
	_, before, err := c.Get(ready)
	require.NoError(t, err)
	gate.Open()
	require.NoError(t, next(t, left))
	_, stat, err := c.Get(ready)
	require.NoError(t, err)
	require.Equal(t, before.Czxid, stat.Czxid)
	leaveAll(t, other)
	require.ErrorIs(t, bs[0].Leave(ctx), ErrLost)
}

// Somebody deletes ready when the last one inside is about to do so, and a new round is opened, which counts that one: its znode is there. The transaction that
// was on its way does not close the new round, whose ready has the same version.
func TestDoubleBarrierIsNotClosedUnderTheNextRound(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	s, p := dialProxy(t, calm)
	a, b := NewDoubleBarrier(s, path, 1), NewDoubleBarrier(dialShared(t, calm), path, 2)
	enterAll(t, a)
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldRequest(gate)})
	left := goCall(func() error { return a.Leave(ctx) })
	next(t, gate.Reached())
	require.NoError(t, c.Delete(path+"/"+readyName, -1))
	enterAll(t, b)
	_, before, err := c.Get(path + "/" + readyName)
	require.NoError(t, err)
	gate.Open()
	still(t, left)
	_, stat, err := c.Get(path + "/" + readyName)
	require.NoError(t, err)
	require.Equal(t, before.Czxid, stat.Czxid)
	leaveAll(t, b)
	require.NoError(t, next(t, left))
	require.Empty(t, children(t, c, path))
}

// A member that withdraws would join a round, or take away what a dead one left, when somebody deletes its znode. It is out then, and does not try for ever.
func TestDoubleBarrierWithdrawalEndsWithItsZnode(t *testing.T) {
	t.Parallel()
	for _, dead := range []bool{false, true} {
		path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
		s, p := dialProxy(t, calm)
		a, b := NewDoubleBarrier(s, path, 1), NewDoubleBarrier(dialShared(t, calm), path, 1)
		enterAll(t, b)
		if dead {
			require.NoError(t, c.Delete(path+"/"+b.in.name(), -1))
			require.ErrorIs(t, b.Leave(ctx), ErrLost)
		}
		multi := zktest.MatchOp(zktest.OpMulti)
		short, cancel := context.WithCancel(ctx)
		p.OnRequest(zktest.Rule{Times: 1, Do: zktest.CutBefore(), Match: func(f zktest.Frame) bool {
			if multi(f) {
				cancel()
				return true
			}
			return false
		}})
		gate := zktest.NewGate()
		p.OnRequest(zktest.Rule{Match: zktest.Nth(1, multi), Times: 1, Do: zktest.HoldRequest(gate)})
		entered := goCall(func() error { return a.Enter(short) })
		next(t, gate.Reached())
		for _, name := range membersAt(t, c, path) {
			if dead || name != b.in.name() {
				require.NoError(t, c.Delete(path+"/"+name, -1))
			}
		}
		gate.Open()
		require.ErrorIs(t, next(t, entered), context.Canceled)
		next(t, a.last.left)
		require.Equal(t, 2, p.Counts().Requests[zktest.OpMulti])
		if !dead {
			leaveAll(t, b)
		}
	}
}

// So many are inside that ready has no room for one more: who comes late is told so. The server would drop the connection for such a transaction, each time.
func TestDoubleBarrierReadyIsFull(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	first, late := NewDoubleBarrier(dialShared(t, calm), path, 1), NewDoubleBarrier(dialShared(t, calm), path, 1)
	enterAll(t, first)
	names := []string{first.in.name()}
	for size := len(names[0]); size+1+len(names[0]) <= core.MaxData; size += 1 + len(names[0]) {
		names = append(names, znode.NewUUID())
	}
	_, err := c.Set(path+"/"+readyName, []byte(strings.Join(names, "\n")), -1)
	require.NoError(t, err)
	require.ErrorContains(t, late.Enter(ctx), "no room")
	leaveAll(t, first)
	eventually(t, 5*time.Second, "nothing is left", func() bool { return len(children(t, c, path)) == 0 })
}

// The create of a member is answered to nobody, and its session is replaced, while the server has both and does not delete yet. The next attempt does not stand
// beside the first one's znode: both have one name, and it waits until that has gone.
func TestDoubleBarrierMemberIsCountedOnce(t *testing.T) {
	t.Parallel()
	server := zktest.NewServer(t)
	path, ctx := newPath(t), within(t, 30*time.Second)
	p := zktest.NewProxy(t, server.Addr())
	var forget atomic.Bool
	s := dial(t, []string{p.Addr()}, WithTimeout(20*time.Second), forgetting(&forget))
	a, b, third := NewDoubleBarrier(s, path, 3), NewDoubleBarrier(dial(t, []string{server.Addr()}, calm), path, 3), NewDoubleBarrier(dial(t, []string{server.Addr()}, calm), path, 3)
	require.ErrorIs(t, a.Enter(within(t, 50*time.Millisecond)), context.DeadlineExceeded) // the directory is there
	eventually(t, 5*time.Second, "nothing is left", func() bool { return len(znodes(server, path)) == 0 && s.engine.Owing() == 0 })
	old := make(chan string, 1)
	p.OnRequest(zktest.Rule{Times: 1, Do: zktest.CutAfter(), Match: func(f zktest.Frame) bool {
		if f.Op != zktest.OpCreate || !strings.HasPrefix(f.Path, path+"/") || len(old) > 0 {
			return false
		}
		for range 100 {
			server.Fail(zktest.OpDelete, f.Path, -127) // throttled
		}
		forget.Store(true)
		old <- f.Path
		return true
	}})
	session := s.ID()
	entered := goCall(func() error { return a.Enter(ctx) })
	first := next(t, old)
	eventually(t, 10*time.Second, "it has another session", func() bool { return s.ID() != 0 && s.ID() != session && s.engine.Ready() })
	also := goCall(func() error { return b.Enter(ctx) })
	eventually(t, 10*time.Second, "the other one has come", func() bool { return len(znodes(server, path)) >= 2 })
	still(t, also)
	require.Contains(t, znodes(server, path), first)
	require.Len(t, znodes(server, path), 2)
	server.Forget()
	eventually(t, 10*time.Second, "it has a znode of its session", func() bool {
		for z := range server.Znodes(path) {
			if z.Owner == s.ID() {
				return true
			}
		}
		return false
	})
	still(t, also)
	enterAll(t, third)
	require.NoError(t, next(t, also))
	require.NoError(t, next(t, entered))
	leaveAll(t, a, b, third)
	require.Empty(t, znodes(server, path))
}

// A create of a member gets lost, and may come into effect at any time. As long as the next one's znode is there it cannot, for it makes the same name; what it
// makes later is removed.
func TestDoubleBarrierCreateThatLandsLate(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t, calm)
	path, other := newPath(t), admin(t)
	mkdirs(t, other, path)
	a := NewDoubleBarrier(s, path, 1)
	asked := make(chan string, 2)
	p.OnRequest(zktest.Rule{Times: 1, Do: zktest.CutBefore(), Match: func(f zktest.Frame) bool {
		if f.Op != zktest.OpCreate || !strings.HasPrefix(f.Path, path+"/") || len(asked) > 0 {
			return false
		}
		asked <- f.Path
		return true
	}})
	enterAll(t, a)
	late := next(t, asked)
	require.Equal(t, late, a.in.made.Path)
	_, err := other.Create(late, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.ErrorIs(t, err, zk.ErrNodeExists)
	leaveAll(t, a)
	_, err = other.Create(late, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	p.Cut()
	eventually(t, 10*time.Second, "it is removed", func() bool { return len(children(t, other, path)) == 0 })
}

// A member that withdraws finds itself inside. Another one has tried to open with it, and could not: that does not make a round dead of which it is all that is
// left, and ready is not removed.
func TestDoubleBarrierOfOneThatWithdrewIsAlive(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	put(t, c, path)
	on := func() (*DoubleBarrier, *zktest.Proxy) {
		s, p := dialProxy(t, calm)
		return NewDoubleBarrier(s, path, 2), p
	}
	y, q := on()
	z, r := on()
	x, p := on()
	held := func(p *zktest.Proxy, match func(zktest.Frame) bool) *zktest.Gate {
		gate := zktest.NewGate()
		t.Cleanup(gate.Open)
		p.OnRequest(zktest.Rule{Match: match, Times: 1, Do: zktest.HoldRequest(gate)})
		return gate
	}
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	ofY := goCall(func() error { return y.Enter(short) })
	eventually(t, 10*time.Second, "the first has found nobody else", func() bool {
		return slices.ContainsFunc(q.Requests(), func(r zktest.Record) bool { return r.Op == zktest.OpGetChildren2 && r.Path == path && r.Answered })
	})
	opening := held(r, zktest.MatchOp(zktest.OpMulti))
	ofZ := goCall(func() error { return z.Enter(ctx) })
	next(t, opening.Reached()) // with both
	list := held(p, zktest.MatchPath(zktest.OpGetChildren2, path))
	ofX := goCall(func() error { return x.Enter(ctx) })
	next(t, list.Reached()) // it has seen that there is no ready
	withdrawal := held(q, zktest.MatchOp(zktest.OpSetData))
	cancel()
	next(t, withdrawal.Reached())
	opening.Open()
	require.NoError(t, next(t, ofZ))
	withdrawal.Open()
	require.NoError(t, next(t, ofY))
	_, ready, err := c.Exists(path + "/" + readyName)
	require.NoError(t, err)
	require.NoError(t, c.Delete(path+"/"+z.in.name(), -1))
	list.Open()
	require.NoError(t, next(t, ofX))
	_, now, err := c.Exists(path + "/" + readyName)
	require.NoError(t, err)
	require.Equal(t, ready.Czxid, now.Czxid, "the round goes on")
	require.ErrorIs(t, z.Leave(ctx), ErrLost)
	leaveAll(t, x, y)
	require.Empty(t, children(t, c, path))
}

// All that is left of a round is a member on its way out. Who comes in its Session does not count it, and before it has looked at ready again somebody else has
// joined by it: ready is that one's now, and is not removed.
func TestDoubleBarrierJoinedMeanwhileIsNotBuried(t *testing.T) {
	t.Parallel()
	server := zktest.NewServer(t)
	path, ctx := newPath(t), within(t, 20*time.Second)
	p := zktest.NewProxy(t, server.Addr())
	s := dial(t, []string{p.Addr()}, calm)
	a, x, j := NewDoubleBarrier(s, path, 1), NewDoubleBarrier(s, path, 1), NewDoubleBarrier(dial(t, []string{server.Addr()}, calm), path, 1)
	enterAll(t, a)
	own := a.in.made.Path
	for range 100 {
		server.Fail(zktest.OpDelete, own, -127) // throttled
	}
	server.Fail(zktest.OpMulti, path, -127) // as which it would close; if it does not try to, the next one asks again
	over, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, a.Leave(over), context.Canceled)
	require.Positive(t, s.engine.Owing())
	before := requestsOn(p, zktest.OpGetData, path+"/"+readyName)
	gate := zktest.NewGate()
	defer gate.Open()
	p.OnRequest(zktest.Rule{Match: zktest.Nth(1, zktest.MatchPath(zktest.OpGetData, path+"/"+readyName)), Times: 1, Do: zktest.HoldRequest(gate)})
	entered := goCall(func() error { return x.Enter(ctx) })
	next(t, gate.Reached())
	require.Equal(t, before+2, requestsOn(p, zktest.OpGetData, path+"/"+readyName))
	enterAll(t, j)
	look := adminAt(t, []string{server.Addr()})
	_, ready, err := look.Exists(path + "/" + readyName)
	require.NoError(t, err)
	gate.Open()
	require.NoError(t, next(t, entered))
	_, now, err := look.Exists(path + "/" + readyName)
	require.NoError(t, err)
	require.Equal(t, ready.Czxid, now.Czxid, "the round goes on")
	server.Forget()
	leaveAll(t, x, j)
	eventually(t, 10*time.Second, "nothing is left", func() bool { return len(znodes(server, path)) == 0 })
}

// Somebody has opened the barrier by hand. The last one to leave has looked who is there, and looks once more before it takes ready away: meanwhile that is gone,
// and those of the next round are there. They are not waited for.
func TestDoubleBarrierLeaveDoesNotWaitForTheNextRound(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	put(t, c, path)
	put(t, c, path+"/"+readyName)
	s, p := dialProxy(t, calm)
	m, k := NewDoubleBarrier(s, path, 2), NewDoubleBarrier(dialShared(t, calm), path, 2)
	enterAll(t, m, k)
	for m.in.name() < k.in.name() { // who has the greater name goes first, and waits for the other one
		leaveAll(t, m, k)
		put(t, c, path+"/"+readyName)
		enterAll(t, m, k)
	}
	left := goCall(func() error { return m.Leave(ctx) })
	eventually(t, 10*time.Second, "it waits for the other one", func() bool { return len(membersAt(t, c, path)) == 1 })
	gate := zktest.NewGate()
	defer gate.Open()
	tickets, lists := 0, 0
	p.OnRequest(zktest.Rule{Times: 1, Do: zktest.HoldRequest(gate), Match: func(f zktest.Frame) bool {
		switch {
		case f.Op == zktest.OpCreate:
			tickets++
		case f.Op == zktest.OpGetChildren2 && f.Path == path && tickets > 0:
			lists++
			return lists == 2
		}
		return false
	}})
	require.NoError(t, c.Delete(path+"/"+k.in.name(), -1)) // it dies
	next(t, gate.Reached())
	for _, name := range children(t, c, path+"/"+readyName) {
		require.NoError(t, c.Delete(path+"/"+readyName+"/"+name, -1))
	}
	require.NoError(t, c.Delete(path+"/"+readyName, -1))
	one, two := NewDoubleBarrier(dialShared(t, calm), path, 2), NewDoubleBarrier(dialShared(t, calm), path, 2)
	enterAll(t, one, two)
	gate.Open()
	require.NoError(t, next(t, left))
	leaveAll(t, one, two)
	require.ErrorIs(t, k.Leave(ctx), ErrLost)
	require.Empty(t, children(t, c, path))
}

// The create of a member is answered to nobody, and the list that looks for it does not show it yet. The next attempt finds the name taken, by its own session:
// that is its znode.
func TestDoubleBarrierTakesTheZnodeOfAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	path, c := newPath(t), admin(t)
	put(t, c, path)
	s, p := dialProxy(t, calm)
	a := NewDoubleBarrier(s, path, 1)
	first := ""
	p.OnRequest(zktest.Rule{Times: 1, Do: zktest.CutAfter(), Match: func(f zktest.Frame) bool {
		if f.Op != zktest.OpCreate || !strings.HasPrefix(f.Path, path+"/") || first != "" {
			return false
		}
		first = f.Path
		return true
	}})
	p.OnRequest(zktest.Rule{
		Match: zktest.MatchPath(zktest.OpGetChildren2, path), Times: 1,
		Do: zktest.RewriteReply(func(f zktest.Frame) []byte { return hidden(strings.TrimPrefix(first, path+"/"))(f) }),
	})
	enterAll(t, a)
	require.Equal(t, first, a.in.made.Path)
	require.Equal(t, 2, p.Counts().Requests[zktest.OpCreate])
	require.Len(t, membersAt(t, c, path), 1)
	leaveAll(t, a)
	require.Empty(t, children(t, c, path))
	eventually(t, 10*time.Second, "nothing is owed: what was sent has come into effect", func() bool { return s.engine.Owing() == 0 })
}
