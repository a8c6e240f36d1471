package zkrecipes

import (
	"context"
	"errors"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// hooks notes what Trace was told.
type hooks struct {
	mu     sync.Mutex
	lost   []lostCall
	states []State
}

type lostCall struct {
	lease *Lease
	err   *LostError
	done  bool // Done was closed by then
}

func (h *hooks) trace() *Trace {
	return &Trace{
		Lost: func(l *Lease, err *LostError) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.lost = append(h.lost, lostCall{l, err, l.Context().Err() != nil})
		},
		StateChanged: func(_ *Session, st State) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.states = append(h.states, st)
		},
	}
}

func (h *hooks) losses() []lostCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.lost)
}

func (h *hooks) seen() []State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.states)
}

// A losing is a holder, and what takes its lease away.
type losing struct {
	server *testServer // of its own
	s      *Session
	p      *zktest.Proxy
	look   *zk.Conn
	m      *Mutex
	lease  *Lease
	heal   func() // nil: there is nothing to heal
}

// TestWhyALeaseWasLost takes leases away in each way there is. Each ends once, with the reason, wherever one looks; and unless the Session was closed the
// same Mutex value then locks again, at once, with the old znode gone.
// Reports: samuel/go-zookeeper #20, docker/libkv #156, docker/classicswarm #2654, twitter-archive/commons #5, CURATOR-171, segmentio/consul-go #14,
// CURATOR-696, apache/druid #16411, hashicorp/consul #4935, hashicorp/consul #4902.
func TestWhyALeaseWasLost(t *testing.T) {
	t.Parallel()
	whyALeaseWasLost(t)
}

