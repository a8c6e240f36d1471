package zktest_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

func (r *rig) on(match func(zktest.Frame) bool, do zktest.Action) {
	r.p.OnRequest(zktest.Rule{Match: match, Times: 1, Do: do})
}

func TestCutBefore(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()
	other, otherServer := r.connect()
	r.on(zktest.MatchPath(zktest.OpCreate, "/b"), zktest.CutBefore())
	ask(c, s, 1, zktest.OpCreate, "/a")
	c.send(request(2, zktest.OpCreate, "/b"))
	c.expectReset()
	s.expectReset() // and no frame before it
	awaitFates(t, r.p, zktest.FateForwarded, zktest.FateCutBefore)
	ask(other, otherServer, 1, zktest.OpCreate, "/b") // once, and only that connection
}

func TestCutAfter(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()
	r.on(zktest.MatchPath(zktest.OpCreate, "/b"), zktest.CutAfter())
	// Requests in front, and behind, and their replies in between.
	c.send(request(1, zktest.OpCreate, "/a"), request(2, zktest.OpCreate, "/b"), request(3, zktest.OpCreate, "/c"))
	for xid, path := range []string{"/a", "/b", "/c"} {
		require.Equal(t, request(int32(xid+1), zktest.OpCreate, path), s.frame())
	}
	c.expectSilence() // the reset waits for the reply
	s.send(ping())
	require.Equal(t, ping(), c.frame())
	s.send(reply(1, 0), reply(2, -101), reply(3, 0))
	require.Equal(t, reply(1, 0), c.frame())
	c.expectReset()
	s.expectReset()
	awaitFates(t, r.p, zktest.FateForwarded, zktest.FateCutAfter, zktest.FateForwarded)
	rs := requests(r.p)
	require.True(t, rs[1].Answered)
	require.EqualValues(t, -101, rs[1].Err)
	require.EqualValues(t, 1002, rs[1].Zxid)
	require.False(t, rs[2].Answered)
}

func TestCutAfterConnect(t *testing.T) {
	r := newRig(t)
	r.on(zktest.MatchOp(zktest.OpConnect), zktest.CutAfter())
	c, s := r.open()
	c.send(connectFrame(0))
	require.Equal(t, connectFrame(0), s.frame())
	s.send(connectReply(77, 4000))
	c.expectReset()
	s.expectReset()
	id, _, _ := r.p.Session()
	require.EqualValues(t, 77, id, "the session that the client never heard of")
}

// TestSameXid has two requests of one xid: replies come in their order.
func TestSameXid(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()
	r.on(zktest.Nth(1, zktest.MatchOp(zktest.OpPing)), zktest.DropReply())
	c.send(ping(), ping(), ping())
	for i := range int32(3) {
		s.frame()
		s.send(new(builder).int32(-2).int64(int64(i)).int32(0).b)
	}
	require.Equal(t, new(builder).int32(-2).int64(0).int32(0).b, c.frame())
	require.Equal(t, new(builder).int32(-2).int64(2).int32(0).b, c.frame())

	// Also when all of them are on their way before the first answer.
	r.on(zktest.Nth(0, zktest.MatchOp(zktest.OpPing)), zktest.DropReply())
	c.send(ping(), ping(), ping())
	for range 3 {
		s.frame()
	}
	for i := range int32(3) {
		s.send(new(builder).int32(-2).int64(int64(i)).int32(0).b)
	}
	require.Equal(t, new(builder).int32(-2).int64(1).int32(0).b, c.frame())
	require.Equal(t, new(builder).int32(-2).int64(2).int32(0).b, c.frame())
}

