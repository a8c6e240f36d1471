package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// What much of everything costs, on the server of this process: counts and bytes, which a busy machine does not change, and no speed. These tests run beside no
// other. What is measured of memory is this library, its client and the server together, all of them in this process.

// full picks the size of a load: the whole one in make torture, a part of it else.
func full(whole, part int) int {
	if os.Getenv("ZKRECIPES_TORTURE") != "" {
		return whole
	}
	return part
}

// A weight is what a process holds, at rest.
type weight struct{ heap, stacks, goroutines int }

func weigh() (w weight) {
	var m runtime.MemStats
	for range 3 { // what a finalizer or a pool gives up goes with the next
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return weight{int(m.HeapAlloc), int(m.StackInuse), runtime.NumGoroutine()}
}

// per is what one of n weighs.
func (w weight) per(n int, before weight) weight {
	return weight{(w.heap - before.heap) / n, (w.stacks - before.stacks) / n, (w.goroutines - before.goroutines) / n}
}

func (w weight) String() string {
	return fmt.Sprintf("%d bytes of heap, %d of stacks, %d goroutines", w.heap, w.stacks, w.goroutines)
}

// light requires that no more is held than before, but for what the run-time keeps for itself. With -race memory says nothing.
func light(t testing.TB, before weight, slack int) {
	t.Helper()
	var after weight
	began := time.Now()
	eventually(t, 20*time.Second, "what was there has gone", func() bool {
		after = weigh()
		return after.goroutines <= before.goroutines && (raceEnabled || after.heap < before.heap+slack)
	})
	t.Logf("%v are left after %v; before: %v", after, time.Since(began).Round(time.Millisecond), before)
}

// dialLoad opens Sessions by pipes, for which no machine has too few ports.
func dialLoad(t testing.TB, server *zktest.Server, n int) (ss []*Session) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	ss = make([]*Session, n)
	var wg sync.WaitGroup
	at := make(chan struct{}, 32)
	for i := range ss {
		at <- struct{}{}
		wg.Go(func() {
			defer func() { <-at }()
			var err error
			ss[i], err = Dial(ctx, []string{"load:2181"}, WithDialer(server.Dialer()), calm, WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for _, s := range ss {
			if s == nil { // closed and forgotten
				continue
			}
			at <- struct{}{}
			wg.Go(func() { _ = s.Close(); <-at })
		}
		wg.Wait()
	})
	return ss
}

// plainClients are connections of go-zookeeper's, without this library.
func plainClients(t testing.TB, server *zktest.Server, n int) (cs []*zk.Conn) {
	t.Helper()
	for range n {
		c, events, err := zk.Connect([]string{"127.0.0.1:1"}, 10*time.Second, zk.WithDialer(server.Dialer()), zk.WithLogInfo(false), zk.WithLogger(discard{}))
		require.NoError(t, err)
		t.Cleanup(c.Close)
		go func() {
			for range events {
			}
		}()
		_, _, err = c.Exists("/")
		require.NoError(t, err)
		cs = append(cs, c)
	}
	return cs
}

func serverWatches(s *zktest.Server) (n int) {
	for ses := range s.Sessions() {
		n += ses.Watches
	}
	return n
}

// asked is how many requests there were but for those of heartbeats.
func asked(s *zktest.Server) (total int) {
	for op, n := range s.Counts().Requests {
		if op != zktest.OpPing && op != zktest.OpSync {
			total += n
		}
	}
	return total
}

// quietFor reports whether nobody asked for anything in that time.
func quietFor(s *zktest.Server, d time.Duration) bool {
	before := asked(s)
	<-time.After(d)
	return asked(s) == before
}

// A thousand sessions hold a lease each, and lose their connections together. What a session takes, and what a lease, is bounded, and goes with it.
func TestLoadOfSessions(t *testing.T) {
	n := full(1000, 100)
	server := zktest.NewServer(t)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	const few = 20
	base := weigh()
	plain := plainClients(t, server, few)
	client := weigh().per(few, base)
	for _, c := range plain {
		c.Close()
	}
	eventually(t, 10*time.Second, "the client's goroutines have ended", func() bool { return weigh().goroutines <= base.goroutines })
	base = weigh()
	ss := dialLoad(t, server, n)
	idle := weigh()
	leases := make([]*Lease, n)
	for i, s := range ss {
		var err error
		leases[i], err = NewMutex(s, fmt.Sprintf("/load/%d", i)).Lock(ctx)
		require.NoError(t, err)
	}
	eventually(t, 30*time.Second, "each watches its own znode", func() bool { return serverWatches(server) == n })
	holding := weigh()
	session, lease := idle.per(n, base), holding.per(n, idle)
	t.Logf("%d sessions: each %v; a connection of the client's alone: %v; a lease more: %v", n, session, client, lease)
	require.LessOrEqual(t, session.goroutines, client.goroutines+6)
	require.LessOrEqual(t, lease.goroutines, 0)
	if !raceEnabled {
		require.Less(t, session.heap, client.heap+64<<10)
		require.Less(t, lease.heap, 16<<10)
	}

	server.ResetCounters()
	server.Disconnect()
	eventually(t, 60*time.Second, "all are back", func() bool {
		for _, s := range ss {
			if s.State() != StateConnected || !s.engine.Ready() {
				return false
			}
		}
		return server.Counts().Requests[zktest.OpConnect] >= n && serverWatches(server) == n
	})
	for _, op := range writes {
		require.Zero(t, server.Counts().Requests[op], "%v", op)
	}
	for _, l := range leases {
		require.NoError(t, l.Err())
	}
	for i, s := range ss {
		require.NoError(t, leases[i].Release(ctx))
		require.NoError(t, s.Close())
	}
	require.Zero(t, serverWatches(server))
	cancel()
	clear(ss)
	clear(leases)
	light(t, base, 6<<20+n*128<<10) // a timer of some seconds keeps a client's buffers here and there
}

// Ten thousand wait for a hundred locks. A waiter is the goroutine that called, a few kilobytes and two watches at most; and when all have been granted in
// their turn, each for a handful of requests, nothing is left of them.
func TestLoadOfWaiters(t *testing.T) {
	waiters, locks := full(10_000, 500), full(100, 5)
	const sessions = 10
	server := zktest.NewServer(t)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	base := weigh()
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	ss := dialLoad(t, server, sessions+1)
	holder := ss[sessions]
	held := make([]*Lease, locks)
	for i := range held {
		var err error
		held[i], err = NewMutex(holder, fmt.Sprintf("/load/%d", i)).Lock(ctx)
		require.NoError(t, err)
	}
	eventually(t, 30*time.Second, "each watches its own znode", func() bool { return serverWatches(server) == locks })
	before := weigh()
	granted := make([]struct {
		sync.Mutex
		last Token
		n    int
	}, locks)
	for i := range waiters {
		lock := i % locks
		m := NewMutex(ss[i/locks%sessions], fmt.Sprintf("/load/%d", lock))
		wg.Go(func() {
			l, err := m.Lock(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			g := &granted[lock]
			g.Lock()
			if l.Token() <= g.last {
				t.Errorf("token %d after %d", l.Token(), g.last)
			}
			g.last = l.Token()
			g.n++
			g.Unlock()
			if err := l.Release(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	want := locks + 2*waiters // the znode of its own, and the one before it
	eventually(t, 120*time.Second, "all wait", func() bool {
		return len(znodes(server, "/load")) == 2*locks+waiters && serverWatches(server) >= locks+waiters && quietFor(server, 100*time.Millisecond)
	})
	watched := serverWatches(server)
	waiting := weigh().per(waiters, before)
	t.Logf("%d waiters for %d locks: each %v, %.2f watches at the server", waiters, locks, waiting, float64(watched-locks)/float64(waiters))
	require.LessOrEqual(t, waiting.goroutines, 1, "the caller's")
	require.LessOrEqual(t, watched, want)
	if !raceEnabled {
		require.Less(t, waiting.heap, 8<<10, "with what the server has of it")
	}

	server.ResetCounters()
	for _, l := range held {
		require.NoError(t, l.Release(ctx))
	}
	wg.Wait()
	for i := range granted {
		require.Equal(t, waiters/locks, granted[i].n)
	}
	total := asked(server)
	t.Logf("%.2f requests for each hand-over", float64(total)/float64(waiters))
	require.LessOrEqual(t, total, 4*waiters+100)
	eventually(t, 30*time.Second, "no znode of theirs", func() bool {
		n := 0
		for z := range server.Znodes("/load") {
			if z.Owner != 0 {
				n++
			}
		}
		return n == 0
	})
	eventually(t, 30*time.Second, "no watch", func() bool { return serverWatches(server) == 0 })
	for _, s := range ss {
		require.Zero(t, s.engine.Watched())
		require.Zero(t, s.engine.Owing())
		require.Empty(t, s.holds)
		require.NoError(t, s.Close())
	}
	cancel()
	clear(ss)
	clear(held)
	light(t, base, 3<<20+waiters*2<<10) // the run-time keeps goroutines that have ended for others
}

// A lock path for each user or order, a thousand of them a second: containers that the server removes. There are never more of them than those of the last
// seconds, and in the end none. Curator had a reaper of its own for them (CURATOR-173), and home-made ones removed what was in use (otter #1192).
// Reports: Netflix/curator #307, rackerlabs/otter #1192.
func TestLoadOfPaths(t *testing.T) {
	seconds := full(60, 2)
	const each, callers = 1000, 4
	virtual(t, func(t *testing.T, server *zktest.Server) {
		var ss []*Session
		for range callers {
			s, _ := dialVirtual(t, server)
			ss = append(ss, s)
		}
		most := 0
		for second := range seconds {
			began := time.Now()
			var wg sync.WaitGroup
			for c, s := range ss {
				wg.Go(func() {
					for i := range each / callers {
						l, err := NewMutex(s, fmt.Sprintf("/load/user-%d-%d-%d", second, c, i)).Lock(t.Context())
						if err == nil {
							err = l.Release(t.Context())
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Second - time.Since(began))
			most = max(most, len(znodes(server, "/load")))
		}
		require.LessOrEqual(t, most, 4*each, "they go as they come")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Empty(t, znodes(server, "/load"))
		for _, s := range ss {
			require.Zero(t, s.engine.Owing())
			require.Zero(t, s.engine.Watched())
			require.Empty(t, s.holds)
		}
		t.Logf("%d paths in %d s, at most %d at a time", seconds*each, seconds, most)
	})
}

// A soak is many short waits that end in vain, cycles, cancellations and sessions that end, over and over: what is held at rest does not grow with their number.
// For an hour of it: make torture DURATION=1h TESTFLAGS='-run TestLoadSoak'. A timed wait that leaves its watch behind (CURATOR-654, kazoo #175, aiozk PR #36)
// grows by thousands a second here.
// Reports: python-zk/kazoo #175, micro-fan/aiozk #36.
func TestLoadSoak(t *testing.T) {
	server := zktest.NewServer(t, zktest.TickTime(testTick))
	ss := dialLoad(t, server, 4)
	holder := ss[3]
	held, err := NewMutex(holder, "/soak/held").Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	permits, err := NewSemaphore(holder, "/soak/permits", 2).Acquire(within(t, 10*time.Second), 2)
	require.NoError(t, err)
	require.NoError(t, NewBarrier(holder, "/soak/barrier").Set(within(t, 10*time.Second)))
	waits := 0
	round := func(cycles int) weight {
		var wg sync.WaitGroup
		for i, s := range ss[:3] {
			vain := []func(ctx context.Context) error{
				func(ctx context.Context) error { _, err := NewMutex(s, "/soak/held").Lock(ctx); return err },
				func(ctx context.Context) error { _, err := NewRWLock(s, "/soak/held").RLock(ctx); return err },
				func(ctx context.Context) error {
					_, err := NewSemaphore(s, "/soak/permits", 2).Acquire(ctx, 1)
					return err
				},
				func(ctx context.Context) error { return NewBarrier(s, "/soak/barrier").Wait(ctx) },
				func(ctx context.Context) error { return NewWatcher(s, "/soak/barrier").Gone(ctx) },
				func(ctx context.Context) error { return NewDoubleBarrier(s, "/soak/double", 13).Enter(ctx) }, // one more than there are goroutines
			}
			for j := range 4 {
				wg.Go(func() {
					for k := range cycles {
						ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
						if err := vain[(j+k)%len(vain)](ctx); !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("%d: %v", (j+k)%len(vain), err)
						}
						cancel()
						l, err := NewMutex(s, fmt.Sprintf("/soak/free-%d-%d", i, j)).Lock(context.Background())
						if err == nil {
							err = l.Release(context.Background())
						}
						if err != nil && !errors.Is(err, ErrLost) {
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
		waits += 12 * cycles
		var expired [3]int64
		for i, s := range ss[:3] {
			// A watch cannot be taken back: one for each path stays until it fires, and the next wait has it.
			eventually(t, 20*time.Second, "nothing is owed", func() bool { return s.engine.Owing() == 0 && s.engine.Watched() <= 5 })
			require.Empty(t, s.Leases())
			expired[i] = s.ID()
			server.Expire(expired[i])
		}
		eventually(t, 30*time.Second, "all are back, with nothing but what is held", func() bool {
			for i, s := range ss[:3] {
				if s.ID() == expired[i] || !s.engine.Ready() || s.State() != StateConnected {
					return false
				}
			}
			return serverWatches(server) == 3
		})
		return weigh()
	}
	short := 60
	if quick() {
		short = 30
	}
	round(short)
	first := round(short)
	last, began, limit := first, time.Now(), time.Duration(0)
	if os.Getenv("ZKRECIPES_TORTURE") != "" {
		limit = tortureTime(t)
	}
	for i := 0; i < 2 || time.Since(began) < limit; i++ {
		last = round(full(500, 2*short))
	}
	t.Logf("%d waits in vain in %v: %v; in the beginning: %v", waits, time.Since(began).Round(time.Second), last, first)
	// A session has one or two more or less, just when it has come.
	eventually(t, 10*time.Second, "no more goroutines than in the beginning", func() bool { last = weigh(); return last.goroutines <= first.goroutines+2*len(ss) })
	if !raceEnabled {
		require.Less(t, last.heap, first.heap+first.heap/4+(2<<20))
	}
	require.NoError(t, held.Err())
	require.NoError(t, permits.Err())
}

// What a waiter takes does not grow with the length of its queue.
func TestLoadOfOneQueue(t *testing.T) {
	each := make(map[int]int)
	few, many := 100, 800
	if quick() {
		many = 500
	}
	for _, n := range []int{few, many} {
		server := zktest.NewServer(t)
		s := dialLoad(t, server, 1)[0]
		first, err := NewMutex(s, "/load/lock").Lock(within(t, 10*time.Second))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		before := weigh()
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() { _, _ = NewMutex(s, "/load/lock").Lock(ctx) })
		}
		eventually(t, 60*time.Second, "all wait", func() bool {
			return len(znodes(server, "/load/lock")) == n+1 && quietFor(server, 100*time.Millisecond)
		})
		each[n] = weigh().per(n, before).heap
		t.Logf("%d waiters: %d bytes each", n, each[n])
		cancel()
		wg.Wait()
		require.NoError(t, first.Release(within(t, 10*time.Second)))
	}
	if !raceEnabled { // what other tests have left may go in between, but not that much
		require.Less(t, each[many], 32<<10)
	}
}
