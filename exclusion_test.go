package zkrecipes

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/zktest"
)

const processes = 8

// newCounter returns a file that holds 0.
func newCounter(t testing.TB) string {
	name := filepath.Join(t.TempDir(), "counter")
	require.NoError(t, os.WriteFile(name, []byte("0"), 0o600))
	return name
}

func readCounter(t testing.TB, name string) int {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	n, err := strconv.Atoi(string(text))
	require.NoError(t, err)
	return n
}

// Eight processes increment a number in a file 200 times each. Reading it and writing it back are two steps, which only the lock keeps together, and
// there is some time in between: a lock that two hold for as long as a hand-over takes would not be found out otherwise.
func TestProcessesExcludeEachOther(t *testing.T) {
	const rounds = 200
	counter, path := newCounter(t), newPath(t)
	var ws []*worker
	for range processes {
		ws = append(ws, startWorker(t, "increment", task{
			Servers: zktest.Shared(t).Addrs(), Timeout: 10 * time.Second, Path: path, Rounds: rounds, Counter: counter, Linger: 2 * time.Millisecond,
		}))
	}
	for _, w := range ws {
		w.ready(t)
	}
	for _, w := range ws {
		w.goOn(t)
	}
	for _, w := range ws {
		r := w.report(t, 60*time.Second)
		require.Empty(t, r.Wrong)
		require.Empty(t, r.GaveUp)
		require.Zero(t, r.Lost)
		require.Equal(t, rounds, r.Counted)
	}
	require.Equal(t, processes*rounds, readCounter(t, counter))
	require.Empty(t, children(t, admin(t), path))
}

// One of the eight sits behind a proxy that breaks its connection every 200 ms. Its session is so short that it loses leases by that, and it takes its
// time between reading and writing, without a look at its lease, but reads again and again.
//
// The seven increment a file, as above: exact, whatever becomes of the eighth. It does not touch the file: a write of a process that was held up after
// it had last looked at its lease comes too late whatever a lock does. That is what tokens are for, so all eight also increment a register that
// refuses old ones. What is asked of it:
//
//   - The seven are never refused, and lose no lease.
//   - Whoever is refused has by then been told that its lease is lost: an access with an old token arrives after a later holder's first access, hence
//     after that one's grant. So the register sees no old token from a holder who believes in its lease.
//   - An increment of the eighth counts only if the register took it, and the number is the count of those taken: a lease that had been lost without a
//     later access yet does no harm, and one with a later access is refused. That holds because a later grant has the greater token.
func TestProcessBehindABrokenNetworkHarmsNobody(t *testing.T) {
	const wanted = 32 // faults
	counter, path, reg := newCounter(t), newPath(t), newRegister(t)
	// Its tick allows the eighth a session that the longest of the faults ends at the server.
	server := zktest.Start(t, zktest.TickTime(100*time.Millisecond))
	proxy := zktest.NewProxy(t, server.Addrs()[0])
	healthy := task{Servers: server.Addrs(), Timeout: 10 * time.Second, Path: path, Counter: counter, Register: reg.listener.Addr().String(), Name: "healthy"}
	faulty := healthy
	faulty.Servers, faulty.Timeout, faulty.Counter, faulty.Linger, faulty.Name = []string{proxy.Addr()}, 300*time.Millisecond, "", time.Second, "faulty"
	eighth := startWorker(t, "increment", faulty)
	var ws []*worker
	for range processes - 1 {
		ws = append(ws, startWorker(t, "increment", healthy))
	}
	all := append(slices.Clone(ws), eighth)
	for _, w := range all {
		w.ready(t)
	}
	faults := breakAtRandom(t, proxy, 200*time.Millisecond)
	for _, w := range all {
		w.goOn(t)
	}
	eventually(t, 50*time.Second, "enough faults, and some increments in spite of them", func() bool {
		return faults.total() >= wanted && reg.writtenBy("faulty") >= 3
	})
	for _, w := range ws {
		w.stop()
	}
	counted, written := 0, 0
	for _, w := range ws {
		r := w.report(t, 20*time.Second)
		require.Empty(t, r.Wrong)
		require.Empty(t, r.GaveUp)
		require.Zero(t, r.Lost)
		require.Zero(t, r.Refused)
		require.Positive(t, r.Rounds)
		require.Equal(t, r.Rounds, r.Counted)
		require.Equal(t, r.Rounds, r.Written)
		counted += r.Counted
		written += r.Written
	}
	require.Equal(t, counted, readCounter(t, counter))
	faults.stop()
	eighth.stop()
	r := eighth.report(t, 20*time.Second)
	require.Empty(t, r.Wrong)
	for _, err := range r.GaveUp { // the one error besides the end of ctx that a bad network may bring
		require.Contains(t, err, "connection lost 3 times running by creating a znode")
	}
	require.LessOrEqual(t, r.Refused, r.Lost)
	written += r.Written
	reg.mu.Lock()
	defer reg.mu.Unlock()
	t.Logf("faults: %v; the eighth: %d rounds, %d written, %d refused, %d leases lost, gave up: %q; %d written by the seven", faults.struck,
		r.Rounds, r.Written, r.Refused, r.Lost, r.GaveUp, counted)
	require.Equal(t, r.Written, reg.written["faulty"])
	require.Equal(t, written, reg.value)
	require.Equal(t, r.Refused, reg.refused)
}

// faults is what breakAtRandom has done.
type faults struct {
	stop func() // ends it, with the proxy healed

	mu     sync.Mutex
	struck map[string]int
}

func (f *faults) total() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, times := range f.struck {
		n += times
	}
	return n
}

// breakAtRandom does something bad to the proxy's connections each time the interval has passed, all kinds in turn, in another order each time round.
func breakAtRandom(t testing.TB, p *zktest.Proxy, every time.Duration) *faults {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("ZKRECIPES_TEST_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("ZKRECIPES_TEST_SEED=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	directions := []zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.Both}
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(rnd.Int64N(int64(to-from))) }
	ctx, cancel := context.WithCancel(context.Background())
	wait := func(d time.Duration) bool {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	kinds := []struct {
		name   string
		strike func(d zktest.Direction)
	}{
		{"cut", func(zktest.Direction) { p.Cut() }},
		{"black hole", func(d zktest.Direction) {
			p.BlackHole(d)
			wait(between(100*time.Millisecond, 400*time.Millisecond))
			p.BlackHole(zktest.None)
		}},
		{"refuse", func(zktest.Direction) {
			p.Refuse(true)
			wait(between(20*time.Millisecond, 600*time.Millisecond))
			p.Refuse(false)
		}},
		{"stall", func(d zktest.Direction) {
			p.Stall(d)
			wait(between(20*time.Millisecond, 600*time.Millisecond))
			p.Stall(zktest.None)
		}},
	}
	f := &faults{struck: make(map[string]int)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			for _, i := range rnd.Perm(len(kinds)) {
				if !wait(every) {
					return
				}
				f.mu.Lock()
				f.struck[kinds[i].name]++
				f.mu.Unlock()
				kinds[i].strike(directions[rnd.IntN(len(directions))])
			}
		}
	}()
	f.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(f.stop)
	return f
}

// nodeOf returns the znode under path that belongs to a session, "" if there is none.
func nodeOf(t testing.TB, c Conn, path string, session int64) string {
	t.Helper()
	for _, name := range children(t, c, path) {
		ok, stat, err := c.Exists(path + "/" + name)
		require.NoError(t, err)
		if ok && stat.EphemeralOwner == session {
			return path + "/" + name
		}
	}
	return ""
}

// expireSession ends the session behind a proxy. Its client, whose connection the server drops for that, is kept from coming back in between: it could
// push the connection aside that is to close the session, or resume the session just before its end, when a server drops all requests in silence.
func expireSession(t testing.TB, p *zktest.Proxy) {
	t.Helper()
	gate := zktest.NewGate()
	defer gate.Open()
	defer p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpConnect), Do: zktest.HoldRequest(gate)})()
	require.NoError(t, p.Expire(within(t, 5*time.Second)))
}

// A waiter that has lost its znode, with its session or without, queues again at the tail as soon as it knows, and is granted in its turn.
func TestAWaiterThatLosesItsPlaceQueuesAgain(t *testing.T) {
	for name, lose := range map[string]func(t testing.TB, p *zktest.Proxy, c *zk.Conn, node string){
		"session expired": func(t testing.TB, p *zktest.Proxy, _ *zk.Conn, _ string) {
			expireSession(t, p)
		},
		"znode deleted": func(t testing.TB, _ *zktest.Proxy, c *zk.Conn, node string) {
			require.NoError(t, c.Delete(node, -1))
		},
		"znode deleted while cut off": func(t testing.TB, p *zktest.Proxy, c *zk.Conn, node string) {
			p.Refuse(true)
			require.NoError(t, c.Delete(node, -1))
			p.Refuse(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bg, path, c := context.Background(), newPath(t), admin(t)
			others := dialShared(t, WithTimeout(10*time.Second))
			s, p := dialProxy(t)
			session := s.ID()
			first, err := NewMutex(others, path).Lock(bg)
			require.NoError(t, err)
			got := goLock(bg, NewMutex(s, path))
			waitingFor(t, path, 2)
			third := goLock(bg, NewMutex(others, path))
			waitingFor(t, path, 3)
			node := nodeOf(t, c, path, session)
			require.NotEmpty(t, node)

			lose(t, p, c, node)
			var again string
			eventually(t, 5*time.Second, "it has another znode", func() bool {
				again = nodeOf(t, c, path, s.ID())
				return again != "" && again != node && len(children(t, c, path)) == 3
			})
			require.Equal(t, name == "session expired", s.ID() != session)
			ps, err := NewMutex(others, path).Participants(within(t, 5*time.Second))
			require.NoError(t, err)
			require.Len(t, ps, 3)
			require.Equal(t, again, ps[2].Node, "at the tail")

			require.NoError(t, first.Release(bg))
			second := mustLease(t, third)
			select {
			case r := <-got:
				t.Fatalf("it was granted before its turn: %+v", r)
			default:
			}
			require.NoError(t, second.Release(bg))
			lease := mustLease(t, got)
			require.NoError(t, lease.Err())
			require.Equal(t, again, lease.Node())
			require.Greater(t, lease.Token(), second.Token())
			require.NoError(t, lease.Release(bg))
		})
	}
}

