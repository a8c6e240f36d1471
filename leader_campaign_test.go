package zkrecipes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// Twelve sessions take part in two elections for a while, one of latches and one of selectors, each behind a proxy of its own to which everything happens
// that a network does, and are ended from outside; the server stops and starts. Whoever leads gives that up after a while (B57, Netflix/curator #216: three
// of twelve said that they led, until they were restarted).
//
// What is asserted, exactly:
//
//   - At every sample, and at every grant, at most one of an election believes that it leads, but for one whose session was ended from outside, which has to
//     be told within five seconds.
//   - When the networks are healed exactly one leads within two session timeouts, and goes on to.
//   - Nobody has stopped for good: each leads again in its turn, no Run has returned, and each ends with nil when it is told to.
//   - Nothing is left in the end.
func TestLeadersUnderFaults(t *testing.T) {
	t.Parallel()
	c := newElections(t, testSeed(t))
	c.run(tortureTime(t))
	t.Log(c)
}

const (
	electors    = 12
	longestTerm = 300 * time.Millisecond
)

// An elections is a campaign of participants.
type elections struct {
	*campaign
	paths   [2]string
	proxies []*zktest.Proxy
	all     [2][]*partaker
	built   atomic.Bool           // all are there
	rest    atomic.Bool           // whoever leads keeps it
	hunted  atomic.Pointer[Lease] // a leader to which something happens, and who does not give up meanwhile

	samples, grants atomic.Int64
	lost            atomic.Int64
	restarts        int
	quiet           time.Duration // until one leads in both, when all is healed
}

func newElections(t testing.TB, seed uint64) *elections {
	c := &elections{campaign: &campaign{server: newTestServer(t, tortureTick), seed: seed}}
	c.scene = scene{TB: t, book: newBook(t)}
	c.paths = [2]string{newPath(t), newPath(t)}
	trace := &Trace{
		AcquireDone: func(_ context.Context, _, _ string, _ *Lease, err error) {
			if err == nil {
				c.grants.Add(1)
				if c.built.Load() {
					c.sample()
				}
			}
		},
		Lost: func(*Lease, *LostError) { c.lost.Add(1) },
	}
	var sessions []*Session
	for n := range electors {
		p := zktest.NewProxy(t, c.server.addr)
		c.proxies = append(c.proxies, p)
		sessions = append(sessions, dial(t, []string{p.Addr()}, WithTimeout(tortureTimeout), WithTrace(trace)))
		c.faults = append(c.faults, strikeAtRandom(t, rand.New(rand.NewPCG(seed, uint64(n))), tortureEvery, c.strikes(p)))
	}
	for i, kind := range []string{aLatch, aSelector} {
		for n, s := range sessions {
			of := kind
			if n%2 == 1 && kind == aSelector {
				of = aResigning
			}
			c.all[i] = append(c.all[i], partake(t, of, s, c.paths[i]))
		}
	}
	c.built.Store(true)
	var hunt []strike
	for i, kind := range c.strikes(c.proxies[0]) {
		if kind.name == "delay" || kind.name == "short black hole" {
			continue // of which there is enough
		}
		hunt = append(hunt, strike{"leader: " + kind.name, func(f *faults, d zktest.Direction) {
			for f.wait(5 * time.Millisecond) {
				if leading := leadersOf(c.all[f.rnd.IntN(2)]); len(leading) > 0 {
					c.hunted.Store(leading[0])
					c.strikes(c.proxies[slices.Index(sessions, leading[0].hold.s)])[i].do(f, d)
					c.hunted.Store(nil)
					return
				}
			}
		}})
	}
	c.faults = append(c.faults, strikeAtRandom(t, rand.New(rand.NewPCG(seed, electors)), tortureEvery/10, hunt))
	return c
}

// sample looks who believes to lead.
func (c *elections) sample() {
	c.samples.Add(1)
	for i, all := range c.all {
		if leading := leadersOf(all); len(leading) > 1 && !c.book.told(leading...) {
			c.book.note("%d lead at once in %s: %s and %s", len(leading), c.paths[i], leading[0].Node(), leading[1].Node())
		}
	}
}

