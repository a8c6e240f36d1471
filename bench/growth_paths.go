package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

// calm waits until the server has removed the containers of earlier cells, but not for ever.
func (s *grown) calm(ctx context.Context) {
	const still, most = 1500 * time.Millisecond, 15 * time.Second
	for began := time.Now(); time.Since(began) < most; {
		before := s.g.server.monitor(ctx, mntrZnodes)
		if math.IsNaN(before) {
			return
		}
		s.must(pause(ctx, still))
		if s.g.server.monitor(ctx, mntrZnodes) == before {
			return
		}
	}
}

// measurePaths holds n locks in one session.
func measurePaths(ctx context.Context, s *grown) {
	n, m := s.cell.n, &meter{}
	session := s.dial(ctx, 1, m, s.g.size.timeout)[0]
	root := s.path()
	kept, err := zkrecipes.NewMutex(session, root+"/kept").Lock(ctx) // or the server removes root, when nothing is in it
	s.must(err)
	aside := &ourLocker{l: zkrecipes.NewMutex(session, root+"/aside")}
	_, err = cycles(ctx, aside, warmUp)
	s.must(err)
	s.calm(ctx)
	locks := make([]*ourLocker, n)
	for i := range locks {
		locks[i] = &ourLocker{l: zkrecipes.NewMutex(session, fmt.Sprintf("%s/%d", root, i))}
	}
	before := s.look(ctx, m)
	began := s.glance(m, look{})
	s.some(n, func(i int) error { return locks[i].lock(ctx) })
	taken := time.Since(began.at)
	s.must(settle(ctx, []*meter{m}, began.traffic, n))
	held := s.look(ctx, m)
	went := held.traffic.sub(began.traffic)
	s.addEach("ms to take one", ms(taken))
	s.addEach("requests to take one", float64(went.requests-went.heartbeats))
	s.addEach(newPathWrites, float64(went.writes))
	s.addEach(heapBytes, held.heap-before.heap)
	s.add("goroutines here, of all", held.goroutines-before.goroutines)
	s.addFrom(heavy, serverBytes, held.serverHeap-before.serverHeap)
	s.addEach(serverWatches, held.watches-before.watches)

	s.in(groupHeld).addRest(s.rest(ctx, m))
	const beside = 100
	seconds, err := cycles(ctx, aside, beside)
	s.must(err)
	s.in(groupHeld).add("µs of a cycle of another lock of the session", median(seconds)*1e6)

	released := s.glance(m, look{})
	s.some(n, func(i int) error { return locks[i].unlock(ctx) })
	s.in(groupBack).addEach("ms to release one", ms(time.Since(released.at)))
	// Once more, on paths that are there, and by each worker on its own: nobody waits.
	workers := min(atOnce, n)
	turns := max(1, 10*beside/n)
	from := s.glance(m, look{})
	s.each(workers, func(worker int) error {
		for range turns {
			for i := worker; i < n; i += workers {
				if err := cycle(ctx, locks[i]); err != nil {
					return err
				}
			}
		}
		return nil
	})
	to := s.glance(m, look{})
	took, count := to.at.Sub(from.at).Seconds(), float64(turns*n)
	went = to.traffic.sub(from.traffic)
	again := s.in(groupAgain)
	again.add(cyclesPerSecond, count/took)
	again.add("requests a second", float64(went.requests)/took)
	again.add("requests of a cycle", float64(went.requests)/count)
	again.add(cpuOfCycle, (to.serverCPU-from.serverCPU)*1e6/count)
	s.must(kept.Release(ctx))
}
