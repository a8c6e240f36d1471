package zkrecipes

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/znode"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// The last one inside lists the members, and then one comes in before it reads ready. That one is of this round: the last one does not leave without it, and does
// not take ready along.
func TestDoubleBarrierLeaveSeesWhoComesLate(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	s, p := dialProxy(t, calm)
	a, b, late := NewDoubleBarrier(s, path, 2), NewDoubleBarrier(dialShared(t, calm), path, 2), NewDoubleBarrier(dialShared(t, calm), path, 2)
	for _, nth := range []int{0, 1} { // of the lists that Leave asks for
		enterAll(t, a, b)
		require.NoError(t, c.Delete(path+"/"+b.in.name(), -1))
		require.ErrorIs(t, b.Leave(ctx), ErrLost)
		gate := zktest.NewGate()
		p.OnRequest(zktest.Rule{Match: zktest.Nth(nth, zktest.MatchOp(zktest.OpGetChildren2)), Times: 1, Do: zktest.HoldReply(gate)})
		left := goCall(func() error { return a.Leave(ctx) })
		next(t, gate.Reached())
		require.NoError(t, late.Enter(ctx))
		gate.Open()
		still(t, left)
		require.Contains(t, children(t, c, path), readyName)
		require.NoError(t, late.Leave(ctx))
		require.NoError(t, next(t, left))
		require.Empty(t, children(t, c, path))
	}
}

// The znode of a Leave that gave up is still there, since its deletion is not answered. The member, or another one of its Session, that enters then
// has no company in it.
func TestDoubleBarrierIsNotPassedWithOnesOwnGhost(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{true, false} {
		server := zktest.NewServer(t)
		path, ctx := newPath(t), within(t, 20*time.Second)
		s := dial(t, []string{server.Addr()})
		a, b := NewDoubleBarrier(s, path, 2), NewDoubleBarrier(dial(t, []string{server.Addr()}), path, 2)
		enterAll(t, a, b)
		over, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, b.Leave(over), context.Canceled)
		for range 50 {
			server.Fail(zktest.OpDelete, path+"/"+a.in.name(), -127) // throttled
		}
		require.ErrorIs(t, a.Leave(over), context.Canceled)
		next := a
		if !again {
			next = NewDoubleBarrier(s, path, 2)
		}
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		require.ErrorIs(t, next.Enter(short), context.DeadlineExceeded)
		cancel()
		server.Forget()
		enterAll(t, next, b)
		leaveAll(t, next, b)
	}
}

// The create of a member's znode is not answered when its ctx ends, and the others enter with it. The error does not say that it was not there.
func TestDoubleBarrierEnterSaysThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	path, c := newPath(t), admin(t)
	put(t, c, path)
	s, p := dialProxy(t)
	a, b := NewDoubleBarrier(s, path, 2), NewDoubleBarrier(dialShared(t), path, 2)
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, path+"/"), Times: 1, Do: zktest.HoldReply(gate)})
	ctx, cancel := context.WithCancel(context.Background())
	entered := goCall(func() error { return a.Enter(ctx) })
	next(t, gate.Reached())
	enterAll(t, b)
	cancel()
	p.Cut()
	gate.Open()
	err := next(t, entered)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "not known")
	leaveAll(t, b)
	eventually(t, 5*time.Second, "nothing is left", func() bool { return len(children(t, c, path)) == 0 })
}

// slowEnd is a ctx for whose end before is called first.
type slowEnd struct {
	context.Context
	before func()
}

func (c slowEnd) Err() error {
	err := c.Context.Err()
	if err != nil {
		c.before()
	}
	return err
}

