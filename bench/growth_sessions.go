package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
)

// plain is what n connections of the client alone leave in the heap.
func (s *grown) plain(ctx context.Context, n int) float64 {
	heap := func() float64 {
		var mem runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&mem)
		return float64(mem.HeapAlloc)
	}
	before := heap()
	conns := make([]*zk.Conn, n)
	s.some(n, func(i int) (err error) {
		conns[i], err = dialRaw(ctx, dialed{addr: s.g.zookeeper, timeout: s.g.size.timeout})
		return err
	})
	after := heap()
	s.some(n, func(i int) error { conns[i].Close(); return nil })
	return after - before
}

// measureSessions opens n sessions, watches them idle, and holding a lock each.
func measureSessions(ctx context.Context, s *grown) {
	n, m := s.cell.n, &meter{}
	plain := s.plain(ctx, n)
	before := s.look(ctx, m)
	sessions := s.dial(ctx, n, m, s.g.size.timeout)
	opened := time.Now()
	s.must(settle(ctx, []*meter{m}, traffic{}, 0))
	idle := s.look(ctx, m)
	s.addEach("ms to open one", ms(opened.Sub(before.at)))
	s.addEach("goroutines", idle.goroutines-before.goroutines)
	s.addEach(heapBytes, idle.heap-before.heap)
	s.addEach("bytes of heap of a connection of go-zookeeper's alone", plain)
	s.addFrom(100, stackBytes, idle.stacks-before.stacks)
	s.addFrom(heavy, serverBytes, idle.serverHeap-before.serverHeap)
	s.in(groupIdle).addRest(s.rest(ctx, m))

	root := s.path()
	leases := make([]*zkrecipes.Lease, n)
	asked := m.traffic()
	s.some(n, func(i int) (err error) {
		leases[i], err = zkrecipes.NewMutex(sessions[i], fmt.Sprintf("%s/%d", root, i)).Lock(ctx)
		return err
	})
	s.must(settle(ctx, []*meter{m}, asked, n))
	s.in(groupHolding).addRest(s.rest(ctx, m))
	s.some(n, func(i int) error { return leases[i].Release(ctx) })
}
