package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A call is what is called, request by request, while the connection breaks.
type call struct {
	name    string
	prepare func(r *cutRun)
	run     func(r *cutRun)
	parents bool // it makes the directory
}

// calls are the calls of the recipe whose every request is hit.
func calls() []call {
	bg := context.Background()
	take := func(r *cutRun) context.Context { return within(r, 20*time.Second) }
	none := func(*cutRun) {}
	rivalHolds := func(r *cutRun) { r.theirs = r.rivalHolds() }
	weHold := func(r *cutRun) { r.mine = r.holding(r.m.Lock(take(r))) }
	in := func(fn func() (*Lease, error)) chan result {
		ch := make(chan result, 1)
		go func() {
			l, err := fn()
			ch <- result{lease: l, err: err}
		}()
		return ch
	}
	return []call{
		{"Lock, free", none, func(r *cutRun) {
			r.release(r.holding(r.m.Lock(take(r))))
		}, false},
		{"Lock, parents missing", func(r *cutRun) {
			r.at(r.path + "/missing/too")
		}, func(r *cutRun) {
			r.release(r.holding(r.m.Lock(take(r))))
		}, true},
		{"Lock, behind a holder", rivalHolds, func(r *cutRun) {
			got := in(func() (*Lease, error) { return r.m.Lock(take(r)) })
			r.waits(r.theirs)
			require.NoError(r, r.theirs.Release(bg))
			g := <-got
			r.release(r.holding(g.lease, g.err))
		}, false},
		{"Lock, cancelled while waiting", rivalHolds, func(r *cutRun) {
			ctx, cancel := context.WithCancel(take(r))
			defer cancel()
			got := in(func() (*Lease, error) { return r.m.Lock(ctx) })
			r.waits(r.theirs)
			cancel()
			g := <-got
			require.Nil(r, g.lease)
			require.ErrorIs(r, g.err, context.Canceled)
			require.ErrorIs(r, g.err, ErrHeld)
			r.exactly(r.theirs.Node())
			require.NoError(r, r.theirs.Release(bg))
		}, false},
		{"Lock, handed over", weHold, func(r *cutRun) {
			got := in(func() (*Lease, error) { return r.m.Lock(take(r)) })
			r.claims(r.mine)
			r.release(r.mine)
			g := <-got
			r.release(r.holding(g.lease, g.err))
		}, false},
		{"Lock, handed over and cancelled", weHold, func(r *cutRun) {
			ctx, cancel := context.WithCancel(take(r))
			defer cancel()
			got := in(func() (*Lease, error) { return r.m.Lock(ctx) })
			r.claims(r.mine)
			done, stop := context.WithCancel(bg)
			stop()
			if err := r.mine.Release(done); err != nil && !errors.Is(err, ErrLost) {
				require.ErrorIs(r, err, context.Canceled)
			}
			cancel()
			if g := <-got; g.err == nil {
				r.release(g.lease)
			} else {
				require.ErrorIs(r, g.err, context.Canceled)
			}
			r.release(r.mine)
		}, false},
		{"TryLock, free", none, func(r *cutRun) {
			r.release(r.holding(r.m.TryLock(take(r))))
		}, false},
		{"TryLock, held", rivalHolds, func(r *cutRun) {
			_, err := r.m.TryLock(take(r))
			require.ErrorIs(r, err, ErrHeld)
			r.exactly(r.theirs.Node())
			require.NoError(r, r.theirs.Release(bg))
		}, false},
		{"TryLock, loses a race", none, func(r *cutRun) {
			// The list that shows a free lock is on its way when the rival comes.
			gate := zktest.NewGate()
			defer gate.Open()
			r.p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpGetChildren2, r.path), Times: 1, Do: zktest.HoldReply(gate)})
			got := in(func() (*Lease, error) { return r.m.TryLock(take(r)) })
			next(r, gate.Reached())
			r.theirs = r.rivalHolds()
			gate.Open()
			g := <-got
			require.Nil(r, g.lease)
			require.ErrorIs(r, g.err, ErrHeld)
			r.exactly(r.theirs.Node())
			require.NoError(r, r.theirs.Release(bg))
		}, false},
		{"Release", weHold, func(r *cutRun) {
			r.release(r.mine)
			if !r.loss {
				r.exactly()
				require.NoError(r, r.mine.Release(bg))
			}
		}, false},
		{"Release, cancelled", weHold, func(r *cutRun) {
			ctx, cancel := context.WithCancel(bg)
			cancel()
			if err := r.mine.Release(ctx); err != nil && !errors.Is(err, ErrLost) {
				require.ErrorIs(r, err, context.Canceled)
			}
			r.release(r.mine)
			if !r.loss {
				r.exactly()
			}
		}, false},
		{"Lock and Release, entered again", none, func(r *cutRun) {
			l := r.holding(r.m.Lock(take(r)))
			if !r.alive(l) {
				return
			}
			again, err := NewMutex(r.s, r.path).Lock(l.Context())
			if r.alive(l) {
				require.NoError(r, err)
				require.Equal(r, l.Token(), again.Token())
				r.release(again)
			}
			r.exactlyOrLost(l)
			r.release(l)
		}, false},
		{"Do", none, func(r *cutRun) {
			err := Do(take(r), r.m, func(ctx context.Context) error {
				l, ok := LeaseFromContext(ctx)
				require.True(r, ok)
				r.holding(l, nil)
				return nil
			})
			if !r.loss {
				require.NoError(r, err)
			}
		}, false},
	}
}

