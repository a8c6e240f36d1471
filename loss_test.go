package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A handover is a holder that is about to be cut off, and who is granted next, on one clock.
type handover struct {
	lease *Lease
	lost  chan time.Time // when the lease's Done was closed
	next  chan nextGrant
}

// A nextGrant is what was true the moment the next Lock returned.
type nextGrant struct {
	lease *Lease
	err   error
	at    time.Time
	done  bool  // the last holder's Done was closed
	told  error // and its Err, asked after that
}

// newHandover lets holder have a lock and next wait for it. look is a way to the tree past all faults.
func newHandover(t testing.TB, look Conn, holder, next *Session) *handover {
	t.Helper()
	path := newPath(t)
	lease, err := NewMutex(holder, path).Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	h := &handover{lease: lease, lost: make(chan time.Time, 1), next: make(chan nextGrant, 1)}
	ctx := within(t, 30*time.Second)
	stop := context.AfterFunc(lease.Context(), func() { h.lost <- time.Now() })
	t.Cleanup(func() { stop() })
	go func() {
		var g nextGrant
		g.lease, g.err = NewMutex(next, path).Lock(ctx)
		g.at = time.Now()
		// Lease.Done would ask the clock, and so would Err: first whether the lease was told without being asked.
		g.done = lease.Context().Err() != nil
		g.told = lease.Err()
		h.next <- g
	}()
	eventually(t, 10*time.Second, "the next one waits", func() bool { return len(children(t, look, path)) == 2 })
	require.NoError(t, lease.Err())
	return h
}

// margin waits for the next grant and returns how long before it the holder had been told. It had to be told.
func (h *handover) margin(t testing.TB) time.Duration {
	t.Helper()
	g := <-h.next
	require.NoError(t, g.err)
	defer func() { require.NoError(t, g.lease.Release(context.Background())) }()
	if !g.done || g.told == nil {
		var late any = "not within a second"
		select {
		case at := <-h.lost:
			late = at.Sub(g.at)
		case <-time.After(time.Second):
		}
		t.Fatalf("the next client was granted while the lease was held: Done closed: %v, Err: %v; told later by: %v", g.done, g.told, late)
	}
	require.ErrorIs(t, g.told, ErrLost)
	require.ErrorIs(t, h.lease.Release(context.Background()), ErrLost)
	return g.at.Sub(<-h.lost)
}

// margins collects them over many runs.
type margins struct {
	mu  sync.Mutex
	all []time.Duration
}

func (m *margins) add(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, d)
}

func (m *margins) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.all) == 0 {
		return "no runs"
	}
	slices.Sort(m.all)
	return fmt.Sprintf("%d runs, told before the next grant by at least %v, median %v", len(m.all), m.all[0].Round(time.Millisecond),
		m.all[len(m.all)/2].Round(time.Millisecond))
}

// A holder that hears or says nothing any more is told before its session can end at the server, and with it before anybody else is granted, whatever
// the direction and the phase of its pings.
func TestLossBeforeRegrantOnAStandaloneServer(t *testing.T) {
	t.Parallel()
	const holders, rounds = 10, 5
	directions := []zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.Both}
	next, look := dialShared(t, WithTimeout(10*time.Second)), admin(t)
	byDirection := map[zktest.Direction]*margins{zktest.ToServer: {}, zktest.ToClient: {}, zktest.Both: {}}
	ss := newSides(t, holders)
	for i := range holders {
		ss.add(fmt.Sprintf("holder %d", i), func(t testing.TB) {
			timeout := []time.Duration{time.Second, 1600 * time.Millisecond}[i%2]
			s, p := dialProxy(t, WithTimeout(timeout))
			for round := range rounds {
				d := directions[(i/2+round)%len(directions)]
				h := newHandover(t, look, s, next)
				<-time.After(rand.N(timeout / 2)) // a ping is due every third of it
				require.NoError(t, h.lease.Err())
				p.BlackHole(d)
				byDirection[d].add(h.margin(t))
				p.BlackHole(zktest.None)
			}
		})
	}
	ss.wg.Wait()
	for d, m := range byDirection {
		t.Logf("black hole %v: %v", d, m)
	}
}

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

