package zkrecipes

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// 10,000 times a reader enters again, from several goroutines, beside whole cycles of writing, nested reading and downgrading: entering again costs
// no request, and at rest no goroutine, watch, znode or bookkeeping is left.
// Reports: redisson #7251, redisson #1604, redisson #7098.
func TestNothingIsLeftAfterTenThousandReads(t *testing.T) {
	server := newTestServer(t, testTick)
	p := zktest.NewProxy(t, server.addr)
	s := dial(t, []string{p.Addr()}, WithTimeout(10*time.Second))
	path, bg := newPath(t), context.Background()
	mkdirs(t, s.Conn(), path)
	l := NewRWLock(s, path)
	goroutines, before := runtime.NumGoroutine(), server.watches(t)

	outer, err := l.RLock(bg)
	require.NoError(t, err)
	eventually(t, 5*time.Second, "it watches", func() bool { return s.engine.Watched() == 1 && server.watches(t) == before+1 })
	p.ResetCounters()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			var inner []*Lease
			for i := range 1000 {
				again, err := l.RLock(outer.Context())
				if err != nil {
					t.Error(err)
					return
				}
				inner = append(inner, again)
				if depth := 1 + i%5; len(inner) >= depth { // in any order
					rand.Shuffle(len(inner), func(i, j int) { inner[i], inner[j] = inner[j], inner[i] })
					for _, again := range inner {
						if err := again.Release(bg); err != nil {
							t.Error(err)
						}
					}
					inner = nil
				}
			}
			for _, again := range inner {
				if err := again.Release(bg); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Less(t, p.Counts().Total(), 20, "the heartbeat alone: %v", p.Counts().Requests)
	require.NoError(t, outer.Err())
	require.Equal(t, []*Lease{outer}, s.Leases())
	require.Len(t, children(t, s.Conn(), path), 1)
	require.NoError(t, outer.Release(bg))
	require.Empty(t, children(t, s.Conn(), path))

	for w := range 8 {
		rnd := rand.New(rand.NewPCG(1, uint64(w)))
		wg.Go(func() {
			for i := range 40 {
				ctx, cancel := context.WithCancel(bg)
				if i%5 == 0 {
					time.AfterFunc(time.Duration(rnd.IntN(3000))*time.Microsecond, cancel)
				}
				if err := readWriteCycle(ctx, l, rnd); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	eventually(t, 10*time.Second, "no znode", func() bool { return len(children(t, s.Conn(), path)) == 0 })
	eventually(t, 10*time.Second, "no watch", func() bool { return server.watches(t) <= before })
	eventually(t, 10*time.Second, "no goroutine", func() bool { return runtime.NumGoroutine() <= goroutines })
	require.Zero(t, s.engine.Owing())
	require.Zero(t, s.engine.Watched())
	require.Empty(t, s.Leases())
	require.Empty(t, s.holds)
}

// readWriteCycle reads; or writes, and reads meanwhile, and ends both in one of the orders.
func readWriteCycle(ctx context.Context, l *RWLock, rnd *rand.Rand) error {
	bg := context.Background()
	if rnd.IntN(2) == 0 {
		r, err := l.RLock(ctx)
		if err != nil {
			return err
		}
		return r.Release(bg)
	}
	w, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	r, err := l.RLock(readUnder(ctx, w))
	leases := []*Lease{w}
	if err == nil {
		leases = append(leases, r)
	}
	if rnd.IntN(2) == 0 {
		slices.Reverse(leases)
	}
	for _, lease := range leases {
		if e := lease.Release(bg); e != nil {
			return e
		}
	}
	return err
}

// 1,000 times somebody is granted because others have released, writers after readers and the other way round, at once when the last one in the way
// has gone: by the notice, not by the timer that looks again in case one was missed.
// Reports: redisson #3891, redisson #1458.
func TestReadersAndWritersAreWokenByTheRelease(t *testing.T) {
	t.Parallel()
	const lanes = 4
	handovers := rounds(t, 1000/lanes)
	const limit = 5 * time.Second // the timer takes 30 s
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	ss := []*Session{dialShared(t, WithTimeout(10*time.Second)), dialShared(t, WithTimeout(10*time.Second)), dialShared(t, WithTimeout(10*time.Second))}
	for lane := range lanes {
		c, path := admin(t), newPath(t)
		wg.Go(func() {
			(&side{TB: t, name: path}).run(func(t testing.TB) {
				ctx := within(t, 60*time.Second)
				first, err := NewRWLock(ss[0], path).Lock(ctx)
				require.NoError(t, err)
				holders := []*Lease{first}
				type grant struct {
					lockResult
					at time.Time
				}
				for n := 0; n < handovers; {
					// After readers comes a writer; after a writer another one, or a few readers.
					write := holders[0].hold.key.shared || rand.IntN(3) == 0
					more := 1
					if !write {
						more += rand.IntN(3)
					}
					grants := make(chan grant, more)
					for i := range more {
						lock := Locker(NewRWLock(ss[(n+i+lane)%len(ss)], path))
						if !write {
							lock = NewRWLock(ss[(n+i+lane)%len(ss)], path).RLocker()
						}
						go func() {
							l, err := lock.Lock(ctx)
							grants <- grant{lockResult{l, err}, time.Now()}
						}()
					}
					eventually(t, 10*time.Second, "they queue", func() bool { return len(children(t, c, path)) == len(holders)+more })
					require.Empty(t, grants)
					var since time.Time
					for _, l := range holders {
						since = time.Now()
						require.NoError(t, l.Release(ctx))
					}
					holders = nil
					for range more {
						g := <-grants
						require.NoError(t, g.err)
						took := g.at.Sub(since)
						require.Less(t, took, limit)
						mu.Lock()
						all = append(all, took)
						mu.Unlock()
						holders = append(holders, g.lease)
					}
					n += more
				}
				for _, l := range holders {
					require.NoError(t, l.Release(ctx))
				}
			})
		})
	}
	wg.Wait()
	slices.Sort(all)
	t.Logf("%d hand-overs: median %v, 99%% within %v, all within %v", len(all), all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
	require.GreaterOrEqual(t, len(all), lanes*handovers)
}

// A reading process is killed: a writer is granted when its session has ended, not when its connection has.
func TestKilledReaderLetsTheWriterInAfterItsSession(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	path := newPath(t)
	w := startWorker(t, "read", task{Servers: zktest.Shared(t).Addrs(), Timeout: timeout, Path: path, Linger: time.Hour})
	w.ready(t)
	w.goOn(t)
	waitingFor(t, path, 1)
	l := NewRWLock(dialShared(t, WithTimeout(10*time.Second)), path)
	got := goLock(context.Background(), l)
	waitingFor(t, path, 2)
	killed := time.Now()
	w.kill()
	lease := mustLease(t, got)
	took := time.Since(killed)
	t.Logf("granted %v after the kill", took.Round(time.Millisecond))
	// It was heard of a third of its timeout before at most; the server ends sessions at the next tick.
	require.Greater(t, took, timeout/2)
	require.Less(t, took, timeout+2*time.Second)
	require.NoError(t, lease.Release(context.Background()))
}
