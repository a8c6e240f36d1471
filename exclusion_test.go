package zkrecipes

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

const processes = 8

// newCounter returns a file that holds 0.
func newCounter(t testing.TB) string {
	name := filepath.Join(t.TempDir(), "counter")
	require.NoError(t, os.WriteFile(name, []byte("0"), 0o600))
	return name
}

func readCounter(t testing.TB, name string) int {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	n, err := strconv.Atoi(string(text))
	require.NoError(t, err)
	return n
}

// Eight processes increment a number in a file 200 times each, on the server of this process 50 times. Reading it and writing it back are two steps, which only the lock keeps together, and
// there is some time in between: a lock that two hold for as long as a hand-over takes would not be found out otherwise.
func TestProcessesExcludeEachOther(t *testing.T) {
	t.Parallel()
	processesExcludeEachOther(t, dialed)
}

// The same with processes that adopt connections among those that dial.
func TestAdoptedProcessesExcludeEachOther(t *testing.T) {
	t.Parallel()
	processesExcludeEachOther(t, dialed, tracked, observed)
}

func processesExcludeEachOther(t *testing.T, ways ...way) {
	each := rounds(t, 200)
	counter, path := newCounter(t), newPath(t)
	var ws []*worker
	for i := range processes {
		ws = append(ws, startWorker(t, "increment", task{
			Servers: zktest.Shared(t).Addrs(), Timeout: 10 * time.Second, Path: path, Rounds: each, Counter: counter, Linger: 2 * time.Millisecond,
			Way: ways[i%len(ways)],
		}))
	}
	for _, w := range ws {
		w.ready(t)
	}
	for _, w := range ws {
		w.goOn(t)
	}
	for _, w := range ws {
		r := w.report(t, 60*time.Second)
		require.Empty(t, r.Wrong)
		require.Empty(t, r.GaveUp)
		require.Zero(t, r.Lost)
		require.Equal(t, each, r.Counted)
	}
	require.Equal(t, processes*each, readCounter(t, counter))
	require.Empty(t, children(t, admin(t), path))
}

// One of the eight sits behind a proxy that breaks its connection every 200 ms. Its session is so short that it loses leases by that, and it takes
// its time between reading and writing, without a look at its lease, but reads again and again.
//
// The seven increment a file, as above: exact, whatever becomes of the eighth. It does not touch the file: a write of a process that was held up
// after it had last looked at its lease comes too late whatever a lock does. That is what tokens are for, so all eight also increment a register that
// refuses old ones. What is asked of it:
//
//   - The seven are never refused, and lose no lease.
//   - Whoever is refused has by then been told that its lease is lost: an access with an old token arrives after a later holder's first access, hence
//     after that one's grant. So the register sees no old token from a holder who believes in its lease.
//   - An increment of the eighth counts only if the register took it, and the number is the count of those taken: a lease that had been lost without a
//     later access yet does no harm, and one with a later access is refused. That holds because a later grant has the greater token.
func TestProcessBehindABrokenNetworkHarmsNobody(t *testing.T) {
	t.Parallel()
	processBehindABrokenNetworkHarmsNobody(t, dialed)
}

func TestAdoptedProcessBehindABrokenNetworkHarmsNobody(t *testing.T) {
	t.Parallel()
	for _, w := range adoptions {
		t.Run(w.String(), func(t *testing.T) { processBehindABrokenNetworkHarmsNobody(t, w) })
	}
}