func whyALeaseWasLost(t testing.TB) {
	onDeleted := func(t testing.TB, l *losing) { require.NoError(t, l.look.Delete(l.lease.Node(), -1)) }
	cases := []struct {
		name     string
		timeout  time.Duration // 0: testTimeout
		dial     []DialOption
		lock     []LockOption
		own      bool // a server of its own
		lose     func(t testing.TB, l *losing)
		reason   LossReason
		cause    error
		survives bool // the ZooKeeper session does, certainly
	}{
		{name: "znode deleted", lose: onDeleted, reason: ReasonNodeDeleted, survives: true},
		{name: "znode deleted while cut off", timeout: 4 * time.Second, lose: func(t testing.TB, l *losing) {
			l.p.Refuse(true)
			onDeleted(t, l)
			l.p.Refuse(false)
		}, reason: ReasonNodeDeleted, survives: true},
		{name: "znode deleted, notice lost", lose: func(t testing.TB, l *losing) {
			l.p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpEvent), Times: 1, Do: zktest.CutBefore()})
			onDeleted(t, l)
		}, reason: ReasonNodeDeleted, survives: true},
		{name: "session expired", lose: func(t testing.TB, l *losing) {
			expireSession(t, l.p)
		}, reason: ReasonSessionExpired, cause: zk.ErrSessionExpired},
		{name: "session expired while cut off", timeout: 4 * time.Second, lose: func(t testing.TB, l *losing) {
			l.p.Refuse(true)
			expireSession(t, l.p)
			l.p.Refuse(false)
		}, reason: ReasonSessionExpired, cause: zk.ErrSessionExpired},
		{name: "black hole", timeout: 6 * time.Second, lose: func(_ testing.TB, l *losing) {
			l.p.BlackHole(zktest.Both)
			l.heal = func() { l.p.BlackHole(zktest.None) }
		}, reason: ReasonUnconfirmed, survives: true},
		{name: "black hole until the session is over", timeout: testTimeout, lose: func(t testing.TB, l *losing) {
			l.p.BlackHole(zktest.Both)
			l.heal = func() {
				eventually(t, 10*time.Second, "the server ends the session", func() bool { return len(children(t, l.look, l.m.Path())) == 0 })
				l.p.BlackHole(zktest.None)
			}
		}, reason: ReasonUnconfirmed},
		{name: "server stopped", timeout: 2 * time.Second, own: true, lose: func(t testing.TB, l *losing) {
			require.NoError(t, l.server.stop())
			l.p.Refuse(true)
			l.heal = func() {
				// A ZooKeeper that starts accepts connections, some of which it never answers. go-zookeeper waits for ten timeouts then: in the way "observed",
				// and in that of the observer, which had one before.
				require.NoError(t, l.server.start())
				l.p.Refuse(false)
				l.look = adminAt(t, []string{l.server.addr})
			}
		}, reason: ReasonUnconfirmed},
		{name: "server paused", timeout: 2 * time.Second, own: true, lose: func(t testing.TB, l *losing) {
			require.NoError(t, l.server.pause())
			l.heal = func() { require.NoError(t, l.server.resume()) }
		}, reason: ReasonUnconfirmed},
		{name: "Session closed", lose: func(t testing.TB, l *losing) { require.NoError(t, l.s.Close()) }, reason: ReasonSessionClosed},
		{name: "hold limit", lock: []LockOption{WithMaxHold(time.Second)}, lose: func(testing.TB, *losing) {}, reason: ReasonHoldLimit, survives: true},
		{name: "hold limit while cut off", timeout: 6 * time.Second, lock: []LockOption{WithMaxHold(time.Second)}, lose: func(_ testing.TB, l *losing) {
			l.p.BlackHole(zktest.Both)
			l.heal = func() { l.p.BlackHole(zktest.None) }
		}, reason: ReasonHoldLimit, survives: true},
		{name: "disconnected", dial: []DialOption{WithLoseOnDisconnect()}, lose: func(_ testing.TB, l *losing) { l.p.Cut() }, reason: ReasonUnconfirmed, survives: true},
		{name: "disconnected for longer", timeout: 4 * time.Second, dial: []DialOption{WithLoseOnDisconnect()}, lose: func(_ testing.TB, l *losing) {
			l.p.Refuse(true)
			l.heal = func() { l.p.Refuse(false) }
		}, reason: ReasonUnconfirmed, survives: true},
	}
	ss := newSides(t, len(cases))
	defer ss.wg.Wait()
	for _, c := range cases {
		if wayOf(t) == observed && c.name == "disconnected" {
			continue // it is over before anybody looks
		}
		ss.add(c.name, func(t testing.TB) {
			bg, seen := context.Background(), &hooks{}
			if c.timeout == 0 {
				c.timeout = testTimeout
			}
			l, addrs := new(losing), zktest.Shared(t).Addrs()
			if c.own {
				l.server = newTestServer(t, testTick)
				addrs = []string{l.server.addr}
			}
			l.p, l.look = zktest.NewProxy(t, addrs[0]), adminAt(t, addrs)
			l.s = dial(t, []string{l.p.Addr()}, append(c.dial, WithTimeout(c.timeout), WithTrace(seen.trace()))...)
			l.m = NewMutex(l.s, newPath(t), c.lock...)
			session := l.s.ID()
			var err error
			l.lease, err = l.m.Lock(within(t, 5*time.Second))
			require.NoError(t, err)
			again, err := l.m.Lock(l.lease.Context()) // a second lease of the same hold
			require.NoError(t, err)
			require.NoError(t, l.lease.Err())
			require.Len(t, l.s.Leases(), 2)

			c.lose(t, l)
			for _, lease := range []*Lease{l.lease, again} {
				mustBeLost(t, lease, c.reason)
				if c.cause != nil {
					require.ErrorIs(t, lease.Err(), c.cause)
				}
			}
			require.Empty(t, l.s.Leases())
			eventually(t, 5*time.Second, "the hook is called", func() bool { return len(seen.losses()) == 2 })
			if l.heal != nil {
				l.heal()
			}
			if c.reason != ReasonSessionClosed {
				next, err := l.m.Lock(within(t, 5*time.Second))
				require.NoError(t, err)
				require.Greater(t, next.Token(), l.lease.Token())
				if c.survives {
					require.Equal(t, session, l.s.ID())
				}
				require.ErrorIs(t, l.lease.Release(bg), ErrLost) // takes nothing away from the next lease
				eventually(t, 5*time.Second, "the old znode is gone", func() bool {
					names := children(t, l.look, l.m.Path())
					return !slices.Contains(names, path.Base(l.lease.Node())) && (c.lock != nil && next.Err() != nil || len(names) == 1 && l.m.Path()+"/"+names[0] == next.Node())
				})
				if c.lock == nil {
					require.NoError(t, next.Err())
					require.NoError(t, next.Release(bg))
				}
				mustBeLost(t, l.lease, c.reason)
			}
			if err := l.s.Close(); wayOf(t) == dialed || err != nil && !strings.Contains(err.Error(), "may yet come into effect") {
				require.NoError(t, err)
			}
			lost := seen.losses()
			require.Len(t, slices.DeleteFunc(slices.Clone(lost), func(call lostCall) bool { return call.lease != l.lease }), 1)
			require.Len(t, slices.DeleteFunc(slices.Clone(lost), func(call lostCall) bool { return call.lease != again }), 1)
			for _, call := range lost {
				require.True(t, call.done, "the hook is called after Done")
				require.Equal(t, call.lease.Err(), error(call.err))
			}
		})
	}
}