func TestBlackHoleBefore(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()
	idle, idleServer := r.connect()
	r.on(zktest.MatchPath(zktest.OpCreate, "/b"), zktest.BlackHoleBefore())
	ask(c, s, 1, zktest.OpCreate, "/a")
	c.send(request(2, zktest.OpCreate, "/b"))
	awaitFates(t, r.p, zktest.FateForwarded, zktest.FateSwallowed)
	c.expectSilence()
	s.expectSilence()
	r.p.BlackHole(zktest.None)
	c.expectReset() // the stream lacks that one request
	s.expectReset()
	ask(idle, idleServer, 1, zktest.OpCreate, "/a")

	// Both directions are black.
	r.on(zktest.MatchPath(zktest.OpCreate, "/b"), zktest.BlackHoleBefore())
	c, s = r.connect()
	c.send(request(2, zktest.OpCreate, "/b"), request(3, zktest.OpCreate, "/c"))
	eventually(t, "both swallowed", func() bool {
		rs := r.p.Requests()
		return rs[len(rs)-1].Path == "/c" && rs[len(rs)-1].Fate == zktest.FateSwallowed
	})
	s.send(reply(9, 0))
	c.expectSilence()
	s.expectSilence()
}

func TestBlackHoleAfter(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()
	r.on(zktest.MatchPath(zktest.OpCreate, "/b"), zktest.BlackHoleAfter())
	c.send(request(1, zktest.OpCreate, "/b"))
	require.Equal(t, request(1, zktest.OpCreate, "/b"), s.frame())
	// Not black yet: the request is not answered.
	s.send(event(1, "/e"))
	require.Equal(t, event(1, "/e"), c.frame())
	s.send(reply(1, 0))
	awaitFates(t, r.p, zktest.FateReplyLost)
	c.expectSilence()
	s.expectSilence()
	r.p.BlackHole(zktest.None)
	c.expectReset() // the stream lacks that one reply
	s.expectReset()

	// Both directions are black.
	r.on(zktest.MatchPath(zktest.OpCreate, "/b"), zktest.BlackHoleAfter())
	c, s = r.connect()
	c.send(request(1, zktest.OpCreate, "/b"))
	s.frame()
	s.send(reply(1, 0), reply(2, 0))
	awaitFates(t, r.p, zktest.FateReplyLost, zktest.FateReplyLost)
	c.send(request(3, zktest.OpCreate, "/c"))
	awaitFates(t, r.p, zktest.FateReplyLost, zktest.FateReplyLost, zktest.FateSwallowed)
	c.expectSilence()
	s.expectSilence()
}

// TestFateIsSeenAfterTheHole checks that a black hole is there when a fate says
// so: whoever heals it then has healed it.
func TestFateIsSeenAfterTheHole(t *testing.T) {
	for name, c := range map[string]struct {
		do           zktest.Action
		before, then zktest.Fate
	}{
		"before": {zktest.BlackHoleBefore(), zktest.FateWaiting, zktest.FateSwallowed},
		"after":  {zktest.BlackHoleAfter(), zktest.FateForwarded, zktest.FateReplyLost},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c1, s1 := r.connect()
			r.on(zktest.MatchOp(zktest.OpCreate), c.do)
			release := sync.OnceFunc(r.p.HoldFaults())
			defer release()
			c1.send(request(1, zktest.OpCreate, "/a"))
			if c.before == zktest.FateForwarded {
				s1.frame()
				s1.send(reply(1, 0))
				eventually(t, "answered", func() bool { return requests(r.p)[0].Answered })
			}
			awaitFates(t, r.p, c.before)
			c1.expectSilence()
			awaitFates(t, r.p, c.before)
			release()
			awaitFates(t, r.p, c.then)
			r.p.BlackHole(zktest.None)
			c1.expectReset()
			s1.expectReset()
		})
	}
}

// TestCutEndsActions checks that a connection which Cut has ended does not open
// a black hole afterwards.
func TestCutEndsActions(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect()
	r.on(func(f zktest.Frame) bool {
		if f.Op != zktest.OpCreate {
			return false
		}
		r.p.Cut()
		return true
	}, zktest.BlackHoleBefore())
	c.send(request(1, zktest.OpCreate, "/a"))
	c.expectReset()
	eventually(t, "acted", func() bool { return len(requests(r.p)) == 1 })
	for range 5 {
		r.connect()
	}
}

