package zkrecipes

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A placeLoss is a way for a waiting candidate to lose its place.
type placeLoss struct {
	name string
	lose func(t testing.TB, p *zktest.Proxy, c *zk.Conn, node string)
}

var placeLosses = []placeLoss{
	{"session expired", func(t testing.TB, p *zktest.Proxy, _ *zk.Conn, _ string) { expireSession(t, p) }},
	{"znode deleted", func(t testing.TB, _ *zktest.Proxy, c *zk.Conn, node string) { require.NoError(t, c.Delete(node, -1)) }},
	{"znode deleted while cut off", func(t testing.TB, p *zktest.Proxy, c *zk.Conn, node string) {
		p.Refuse(true)
		require.NoError(t, c.Delete(node, -1))
		p.Refuse(false)
	}},
	{"cut off until the session is over", func(t testing.TB, p *zktest.Proxy, c *zk.Conn, node string) {
		p.BlackHole(zktest.Both)
		eventually(t, 20*time.Second, "its znode goes with its session", func() bool {
			ok, _, err := c.Exists(node)
			require.NoError(t, err)
			return !ok
		})
		p.BlackHole(zktest.None)
	}},
}

// TestCandidateThatLosesItsPlaceComesAgain is the kind K07: a candidate whose session or znode goes while it waits never leads by it (B50, etcd #11456: a
// grant to a waiter whose lease had ended; B53, CURATOR-307: not in the list, and taken for the first), does not sleep on without a znode (B51, etcd
// #19597; B72, twitter commons #20: an event without a path wakes nobody), but comes again, at the tail, and leads in its turn.
func TestCandidateThatLosesItsPlaceComesAgain(t *testing.T) {
	t.Parallel()
	ss := newSides(t, 32)
	defer ss.wg.Wait()
	for _, kind := range []string{aLatch, aSelector} {
		for _, loss := range placeLosses {
			ss.add(kind+", "+loss.name, func(t testing.TB) { loss.test(t, kind) })
		}
	}
}

func (loss placeLoss) test(t testing.TB, kind string) {
	c, path := admin(t), newPath(t)
	s, p := dialProxy(t)
	other := dialShared(t, calm)
	first := partake(t, kind, other, path)
	l := first.leads(t)
	candidate := partake(t, kind, s, path)
	waitingFor(t, path, 2)
	third := partake(t, kind, other, path)
	waitingFor(t, path, 3)
	node := nodeOf(t, c, path, s.ID())
	require.NotEmpty(t, node)
	loss.lose(t, p, c, node)
	var again string
	eventually(t, 10*time.Second, "it has another znode", func() bool {
		again = nodeOf(t, c, path, s.ID())
		return again != "" && again != node && len(children(t, c, path)) == 3
	})
	ps, err := first.spec.participants(within(t, 5*time.Second))
	require.NoError(t, err)
	require.Len(t, ps, 3)
	require.Equal(t, again, ps[2].Node, "at the tail")
	require.NoError(t, l.Err())
	require.NoError(t, first.stop())
	third.leads(t)
	require.False(t, candidate.isLeader())
	require.Empty(t, candidate.terms, "it has never led")
	require.NoError(t, third.stop())
	l = candidate.leads(t)
	require.Equal(t, again, l.Node())
	require.NoError(t, candidate.stop())
}

// TestExpiryOfACandidateRacesTheHandover is B50 of the kind K07 in all its moments: the session of a candidate is ended while the leader gives up. It leads in
// the session that ends, and is told of that; or it comes again behind the third. Nobody leads beside somebody who has not been told or will not be at once,
// and nobody without a znode.
func TestExpiryOfACandidateRacesTheHandover(t *testing.T) {
	t.Parallel()
	const lanes = 8
	ss := newSides(t, lanes)
	other := dialShared(t, calm)
	var mu sync.Mutex
	outcomes := make(map[string]int)
	for lane := range lanes {
		kind := []string{aLatch, aSelector}[lane%2]
		ss.add(fmt.Sprintf("lane %d, %s", lane, kind), func(t testing.TB) {
			c := admin(t)
			s, p := dialProxy(t)
			for range rounds(t, 8) {
				what := raceExpiryOfACandidate(t, c, kind, newPath(t), other, s, p)
				mu.Lock()
				outcomes[what]++
				mu.Unlock()
			}
		})
	}
	ss.wg.Wait()
	t.Logf("the candidate led: %v", outcomes)
}

func raceExpiryOfACandidate(t testing.TB, c *zk.Conn, kind, path string, other, s *Session, p *zktest.Proxy) (what string) {
	ctx := within(t, 30*time.Second)
	first, err := queue(kind, other, path)(ctx, false)
	require.NoError(t, err)
	candidate := partake(t, kind, s, path)
	waitingFor(t, path, 2)
	session := s.ID()
	third := lockedIn(func() (*Lease, error) { return queue(kind, other, path)(ctx, false) })
	waitingFor(t, path, 3)

	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		<-time.After(rand.N(4 * time.Millisecond))
		err := p.Expire(ctx)
		for err != nil && ctx.Err() == nil { // the client may come back in between
			err = p.Expire(ctx)
		}
	})
	wg.Go(func() {
		<-time.After(rand.N(4 * time.Millisecond))
		_ = first.Release(ctx)
	})
	what = "in its next session"
	// ended takes a term in the session that ends, and waits for its loss.
	ended := func(l term) {
		require.ErrorIs(t, first.Err(), ErrReleased, "led beside the first")
		require.Equal(t, session, l.hold.stake.session, "led before its turn")
		select {
		case <-l.Done():
			require.ErrorIs(t, l.Err(), ErrLost)
		case <-time.After(5 * time.Second): // the clock alone takes 4/3
			t.Fatalf("%s leads in a session that has ended", l.Node())
		}
		what = "in the session that ended"
	}
	var l *Lease
	for l == nil {
		select {
		case r := <-third:
			require.NoError(t, r.err)
			l = r.lease
		case led := <-candidate.terms:
			ended(led)
		}
	}
	for len(candidate.terms) > 0 {
		ended(<-candidate.terms)
	}
	require.NoError(t, l.Err())
	ok, _, err := c.Exists(l.Node())
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, l.Release(ctx))
	again := candidate.leads(t)
	for again.hold.stake.session == session { // of which the test hears late
		ended(again)
		again = candidate.leads(t)
	}
	ok, _, err = c.Exists(again.Node())
	require.NoError(t, err)
	require.True(t, ok, "leads without a znode")
	require.NoError(t, candidate.stop())
	return what
}