// TestNoOrphanWhateverIsCut breaks the connection at each request of each call, and at two of them, before the server sees it and after it was answered.
// Whatever happens, the call ends as it would have, and leaves the directory to those who hold or wait.
// Reports: samuel/go-zookeeper #229, samuel/go-zookeeper #237, CURATOR-45, CURATOR-3, python-zk/kazoo #732, python-zk/kazoo #760.
func TestNoOrphanWhateverIsCut(t *testing.T) {
	t.Parallel()
	noOrphanWhateverIsCut(t)
}

func noOrphanWhateverIsCut(t testing.TB) {
	w := newCutWorld(t)
	const (
		atOnce  = 32
		further = 4 // requests of a recovery that the second fault may hit
	)
	sets := faultSets
	if rounds(t, 2) == 1 { // the pairs go the same ways through the engine; here those of a cut and the next request
		sets = neighbours
	}
	ss := newSampledSides(t, atOnce)
	defer ss.wg.Wait()
	for _, c := range calls() {
		for _, strange := range []bool{false, true} {
			if strange && c.parents {
				continue
			}
			name := c.name
			if strange {
				name += ", strangers"
			}
			start := func(t testing.TB) *cutRun {
				r := w.newRun(t, 10*time.Second) // a machine that stands still shall end no session
				if strange {
					r.strangers()
				}
				c.prepare(r)
				r.begin()
				return r
			}
			n := 0 // how many requests it makes when nothing is cut
			(&side{TB: t, name: name}).run(func(tb testing.TB) {
				r := start(tb)
				c.run(r)
				clean := r.requests()
				n = len(clean)
				t.Logf("%-44s %2d requests: %s", name, n, ops(clean))
				r.settled()
			})
			for _, faults := range sets(n, further) {
				ss.add(fmt.Sprint(name, " ", faults), func(t testing.TB) {
					r := start(t)
					struck := r.breaks(faults...)
					c.run(r)
					// What depends on which comes first: the requests of a handover that is cancelled, and whether a list, the last one of all, is sent behind a
					// create that is refused, since the parents are missing.
					varies := strings.Contains(name, "handed over and cancelled") || c.parents && faults[0].at == n-1
					if len(faults) == 1 && !varies {
						eventually(r, 5*time.Second, "the fault strikes", func() bool { return struck() == 1 }) // it is noted after the server's answer
					}
					r.settled()
				})
			}
		}
	}
}

// faultSets are all single cuts of n requests, and all pairs; the second of a pair may be one of so many further requests of the recovery.
func faultSets(n, further int) (sets [][]fault) {
	kinds := []string{"before", "after"}
	for i := range n {
		for _, first := range kinds {
			sets = append(sets, []fault{{i, first}})
			for j := i + 1; j < n+further; j++ {
				for _, second := range kinds {
					sets = append(sets, []fault{{i, first}, {j, second}})
				}
			}
		}
	}
	return sets
}

// neighbours are all single cuts of n requests, and of the pairs those that hit two requests in a row.
func neighbours(n, further int) (sets [][]fault) {
	for _, s := range faultSets(n, further) {
		if len(s) == 1 || s[1].at == s[0].at+1 {
			sets = append(sets, s)
		}
	}
	return sets
}

// TestNoOrphanAfterABlackHole swallows the answer to each request of each call and all that follows. The connection is healed at once, with which it is
// reset; or when the clock has ended the lease but not the server the session; or when the session is over.
// Reports: Netflix/curator commit a4ee4b58, micro-fan/aiozk #34, micro-fan/aiozk #48.
func TestNoOrphanAfterABlackHole(t *testing.T) {
	t.Parallel()
	noOrphanAfterABlackHole(t)
}

func noOrphanAfterABlackHole(t testing.TB) {
	w := newCutWorld(t)
	ss := newSampledSides(t, 32)
	defer ss.wg.Wait()
	for _, c := range calls() {
		for _, hole := range []struct {
			timeout, until time.Duration
			loss           bool
		}{{10 * time.Second, 0, false}, {3 * time.Second, 2300 * time.Millisecond, true}, {time.Second, 1500 * time.Millisecond, true}} {
			for i := range 9 { // no call makes more requests
				if i%2 == 1 && rounds(t, 2) == 1 {
					continue
				}
				ss.add(fmt.Sprintf("%s, hole of %v after %d", c.name, hole.until, i), func(t testing.TB) {
					r := w.newRun(t, hole.timeout)
					r.loss = hole.loss // by then already: a session of a second may end on a machine that stands still
					c.prepare(r)
					r.begin()
					r.heals(hole.until, r.breaks(fault{i, "hole"}))
					c.run(r)
					r.settled()
				})
			}
		}
	}
}