// The same, and the znode has been removed before Enter gets to say how things stand: it does not say either that it was not there.
func TestDoubleBarrierEnterDoesNotKnowWhatIsGone(t *testing.T) {
	t.Parallel()
	path, c := newPath(t), admin(t)
	put(t, c, path)
	s, p := dialProxy(t, calm)
	a, b := NewDoubleBarrier(s, path, 2), NewDoubleBarrier(dialShared(t, calm), path, 2)
	inTime := false
	for lap := 0; lap < 20 && !inTime; lap++ {
		gate := zktest.NewGate()
		p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, path+"/"), Times: 1, Do: zktest.HoldReply(gate)})
		over, cancel := context.WithCancel(context.Background())
		ctx := slowEnd{over, func() {
			for end := time.Now().Add(5 * time.Second); len(s.engine.Leaving(path)) > 0 && time.Now().Before(end); {
				<-time.After(time.Millisecond)
			}
		}}
		entered := goCall(func() error { return a.Enter(ctx) })
		next(t, gate.Reached())
		enterAll(t, b)
		began := time.Now()
		cancel()
		p.Cut()
		gate.Open()
		err := next(t, entered)
		inTime = time.Since(began) < withdrawal // or else it says so for want of an answer
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "not known")
		leaveAll(t, b)
		eventually(t, 5*time.Second, "nothing is left", func() bool { return len(children(t, c, path)) == 0 })
	}
	require.True(t, inTime)
}

// The barrier opens with a member that is about to withdraw, and the answer to its withdrawal is lost: it is inside all the same, since it asks again.
func TestDoubleBarrierWithdrawalIsNotAnswered(t *testing.T) {
	t.Parallel()
	server := zktest.NewServer(t)
	p := zktest.NewProxy(t, server.Addr())
	path, ctx := newPath(t), within(t, 20*time.Second)
	a, b := NewDoubleBarrier(dial(t, []string{p.Addr()}), path, 2), NewDoubleBarrier(dial(t, []string{server.Addr()}), path, 2)
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpSetData), Times: 1, Do: zktest.HoldRequest(gate)})
	server.LoseReply(zktest.OpSetData, path+"/")
	short, cancel := context.WithCancel(ctx)
	entered := goCall(func() error { return a.Enter(short) })
	eventually(t, 5*time.Second, "it is there", func() bool { return len(znodes(server, path)) == 1 })
	began := time.Now()
	cancel()
	next(t, gate.Reached())
	enterAll(t, b)
	gate.Open()
	if err := next(t, entered); err != nil { // the connection was not back in time
		require.ErrorContains(t, err, "not known")
		require.Greater(t, time.Since(began), withdrawal)
		leaveAll(t, b)
	} else {
		leaveAll(t, a, b)
	}
	eventually(t, 5*time.Second, "nothing is left", func() bool { return len(znodes(server, path)) == 0 })
}

// An opening that would be too large for the server, which drops the connection for that, is refused here: it writes path's data as they are.
func TestDoubleBarrierWhoseDirectoryIsFull(t *testing.T) {
	t.Parallel()
	path, c := newPath(t), admin(t)
	_, err := c.Create(path, make([]byte, 1<<20-400), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	s := dialShared(t)
	conn := s.engine.Epoch()
	err = NewDoubleBarrier(s, path, 1).Enter(within(t, 20*time.Second))
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, path)
	require.Equal(t, conn, s.engine.Epoch())
	eventually(t, 5*time.Second, "nothing is left", func() bool { return len(children(t, c, path)) == 0 })
}

// The most members that there may be at a path fit into one transaction, headers and all.
func TestDoubleBarrierMostMembersFit(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 100, 1000, 4000} {
		dir, name := "/"+strings.Repeat("x", n), znode.NewUUID()
		const header, last = 8, 9 // of the request; a part's
		size := header + last + last + 4 + len(dir) + 4 + 4 + last + 4 + len(dir) + 1 + len(readyName) + 4 + len(zk.WorldACL(0))*(4+4+5+4+6) + 4 + 4
		size += maxMembers(dir, 0) * (last + 4 + len(dir) + 1 + len(name) + 4 + len(name) + 1)
		require.LessOrEqual(t, size, 1<<20-1, "path of %d", n)
	}
}