// mustBeLost waits for the loss and looks at the lease from all sides.
func mustBeLost(t testing.TB, l *Lease, reason LossReason) {
	t.Helper()
	select {
	case <-l.Context().Done(): // which nobody asks
	case <-time.After(10 * time.Second):
		t.Fatal("the lease is not lost")
	}
	lost, ok := errors.AsType[*LostError](l.Err())
	require.True(t, ok, "%v", l.Err())
	require.Equal(t, reason, lost.Reason, "%v", lost)
	require.Equal(t, l.Path(), lost.Path)
	require.ErrorIs(t, lost, ErrLost)
	require.ErrorIs(t, l.Context().Err(), context.Canceled)
	require.Equal(t, error(lost), context.Cause(l.Context()))
	select {
	case <-l.Done():
	default:
		t.Fatal("Done is not closed")
	}
	for range 2 {
		require.Equal(t, error(lost), l.Release(context.Background()))
	}
}

// The znode is deleted after the server has answered who is first and before the answer is there: the answer grants, and the read that sets the watch on
// the own znode tells of the loss.
func TestZnodeDeletedBetweenTheAnswerAndTheGrant(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"free", "after a wait", "on an event"} {
		t.Run(how, func(t *testing.T) {
			waits, held := how != "free", zktest.MatchOp(zktest.OpGetChildren2)
			bg, path, c := context.Background(), newPath(t), admin(t)
			s, p := dialProxy(t, calm)
			m := NewMutex(s, path)
			var got <-chan lockResult
			var first *Lease
			if waits {
				var holder Locker = NewRWLock(dialShared(t, calm), path) // which may leave a read behind, so that its end is no grant without a list
				if how == "on an event" {
					holder = NewMutex(dialShared(t, calm), path)
				}
				var err error
				first, err = holder.Lock(bg)
				require.NoError(t, err)
				if how == "on an event" {
					held = zktest.MatchPath(zktest.OpEvent, first.Node())
				}
				got = goLock(bg, m)
				eventually(t, 5*time.Second, "it waits", func() bool {
					return slices.ContainsFunc(p.Requests(), func(q zktest.Record) bool {
						return q.Op == zktest.OpGetData && q.Path == first.Node() && q.Answered
					})
				})
			}
			gate := zktest.NewGate()
			defer gate.Open()
			p.OnRequest(zktest.Rule{Match: held, Times: 1, Do: zktest.HoldReply(gate)})
			if waits {
				require.NoError(t, first.Release(bg))
			} else {
				mkdirs(t, c, path) // no list before there is a znode
				got = goLock(bg, m)
			}
			next(t, gate.Reached())
			node := nodeOf(t, c, path, s.ID())
			require.NotEmpty(t, node)
			require.NoError(t, c.Delete(node, -1))
			gate.Open()
			lease := mustLease(t, got)
			if lease.Node() == node {
				mustBeLost(t, lease, ReasonNodeDeleted)
				var err error
				lease, err = m.Lock(within(t, 5*time.Second))
				require.NoError(t, err)
			} else {
				// The notice of the deletion was faster than the answer that it stood behind: also right, and only possible when it was watched.
				require.True(t, waits)
			}
			require.NotEqual(t, node, lease.Node())
			require.NoError(t, lease.Err())
			require.NoError(t, lease.Release(bg))
		})
	}
}