// A list in which the own znode is first is no grant while nothing proves that the session lives: a follower that has lost its leader goes on answering
// lists for a while, of a time in which the session still was. Here no sync is answered, as then, and pings and reads are.
func TestNoGrantWhenTheClockHasRunOut(t *testing.T) {
	t.Parallel()
	bg, path, c := context.Background(), newPath(t), admin(t)
	others := dialShared(t, WithTimeout(10*time.Second))
	s, p := dialProxy(t, WithTimeout(time.Second))
	session := s.ID()
	first, err := NewMutex(others, path).Lock(bg)
	require.NoError(t, err)
	got := goLock(bg, NewMutex(s, path))
	waitingFor(t, path, 2)
	node := nodeOf(t, c, path, session)
	answered := func(op zktest.Op, path string) (n int) {
		for _, q := range p.Requests() {
			if q.Op == op && q.Path == path && q.Answered {
				n++
			}
		}
		return n
	}
	eventually(t, 5*time.Second, "it waits", func() bool { return answered(zktest.OpGetData, first.Node()) > 0 })
	remove := p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpSync), Do: zktest.DropReply()})
	eventually(t, 5*time.Second, "its clock has run out", func() bool { return s.engine.Left(session) <= 0 })
	require.Equal(t, StateConnected, s.State())

	lists, syncs := answered(zktest.OpGetChildren2, path), answered(zktest.OpSync, "/")
	require.NoError(t, first.Release(bg))
	eventually(t, 5*time.Second, "it sees that it is first", func() bool { return answered(zktest.OpGetChildren2, path) > lists })
	eventually(t, 5*time.Second, "it asks for proof", func() bool {
		select {
		case r := <-got:
			t.Fatalf("granted without proof: %+v", r)
		default:
		}
		return answered(zktest.OpSync, "/") > syncs
	})
	remove()
	p.Cut() // what was dropped is never answered; a new connection proves the session as well
	lease := mustLease(t, got)
	require.NoError(t, lease.Err())
	require.Equal(t, session, s.ID())
	require.Equal(t, node, lease.Node(), "it kept its place")
	require.NoError(t, lease.Release(bg))
}

// A waiter's session is ended by force at the moment in which the holder gives the lock back. Whichever comes first: the waiter is granted in the
// session that ends, and is told of that, or in its next one, in its turn. There are never two holders, but for a lease whose session was ended from
// outside: that is told as soon as the server's notice arrives, which may be after the next grant.
func TestExpiryOfAWaiterRacesTheRelease(t *testing.T) {
	const lanes, rounds = 10, 10
	var mu sync.Mutex
	outcomes := make(map[string]int)
	ss := newSides(t, lanes)
	others := dialShared(t, WithTimeout(10*time.Second))
	for lane := range lanes {
		ss.add("lane "+strconv.Itoa(lane), func(t testing.TB) {
			c := admin(t)
			s, p := dialProxy(t)
			for range rounds {
				what := raceExpiry(t, c, newPath(t), others, s, p)
				mu.Lock()
				outcomes[what]++
				mu.Unlock()
			}
		})
	}
	ss.wg.Wait()
	t.Logf("the waiter was granted: %v", outcomes)
}

