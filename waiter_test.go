package zkrecipes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/zktest"
)

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

// expireSession ends the session behind a proxy.
func expireSession(t testing.TB, p *zktest.Proxy) {
	t.Helper()
	require.NoError(t, p.Expire(within(t, 5*time.Second)))
}

// sameSession reports whether the client behind a proxy has no other session yet. One that has was told that the former one is over.
func sameSession(p *zktest.Proxy, session int64) bool {
	now, _, _ := p.Session()
	return now == session
}

// A waiter that has lost its znode, with its session or without, queues again at the tail as soon as it knows, and is granted in its turn.
// Reports: etcd-io/etcd #19597, etcd-io/etcd #12334, zk-ruby/zk #55, CURATOR-307, CURATOR-211, etcd-io/etcd #16221, twitter-archive/commons #20.
func TestAWaiterThatLosesItsPlaceQueuesAgain(t *testing.T) {
	t.Parallel()
	aWaiterThatLosesItsPlaceQueuesAgain(t)
}

func aWaiterThatLosesItsPlaceQueuesAgain(t testing.TB) {
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
		for kind, locker := range lockers {
			subtest(t, name+", "+kind, func(t testing.TB) {
				aWaiterLosesItsPlace(t, locker, lose, name == "session expired")
			})
		}
	}
}

// lockers are the ways to stand in a queue.
var lockers = map[string]func(s *Session, path string) Locker{
	"mutex": func(s *Session, path string) Locker { return NewMutex(s, path) },
	"write": func(s *Session, path string) Locker { return NewRWLock(s, path) },
	"read":  func(s *Session, path string) Locker { return NewRWLock(s, path).RLocker() },
}

func aWaiterLosesItsPlace(t testing.TB, locker func(*Session, string) Locker, lose func(testing.TB, *zktest.Proxy, *zk.Conn, string), expires bool) {
	bg, path, c := context.Background(), newPath(t), admin(t)
	others := dialShared(t, WithTimeout(10*time.Second))
	s, p := dialProxy(t, calm)
	session := s.ID()
	first, err := NewMutex(others, path).Lock(bg)
	require.NoError(t, err)
	got := goLock(bg, locker(s, path))
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
	require.Equal(t, expires, s.ID() != session)
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
}

// A list in which the own znode is first is no grant while nothing proves that the session lives: a follower that has lost its leader goes on
// answering lists for a while, of a time in which the session still was. Here no sync is answered, as then, and pings and reads are.
func TestNoGrantWhenTheClockHasRunOut(t *testing.T) {
	t.Parallel()
	noGrantWhenTheClockHasRunOut(t)
}

func noGrantWhenTheClockHasRunOut(t testing.TB) {
	for name, of := range map[string]func(*Session, string) Locker{ // a write may leave a read behind, so that its end is no grant without a list
		"by a list":                        func(s *Session, path string) Locker { return NewRWLock(s, path) },
		"by the end of the only one ahead": func(s *Session, path string) Locker { return NewMutex(s, path) },
	} {
		subtest(t, name, func(t testing.TB) { noGrantOnARunOutClock(t, of) })
	}
}

func noGrantOnARunOutClock(t testing.TB, of func(*Session, string) Locker) {
	bg, path, c := context.Background(), newPath(t), admin(t)
	others := dialShared(t, WithTimeout(10*time.Second))
	s, p := dialProxy(t, WithTimeout(3*time.Second))
	session := s.ID()
	first, err := of(others, path).Lock(bg)
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

	syncs := answered(zktest.OpSync, "/")
	require.NoError(t, first.Release(bg))
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
// Reports: etcd-io/etcd #11456, etcd-io/etcd #9921.
func TestExpiryOfAWaiterRacesTheRelease(t *testing.T) {
	t.Parallel()
	// Who holds, the waiter, and who is behind it: of the last two one at most may hold.
	orders := [][3]string{{"mutex", "mutex", "mutex"}, {"write", "write", "write"}, {"write", "read", "write"}, {"read", "write", "write"}}
	const lanes, rounds = 12, 10
	var mu sync.Mutex
	outcomes := make(map[string]int)
	ss := newSides(t, lanes)
	others := dialShared(t, WithTimeout(10*time.Second))
	for lane := range lanes {
		order := orders[lane%len(orders)]
		ss.add(fmt.Sprintf("lane %d, %v", lane, order), func(t testing.TB) {
			c := admin(t)
			s, p := dialProxy(t, calm)
			for range rounds {
				what := raceExpiry(t, c, newPath(t), others, s, p, order)
				mu.Lock()
				outcomes[what]++
				mu.Unlock()
			}
		})
	}
	ss.wg.Wait()
	t.Logf("the waiter was granted: %v", outcomes)
}

func raceExpiry(t testing.TB, c *zk.Conn, path string, others, s *Session, p *zktest.Proxy, order [3]string) (what string) {
	ctx := within(t, 30*time.Second)
	grants := make(chan lockResult, 2)
	queue := func(s *Session, place int) {
		go func() {
			lease, err := lockers[order[place-1]](s, path).Lock(ctx)
			grants <- lockResult{lease, err}
		}()
		eventually(t, 10*time.Second, "it queues", func() bool { return len(children(t, c, path)) == place })
	}
	first, err := lockers[order[0]](others, path).Lock(ctx)
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
			if !sameSession(p, session) {
				expired = nil
				break
			}
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
		if g.lease.hold.stake.session != session {
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
		node := spec.dir + "/lock-0000000000"
		own := s.engine.Watch(node, core.Data, func(core.Wake) {}) // it has no contender to wake
		defer own.Cancel()
		s.engine.Enter()
		s.mu.Lock()
		h := s.newHold(holdKey{dir: spec.dir, owner: "late"}, spec)
		h.limit = &holdLimit{s: s}
		j := h.join(context.Background(), spec)
		s.mu.Unlock()
		v := h.granted(core.Znode{Path: node, Session: session}, own, false)
		if v != grantTaken {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.endHold(h)
			s.engine.Leave()
			return v
		}
		<-j.done
		_ = j.result.lease.Release(within(t, time.Second))
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