// The own znode is deleted right before the only one in the way, and both are told at once: the second notice grants nothing, the waiter queues anew.
func TestOwnZnodeIsDeletedBeforeTheOneInTheWay(t *testing.T) {
	t.Parallel()
	bg, c := context.Background(), admin(t)
	others := dialShared(t, calm)
	s, p := dialProxy(t, calm)
	for range rounds(t, 60) {
		path := newPath(t)
		first, err := NewMutex(others, path).Lock(bg)
		require.NoError(t, err)
		got := goLock(bg, NewMutex(s, path))
		var node string
		eventually(t, 5*time.Second, "it waits", func() bool {
			node = nodeOf(t, c, path, s.ID())
			watches := func(node string) bool {
				return slices.ContainsFunc(p.Requests(), func(q zktest.Record) bool { return q.Op == zktest.OpGetData && q.Path == node && q.Answered })
			}
			return watches(first.Node()) && watches(node) // set by two goroutines, in any order
		})
		gate := zktest.NewGate()
		p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpEvent, node), Times: 1, Do: zktest.HoldReply(gate)})
		require.NoError(t, c.Delete(node, -1))
		next(t, gate.Reached())
		require.NoError(t, first.Release(bg))
		gate.Open()
		lease := mustLease(t, got)
		require.NotEqual(t, node, lease.Node())
		require.NoError(t, lease.Release(bg))
	}
}

// A disconnect that ends in time changes nothing for a holder: no loss, the same session, the same znode.
// Reports: CURATOR-620, CURATOR-202, STORM-1115, d2iq/marathon #2751.
func TestALeaseOutlivesADisconnect(t *testing.T) {
	t.Parallel()
	aLeaseOutlivesADisconnect(t)
}

func aLeaseOutlivesADisconnect(t testing.TB) {
	for name, fault := range map[string]func(p *zktest.Proxy) (heal func()){
		"cut":        func(p *zktest.Proxy) func() { p.Cut(); return func() {} },
		"refused":    func(p *zktest.Proxy) func() { p.Refuse(true); return func() { p.Refuse(false) } },
		"black hole": func(p *zktest.Proxy) func() { p.BlackHole(zktest.Both); return func() { p.BlackHole(zktest.None) } },
		"stalled":    func(p *zktest.Proxy) func() { p.Stall(zktest.Both); return func() { p.Stall(zktest.None) } },
	} {
		subtest(t, name, func(t testing.TB) {
			bg, c := context.Background(), admin(t)
			s, p := dialProxy(t, WithTimeout(4*time.Second))
			session := s.ID()
			m := NewMutex(s, newPath(t))
			lease, err := m.Lock(within(t, 5*time.Second))
			require.NoError(t, err)
			for range 5 {
				heal := fault(p)
				<-time.After(rand.N(150 * time.Millisecond))
				require.NoError(t, lease.Err())
				heal()
				// An answer to a request of its own: it is connected, and not for the moment only.
				_, err := s.Conn().Sync("/")
				if err != nil {
					_, err = s.Conn().Sync("/")
				}
				require.NoError(t, err)
			}
			require.NoError(t, lease.Err())
			require.NoError(t, lease.Context().Err())
			require.Equal(t, session, s.ID())
			ok, stat, err := c.Exists(lease.Node())
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, int64(lease.Token()), stat.Czxid)
			require.Len(t, children(t, c, m.Path()), 1)
			require.NoError(t, lease.Release(bg))
		})
	}
}