// A member that withdraws is not counted from the moment at which it looks for the last time, and is not in the way of others.
func TestDoubleBarrierWithdrawnIsNotCounted(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	s, p := dialProxy(t, WithTimeout(30*time.Second)) // its znode stays for as long as the answer is held
	other, q := dialProxy(t, calm)
	a, b, d := NewDoubleBarrier(s, path, 2), NewDoubleBarrier(other, path, 2), NewDoubleBarrier(dialShared(t, calm), path, 2)
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpGetData, path+"/"+readyName), Times: 1, Do: zktest.HoldReply(gate)})
	short, cancel := context.WithCancel(ctx)
	withdrawn := goCall(func() error { return a.Enter(short) })
	assembled(t, c, path, 1)
	cancel()
	next(t, gate.Reached())
	entered := goCall(func() error { return b.Enter(ctx) })
	eventually(t, 5*time.Second, "it has tried to open", func() bool {
		return slices.ContainsFunc(q.Requests(), func(r zktest.Record) bool { return r.Op == zktest.OpMulti && r.Answered })
	})
	still(t, entered)
	enterAll(t, d)
	require.NoError(t, next(t, entered))
	gate.Open()
	require.ErrorIs(t, next(t, withdrawn), context.Canceled)
	leaveAll(t, b, d)
	eventually(t, 5*time.Second, "nothing is left", func() bool { return len(children(t, c, path)) == 0 })
}

// A transaction by which a member would join a round, or take away what a dead one left, or the list before it, comes when there is another round, whose ready
// has the same version.
func TestDoubleBarrierTransactionOfAnotherRound(t *testing.T) {
	t.Parallel()
	for i, op := range []zktest.Op{zktest.OpMulti, zktest.OpMulti, zktest.OpGetChildren2, zktest.OpGetChildren2} {
		dead := i%2 == 0
		path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
		s, p := dialProxy(t, calm)
		late := NewDoubleBarrier(s, path, 2)
		bs := []*DoubleBarrier{NewDoubleBarrier(dialShared(t, calm), path, 2), NewDoubleBarrier(dialShared(t, calm), path, 2)}
		if dead {
			put(t, c, path)
			_, err := c.Create(path+"/"+readyName, []byte(znode.NewUUID()), 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		} else {
			enterAll(t, bs...)
		}
		gate := zktest.NewGate()
		p.OnRequest(zktest.Rule{Match: zktest.MatchOp(op), Times: 1, Do: zktest.HoldRequest(gate)})
		entered := goCall(func() error { return late.Enter(ctx) })
		next(t, gate.Reached())
		if !dead {
			leaveAll(t, bs...)
		}
		enterAll(t, bs...) // late is there, and counted
		ready, _, err := c.Get(path + "/" + readyName)
		require.NoError(t, err)
		require.Len(t, rollNames(ready), 3)
		gate.Open()
		require.NoError(t, next(t, entered))
		now, _, err := c.Get(path + "/" + readyName)
		require.NoError(t, err)
		require.Equal(t, string(ready), string(now))
		leaveAll(t, append(bs, late)...)
		require.Empty(t, children(t, c, path))
	}
}

// A member comes late to a round that dies then, another one wants to take away what it left, and its transaction comes when the first is inside.
func TestDoubleBarrierIsNotBuriedAlive(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	hold := func(p *zktest.Proxy) *zktest.Gate {
		gate := zktest.NewGate()
		p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldRequest(gate)})
		return gate
	}
	s1, p1 := dialProxy(t, calm)
	s2, p2 := dialProxy(t, calm)
	first, late, other := NewDoubleBarrier(dialShared(t, calm), path, 1), NewDoubleBarrier(s1, path, 1), NewDoubleBarrier(s2, path, 1)
	enterAll(t, first)
	joins := hold(p1)
	entered := goCall(func() error { return late.Enter(ctx) })
	next(t, joins.Reached())
	require.NoError(t, c.Delete(path+"/"+first.in.name(), -1))
	buries := hold(p2)
	also := goCall(func() error { return other.Enter(ctx) })
	next(t, buries.Reached())
	joins.Open()
	require.NoError(t, next(t, entered))
	_, before, err := c.Get(path + "/" + readyName)
	require.NoError(t, err)
	buries.Open()
	require.NoError(t, next(t, also))
	ready, stat, err := c.Get(path + "/" + readyName)
	require.NoError(t, err)
	require.Equal(t, before.Czxid, stat.Czxid)
	require.Subset(t, rollNames(ready), []string{late.in.name(), other.in.name()})
	leaveAll(t, late, other)
	require.Empty(t, children(t, c, path))
}

