package main

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
)

// measureRawDrains makes the requests of a hand-over, with the notice that each brings, one after the other and for nobody: what a drain cannot do without.
func measureRawDrains(ctx context.Context, s *stand) {
	for _, n := range s.run.size.waiters {
		w := s.newWire()
		conn, err := dialRaw(ctx, dialed{addr: w.address(), timeout: longTimeout})
		s.must(err)
		s.Cleanup(conn.Close)
		dir := s.path()
		s.must(makeParents(conn, dir))
		queue := make([]string, n+1)
		for i := range queue {
			queue[i], err = conn.CreateProtectedEphemeralSequential(dir+"/lock-", nil, openACL)
			s.must(err)
			_, _, _, err = conn.GetW(queue[i])
			s.must(err)
		}
		before, began := w.traffic(), time.Now()
		for i := range n {
			_, err := conn.Multi(&zk.DeleteRequest{Path: queue[i], Version: -1}, &zk.CheckVersionRequest{Path: queue[i+1], Version: -1})
			s.must(err)
		}
		s.must(conn.Delete(queue[n], -1))
		seconds := time.Since(began).Seconds()
		s.addDrain(ctx, n, w.traffic().sub(before), seconds)
	}
}

// addDrain adds what n waiters took.
func (s *stand) addDrain(ctx context.Context, n int, t traffic, seconds float64) {
	s.add(drainRequests(n), float64(t.requests)/float64(n))
	s.add(drainKB(n), float64(t.bytes)/1000/float64(n))
	s.add(drainTime(n), seconds/float64(n)/s.rawCycle(ctx))
}

// measureDrains has N goroutines of one session wait, and takes what it costs from the first release until the last has given the lock back.
func measureDrains(ctx context.Context, s *stand) {
	var bytes, times []point
	for _, n := range s.run.size.waiters {
		t, seconds := s.drain(ctx, n)
		s.addDrain(ctx, n, t, seconds)
		bytes = append(bytes, point{float64(n), float64(t.bytes) / 1000})
		times = append(times, point{float64(n), seconds * 1000})
		s.run.report.grow(curveBytes, s.lib.name, bytes[len(bytes)-1])
		s.run.report.grow(curveTime, s.lib.name, times[len(times)-1])
	}
	s.add(exponentBytes, exponent(bytes))
	s.add(exponentTime, exponent(times))
}

// drain has n goroutines queue, gives the lock to the first, and waits until the last has given it back.
func (s *stand) drain(ctx context.Context, n int) (t traffic, seconds float64) {
	w := []wire{s.newWire()}
	c := s.open(ctx, w[0], longTimeout)
	path := s.path()
	holder := c.locker(path)
	s.must(holder.lock(ctx))
	before := total(w)
	waiters, wait := n, func() error { return cycle(ctx, c.locker(path)) }
	if crowd, ok := c.(crowd); ok {
		waiters, wait = 1, func() error { return crowd.drain(ctx, path, n) }
	}
	done := make(chan error, waiters)
	for range waiters {
		go func() { done <- wait() }()
	}
	s.must(s.allWait(ctx, w, before, n))
	before = total(w)
	began := time.Now()
	s.must(holder.unlock(ctx))
	for range waiters {
		s.must(<-done)
	}
	return total(w).sub(before), time.Since(began).Seconds()
}

// allWait waits until so many wait.
func (s *stand) allWait(ctx context.Context, wires []wire, before traffic, waiters int) error {
	if s.lib.polls { // which never ends
		return pause(ctx, quietFor)
	}
	return settle(ctx, wires, before, waiters*s.lib.asks)
}

// rawCycle is what a raw create and delete takes at this moment, in seconds, through a proxy as well.
func (s *stand) rawCycle(ctx context.Context) float64 {
	w := newZKWire(s.scope, s.run.zookeeper)
	conn, err := dialRaw(ctx, dialed{addr: w.address(), timeout: longTimeout})
	s.must(err)
	s.Cleanup(conn.Close)
	l := &rawLocker{conn: conn, dir: s.path()}
	_, err = cycles(ctx, l, warmUp)
	s.must(err)
	seconds, err := cycles(ctx, l, s.run.size.cycles)
	s.must(err)
	return median(seconds)
}

// measureReaders has readers wait behind a writer, a session each, and takes what its release costs them and it, until nothing goes over the wires.
func measureReaders(ctx context.Context, s *stand) {
	n := s.run.size.readers
	path := s.path()
	wires := make([]wire, n+1)
	locks := make([]*zkrecipes.RWLock, n+1)
	for i := range wires {
		wires[i] = s.newWire()
	}
	s.each(n+1, func(i int) error {
		session, err := dialOurs(ctx, dialed{addr: wires[i].address(), timeout: longTimeout})
		if err == nil {
			locks[i] = zkrecipes.NewRWLock(session, path)
			s.Cleanup(func() { _ = session.Close() })
		}
		return err
	})
	write, err := locks[n].Lock(ctx)
	s.must(err)
	before := total(wires)
	leases := make([]*zkrecipes.Lease, n)
	granted := make(chan error, n)
	for i := range n {
		go func() {
			var err error
			leases[i], err = locks[i].RLock(ctx)
			granted <- err
		}()
	}
	s.must(settle(ctx, wires, before, 2*n))
	before = total(wires)
	s.must(write.Release(ctx))
	for range n {
		s.must(<-granted)
	}
	s.must(settle(ctx, wires, before, 1))
	s.addTraffic(total(wires).sub(before), 1)
	s.each(n, func(i int) error { return leases[i].Release(ctx) })
}