func TestHoldReply(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()
	g := zktest.NewGate()
	r.on(zktest.MatchPath(zktest.OpCreate, "/b"), zktest.HoldReply(g))
	ask(c, s, 1, zktest.OpCreate, "/a")
	c.send(request(2, zktest.OpCreate, "/b"), request(3, zktest.OpCreate, "/c"))
	require.Equal(t, request(2, zktest.OpCreate, "/b"), s.frame())
	require.Equal(t, request(3, zktest.OpCreate, "/c"), s.frame(), "requests go on")
	select {
	case <-g.Reached():
		t.Fatal("reached before the reply")
	default:
	}
	s.send(reply(2, 0), event(1, "/e"), reply(3, 0))
	<-g.Reached()
	c.expectSilence()
	g.Open()
	g.Open()
	require.Equal(t, reply(2, 0), c.frame())
	require.Equal(t, event(1, "/e"), c.frame())
	require.Equal(t, reply(3, 0), c.frame())
}

func TestHoldRequest(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()
	other, otherServer := r.connect()
	g := zktest.NewGate()
	r.on(zktest.MatchPath(zktest.OpCreate, "/b"), zktest.HoldRequest(g))
	c.send(request(1, zktest.OpCreate, "/a"), request(2, zktest.OpCreate, "/b"), request(3, zktest.OpCreate, "/c"))
	<-g.Reached()
	require.Equal(t, request(1, zktest.OpCreate, "/a"), s.frame())
	s.expectSilence()
	awaitFates(t, r.p, zktest.FateForwarded, zktest.FateWaiting)
	s.send(reply(1, 0), event(1, "/e"))
	require.Equal(t, reply(1, 0), c.frame(), "replies go on")
	require.Equal(t, event(1, "/e"), c.frame())
	ask(other, otherServer, 1, zktest.OpExists, "/other connections go on")
	g.Open()
	require.Equal(t, request(2, zktest.OpCreate, "/b"), s.frame())
	require.Equal(t, request(3, zktest.OpCreate, "/c"), s.frame())
}

func TestHeldFrameMeetsFault(t *testing.T) {
	setup := func(t *testing.T) (*rig, *end, *end, *zktest.Gate) {
		r := newRig(t)
		c, s := r.connect()
		g := zktest.NewGate()
		r.on(zktest.AllRequests, zktest.HoldRequest(g))
		c.send(request(1, zktest.OpCreate, "/a"))
		<-g.Reached()
		return r, c, s, g
	}
	t.Run("cut", func(t *testing.T) {
		r, c, s, g := setup(t)
		r.p.Cut()
		c.expectReset()
		s.expectReset()
		g.Open()
		awaitFates(t, r.p, zktest.FateWaiting)
	})
	t.Run("black hole", func(t *testing.T) {
		r, _, s, g := setup(t)
		r.p.BlackHole(zktest.ToServer)
		g.Open()
		awaitFates(t, r.p, zktest.FateSwallowed)
		s.expectSilence()
	})
	t.Run("stall", func(t *testing.T) {
		r, _, s, g := setup(t)
		r.p.Stall(zktest.ToServer)
		g.Open()
		s.expectSilence()
		r.p.Stall(zktest.None)
		require.Equal(t, request(1, zktest.OpCreate, "/a"), s.frame())
	})
	t.Run("healed black hole", func(t *testing.T) {
		r, c, s, g := setup(t)
		r.p.BlackHole(zktest.Both)
		r.p.BlackHole(zktest.None)
		g.Open() // nothing was lost
		require.Equal(t, request(1, zktest.OpCreate, "/a"), s.frame())
		s.send(reply(1, 0))
		require.Equal(t, reply(1, 0), c.frame())
	})
}

func TestRewriteReply(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()
	var seen zktest.Frame
	r.on(zktest.MatchPath(zktest.OpGetData, "/b"), zktest.RewriteReply(func(f zktest.Frame) []byte {
		seen = f
		return append(slices.Clone(f.Bytes), "and more"...)
	}))
	ask(c, s, 1, zktest.OpGetData, "/a")
	c.send(request(2, zktest.OpGetData, "/b"))
	s.frame()
	s.send(reply(2, -4), reply(3, 0))
	require.Equal(t, append(reply(2, -4), "and more"...), c.frame())
	require.Equal(t, reply(3, 0), c.frame())
	require.Equal(t, zktest.Frame{
		Op: zktest.OpGetData, Xid: 2, Path: "/b", Bytes: reply(2, -4), Err: -4, Zxid: 1002,
	}, seen)
}

