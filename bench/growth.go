package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// growthSizes are how far a run with -growth goes.
type growthSizes struct {
	waiters  []int         // of one lock
	spread   int           // sessions that they come from, where it is not one
	paths    []int         // that one session holds
	sessions []int         // of this process
	flights  []int         // calls at once
	sample   int           // znodes, and watches, of which the server's memory is taken
	timeout  time.Duration // of sessions at rest,
	watched  time.Duration // and for how long these are watched
	resting  []int         // waiters that are watched at rest, in a queue each
	rest     time.Duration // for which they are: a waiter looks again after 30 s to 34 s
	load     time.Duration // of cycles, one after the other
	join     time.Duration // after which no more waiters are waited for
	drain    time.Duration // after which the rest of a drain is not waited for
	cell     time.Duration // bounds one cell
	limit    time.Duration // after which no cell is begun
	repeats  int           // of few waiters: what is there once, and what else the machine does, counts for much
	only     string        // what the names of the cells contain that are run
}

var wholeGrowth = growthSizes{
	waiters: []int{1, 10, 100, 1000, 3000, 10000}, spread: 10, paths: []int{1, 10, 100, 1000, 10000}, sessions: []int{1, 10, 100, 1000}, flights: []int{1, 16, 64},
	sample: 10000, timeout: 6 * time.Second, watched: 6 * time.Second, resting: []int{1, 10, 100, 1000}, rest: 36 * time.Second, load: 3 * time.Second, join: 80 * time.Second,
	drain: 15 * time.Second, cell: 115 * time.Second, limit: 7*time.Minute + 15*time.Second, repeats: 3,
}

// A growth takes this library through ever more of everything, on one server.
type growth struct {
	size      growthSizes
	zookeeper string
	server    serverSide
	root      string
	paths     int
	log       io.Writer
	report    *growthReport
}

func measureGrowth(ctx context.Context, ensemble *zktest.Ensemble, size growthSizes, log io.Writer) (*growthReport, error) {
	a := newAbout(ctx, ensemble)
	a.Rounds = 1
	g := &growth{
		size: size, zookeeper: ensemble.Addrs()[0], server: newServerSide(ensemble.Server(0)), root: fmt.Sprintf("/growth-%04x", rand.N(1<<16)), log: log,
		report: newGrowthReport(a, size),
	}
	return g.report, g.all(ctx)
}

// A growthCell is one measurement with n of something.
type growthCell struct {
	table string
	group string
	n     int
	f     func(context.Context, *grown)
}

func (c growthCell) String() string {
	if c.group == "" {
		return fmt.Sprintf("%s, %d", c.table, c.n)
	}
	return fmt.Sprintf("%s, %s, %d", c.table, c.group, c.n)
}

func (g *growth) cells() (cells []growthCell) {
	add := func(table, group string, ns []int, f func(context.Context, *grown)) {
		for _, n := range ns {
			cells = append(cells, growthCell{table, group, n, f})
		}
	}
	size := g.size
	add(tableLoad, groupRaw, size.flights, func(ctx context.Context, s *grown) { s.load(ctx, g.zookeeper, openRaw) })
	add(tableLoad, groupFree, size.flights, func(ctx context.Context, s *grown) { s.load(ctx, g.zookeeper, openOurs) })
	if source := os.Getenv("ZKTEST_REAL"); source == "local" || source == "docker" {
		add(tableLoad, groupForced, size.flights, measureForced)
	}
	add(tableServer, "", []int{size.sample}, measureServerMemory)
	queues := []struct {
		group    string
		sessions int
	}{{groupOneSession, 1}, {groupSpread(size.spread), size.spread}}
	last := len(size.waiters) - 1
	for _, q := range queues {
		add(tableWaiters, q.group, size.waiters[:last], func(ctx context.Context, s *grown) { s.queue(ctx, q.sessions) })
	}
	add(tableWaiters, groupResting, []int{slices.Max(size.resting)}, measureResting)
	add(tableSessions, groupOpen, size.sessions, measureSessions)
	add(tablePaths, groupNew, size.paths, measurePaths)
	for _, q := range queues { // last of all: a busy machine may not come to their end
		add(tableWaiters, q.group, size.waiters[last:], func(ctx context.Context, s *grown) { s.queue(ctx, q.sessions) })
	}
	return cells
}

func (g *growth) repeats(c growthCell) int {
	const few = 100
	if c.table == tableWaiters && c.n <= few {
		return g.size.repeats
	}
	return 1
}

// all runs everything. What a cell cannot do is in the report; its error is that of the run as a whole. What is left is containers, which the server removes.
func (g *growth) all(ctx context.Context) error {
	conn, err := dialRaw(ctx, dialed{addr: g.zookeeper, timeout: longTimeout})
	if err != nil {
		return fmt.Errorf("no session with %s: %w", g.zookeeper, err)
	}
	_, err = conn.CreateContainer(g.root, nil, zk.FlagContainer, openACL)
	conn.Close()
	if err != nil {
		return err
	}
	start := time.Now()
	for _, c := range g.cells() {
		if time.Since(start) > g.size.limit {
			g.report.fail(c, fmt.Errorf("not begun: %v were over", g.size.limit))
			continue
		}
		if !strings.Contains(c.String(), g.size.only) {
			continue
		}
		began := time.Now()
		for range g.repeats(c) {
			err := inScope(ctx, c.table, g.size.cell, func(ctx context.Context, s *scope) { c.f(ctx, &grown{s, g, c}) })
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				fmt.Fprintf(g.log, "  %v\n", err)
				g.report.fail(c, err)
				break
			}
		}
		fmt.Fprintf(g.log, "%-50s %6.1f s\n", c, time.Since(began).Seconds())
	}
	return nil
}

// A grown is where one cell is measured.
type grown struct {
	*scope
	g    *growth
	cell growthCell
}

// add takes a figure, of those that there are n of.
func (s *grown) add(what string, value float64) { s.g.report.add(s.cell, what, value) }

// in is the same cell for another group of lines.
func (s *grown) in(group string) *grown {
	other := *s
	other.cell.group = group
	return &other
}

// addEach is add of one of n.
func (s *grown) addEach(what string, value float64) { s.add(what, value/float64(s.cell.n)) }

// heavy is how many of something stand out from what else happens in the heap of a JVM, and in its time.
const heavy = 1000

// addFrom is addEach where there are at least so many: fewer do not stand out from what else happens.
func (s *grown) addFrom(least int, what string, value float64) {
	if s.cell.n >= least {
		s.addEach(what, value)
	}
}

// path is one that nothing else uses.
func (s *grown) path() string {
	s.g.paths++
	return fmt.Sprintf("%s/%d", s.g.root, s.g.paths)
}

// atOnce is how many connections are opened, or locks taken, at a time.
const atOnce = 16

// some does f for 0..n-1, atOnce at a time, and ends the cell with their errors.
func (s *grown) some(n int, f func(i int) error) { s.must(some(n, f)) }

func some(n int, f func(i int) error) error {
	errs := make([]error, n)
	at := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i := range n {
		at <- struct{}{}
		wg.Go(func() { errs[i] = f(i); <-at })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// dial opens n sessions on a meter. They are closed with the cell.
func (s *grown) dial(ctx context.Context, n int, m *meter, timeout time.Duration) []*zkrecipes.Session {
	sessions := make([]*zkrecipes.Session, n)
	s.Cleanup(func() {
		if err := some(n, func(i int) error {
			if sessions[i] == nil {
				return nil
			}
			return sessions[i].Close()
		}); err != nil {
			s.Errorf("close: %w", err)
		}
	})
	s.some(n, func(i int) (err error) {
		sessions[i], err = zkrecipes.Dial(ctx, []string{s.g.zookeeper},
			zkrecipes.WithTimeout(timeout), zkrecipes.WithLogger(slog.New(slog.DiscardHandler)), zkrecipes.WithDialer(m.dial))
		return err
	})
	return sessions
}

// A look is what there is at one moment, here and at the server.
type look struct {
	at                       time.Time
	heap, stacks, goroutines float64
	serverHeap, watches      float64
	serverCPU, ownCPU        float64
	traffic                  traffic
}

// look is taken at rest. It costs much: both sides collect their garbage first.
func (s *grown) look(ctx context.Context, m *meter) (l look) {
	runtime.GC()
	runtime.GC() // what the first one only finds
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	l.heap, l.stacks, l.goroutines = float64(mem.HeapAlloc), float64(mem.StackInuse), float64(runtime.NumGoroutine())
	l.serverHeap = s.g.server.heap(ctx)
	l.watches = s.g.server.monitor(ctx, mntrWatches)
	return s.glance(m, l)
}

// glance has only what is counted all the time.
func (s *grown) glance(m *meter, l look) look {
	l.at, l.serverCPU, l.ownCPU, l.traffic = time.Now(), s.g.server.cpu(), ownCPU(), m.traffic()
	return l
}

// rest watches for a while what goes on by itself, by the second.
type rest struct{ requests, syncs, pings, serverCPU, ownCPU float64 }

func (s *grown) rest(ctx context.Context, m *meter) rest {
	from := s.glance(m, look{})
	s.must(pause(ctx, s.g.size.watched))
	to := s.glance(m, look{})
	seconds, went := to.at.Sub(from.at).Seconds(), to.traffic.sub(from.traffic)
	return rest{
		float64(went.requests-went.heartbeats) / seconds, float64(went.heartbeats) / seconds, float64(went.pings) / seconds,
		(to.serverCPU - from.serverCPU) / seconds, (to.ownCPU - from.ownCPU) / seconds,
	}
}

func (s *grown) addRest(r rest) {
	s.add(pings, r.pings)
	s.add(syncs, r.syncs)
	s.add("other requests a second, of all", r.requests)
	s.add(serverShare, r.serverCPU*100)
	s.add("this process's processor, %", r.ownCPU*100)
}
