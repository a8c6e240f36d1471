package zkrecipes

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// patient is the timeout of sessions of which no lease may be lost, however busy the machine is.
const patient = 10 * time.Second

// clean runs a call with nothing broken and returns how many requests it makes.
func (c rwCall) clean(t testing.TB, w cutWorld) (n int) {
	(&side{TB: t, name: c.name}).run(func(tb testing.TB) {
		r := w.newRWRun(tb, patient)
		c.prepare(r)
		r.begin()
		c.run(r)
		clean := r.requests()
		n = len(clean)
		t.Logf("%-45s %2d requests: %s", c.name, n, ops(clean))
		r.ends()
	})
	return n
}

// eachRequest runs fn for each request of each call.
func eachRequest(t testing.TB, w cutWorld, fn func(c rwCall, i int)) {
	for _, c := range rwCalls() {
		for i := range c.clean(t, w) {
			fn(c, i)
		}
	}
}

// TestReadWriteWhateverIsCut breaks the connection at each request of each call of a read/write lock, and at two of them unless
// TestNoOrphanWhateverIsCut does that with a call that sends the same. No lease is lost by that, the call ends as it would have, nobody is granted
// beside anybody, and nothing is left.
func TestReadWriteWhateverIsCut(t *testing.T) {
	t.Parallel()
	w := newCutWorld(t)
	const further = 1 // requests of a recovery that the second fault may hit
	ss := newSampledSides(t, 32)
	defer ss.wg.Wait()
	for _, c := range rwCalls() {
		for _, faults := range faultSets(c.clean(t, w), further) {
			if len(faults) > 1 && c.alike {
				continue
			}
			ss.add(fmt.Sprint(c.name, " ", faults), func(t testing.TB) {
				r := w.newRWRun(t, patient)
				c.prepare(r)
				r.begin()
				r.breaks(faults...)
				c.run(r)
				r.ends()
			})
		}
	}
}

// TestReadWriteWhateverIsSwallowed begins a black hole at each request of each call, before the server sees it or after; or loses one reply, and with
// it the connection a little later. It heals at once; or when the clock has ended the leases but not the server the session; or when the session is
// over. Leases may be lost by that, but whoever is granted then finds them lost.
func TestReadWriteWhateverIsSwallowed(t *testing.T) {
	t.Parallel()
	w := newCutWorld(t)
	ss := newSampledSides(t, 32)
	defer ss.wg.Wait()
	type hole struct {
		timeout, until time.Duration
		loss           bool
	}
	healed, ended := hole{patient, 0, false}, hole{3 * time.Second, 2300 * time.Millisecond, true}
	over := hole{time.Second, 1500 * time.Millisecond, true}
	hows := map[string]struct {
		action func() zktest.Action
		holes  []hole
	}{
		"before":     {zktest.BlackHoleBefore, []hole{healed, over}},
		"after":      {zktest.BlackHoleAfter, []hole{healed, ended, over}},
		"reply lost": {zktest.DropReply, []hole{healed}},
	}
	eachRequest(t, w, func(c rwCall, i int) {
		for how, what := range hows {
			for _, hole := range what.holes {
				ss.add(fmt.Sprintf("%s, %s %d, for %v", c.name, how, i, hole.until), func(t testing.TB) {
					r := w.newRWRun(t, hole.timeout)
					c.prepare(r)
					r.begin()
					r.loss = hole.loss
					r.p.OnRequest(zktest.Rule{Match: zktest.Nth(i, counts), Times: 1, Do: what.action()})
					r.healsOnce(hole.until, how == "reply lost")
					c.run(r)
					r.ends()
				})
			}
		}
	})
}

// healsOnce ends a black hole so long after it has swallowed something, and every other one until the run ends, or cuts the connections then, once.
func (r *cutRun) healsOnce(d time.Duration, cut bool) {
	struck := func() int {
		n := 0
		for _, q := range r.requests() {
			if q.Fate == zktest.FateSwallowed || q.Fate == zktest.FateReplyLost {
				n++
			}
		}
		return n
	}
	if !cut {
		r.heals(d, struck)
		return
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	r.Cleanup(func() { close(stop); <-stopped })
	go func() {
		defer close(stopped)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		var since time.Time
		for since.IsZero() || time.Since(since) < d {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if since.IsZero() && struck() > 0 {
				since = time.Now()
			}
		}
		r.p.Cut()
	}()
}

// TestReadWriteSessionEndsAtAnyRequest ends the session when the i-th request of a call is on its way to the server, or its answer on the way back.
// The leases are told, calls queue again in the next session, and nothing is left.
func TestReadWriteSessionEndsAtAnyRequest(t *testing.T) {
	t.Parallel()
	w := newCutWorld(t)
	ss := newSampledSides(t, 32)
	defer ss.wg.Wait()
	eachRequest(t, w, func(c rwCall, i int) {
		for _, answered := range []bool{false, true} {
			ss.add(fmt.Sprintf("%s, at %d, answered=%v", c.name, i, answered), func(t testing.TB) {
				r := w.newRWRun(t, 4*time.Second)
				c.prepare(r)
				r.begin()
				r.loss, r.forced = true, true
				var wg sync.WaitGroup
				defer wg.Wait()
				gate := zktest.NewGate()
				defer gate.Open()
				end := func() {
					ctx := within(r, 10*time.Second)
					err := r.p.Expire(ctx)
					for err != nil && ctx.Err() == nil { // the client may come back in between
						err = r.p.Expire(ctx)
					}
					if err != nil {
						r.Errorf("%v", err)
					}
				}
				do := zktest.Call(func(zktest.Frame) { end() })
				if answered {
					do = zktest.HoldReply(gate)
					ctx := r.take()
					wg.Go(func() {
						select {
						case <-gate.Reached():
							end()
							gate.Open()
						case <-ctx.Done():
						}
					})
				}
				r.p.OnRequest(zktest.Rule{Match: zktest.Nth(i, counts), Times: 1, Do: do})
				c.run(r)
				wg.Wait()
				r.ends()
			})
		}
	})
}

// TestReadWriteCloseAtAnyRequest closes the Session when the i-th request of a call is on its way. Calls and leases end with it, nothing is left, and
// what was queued by others goes on.
func TestReadWriteCloseAtAnyRequest(t *testing.T) {
	t.Parallel()
	w := newCutWorld(t)
	ss := newSampledSides(t, 32)
	defer ss.wg.Wait()
	eachRequest(t, w, func(c rwCall, i int) {
		ss.add(fmt.Sprintf("%s, at %d", c.name, i), func(t testing.TB) {
			// Too long for the server to clean up.
			r := w.newRWRun(t, 30*time.Second)
			c.prepare(r)
			r.begin()
			r.loss, r.closed = true, true
			closed := make(chan error, 1)
			end := sync.OnceFunc(func() { go func() { closed <- r.s.Close() }() })
			r.p.OnRequest(zktest.Rule{Match: zktest.Nth(i, counts), Times: 1, Do: zktest.Call(func(zktest.Frame) { end() })})
			c.run(r)
			end() // calls that race may make one request fewer than those that were counted
			select {
			case err := <-closed:
				require.NoError(t, err)
			case <-time.After(10 * time.Second):
				t.Fatalf("not closed: %s", ops(r.requests()))
			}
			r.mu.Lock()
			for _, l := range r.ours {
				require.Error(t, l.Err())
			}
			r.mu.Unlock()
			require.Empty(t, r.s.Leases())
			_, err := r.lock.RLock(context.Background())
			require.ErrorIs(t, err, ErrClosed)
			r.ends()
		})
	})
}