// followStates collects what States yields, until the test ends.
func followStates(t testing.TB, s *Session) (seen func() []State) {
	var mu sync.Mutex
	var all []State
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for st := range s.States(ctx) {
			mu.Lock()
			all = append(all, st)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return func() []State {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// A session that ends, or cannot be proved to live any longer, is connected, suspended, lost and connected, in this order, for a loop over States and for
// the hook. A loop that was busy meanwhile sees that there was a loss.
// Reports: CURATOR-220, CURATOR-185.
func TestStatesAroundALoss(t *testing.T) {
	t.Parallel()
	statesAroundALoss(t)
}

func statesAroundALoss(t testing.TB) {
	around := []State{StateConnected, StateSuspended, StateLost, StateConnected}
	for _, c := range []struct {
		name    string
		timeout time.Duration
		end     func(t testing.TB, s *Session, p *zktest.Proxy, lease *Lease)
		same    bool
	}{
		{"expired", 10 * time.Second, func(t testing.TB, s *Session, p *zktest.Proxy, _ *Lease) {
			expireSession(t, p)
			require.Equal(t, StateSuspended, s.State())
		}, false},
		// What is left of the timeout then is more than the pause between two attempts to connect.
		{"clock ran out", 10 * time.Second, func(t testing.TB, _ *Session, _ *zktest.Proxy, lease *Lease) { mustBeLost(t, lease, ReasonUnconfirmed) }, true},
	} {
		subtest(t, c.name, func(t testing.TB) {
			told := &hooks{}
			s, p := dialProxy(t, WithTimeout(c.timeout), WithTrace(told.trace()))
			session := s.ID()
			lease, err := NewMutex(s, newPath(t)).Lock(within(t, 5*time.Second))
			require.NoError(t, err)
			eventually(t, 5*time.Second, "connected", func() bool { return s.State() == StateConnected })
			seen := followStates(t, s)
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("the loop saw %v, the hook %v", seen(), told.seen())
				}
			})
			eventually(t, 5*time.Second, "the loop runs", func() bool { return len(seen()) == 1 })
			busy, busySeen := make(chan struct{}), make(chan []State, 1)
			go func() {
				var all []State
				for st := range s.States(context.Background()) {
					all = append(all, st)
					<-busy
				}
				busySeen <- all
			}()
			eventually(t, 5*time.Second, "both loops run", func() bool {
				s.statesMu.Lock()
				defer s.statesMu.Unlock()
				return len(s.watchers) == 2
			})

			p.Refuse(true)
			eventually(t, 5*time.Second, "the loop has seen that it is suspended", func() bool { return len(seen()) == 2 })
			c.end(t, s, p, lease)
			if c.same {
				eventually(t, 5*time.Second, "lost", func() bool { return s.State() == StateLost })
			}
			p.Refuse(false)
			eventually(t, 10*time.Second, "connected", func() bool { return s.State() == StateConnected })
			require.Equal(t, c.same, s.ID() == session)
			require.ErrorIs(t, lease.Err(), ErrLost)
			eventually(t, 5*time.Second, "the loop has seen all", func() bool { return len(seen()) == len(around) })
			close(busy)
			// The busy loop is at the latest state when the session is closed, or at that.
			require.NoError(t, s.Close())
			require.Equal(t, append(slices.Clone(around), StateClosed), told.seen())
			eventually(t, 5*time.Second, "the loop ends", func() bool { return slices.Contains(seen(), StateClosed) })
			require.Equal(t, append(slices.Clone(around), StateClosed), seen())
			all := <-busySeen
			require.Equal(t, StateConnected, all[0])
			require.Contains(t, all, StateLost)
			require.Equal(t, StateClosed, all[len(all)-1])
		})
	}
}