func TestReplyError(t *testing.T) {
	r := newRig(t)
	r.p.OnRequest(zktest.Rule{Match: func(zktest.Frame) bool { return true }, Do: zktest.ReplyError(-112)})
	c, s := r.connect() // its reply stays as it is
	c.send(request(1, zktest.OpCreate, "/a"))
	s.frame()
	s.send(reply(1, 0))
	require.Equal(t, new(builder).int32(1).int64(1001).int32(-112).b, c.frame())
	require.Zero(t, requests(r.p)[0].Err, "the record has what the server said")
}

func TestCall(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()
	entered, leave := make(chan zktest.Frame, 1), make(chan struct{})
	r.on(zktest.MatchPath(zktest.OpCreate, "/b"), zktest.Call(func(f zktest.Frame) {
		entered <- f
		<-leave
	}))
	c.send(request(1, zktest.OpCreate, "/b"))
	require.Equal(t, zktest.Frame{
		Op: zktest.OpCreate, Xid: 1, Path: "/b", Bytes: request(1, zktest.OpCreate, "/b"),
	}, <-entered)
	s.expectSilence()
	close(leave)
	require.Equal(t, request(1, zktest.OpCreate, "/b"), s.frame())
}

// TestCallUsesProxy checks that a Call may set any fault without a deadlock.
func TestCallUsesProxy(t *testing.T) {
	for name, use := range map[string]func(*zktest.Proxy){
		"cut":        (*zktest.Proxy).Cut,
		"black hole": func(p *zktest.Proxy) { p.BlackHole(zktest.Both); p.BlackHole(zktest.None) },
		"stall":      func(p *zktest.Proxy) { p.Stall(zktest.Both); p.Stall(zktest.None) },
		"refuse":     func(p *zktest.Proxy) { p.Refuse(true); p.Refuse(false) },
		"rule":       func(p *zktest.Proxy) { p.OnRequest(zktest.Rule{})(); p.ResetCounters(); p.Counts() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c, _ := r.connect()
			done := make(chan struct{})
			r.on(zktest.AllRequests, zktest.Call(func(zktest.Frame) { use(r.p); close(done) }))
			c.send(request(1, zktest.OpCreate, "/a"))
			<-done
		})
	}
}

func TestDropReply(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()
	r.on(zktest.MatchPath(zktest.OpCreate, "/a"), zktest.DropReply())
	c.send(request(1, zktest.OpCreate, "/a"))
	s.frame()
	s.send(reply(1, 0), reply(2, 0))
	require.Equal(t, reply(2, 0), c.frame())
	awaitFates(t, r.p, zktest.FateReplyLost)
	ask(c, s, 3, zktest.OpCreate, "/a")
}