// Two want to close a round whose keeper died, and the transaction of one comes when the next round is open, whose ready has the same version; and so has its
// path, if that went in between, as a container does.
func TestDoubleBarrierIsClosedOnce(t *testing.T) {
	t.Parallel()
	for _, pathGoes := range []bool{false, true} {
		isClosedOnce(t, pathGoes)
	}
}

func isClosedOnce(t *testing.T, pathGoes bool) {
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	put(t, c, path)
	proxies := make(map[*DoubleBarrier]*zktest.Proxy)
	var bs []*DoubleBarrier
	for range 3 {
		s, p := dialProxy(t, calm)
		b := NewDoubleBarrier(s, path, 3)
		bs, proxies[b] = append(bs, b), p
	}
	enterAll(t, bs...)
	slices.SortFunc(bs, func(a, b *DoubleBarrier) int { return strings.Compare(a.in.name(), b.in.name()) })
	keeper := bs[0].in.name()
	left := []<-chan error{goCall(func() error { return bs[1].Leave(ctx) }), goCall(func() error { return bs[2].Leave(ctx) })}
	assembled(t, c, path, 1)
	gate := zktest.NewGate()
	proxies[bs[1]].OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldRequest(gate)})
	between := zktest.NewGate()
	proxies[bs[2]].OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldRequest(between)})
	require.NoError(t, c.Delete(path+"/"+keeper, -1))
	next(t, gate.Reached())
	next(t, between.Reached())
	between.Open()
	require.NoError(t, next(t, left[1]))
	require.ErrorIs(t, bs[0].Leave(ctx), ErrLost)
	require.Empty(t, children(t, c, path))
	if pathGoes {
		require.NoError(t, c.Delete(path, -1))
	}
	again := []*DoubleBarrier{bs[0], bs[2], NewDoubleBarrier(dialShared(t, calm), path, 3)}
	enterAll(t, again...)
	gate.Open()
	require.NoError(t, next(t, left[0]))
	require.Contains(t, children(t, c, path), readyName)
	leaveAll(t, again...)
}

// A member that gave up Leave enters anew while its former znode is still there, and ready is not: nobody counts it twice.
func TestDoubleBarrierCountsNobodyTwice(t *testing.T) {
	t.Parallel()
	server := zktest.NewServer(t)
	path, ctx := newPath(t), within(t, 20*time.Second)
	a, b := NewDoubleBarrier(dial(t, []string{server.Addr()}), path, 1), NewDoubleBarrier(dial(t, []string{server.Addr()}), path, 3)
	enterAll(t, a)
	a.members = 3
	over, cancel := context.WithCancel(ctx)
	cancel()
	for range 50 {
		server.Fail(zktest.OpDelete, path+"/"+a.in.name(), -127) // throttled
	}
	require.ErrorIs(t, a.Leave(over), context.Canceled)
	require.NoError(t, b.spec.s.Conn().Delete(path+"/"+readyName, -1))
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	entered := goCall(func() error { return a.Enter(short) })
	still(t, entered)
	require.ErrorIs(t, b.Enter(short), context.DeadlineExceeded)
	require.ErrorIs(t, next(t, entered), context.DeadlineExceeded)
	server.Forget()
}

