package main

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

// warmUp is how many cycles make the parents, and let buffers grow.
const warmUp = 5

// measureFree takes a lock that nobody else wants. Time and allocations are taken without a proxy, which is in this process and allocates, too.
func measureFree(ctx context.Context, s *stand) {
	size := s.run.size
	w := s.newWire()
	direct, wired := s.open(ctx, nil, longTimeout), s.open(ctx, w, longTimeout)

	l := direct.locker(s.path())
	_, err := cycles(ctx, l, warmUp)
	s.must(err)
	var allocations float64
	if !s.lib.outside {
		allocations = s.allocations(ctx, l)
		s.add(perAllocations, allocations)
	}
	if s.lib.name == ours {
		conn, err := dialRaw(ctx, dialed{addr: s.server(), timeout: longTimeout})
		s.must(err)
		s.Cleanup(conn.Close)
		same := &sameCalls{rawLocker{conn: conn, dir: s.path()}}
		_, err = cycles(ctx, same, warmUp)
		s.must(err)
		s.add(sameAllocations, allocations/s.allocations(ctx, same))
	}
	seconds, err := cycles(ctx, l, size.cycles)
	s.must(err)
	s.add(perTime, median(seconds)*1e6)

	l = wired.locker(s.path())
	_, err = cycles(ctx, l, warmUp)
	s.must(err)
	before := w.traffic()
	_, err = cycles(ctx, l, size.cycles)
	s.must(err)
	s.addTraffic(w.traffic().sub(before), size.cycles)
	s.add(perTrips, s.trips([]wire{w}, size.stretched, func() float64 {
		seconds, err := cycles(ctx, l, 1)
		s.must(err)
		return seconds[0]
	}))
}

// allocations is how many objects one cycle allocates, in the whole process.
func (s *stand) allocations(ctx context.Context, l locker) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := cycles(ctx, l, s.run.size.cycles)
	runtime.ReadMemStats(&after)
	s.must(err)
	return float64(after.Mallocs-before.Mallocs) / float64(s.run.size.cycles)
}

func (s *stand) addTraffic(t traffic, by int) {
	s.add(perRequests, float64(t.requests)/float64(by))
	s.add(perKB, float64(t.bytes)/1000/float64(by))
}

// measureFreeRead takes the shared side of a lock that nobody else wants.
func measureFreeRead(ctx context.Context, s *stand) {
	w := s.newWire()
	session := s.open(ctx, w, longTimeout).(ourClient).s
	l := &ourLocker{l: zkrecipes.NewRWLock(session, s.path()).RLocker()}
	_, err := cycles(ctx, l, warmUp)
	s.must(err)
	before := w.traffic()
	_, err = cycles(ctx, l, s.run.size.cycles)
	s.must(err)
	s.addTraffic(w.traffic().sub(before), s.run.size.cycles)
}

// A contest is n sessions that take one lock again and again, one goroutine each.
type contest struct {
	wires   []wire
	lockers []locker
}

// A heat is what comes of some grants.
type heat struct {
	seconds float64   // for each grant
	shares  []float64 // of the grants, by session
	traffic traffic
}

// run lets all go on for so many grants after a start. The looks at the clock and the wires are taken while the lock is held: nobody else is in a cycle then.
func (c *contest) run(ctx context.Context, grants int) (heat, error) {
	h := heat{shares: make([]float64, len(c.lockers))}
	start := len(c.lockers)
	var mu sync.Mutex
	var count int
	var began time.Time
	granted := func(i int) (over bool) {
		mu.Lock()
		defer mu.Unlock()
		if count > start+grants {
			return true
		}
		switch count {
		case start:
			h.traffic, began = total(c.wires), time.Now()
		case start + grants:
			h.traffic, h.seconds = total(c.wires).sub(h.traffic), time.Since(began).Seconds()/float64(grants)
		}
		if count >= start && count < start+grants {
			h.shares[i]++
		}
		count++
		return count > start+grants
	}
	errs := make([]error, len(c.lockers))
	var wg sync.WaitGroup
	for i, l := range c.lockers {
		wg.Go(func() {
			for over := false; !over && errs[i] == nil; {
				if errs[i] = l.lock(ctx); errs[i] == nil {
					over = granted(i)
					errs[i] = l.unlock(ctx)
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return heat{}, err
		}
	}
	return h, nil
}

func measureContended(ctx context.Context, s *stand, n int) {
	path := s.path()
	c := &contest{wires: make([]wire, n), lockers: make([]locker, n)}
	for i := range n {
		c.wires[i] = s.newWire()
		c.lockers[i] = s.open(ctx, c.wires[i], longTimeout).locker(path)
	}
	h, err := c.run(ctx, s.run.size.grants*n)
	s.must(err)
	s.add(perSecond, 1/h.seconds)
	s.addTraffic(h.traffic, s.run.size.grants*n)
	s.add(fairness, spread(h.shares))
	s.add(jainIndex, jain(h.shares))
	s.add(perTrips, s.trips(c.wires, s.run.size.heats, func() float64 {
		h, err := c.run(ctx, s.run.size.heatGrants)
		s.must(err)
		return h.seconds
	}))
}