func TestEvents(t *testing.T) {
	isEvent := func(path string) func(zktest.Frame) bool { return zktest.MatchPath(zktest.OpEvent, path) }
	t.Run("cut", func(t *testing.T) {
		for _, do := range []zktest.Action{zktest.CutBefore(), zktest.CutAfter()} {
			r := newRig(t)
			c, s := r.connect()
			r.on(isEvent("/b"), do)
			s.send(event(1, "/a"), event(2, "/b"))
			require.Equal(t, event(1, "/a"), c.frame())
			c.expectReset()
			s.expectReset()
			require.Equal(t, 2, r.p.Counts().Events)
		}
	})
	t.Run("black hole", func(t *testing.T) {
		for _, do := range []zktest.Action{zktest.BlackHoleBefore(), zktest.BlackHoleAfter()} {
			r := newRig(t)
			c, s := r.connect()
			r.on(isEvent("/b"), do)
			s.send(event(2, "/b"), event(2, "/c"))
			eventually(t, "events swallowed", func() bool { return r.p.Counts().Events == 2 })
			c.send(ping())
			awaitFates(t, r.p, zktest.FateSwallowed)
			c.expectSilence()
			r.p.BlackHole(zktest.None)
			c.expectReset()
			s.expectReset()
		}
	})
	t.Run("hold", func(t *testing.T) {
		for _, hold := range []func(*zktest.Gate) zktest.Action{zktest.HoldReply, zktest.HoldRequest} {
			r := newRig(t)
			c, s := r.connect()
			g := zktest.NewGate()
			r.on(isEvent("/b"), hold(g))
			s.send(event(2, "/b"), reply(1, 0))
			<-g.Reached()
			c.expectSilence()
			g.Open()
			require.Equal(t, event(2, "/b"), c.frame())
			require.Equal(t, reply(1, 0), c.frame())
		}
	})
	t.Run("drop", func(t *testing.T) {
		r := newRig(t)
		c, s := r.connect()
		r.on(isEvent("/b"), zktest.DropReply())
		s.send(event(2, "/b"), event(4, "/b"))
		require.Equal(t, event(4, "/b"), c.frame())
	})
	t.Run("rewrite and call", func(t *testing.T) {
		r := newRig(t)
		c, s := r.connect()
		var called, rewritten zktest.Frame
		r.on(isEvent("/a"), zktest.Call(func(f zktest.Frame) { called = f }))
		r.on(isEvent("/b"), zktest.RewriteReply(func(f zktest.Frame) []byte { rewritten = f; return event(1, "/x") }))
		s.send(event(3, "/a"), event(2, "/b"))
		require.Equal(t, event(3, "/a"), c.frame())
		require.Equal(t, event(1, "/x"), c.frame())
		require.Equal(t, zktest.Frame{
			Op: zktest.OpEvent, Xid: -1, Zxid: -1, Path: "/a", EventType: 3, Bytes: event(3, "/a"),
		}, called)
		require.Equal(t, "/b", rewritten.Path)
	})
	t.Run("no request", func(t *testing.T) {
		r := newRig(t)
		c, s := r.connect()
		s.send(event(3, "/a"))
		c.frame()
		require.Equal(t, 1, r.p.Counts().Events)
		require.Len(t, r.p.Requests(), 1, "the connect")
		require.False(t, zktest.AllRequests(zktest.Frame{Op: zktest.OpEvent}))
	})
}

func TestRuleOrderAndTimes(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()
	var calls []string
	call := func(name string) zktest.Action {
		return zktest.Call(func(f zktest.Frame) { calls = append(calls, name+f.Path) })
	}
	remove := r.p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpExists, "/never"), Do: zktest.CutBefore()})
	r.p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpExists, "/shield"), Do: zktest.Action{}})
	r.p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpExists), Times: 2, Do: call("first ")})
	r.p.OnRequest(zktest.Rule{Do: call("all ")}) // no Match: all requests
	remove()
	remove()
	for xid, path := range []string{"/shield", "/1", "/2", "/3", "/never"} {
		ask(c, s, int32(xid), zktest.OpExists, path)
	}
	c.send(ping())
	s.frame()
	require.Equal(t, []string{"first /1", "first /2", "all /3", "all /never"}, calls)
}

// TestNth checks that every rule counts every frame, acted on or not, so that
// two rules can take the i-th and the j-th request.
func TestNth(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()
	type act struct {
		rule, n int
		path    string
	}
	var acts []act
	note := func(rule int) zktest.Action {
		return zktest.Call(func(f zktest.Frame) { acts = append(acts, act{rule, f.N, f.Path}) })
	}
	r.p.OnRequest(zktest.Rule{Match: zktest.Nth(1, zktest.AllRequests), Do: note(0)})
	r.p.OnRequest(zktest.Rule{Match: zktest.Nth(2, zktest.AllRequests), Do: note(1)})
	r.p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, "/"), Do: note(2)})
	run := func(other *end, server *end) {
		ask(c, s, 1, zktest.OpCreate, "/0")
		ask(other, server, 2, zktest.OpCreate, "/1") // of all connections together
		c.send(ping())
		s.frame()
		ask(c, s, 3, zktest.OpCreate, "/2")
		ask(c, s, 4, zktest.OpCreate, "/3")
	}
	other, server := r.connect()
	want := []act{{2, 0, "/0"}, {0, 0, "/1"}, {1, 0, "/2"}, {2, 3, "/3"}}
	run(other, server)
	require.Equal(t, want, acts)

	acts = nil
	r.p.ResetCounters()
	run(other, server)
	require.Equal(t, want, acts)
}

