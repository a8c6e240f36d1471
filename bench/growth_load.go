package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// load takes and gives back locks that nobody else wants, n at once, atOnce in each session.
func (s *grown) load(ctx context.Context, server string, open func(context.Context, dialed) (client, error)) {
	n := s.cell.n
	root := s.path()
	var lockers []locker
	for i := range n {
		if i%atOnce == 0 {
			c, err := open(ctx, dialed{addr: server, timeout: longTimeout})
			s.must(err)
			s.Cleanup(func() {
				if err := c.close(); err != nil {
					s.Errorf("close: %w", err)
				}
			})
			for j := i; j < min(n, i+atOnce); j++ {
				lockers = append(lockers, c.locker(fmt.Sprintf("%s/%d", root, j)))
			}
		}
	}
	s.each(n, func(i int) error {
		_, err := cycles(ctx, lockers[i], warmUp)
		return err
	})
	s.Cleanup(func() {
		conn, err := dialRaw(ctx, dialed{addr: server, timeout: longTimeout})
		if err == nil {
			err = removeAll(conn, root)
			conn.Close()
		}
		if err != nil {
			s.Errorf("remove %s: %w", root, err)
		}
	})
	m := &meter{}
	from := s.glance(m, look{})
	var count atomic.Int64
	s.each(n, func(i int) error {
		for time.Since(from.at) < s.g.size.load {
			if err := cycle(ctx, lockers[i]); err != nil {
				return err
			}
			count.Add(1)
		}
		return nil
	})
	to := s.glance(m, look{})
	seconds, cycles := to.at.Sub(from.at).Seconds(), float64(count.Load())
	s.add(cyclesPerSecond, cycles/seconds)
	s.add(writesPerSecond, 2*cycles/seconds)
	s.add(cpuOfCycle, (to.serverCPU-from.serverCPU)*1e6/cycles)
	s.add(serverShare, (to.serverCPU-from.serverCPU)*100/seconds)
	s.add("this process's processor, %", (to.ownCPU-from.ownCPU)*100/seconds)
}

// measureForced is load on a server of its own that waits for its disk, as one does that is not for tests.
func measureForced(ctx context.Context, s *grown) {
	ensemble := zktest.Start(s, zktest.Property("forceSync", "yes"))
	own := *s.g
	own.server = newServerSide(ensemble.Server(0))
	forced := &grown{s.scope, &own, s.cell}
	forced.load(ctx, ensemble.Addrs()[0], openRaw)
}

// measureServerMemory makes n znodes as waiters have, and then as many watches, with the client alone.
func measureServerMemory(ctx context.Context, s *grown) {
	n := s.cell.n
	conn, err := dialRaw(ctx, dialed{addr: s.g.zookeeper, timeout: longTimeout})
	s.must(err)
	s.Cleanup(conn.Close)
	dir := s.path()
	s.must(makeParents(conn, dir))
	const name, owner = "_c_01234567-89ab-cdef-0123-456789abcdef-lock-", "a-host.example.com-12345-678"
	m := &meter{}
	none := s.look(ctx, m)
	size := s.g.server.monitor(ctx, mntrDataSize)
	nodes := make([]string, n)
	s.some(n, func(i int) (err error) {
		nodes[i], err = conn.Create(dir+"/"+name, []byte(owner), zk.FlagEphemeral|zk.FlagSequence, openACL)
		return err
	})
	made := s.look(ctx, m)
	s.addEach(znodeBytes, made.serverHeap-none.serverHeap)
	s.addEach("bytes of the znode in mntr's zk_approximate_data_size", s.g.server.monitor(ctx, mntrDataSize)-size)
	s.some(n, func(i int) error {
		_, _, _, err := conn.GetW(nodes[i])
		return err
	})
	watched := s.look(ctx, m)
	s.addEach(watchBytes, watched.serverHeap-made.serverHeap)
	s.some(n, func(i int) error { return conn.Delete(nodes[i], -1) })
	if err := conn.Delete(dir, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
		s.must(err)
	}
}