func processBehindABrokenNetworkHarmsNobody(t *testing.T, way way) {
	wanted := rounds(t, 32) // faults
	counter, path, reg := newCounter(t), newPath(t), newRegister(t)
	// Its tick allows the eighth a session that the longest of the faults ends at the server.
	server := newTestServer(t, 100*time.Millisecond)
	proxy := zktest.NewProxy(t, server.addr)
	healthy := task{Servers: []string{server.addr}, Timeout: 10 * time.Second, Path: path, Counter: counter, Register: reg.listener.Addr().String(), Name: "healthy"}
	faulty := healthy
	faulty.Servers, faulty.Timeout, faulty.Counter, faulty.Linger, faulty.Name = []string{proxy.Addr()}, 300*time.Millisecond, "", time.Second, "faulty"
	faulty.Way = way
	eighth := startWorker(t, "increment", faulty)
	var ws []*worker
	for range processes - 1 {
		ws = append(ws, startWorker(t, "increment", healthy))
	}
	all := append(slices.Clone(ws), eighth)
	for _, w := range all {
		w.ready(t)
	}
	faults := breakAtRandom(t, proxy, 200*time.Millisecond)
	for _, w := range all {
		w.goOn(t)
	}
	eventually(t, 50*time.Second, "enough faults, and some increments in spite of them", func() bool {
		return faults.total() >= wanted && reg.writtenBy("faulty") >= 3
	})
	for _, w := range ws {
		w.stop()
	}
	counted, written := 0, 0
	for _, w := range ws {
		r := w.report(t, 20*time.Second)
		require.Empty(t, r.Wrong)
		require.Empty(t, r.GaveUp)
		require.Zero(t, r.Lost)
		require.Zero(t, r.Refused)
		require.Positive(t, r.Rounds)
		require.Equal(t, r.Rounds, r.Counted)
		require.Equal(t, r.Rounds, r.Written)
		counted += r.Counted
		written += r.Written
	}
	require.Equal(t, counted, readCounter(t, counter))
	faults.stop()
	eighth.stop()
	r := eighth.report(t, 20*time.Second)
	require.Empty(t, r.Wrong)
	for _, err := range r.GaveUp { // the one error besides the end of ctx that a bad network may bring
		require.Contains(t, err, "connection lost 3 times running by creating a znode")
	}
	require.LessOrEqual(t, r.Refused, r.Lost)
	written += r.Written
	reg.mu.Lock()
	defer reg.mu.Unlock()
	t.Logf("faults: %v; the eighth: %d rounds, %d written, %d refused, %d leases lost, gave up: %q; %d written by the seven", faults.struck,
		r.Rounds, r.Written, r.Refused, r.Lost, r.GaveUp, counted)
	require.Equal(t, r.Written, reg.written["faulty"])
	require.Equal(t, written, reg.value)
	require.Equal(t, r.Refused, reg.refused)
}

// faults is what breakAtRandom has done.
type faults struct {
	stop func() // ends it, with the proxy healed
	ctx  context.Context
	rnd  *rand.Rand // of the goroutine that strikes

	mu     sync.Mutex
	struck map[string]int
}

func (f *faults) total() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, times := range f.struck {
		n += times
	}
	return n
}

// breakAtRandom does something bad to the proxy's connections each time the interval has passed, all kinds in turn, in another order each time round.
func breakAtRandom(t testing.TB, p *zktest.Proxy, every time.Duration) *faults {
	const ms = time.Millisecond
	return strikeAtRandom(t, rand.New(rand.NewPCG(testSeed(t), 0)), every, []strike{
		{"cut", func(*faults, zktest.Direction) { p.Cut() }},
		{"black hole", func(f *faults, d zktest.Direction) {
			p.BlackHole(d)
			f.wait(f.between(100*ms, 400*ms))
			p.BlackHole(zktest.None)
		}},
		{"refuse", func(f *faults, _ zktest.Direction) {
			p.Refuse(true)
			f.wait(f.between(20*ms, 600*ms))
			p.Refuse(false)
		}},
		{"stall", func(f *faults, d zktest.Direction) {
			p.Stall(d)
			f.wait(f.between(20*ms, 600*ms))
			p.Stall(zktest.None)
		}},
	})
}

// testSeed is what chance in a test begins with: ZKRECIPES_TEST_SEED, to have a run again, or a new one. It is logged.
func testSeed(t testing.TB) uint64 {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("ZKRECIPES_TEST_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("ZKRECIPES_TEST_SEED=%d", seed)
	return seed
}

// A strike is one kind of fault; it ends healed, early when the faults are stopped.
type strike struct {
	name string
	do   func(f *faults, d zktest.Direction)
}

func (f *faults) between(from, to time.Duration) time.Duration {
	return from + time.Duration(f.rnd.Int64N(int64(to-from)))
}

// wait waits, false if the faults are stopped meanwhile.
func (f *faults) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-f.ctx.Done():
		return false
	}
}

// strikeAtRandom does something bad each time the interval has passed, all kinds in turn, in another order each time round.
func strikeAtRandom(t testing.TB, rnd *rand.Rand, every time.Duration, kinds []strike) *faults {
	directions := []zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.Both}
	ctx, cancel := context.WithCancel(context.Background())
	f := &faults{ctx: ctx, rnd: rnd, struck: make(map[string]int)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			for _, i := range rnd.Perm(len(kinds)) {
				if !f.wait(every) {
					return
				}
				f.mu.Lock()
				f.struck[kinds[i].name]++
				f.mu.Unlock()
				kinds[i].do(f, directions[rnd.IntN(len(directions))])
			}
		}
	}()
	f.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(f.stop)
	return f
}