// TestFrameOfReplyHasN checks that what acts on the reply knows which request
// it was.
func TestFrameOfReplyHasN(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()
	var ns []int
	r.p.OnRequest(zktest.Rule{Do: zktest.RewriteReply(func(f zktest.Frame) []byte {
		ns = append(ns, f.N)
		return f.Bytes
	})})
	for xid := range int32(3) {
		ask(c, s, xid, zktest.OpExists, "/a")
	}
	require.Equal(t, []int{0, 1, 2}, ns)
}

func TestRecords(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()
	ask(c, s, 5, zktest.OpCreate, "/a")
	c2, s2 := r.connect()
	c2.send(request(6, zktest.OpDelete, "/b"), ping())
	s2.frame()
	s2.frame()
	s2.send(event(1, "/a"))
	c2.frame()

	rs := r.p.Requests()
	for i := range rs {
		require.False(t, rs[i].Time.IsZero())
		if i > 0 {
			require.False(t, rs[i].Time.Before(rs[i-1].Time))
		}
		rs[i].Time = rs[0].Time
	}
	connect := zktest.Record{Time: rs[0].Time, Op: zktest.OpConnect, Size: len(connectFrame(0)), Fate: zktest.FateForwarded, Answered: true}
	again := connect
	again.Conn = 1
	require.Equal(t, []zktest.Record{
		connect,
		{Time: rs[0].Time, Conn: 0, Op: zktest.OpCreate, Xid: 5, Path: "/a", Size: 18, Fate: zktest.FateForwarded, Answered: true, Zxid: 1005},
		again,
		{Time: rs[0].Time, Conn: 1, Op: zktest.OpDelete, Xid: 6, Path: "/b", Size: 18, Fate: zktest.FateForwarded},
		{Time: rs[0].Time, Conn: 1, Op: zktest.OpPing, Xid: -2, Size: 8, Fate: zktest.FateForwarded},
	}, rs)

	counts := r.p.Counts()
	require.Equal(t, map[zktest.Op]int{
		zktest.OpConnect: 2, zktest.OpCreate: 1, zktest.OpDelete: 1, zktest.OpPing: 1,
	}, counts.Requests)
	require.Equal(t, 2, counts.Total())
	require.Equal(t, 1, counts.Events)
	require.EqualValues(t, 2*len(framed(connectFrame(0)))+2*22+12, counts.ToServer)
	require.EqualValues(t, 2*len(framed(connectReply(0, 0)))+len(framed(reply(5, 0)))+len(framed(event(1, "/a"))), counts.ToClient)
	counts.Requests[zktest.OpCreate] = 100 // a copy
	require.Equal(t, 2, r.p.Counts().Total())

	r.p.ResetCounters()
	require.Empty(t, r.p.Requests())
	require.Zero(t, r.p.Counts())
	ask(c, s, 7, zktest.OpExists, "/a")
	require.Len(t, r.p.Requests(), 1)
}

func TestRecordsAreBounded(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()
	const extra = 7
	go func() {
		var all []byte
		for xid := range int32(zktest.MaxRecords + extra) {
			all = append(all, framed(new(builder).int32(xid).int32(int32(zktest.OpWhoAmI)).b)...)
		}
		_, _ = c.Write(all)
	}()
	for range zktest.MaxRecords + extra {
		s.frame()
	}
	rs := r.p.Requests()
	require.Len(t, rs, zktest.MaxRecords)
	for i, rec := range rs {
		require.EqualValues(t, i+extra, rec.Xid)
	}
	require.Equal(t, zktest.MaxRecords+extra, r.p.Counts().Total())
}

func TestSession(t *testing.T) {
	r := newRig(t)
	id, passwd, timeout := r.p.Session()
	require.Zero(t, id)
	require.Empty(t, passwd)
	require.Zero(t, timeout)
	require.ErrorIs(t, r.p.Expire(t.Context()), zktest.ErrNoSession)

	r.connect()
	id, passwd, timeout = r.p.Session()
	require.EqualValues(t, 0x1234, id)
	require.Equal(t, password, string(passwd))
	require.EqualValues(t, 4e9, timeout)

	// A refusal is no session.
	c, s := r.open()
	c.send(connectFrame(0x1234))
	s.frame()
	s.send(connectReply(0, 0))
	c.frame()
	id, _, _ = r.p.Session()
	require.EqualValues(t, 0x1234, id)
}
