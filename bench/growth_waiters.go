package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

// queue has n goroutines wait for one lock, in so many sessions, and then get it, one after the other.
func (s *grown) queue(ctx context.Context, sessions int) {
	n, m, path := s.cell.n, &meter{}, s.path()
	var waiting sync.WaitGroup
	s.Cleanup(waiting.Wait) // which is after the sessions are closed
	all := s.dial(ctx, sessions, m, longTimeout)
	holder, err := zkrecipes.NewMutex(all[0], path).Lock(ctx)
	s.must(err)
	s.must(settle(ctx, []*meter{m}, traffic{}, 1))
	before := s.look(ctx, m)

	var granted atomic.Int64
	var failed atomic.Pointer[error]
	begin, stopped := make(chan struct{}), make(chan struct{})
	for i := range n {
		l := zkrecipes.NewMutex(all[(i+1)%sessions], path)
		waiting.Go(func() {
			<-begin
			lease, err := l.Lock(ctx)
			if err == nil {
				granted.Add(1)
				err = lease.Release(ctx)
			}
			select {
			case <-stopped: // and what the end of its session brought is no fault
			default:
				if err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	began := s.glance(m, look{})
	close(begin)
	joining, cancel := context.WithTimeout(ctx, s.g.size.join)
	defer cancel()
	last, err := settled(joining, []*meter{m}, began.traffic, 2*n)
	leave := func() {
		close(stopped)
		s.some(sessions, func(i int) error { return all[i].Close() })
		waiting.Wait()
	}
	if joining.Err() != nil {
		now := s.glance(m, look{})
		s.g.report.note(s.cell, fmt.Sprintf("not all waited after %v: they had made %.1f requests each, with %.0f %% of a processor here and %.0f %% at the server",
			s.g.size.join, float64(now.traffic.sub(began.traffic).requests)/float64(n),
			100*(now.ownCPU-began.ownCPU)/now.at.Sub(began.at).Seconds(), 100*(now.serverCPU-began.serverCPU)/now.at.Sub(began.at).Seconds()))
		leave()
		return
	}
	s.must(err)
	queued := s.look(ctx, m)
	s.addEach(toQueue, ms(last.Sub(began.at)))
	s.addEach("requests to queue", float64(queued.traffic.sub(began.traffic).requests))
	s.addEach("kB to queue", float64(queued.traffic.sub(began.traffic).bytes)/1000)
	s.addEach(heapBytes, queued.heap-before.heap)
	s.addFrom(100, stackBytes, queued.stacks-before.stacks)
	s.addEach("goroutines here, the caller's among them", queued.goroutines-before.goroutines)
	s.addEach(serverWatches, queued.watches-before.watches)

	drain := s.glance(m, look{})
	s.must(holder.Release(ctx))
	done := make(chan struct{})
	go func() { waiting.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(s.g.size.drain):
	case <-ctx.Done():
	}
	count, drained := float64(granted.Load()), s.glance(m, look{})
	if int(count) < n {
		s.g.report.note(s.cell, fmt.Sprintf("%.0f were granted within %v, and the rest not waited for", count, s.g.size.drain))
		leave()
	}
	<-done
	s.must(ctx.Err())
	if err := failed.Load(); err != nil {
		s.must(*err)
	}
	if count == 0 {
		return
	}
	went := drained.traffic.sub(drain.traffic)
	s.add("ms to be granted and release", ms(drained.at.Sub(drain.at))/count)
	s.add("requests to be granted and release", float64(went.requests)/count)
	s.add(grantKB, float64(went.bytes)/1000/count)
	if int(count) >= heavy {
		s.add("µs of the server's processor for that", (drained.serverCPU-drain.serverCPU)*1e6/count)
	}
}

// measureResting has a queue for each number of waiters, in a session each, and watches all of them together while nothing happens.
func measureResting(ctx context.Context, s *grown) {
	type queue struct {
		n      int
		meter  *meter
		before traffic
	}
	var queues []queue
	ended := make(chan struct{})
	var waiting sync.WaitGroup
	s.Cleanup(waiting.Wait) // which is after the sessions are closed
	var failed atomic.Pointer[error]
	for _, n := range s.g.size.resting {
		m := &meter{}
		session := s.dial(ctx, 1, m, longTimeout)[0]
		l := zkrecipes.NewMutex(session, s.path())
		_, err := l.Lock(ctx)
		s.must(err)
		for range n {
			waiting.Go(func() {
				_, err := l.Lock(ctx)
				select {
				case <-ended:
				default:
					failed.CompareAndSwap(nil, &err)
				}
			})
		}
		s.must(settle(ctx, []*meter{m}, traffic{}, 2*n))
		queues = append(queues, queue{n: n, meter: m})
	}
	for i, q := range queues {
		queues[i].before = q.meter.traffic()
	}
	began := time.Now()
	s.must(pause(ctx, s.g.size.rest))
	for _, q := range queues {
		seconds, went := time.Since(began).Seconds(), q.meter.traffic().sub(q.before)
		c := s.cell
		c.n = q.n
		s.g.report.add(c, "requests a second, of all", float64(went.requests-went.heartbeats)/seconds)
		s.g.report.add(c, restByHour, float64(went.requests-went.heartbeats)/seconds*3600/float64(q.n))
		s.g.report.add(c, "kB a second, of all", float64(went.bytes)/1000/seconds)
	}
	close(ended)
	if err := failed.Load(); err != nil {
		s.Fatalf("a waiter did not wait: %w", *err)
	}
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }
