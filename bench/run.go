package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// sizes are how much a run does.
type sizes struct {
	rounds     int
	cycles     int           // of a free lock, at once
	far        time.Duration // the two round trips of the longer wire, for the slope
	near       time.Duration
	stretched  int   // cycles of a free lock on the longer wire
	sessions   []int // that contend
	grants     int   // for each of them
	heats      int   // of a contest on the longer wires
	heatGrants int   // of each, for all sessions
	waiters    []int // that are drained
	readers    int
	tries      int // that fail
	reentries  int
	held       int // leases, or waiters, of which the memory is taken
	killed     int // holders, in the only round in which that is done
	timeout    time.Duration

	only  string        // what the names of the cells contain that are run
	limit time.Duration // no round is begun that may end later; none if it is 0
}

var quick = sizes{
	rounds: 3, cycles: 100, near: 10 * time.Millisecond, far: 40 * time.Millisecond, stretched: 12, sessions: []int{2, 8}, grants: 50, heats: 2, heatGrants: 16,
	waiters: []int{100, 500, 1000}, readers: 50, tries: 50, reentries: 20000, held: 500, killed: 6, timeout: 4 * time.Second,
	limit: 165 * time.Second,
}

// longTimeout is that of the sessions that nobody lets expire.
const longTimeout = 30 * time.Second

// A run takes all libraries through all cells, some times over.
type run struct {
	size      sizes
	libraries []library
	zookeeper string // the server that all use
	root      string // below which all is done
	paths     int
	log       io.Writer
	report    *report
}

// A cell measures one library, in one round.
type cell struct {
	name string
	fits func(library) bool
	once bool // in the first round only
	f    func(context.Context, *stand)
}

func anyLibrary(library) bool { return true }
func locks(l library) bool    { return l.locks }
func onlyOurs(l library) bool { return l.name == ours }
func onlyRaw(l library) bool  { return l.name == raw }

func (r *run) cells() []cell {
	cells := []cell{{name: freeLock, fits: anyLibrary, f: measureFree}, {name: freeRead, fits: onlyOurs, f: measureFreeRead}}
	for _, n := range r.size.sessions {
		cells = append(cells, cell{name: contended(n), fits: locks, f: func(ctx context.Context, s *stand) { measureContended(ctx, s, n) }})
	}
	return append(cells,
		cell{name: drains, fits: onlyRaw, f: measureRawDrains},
		cell{name: drains, fits: locks, f: measureDrains},
		cell{name: readersBehind, fits: onlyOurs, f: measureReaders},
		cell{name: failedTry, fits: onlyOurs, f: measureFailedTry},
		cell{name: reentry, fits: onlyOurs, f: measureReentry},
		cell{name: memory, fits: inThisProcess, f: measureMemory},
		cell{name: failover, fits: locks, once: true, f: measureFailover},
	)
}

// all runs everything. What a cell cannot do is in the report; its error is that of the run as a whole.
func (r *run) all(ctx context.Context) error {
	conn, err := dialRaw(ctx, dialed{addr: r.zookeeper, timeout: longTimeout})
	if err != nil {
		return fmt.Errorf("no session with %s: %w", r.zookeeper, err)
	}
	defer conn.Close()
	r.root = fmt.Sprintf("/bench-%04x", rand.N(1<<16)) // as long as a path that somebody would choose: it is in every request
	began := time.Now()
	var longest time.Duration
	for round := range r.size.rounds {
		if round > 0 && r.size.limit > 0 && time.Since(began)+longest > r.size.limit {
			fmt.Fprintf(r.log, "no round %d: it would not be over within %v\n", round+1, r.size.limit)
			break
		}
		r.report.about.Rounds = round + 1
		roundBegan := time.Now()
		for _, c := range r.cells() {
			if c.once && round > 0 {
				continue
			}
			for _, l := range r.libraries {
				if !strings.Contains(c.name, r.size.only) || !c.fits(l) || r.report.failed(c.name, l.name) {
					continue
				}
				began := time.Now()
				err := inScope(ctx, c.name+" of "+l.name, cellLimit, func(ctx context.Context, s *scope) { c.f(ctx, &stand{s, r, c.name, l}) })
				fmt.Fprintf(r.log, "round %d: %-30s %-10s %5.1f s\n", round+1, c.name, l.name, time.Since(began).Seconds())
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err != nil {
					fmt.Fprintf(r.log, "  %v\n", err)
					r.report.fail(c.name, l.name, err)
				}
			}
		}
		longest = max(longest, time.Since(roundBegan))
	}
	return removeAll(conn, r.root)
}

// A stand is where one library is measured in one cell.
type stand struct {
	*scope
	run  *run
	cell string
	lib  library
}

func (s *stand) add(what string, value float64) { s.run.report.add(s.cell, what, s.lib.name, value) }

// path is one that nothing else uses.
func (s *stand) path() string {
	s.run.paths++
	return fmt.Sprintf("%s/%d", s.run.root, s.run.paths)
}

func (s *stand) server() string {
	return cmp.Or(s.lib.server, s.run.zookeeper)
}

// newWire is closed with the cell.
func (s *stand) newWire() wire {
	if s.lib.wire != nil {
		return s.lib.wire(s.scope, s.server())
	}
	return newZKWire(s.scope, s.server())
}

// open opens a session on a wire, or without one. It is closed with the cell, or when that has taken too long: some calls end by nothing else.
func (s *stand) open(ctx context.Context, w wire, timeout time.Duration) client {
	at := dialed{addr: s.server(), timeout: timeout, wire: w}
	if w != nil {
		at.addr = w.address()
	}
	c, err := s.lib.open(ctx, at)
	s.must(err)
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = c.close()
	})
	s.Cleanup(func() {
		if !stop() {
			<-closed
			return
		}
		if err := c.close(); err != nil {
			s.Errorf("close: %w", err)
		}
	})
	return c
}

// cycle takes the lock and gives it back.
func cycle(ctx context.Context, l locker) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	return l.unlock(ctx)
}

// cycles returns how long each of n cycles took, in seconds.
func cycles(ctx context.Context, l locker, n int) (seconds []float64, err error) {
	for range n {
		began := time.Now()
		if err := cycle(ctx, l); err != nil {
			return nil, err
		}
		seconds = append(seconds, time.Since(began).Seconds())
	}
	return seconds, nil
}

// trips is how many round trips what seconds measures takes: the slope of it over two lengths of the wires. Each is measured some times, in turn, so that what
// else the machine does meets both.
func (s *stand) trips(wires []wire, times int, seconds func() float64) float64 {
	lengths := []time.Duration{s.run.size.near, s.run.size.far}
	samples := make([][]float64, len(lengths))
	for range times {
		for i, rtt := range lengths {
			for _, w := range wires {
				w.lengthen(rtt)
			}
			samples[i] = append(samples[i], seconds())
		}
	}
	for _, w := range wires {
		w.lengthen(0)
	}
	var points []point
	for i, rtt := range lengths {
		points = append(points, point{rtt.Seconds(), median(samples[i])})
	}
	return slope(points)
}

var _ zktest.TB = (*scope)(nil)
