package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

// measureFailedTry asks for a lock that another session holds.
func measureFailedTry(ctx context.Context, s *stand) {
	path := s.path()
	w := s.newWire()
	holder, asker := s.open(ctx, nil, longTimeout).(ourClient), s.open(ctx, w, longTimeout).(ourClient)
	lease, err := zkrecipes.NewMutex(holder.s, path).Lock(ctx)
	s.must(err)
	before := w.traffic()
	for range s.run.size.tries {
		if _, err := zkrecipes.NewMutex(asker.s, path).TryLock(ctx); !errors.Is(err, zkrecipes.ErrHeld) {
			s.Fatalf("TryLock: %v", err)
		}
	}
	t, n := w.traffic().sub(before), float64(s.run.size.tries)
	s.add(perRequests, float64(t.requests)/n)
	s.add(perWrites, float64(t.writes)/n)
	s.must(lease.Release(ctx))
}

// measureReentry enters again what its owner holds.
func measureReentry(ctx context.Context, s *stand) {
	w := s.newWire()
	session := s.open(ctx, w, longTimeout).(ourClient).s
	m := zkrecipes.NewMutex(session, s.path(), zkrecipes.WithOwner("bench"))
	lease, err := m.Lock(ctx)
	s.must(err)
	again := &ourLocker{l: m}
	enter := func() {
		for range s.run.size.reentries {
			s.must(cycle(ctx, again))
		}
	}
	enter()                                      // once for the caches
	s.must(settle(ctx, []wire{w}, traffic{}, 1)) // the watch on the own znode is set after the grant
	before := w.traffic()
	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	began := time.Now()
	enter()
	took := time.Since(began)
	runtime.ReadMemStats(&end)
	n := float64(s.run.size.reentries)
	s.add(perNanoseconds, float64(took.Nanoseconds())/n)
	s.add(perAllocations, float64(end.Mallocs-start.Mallocs)/n)
	s.add(perRequests, float64(w.traffic().sub(before).requests)/n)
	s.must(lease.Release(ctx))
}

func inThisProcess(l library) bool { return l.locks && !l.outside && l.server == "" }

// measureMemory takes what waiters and leases cost beside the goroutines, and their stacks, of those who called. Nothing is between the session and the
// server: it would count.
func measureMemory(ctx context.Context, s *stand) {
	n := s.run.size.held
	c := s.open(ctx, nil, longTimeout)

	root := s.path()
	leases := make([]locker, n)
	for i := range leases {
		leases[i] = c.locker(fmt.Sprintf("%s/%d", root, i))
	}
	bytes, goroutines := s.cost(n, func() {
		for _, l := range leases {
			s.must(l.lock(ctx))
		}
	})
	s.add(leaseBytes, bytes)
	s.add(leaseGoroutines, goroutines)
	s.each(n, func(i int) error { return leases[i].unlock(ctx) })

	conn, err := dialRaw(ctx, dialed{addr: s.server(), timeout: longTimeout})
	s.must(err)
	s.Cleanup(conn.Close)
	path := s.path()
	holder := c.locker(path)
	s.must(holder.lock(ctx))
	begin, callers := make(chan struct{}), sync.WaitGroup{}
	errs := make([]error, n)
	for i := range n {
		callers.Go(func() {
			<-begin
			errs[i] = cycle(ctx, c.locker(path))
		})
	}
	bytes, goroutines = s.cost(n, func() {
		close(begin)
		for {
			names, _, err := conn.Children(path)
			s.must(errors.Join(err, ctx.Err()))
			if len(names) == n+1 {
				s.must(atRest(ctx))
				return
			}
			s.must(pause(ctx, lookEvery))
		}
	})
	s.add(waiterBytes, bytes)
	s.add(waiterGoroutines, goroutines)
	s.must(holder.unlock(ctx))
	callers.Wait()
	s.must(errors.Join(errs...))
}

// atRest waits until this process allocates next to nothing: the last answers have come, and only heartbeats go on. No wire can tell it here.
func atRest(ctx context.Context) error {
	const heartbeats = 500 // allocations that the sessions may make meanwhile
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.Mallocs
	}
	for {
		before := allocated()
		if err := pause(ctx, quietFor); err != nil {
			return err
		}
		if allocated()-before < heartbeats {
			return nil
		}
	}
}

// cost is what f leaves in the heap, and of goroutines, by n.
func (s *stand) cost(n int, f func()) (bytes, goroutines float64) {
	look := func() (uint64, int) {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what the first one only finds
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, runtime.NumGoroutine()
	}
	heap, running := look()
	f()
	heapThen, runningThen := look()
	return (float64(heapThen) - float64(heap)) / float64(n), float64(runningThen-running) / float64(n)
}