// A change that comes while a loop is about to look at the one before is not seen twice.
func TestStatesYieldsAChangeOnce(t *testing.T) {
	s := dialShared(t, calm)
	eventually(t, 5*time.Second, "connected", func() bool { return s.State() == StateConnected })
	seen := followStates(t, s)
	eventually(t, 5*time.Second, "the loop runs", func() bool { return len(seen()) == 1 })
	s.statesMu.Lock()
	s.tell(StateLost)
	for w := range s.watchers { // the loop has been woken, and waits for the lock
		eventually(t, 5*time.Second, "the loop is woken", func() bool { return len(w.wake) == 0 })
	}
	s.tell(StateConnected)
	s.statesMu.Unlock()
	require.NoError(t, s.Close())
	eventually(t, 5*time.Second, "the loop ends", func() bool { return slices.Contains(seen(), StateClosed) })
	states := slices.DeleteFunc(seen(), func(st State) bool { return st == StateClosed })
	require.Equal(t, []State{StateConnected, StateLost, StateConnected}, states)
}

// Hooks that do not return delay no loss, of whatever kind, no acquisition, and Close by no more than it may take.
// Reports: apache/accumulo #5132, apache/accumulo #1086, CURATOR-495, apache/dolphinscheduler #2020, slackhq/astra #1010.
func TestBlockedHooksDelayNoLoss(t *testing.T) {
	t.Parallel()
	bg, c := context.Background(), admin(t)
	parts := make(map[string]func(*testing.T))
	for name, block := range map[string]func(stuck, called chan struct{}) *Trace{
		"Lost": func(stuck, called chan struct{}) *Trace {
			return &Trace{Lost: func(*Lease, *LostError) { called <- struct{}{}; <-stuck }}
		},
		"StateChanged": func(stuck, called chan struct{}) *Trace {
			return &Trace{StateChanged: func(_ *Session, st State) {
				if st == StateSuspended {
					called <- struct{}{}
					<-stuck
				}
			}}
		},
	} {
		parts[name] = func(t *testing.T) {
			stuck, called := make(chan struct{}), make(chan struct{}, 100)
			s, p := dialProxy(t, WithTimeout(3*time.Second), WithTrace(block(stuck, called)))
			unblock := sync.OnceFunc(func() { close(stuck) })
			defer unblock()
			lock := func() *Lease {
				l, err := NewMutex(s, newPath(t)).Lock(within(t, 5*time.Second))
				require.NoError(t, err)
				return l
			}
			if name == "Lost" {
				l := lock()
				require.NoError(t, c.Delete(l.Node(), -1))
				mustBeLost(t, l, ReasonNodeDeleted)
			} else {
				eventually(t, 5*time.Second, "connected", func() bool { return s.State() == StateConnected })
				p.Cut()
			}
			awaitCall(t, called) // and it does not return

			deleted, expired := lock(), lock()
			require.NoError(t, c.Delete(deleted.Node(), -1))
			mustBeLost(t, deleted, ReasonNodeDeleted)
			require.NoError(t, expired.Err())
			p.Refuse(true)
			expireSession(t, p)
			p.Refuse(false)
			mustBeLost(t, expired, ReasonSessionExpired)
			silent := lock()
			p.BlackHole(zktest.Both)
			mustBeLost(t, silent, ReasonUnconfirmed)
			p.BlackHole(zktest.None)
			closed := lock()
			closing := make(chan error, 1)
			go func() { closing <- s.Close() }()
			mustBeLost(t, closed, ReasonSessionClosed)
			select {
			case err := <-closing:
				require.NoError(t, err)
			case <-time.After(6 * time.Second):
				t.Fatal("Close waits for a hook that does not return")
			}
			unblock()
			if name == "Lost" { // all are told in the end
				for range 4 {
					awaitCall(t, called)
				}
			}
			require.ErrorIs(t, silent.Release(bg), ErrLost)
		}
	}
	together(t, parts)
}

func awaitCall(t testing.TB, called <-chan struct{}) {
	t.Helper()
	select {
	case <-called:
	case <-time.After(10 * time.Second):
		t.Fatal("the hook was not called")
	}
}
