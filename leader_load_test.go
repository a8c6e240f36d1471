package zkrecipes

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// TestLeaderWithAThousandCandidates counts what a change of leadership costs with ten candidates and with a thousand, of four sessions: the same few requests,
// and one candidate is woken (B138, K27). To ask who leads costs as little, and to ask whether oneself does costs nothing.
// A thousand that come at once take a whole processor for a while, so that it runs beside no other test.
func TestLeaderWithAThousandCandidates(t *testing.T) {
	candidates, ends, atOnce := 1000, 20, 1
	if !testrun.Real() {
		candidates, ends, atOnce = 100, 8, 2
	}
	ss := newSides(t, atOnce)
	for kind, candidates := range map[string]int{aLatch: candidates, aSelector: 100} { // the second is the same queue
		ss.add(kind, func(t testing.TB) {
			few, many := newCrowd(t, kind, 10), newCrowd(t, kind, candidates)
			few.ends(t, 5)
			many.ends(t, ends)
			for _, c := range []*crowd{few, many} {
				require.LessOrEqual(t, c.perChange.requests, 2, "a delete, and a list unless one knew that one was next")
				require.LessOrEqual(t, c.perChange.events, 2, "the notices of the predecessor and of the leader's own znode")
				require.LessOrEqual(t, c.perRejoin.requests, 7, "and a create, a list and two reads")
				require.LessOrEqual(t, c.perRejoin.events, 2)
				require.Equal(t, cost{2, 0}, c.perLook)
			}
			ss.t.Logf("%s: %v, giving up and coming again %v, Leader %v", kind, many.perChange, many.perRejoin, many.perLook)
		})
	}
	ss.wg.Wait()
}

// A crowd is many candidates on a few sessions.
type crowd struct {
	path     string
	sessions []*Session
	proxies  []*zktest.Proxy
	all      []*partaker // in the order of their queue

	perChange, perRejoin, perLook cost
}

// A cost is what went over the wire, besides the heartbeat.
type cost struct{ requests, events int }

// add takes the most events, and the fewest requests: a candidate that has heard nothing for half a minute looks again, which may be just now.
func (c *cost) add(d cost) {
	if c.requests == 0 {
		c.requests = d.requests
	}
	c.requests, c.events = min(c.requests, d.requests), max(c.events, d.events)
}

func newCrowd(t testing.TB, kind string, n int) *crowd {
	t.Helper()
	c := &crowd{path: newPath(t)}
	look := admin(t)
	put(t, look, c.path)
	for range 4 {
		s, p := dialProxy(t, calm)
		c.sessions, c.proxies = append(c.sessions, s), append(c.proxies, p)
	}
	byNode := make(map[string]*partaker)
	var all []*partaker
	for i := range n {
		all = append(all, partake(t, kind, c.sessions[i%len(c.sessions)], c.path, WithOwner(Owner(fmt.Sprint(i)))))
	}
	eventually(t, 60*time.Second, "all take part", func() bool { return len(children(t, look, c.path)) == n })
	ps, err := all[0].spec.participants(within(t, 30*time.Second))
	require.NoError(t, err)
	for _, p := range all {
		byNode[string(*p.spec.cfg.owner)] = p
	}
	for _, p := range ps {
		c.all = append(c.all, byNode[string(p.Owner)])
	}
	require.Len(t, c.all, n)
	c.all[0].leads(t)
	c.rests(t)
	return c
}

// soFar counts, without the heartbeats.
func (c *crowd) soFar() (d cost) {
	for _, p := range c.proxies {
		counts := p.Counts()
		d.events += counts.Events
		for op, n := range counts.Requests {
			if op != zktest.OpSync && op != zktest.OpPing && op != zktest.OpConnect {
				d.requests += n
			}
		}
	}
	return d
}

// rests waits until nothing more is sent.
func (c *crowd) rests(t testing.TB) {
	t.Helper()
	last, since := c.soFar(), time.Now()
	eventually(t, 20*time.Second, "nothing more is sent", func() bool {
		if now := c.soFar(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 30*time.Millisecond
	})
}

// costs is for a step with so many notices at least: a late one would be counted in the next step.
func (c *crowd) costs(t testing.TB, notices int, do func()) (d cost) {
	t.Helper()
	before := c.soFar()
	do()
	eventually(t, 20*time.Second, fmt.Sprint(notices, " notices"), func() bool { return c.soFar().events >= before.events+notices })
	c.rests(t)
	after := c.soFar()
	return cost{after.requests - before.requests, after.events - before.events}
}

// notices is how many the end of a term makes: each Session that watches the leader's znode gets one, its own and that of who is next.
func notices(first, next *partaker) int {
	if first.spec.s == next.spec.s {
		return 1
	}
	return 2
}

// ends lets one after the other lead and leave, and then all go.
func (c *crowd) ends(t testing.TB, changes int) {
	t.Helper()
	for range changes {
		first, next := c.all[0], c.all[1]
		c.perChange.add(c.costs(t, notices(first, next), func() {
			require.NoError(t, first.stop())
			next.leads(t)
		}))
		c.all = c.all[1:]
		for _, p := range c.all[1:] {
			require.False(t, p.isLeader())
			require.Empty(t, p.terms)
		}
		c.perLook.add(c.costs(t, 0, func() {
			leader, err := c.all[len(c.all)-1].leader(within(t, 10*time.Second))
			require.NoError(t, err)
			require.Equal(t, *next.spec.cfg.owner, leader.Owner)
		}))
	}
	for i := range 3 {
		l, _, _, _ := c.all[i].current()
		require.NotNil(t, l)
		c.perRejoin.add(c.costs(t, notices(c.all[i], c.all[i+1]), func() {
			l.give(callHook)
			c.all[i+1].leads(t)
		}))
	}
	for _, s := range c.sessions {
		require.NoError(t, s.Close())
	}
	for _, p := range c.all {
		next(t, p.ended) // by itself
		require.ErrorIs(t, p.stop(), ErrClosed)
	}
}
