package zkrecipes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// faults is what breakAtRandom has done.
type faults struct {
	stop func() // ends it, with the proxy healed
	ctx  context.Context
	rnd  *rand.Rand // of the strike that goes on

	mu      sync.Mutex
	struck  map[string]int
	history []string
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

// strikeAtRandom does something bad each time the interval has passed, all kinds in turn, in another order each time round. Each strike has chances of its own,
// so that one is the same when others are left out, by ZKRECIPES_STRIKES. A test that fails tells them.
func strikeAtRandom(t testing.TB, rnd *rand.Rand, every time.Duration, kinds []strike) *faults {
	directions := []zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.Both}
	strikes := chosenStrikes(t)
	ctx, cancel := context.WithCancel(context.Background())
	f := &faults{ctx: ctx, struck: make(map[string]int)}
	done, began := make(chan struct{}), time.Now()
	go func() {
		defer close(done)
		for n := 0; ; {
			for _, i := range rnd.Perm(len(kinds)) {
				f.rnd = rand.New(rand.NewPCG(rnd.Uint64(), 0))
				if !f.wait(every) {
					return
				}
				if strikes(n) {
					f.mu.Lock()
					f.struck[kinds[i].name]++
					f.history = append(f.history, fmt.Sprintf("%d %s at %v", n, kinds[i].name, time.Since(began).Round(time.Second)))
					f.mu.Unlock()
					kinds[i].do(f, directions[f.rnd.IntN(len(directions))])
				}
				n++
			}
		}
	}()
	f.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(func() {
		f.stop()
		if t.Failed() {
			t.Logf("strikes: %s", strings.Join(f.history, ", "))
		}
	})
	return f
}

// chosenStrikes tells of each strike, by its number, whether it is made: those of ZKRECIPES_STRIKES, such as 3,7,20-24, or all. The time between two passes all
// the same.
func chosenStrikes(t testing.TB) func(n int) bool {
	list := os.Getenv("ZKRECIPES_STRIKES")
	if list == "" {
		return func(int) bool { return true }
	}
	chosen := make(map[int]bool)
	for _, part := range strings.Split(list, ",") {
		first, last, ok := strings.Cut(part, "-")
		if !ok {
			last = first
		}
		from, err := strconv.Atoi(first)
		require.NoError(t, err, "ZKRECIPES_STRIKES")
		to, err := strconv.Atoi(last)
		require.NoError(t, err, "ZKRECIPES_STRIKES")
		for n := from; n <= to; n++ {
			chosen[n] = true
		}
	}
	return func(n int) bool { return chosen[n] }
}