func raceExpiry(t testing.TB, c *zk.Conn, path string, others, s *Session, p *zktest.Proxy) (what string) {
	ctx := within(t, 30*time.Second)
	grants := make(chan lockResult, 2)
	queue := func(s *Session, place int) {
		go func() {
			lease, err := NewMutex(s, path).Lock(ctx)
			grants <- lockResult{lease, err}
		}()
		eventually(t, 10*time.Second, "it queues", func() bool { return len(children(t, c, path)) == place })
	}
	first, err := NewMutex(others, path).Lock(ctx)
	require.NoError(t, err)
	queue(s, 2)
	session := s.ID()
	require.NotEmpty(t, nodeOf(t, c, path, session))
	queue(others, 3)

	var wg sync.WaitGroup
	defer wg.Wait()
	var expired, released error
	wg.Go(func() {
		<-time.After(rand.N(4 * time.Millisecond))
		for expired = p.Expire(ctx); expired != nil && ctx.Err() == nil; { // the client may come back in between
			expired = p.Expire(ctx)
		}
	})
	wg.Go(func() {
		<-time.After(rand.N(4 * time.Millisecond))
		released = first.Release(ctx)
	})

	// ended tells whether that was a grant in the session that ends, and waits for its loss.
	ended := func(g lockResult) bool {
		require.NoError(t, g.err)
		require.ErrorIs(t, first.Err(), ErrReleased, "granted beside the first holder")
		if g.lease.hold.session != session {
			return false
		}
		select {
		case <-g.lease.Done():
			require.ErrorIs(t, g.lease.Err(), ErrLost)
		case <-time.After(5 * time.Second): // the clock alone takes 4/3
			t.Fatalf("%s is held in a session that has ended", g.lease.Node())
		}
		what = "in the session that ended"
		return true
	}
	what = "in its next session"
	for n := 0; n < 2; n++ {
		g := <-grants
		if ended(g) {
			continue
		}
		require.NoError(t, g.lease.Err())
		ok, _, err := c.Exists(g.lease.Node())
		require.NoError(t, err)
		require.True(t, ok, "granted without a znode")
		select { // somebody who is granted beside it
		case other := <-grants:
			n++
			require.True(t, ended(other), "two holders")
		case <-time.After(rand.N(3 * time.Millisecond)):
		}
		require.NoError(t, g.lease.Release(ctx))
	}
	wg.Wait()
	require.NoError(t, expired)
	require.NoError(t, released)
	return what
}

// An answer that was read in a session grants nothing once that session is over, not even while there is no other session yet: its end has been told,
// and nobody would tell this lease. Nor does it while the connection is down where that alone ends a lease.
func TestNoGrantAfterTheLossWasTold(t *testing.T) {
	t.Parallel()
	late := func(t testing.TB, s *Session, session int64) verdict {
		spec := newLockSpec(s, newPath(t), "lock-", nil)
		h := &hold{s: s, key: holdKey{dir: spec.dir, owner: "late"}, spec: spec, decided: make(chan struct{}), revoked: make(chan struct{})}
		node := spec.dir + "/lock-0000000000"
		own := s.engine.Watch(node, core.Data, func(core.Wake) {}) // it has no contender to wake
		defer own.Cancel()
		s.engine.Enter()
		s.mu.Lock()
		j := h.join(context.Background(), spec, nil)
		s.holds[h.key] = h
		s.mu.Unlock()
		v := h.granted(core.Created{Path: node, Name: "lock-0000000000", Session: session}, own)
		if v != grantTaken {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.endHold(h)
			s.engine.Leave()
			return v
		}
		_ = (<-j.result).lease.Release(within(t, time.Second))
		return v
	}
	t.Run("expired", func(t *testing.T) {
		s, p := dialProxy(t, WithTimeout(10*time.Second))
		session := s.ID()
		require.Equal(t, grantTaken, late(t, s, session))
		gate := zktest.NewGate()
		defer gate.Open()
		p.Refuse(true)
		require.NoError(t, p.Expire(within(t, 5*time.Second)))
		// The next connect is told, the one after that asks for a new session.
		p.OnRequest(zktest.Rule{Match: zktest.Nth(1, zktest.MatchOp(zktest.OpConnect)), Times: 1, Do: zktest.HoldRequest(gate)})
		p.Refuse(false)
		eventually(t, 10*time.Second, "its end is told", func() bool { return s.State() == StateLost })
		require.Equal(t, grantStale, late(t, s, session))
		gate.Open()
		eventually(t, 10*time.Second, "it has another session", func() bool { return s.State() == StateConnected })
		require.Equal(t, grantStale, late(t, s, session))
	})
	t.Run("disconnected, WithLoseOnDisconnect", func(t *testing.T) {
		s, p := dialProxy(t, WithTimeout(10*time.Second), WithLoseOnDisconnect())
		session := s.ID()
		require.Equal(t, grantTaken, late(t, s, session))
		p.Refuse(true)
		eventually(t, 10*time.Second, "it is told", func() bool { return s.State() == StateSuspended })
		require.Equal(t, grantStale, late(t, s, session))
		p.Refuse(false)
	})
}