// reign is what a participant does with its terms: it gives them up after a while.
func (c *elections) reign(ctx context.Context, p *partaker, rnd *rand.Rand) {
	for {
		select {
		case l := <-p.terms:
			held := time.Millisecond + time.Duration(rnd.Int64N(int64(longestTerm)))
			for ctx.Err() == nil {
				select {
				case <-l.Done():
				case <-ctx.Done():
				case <-time.After(held):
					if c.rest.Load() || c.hunted.Load() == l.Lease {
						continue
					}
					l.end()
				}
				break
			}
		case <-ctx.Done():
			return
		}
	}
}

func (c *elections) run(d time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer func() { stop(); wg.Wait() }()
	for i, all := range c.all {
		for n, p := range all {
			rnd := rand.New(rand.NewPCG(c.seed, uint64(1000*i+n)))
			wg.Go(func() { c.reign(ctx, p, rnd) })
		}
	}
	began, restarted := time.Now(), make(chan struct{})
	wg.Go(func() {
		defer close(restarted)
		rnd := rand.New(rand.NewPCG(c.seed, 5000))
		for time.Since(began) < d*2/3 {
			<-time.After(d/8 + time.Duration(rnd.Int64N(int64(d/8))))
			if err := c.server.stop(); err != nil {
				c.Error(err)
			}
			<-time.After(time.Duration(rnd.Int64N(int64(tortureFault))))
			if err := c.server.start(); err != nil {
				c.Error(err)
			}
			c.restarts++
		}
	})
	c.sampleUntil(func() bool { return time.Since(began) >= d && isClosed(restarted) })
	for _, f := range c.faults {
		f.stop()
	}
	c.rest.Store(true)
	healed := time.Now()
	const soon = 2*tortureTimeout + time.Second // a second for the machine
	c.sampleUntil(func() bool {
		return len(leadersOf(c.all[0])) == 1 && len(leadersOf(c.all[1])) == 1 || time.Since(healed) > soon
	})
	c.quiet = time.Since(healed)
	require.LessOrEqual(c, c.quiet, soon, "one leads")

	var terms [2][]int
	for i, all := range c.all {
		for _, p := range all {
			_, n, running, _ := p.current()
			require.True(c, running)
			terms[i] = append(terms[i], n)
		}
	}
	c.rest.Store(false)
	deadline := time.Now().Add(electors*longestTerm + 10*time.Second)
	again := func() bool {
		for i, all := range c.all {
			for k, p := range all {
				if _, n, _, _ := p.current(); n == terms[i][k] {
					return false
				}
			}
		}
		return true
	}
	c.sampleUntil(func() bool { return again() || time.Now().After(deadline) })
	require.True(c, again(), "each leads again in its turn")
	stop()
	for _, all := range c.all {
		for _, p := range all {
			require.NoError(c, p.stop())
			require.False(c, p.isLeader())
		}
	}
	wg.Wait()
	look := adminAt(c, []string{c.server.addr})
	for _, path := range c.paths {
		eventually(c, 10*time.Second, "nothing is left", func() bool { return len(children(c, look, path)) == 0 })
	}
	c.book.mu.Lock()
	defer c.book.mu.Unlock()
	require.Empty(c, c.book.wrong)
}

func (c *elections) sampleUntil(over func() bool) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !over() {
		<-tick.C
		c.sample()
		if slices.ContainsFunc(slices.Concat(c.all[:]...), func(p *partaker) bool { return isClosed(p.ended) }) {
			c.Fatalf("a Run has returned")
		}
	}
}

func (c *elections) String() string {
	struck := make(map[string]int)
	for _, f := range c.faults {
		for kind, n := range f.struck {
			struck[kind] += n
		}
	}
	return fmt.Sprintf("%d grants, %d lost, %d samples; one led %v after all was healed; %d restarts; faults: %v", c.grants.Load(), c.lost.Load(),
		c.samples.Load(), c.quiet.Round(time.Millisecond), c.restarts, struck)
}