// The opening writes path's data as they are, also when they have just been changed.
func TestDoubleBarrierKeepsTheDataOfItsPath(t *testing.T) {
	t.Parallel()
	path, c := newPath(t), admin(t)
	put(t, c, path)
	s, p := dialProxy(t)
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldRequest(gate)})
	b := NewDoubleBarrier(s, path, 1)
	entered := goCall(func() error { return b.Enter(within(t, 10*time.Second)) })
	next(t, gate.Reached())
	_, err := c.Set(path, []byte("new"), -1)
	require.NoError(t, err)
	gate.Open()
	require.NoError(t, next(t, entered))
	data, _, err := c.Get(path)
	require.NoError(t, err)
	require.Equal(t, "new", string(data))
	leaveAll(t, b)
}

// Somebody deletes ready while members are inside. Leave waits for those who came in with this one, and not for who waits for the next round.
func TestDoubleBarrierReadyIsDeleted(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	var bs []*DoubleBarrier
	for range 3 {
		bs = append(bs, NewDoubleBarrier(dialShared(t), path, 2))
	}
	enterAll(t, bs[:2]...)
	require.NoError(t, bs[2].Enter(ctx)) // late
	require.NoError(t, c.Delete(path+"/"+readyName, -1))
	waits, cancel := context.WithCancel(ctx)
	entered := goCall(func() error { return NewDoubleBarrier(dialShared(t), path, 10).Enter(waits) })
	assembled(t, c, path, 4)
	left := []<-chan error{goCall(func() error { return bs[2].Leave(ctx) })}
	still(t, left[0])
	for _, b := range bs[:2] {
		left = append(left, goCall(func() error { return b.Leave(ctx) }))
	}
	for _, l := range left {
		require.NoError(t, next(t, l))
	}
	cancel()
	require.ErrorIs(t, next(t, entered), context.Canceled)
}

// Many members in few Sessions: each costs a few requests, also where one waits for another.
func TestDoubleBarrierOfManyMembers(t *testing.T) {
	t.Parallel()
	server := zktest.NewServer(t)
	const n, most = 200, 12 // requests per member
	var bs []*DoubleBarrier
	var ss []*Session
	for i := range n {
		if len(ss) < 4 {
			ss = append(ss, dial(t, []string{server.Addr()}))
		}
		bs = append(bs, NewDoubleBarrier(ss[i%4], "/many", n))
	}
	for range 2 {
		for _, all := range []func(testing.TB, ...*DoubleBarrier){enterAll, leaveAll} {
			server.ResetCounters()
			all(t, bs...)
			requests := 0
			for _, k := range server.Counts().Requests {
				requests += k
			}
			require.Less(t, requests, most*n, "%v", server.Counts().Requests)
		}
		require.Empty(t, znodes(server, "/many"))
	}
}

// Calls that end leave no watch behind but the one on ready, of which there is one for each Session.
func TestDoubleBarrierLeavesNoWatch(t *testing.T) {
	t.Parallel()
	server := newTestServer(t, 100*time.Millisecond)
	s := dial(t, []string{server.addr})
	path := newPath(t)
	a, b, d := NewDoubleBarrier(s, path, 3), NewDoubleBarrier(s, path, 3), NewDoubleBarrier(s, path, 3)
	for range rounds(t, 400) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
		err := a.Enter(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	for range rounds(t, 40) {
		enterAll(t, a, b, d)
		leaveAll(t, a, b, d)
	}
	enterAll(t, a, b, d)
	bs := []*DoubleBarrier{a, b, d}
	slices.SortFunc(bs, func(a, b *DoubleBarrier) int { return strings.Compare(a.in.name(), b.in.name()) })
	ctx := within(t, 20*time.Second)
	var left []<-chan error
	for _, i := range []int{0, 2, 1} { // the first waits for the third, and then for the second
		if len(left) > 0 {
			still(t, left[0])
		}
		left = append(left, goCall(func() error { return bs[i].Leave(ctx) }))
	}
	for _, l := range left {
		require.NoError(t, next(t, l))
	}
	eventually(t, 5*time.Second, "nothing is owed", func() bool { return s.engine.Owing() == 0 })
	eventually(t, 5*time.Second, "nobody watches anything, now that ready has come and gone", func() bool { return s.engine.Watched() == 0 })
	require.LessOrEqual(t, server.watches(t), 1)
}