// A losing is a holder, and what takes its lease away.
type losing struct {
	ens   *zktest.Ensemble
	s     *Session
	p     *zktest.Proxy
	look  *zk.Conn
	m     *Mutex
	lease *Lease
	heal  func() // nil: there is nothing to heal
}

// TestWhyALeaseWasLost takes leases away in each way there is. Each ends once, with the reason, wherever one looks; and unless the Session was closed the
// same Mutex value then locks again, at once, with the old znode gone.
func TestWhyALeaseWasLost(t *testing.T) {
	t.Parallel()
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
		{name: "black hole", timeout: 3 * time.Second, lose: func(_ testing.TB, l *losing) {
			l.p.BlackHole(zktest.Both)
			l.heal = func() { l.p.BlackHole(zktest.None) }
		}, reason: ReasonUnconfirmed, survives: true},
		{name: "black hole until the session is over", timeout: time.Second, lose: func(t testing.TB, l *losing) {
			l.p.BlackHole(zktest.Both)
			l.heal = func() {
				eventually(t, 10*time.Second, "the server ends the session", func() bool { return len(children(t, l.look, l.m.Path())) == 0 })
				l.p.BlackHole(zktest.None)
			}
		}, reason: ReasonUnconfirmed},
		{name: "server stopped", timeout: 2 * time.Second, own: true, lose: func(t testing.TB, l *losing) {
			server := l.ens.Server(0)
			require.NoError(t, server.Stop())
			l.heal = func() { require.NoError(t, server.Start()) }
		}, reason: ReasonUnconfirmed},
		{name: "server paused", timeout: 2 * time.Second, own: true, lose: func(t testing.TB, l *losing) {
			server := l.ens.Server(0)
			require.NoError(t, server.Pause())
			l.heal = func() { require.NoError(t, server.Resume()) }
		}, reason: ReasonUnconfirmed},
		{name: "Session closed", lose: func(t testing.TB, l *losing) { require.NoError(t, l.s.Close()) }, reason: ReasonSessionClosed},
		{name: "hold limit", lock: []LockOption{WithMaxHold(300 * time.Millisecond)}, lose: func(testing.TB, *losing) {}, reason: ReasonHoldLimit, survives: true},
		{name: "hold limit while cut off", timeout: 4 * time.Second, lock: []LockOption{WithMaxHold(300 * time.Millisecond)}, lose: func(_ testing.TB, l *losing) {
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
		ss.add(c.name, func(t testing.TB) {
			bg, seen := context.Background(), &hooks{}
			if c.timeout == 0 {
				c.timeout = testTimeout
			}
			ens := zktest.Shared(t)
			if c.own {
				ens = zktest.Start(t)
			}
			l := &losing{ens: ens, p: zktest.NewProxy(t, ens.Addrs()[0]), look: adminAt(t, ens.Addrs())}
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
					return len(names) == 1 && l.m.Path()+"/"+names[0] == next.Node()
				})
				if c.lock == nil {
					require.NoError(t, next.Err())
					require.NoError(t, next.Release(bg))
				}
				mustBeLost(t, l.lease, c.reason)
			}
			require.NoError(t, l.s.Close())
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
	for _, waits := range []bool{false, true} {
		t.Run(map[bool]string{false: "free", true: "after a wait"}[waits], func(t *testing.T) {
			bg, path, c := context.Background(), newPath(t), admin(t)
			s, p := dialProxy(t)
			m := NewMutex(s, path)
			var got <-chan lockResult
			var first *Lease
			if waits {
				var err error
				first, err = NewMutex(dialShared(t), path).Lock(bg)
				require.NoError(t, err)
				got = goLock(bg, m)
				eventually(t, 5*time.Second, "it waits", func() bool {
					return slices.ContainsFunc(p.Requests(), func(q zktest.Record) bool {
						return q.Op == zktest.OpGetData && q.Path == first.Node() && q.Answered
					})
				})
			}
			gate := zktest.NewGate()
			defer gate.Open()
			p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpGetChildren2, path), Times: 1, Do: zktest.HoldReply(gate)})
			if waits {
				require.NoError(t, first.Release(bg))
			} else {
				mkdirs(t, c, path) // no list before there is a znode
				got = goLock(bg, m)
			}
			<-gate.Reached()
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

// A disconnect that ends in time changes nothing for a holder: no loss, the same session, the same znode.
func TestALeaseOutlivesADisconnect(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(p *zktest.Proxy) (heal func()){
		"cut":        func(p *zktest.Proxy) func() { p.Cut(); return func() {} },
		"refused":    func(p *zktest.Proxy) func() { p.Refuse(true); return func() { p.Refuse(false) } },
		"black hole": func(p *zktest.Proxy) func() { p.BlackHole(zktest.Both); return func() { p.BlackHole(zktest.None) } },
		"stalled":    func(p *zktest.Proxy) func() { p.Stall(zktest.Both); return func() { p.Stall(zktest.None) } },
	} {
		t.Run(name, func(t *testing.T) {
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
func TestStatesAroundALoss(t *testing.T) {
	t.Parallel()
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
		t.Run(c.name, func(t *testing.T) {
			told := &hooks{}
			s, p := dialProxy(t, WithTimeout(c.timeout), WithTrace(told.trace()))
			session := s.ID()
			lease, err := NewMutex(s, newPath(t)).Lock(within(t, 5*time.Second))
			require.NoError(t, err)
			eventually(t, 5*time.Second, "connected", func() bool { return s.State() == StateConnected })
			seen := followStates(t, s)
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
			eventually(t, 5*time.Second, "suspended", func() bool { return s.State() == StateSuspended })
			c.end(t, s, p, lease)
			if c.same {
				eventually(t, 5*time.Second, "lost", func() bool { return s.State() == StateLost })
			}
			p.Refuse(false)
			eventually(t, 10*time.Second, "connected", func() bool { return s.State() == StateConnected })
			require.Equal(t, c.same, s.ID() == session)
			require.ErrorIs(t, lease.Err(), ErrLost)
			close(busy)
			// The busy loop is at the latest state when the session is closed, or at that.
			require.NoError(t, s.Close())
			require.Equal(t, append(slices.Clone(around), StateClosed), told.states)
			eventually(t, 5*time.Second, "the loop ends", func() bool { return slices.Contains(seen(), StateClosed) })
			require.Equal(t, append(slices.Clone(around), StateClosed), seen())
			all := <-busySeen
			require.Equal(t, StateConnected, all[0])
			require.Contains(t, all, StateLost)
			require.Equal(t, StateClosed, all[len(all)-1])
		})
	}
}

// Hooks that do not return delay no loss, of whatever kind, no acquisition, and Close by no more than it may take.
func TestBlockedHooksDelayNoLoss(t *testing.T) {
	t.Parallel()
	bg, c := context.Background(), admin(t)
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
		t.Run(name, func(t *testing.T) {
			stuck, called := make(chan struct{}), make(chan struct{}, 100)
			s, p := dialProxy(t, WithTrace(block(stuck, called)))
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
			case <-time.After(testTimeout + 3*time.Second):
				t.Fatal("Close waits for a hook that does not return")
			}
			unblock()
			if name == "Lost" { // all are told in the end
				for range 4 {
					awaitCall(t, called)
				}
			}
			require.ErrorIs(t, silent.Release(bg), ErrLost)
		})
	}
}

func awaitCall(t testing.TB, called <-chan struct{}) {
	t.Helper()
	select {
	case <-called:
	case <-time.After(10 * time.Second):
		t.Fatal("the hook was not called")
	}
}
