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

// clean runs a call with nothing broken and returns how many requests it makes.
func (c semCall) clean(t testing.TB, w cutWorld) (n int) {
	(&side{TB: t, name: c.name}).run(func(tb testing.TB) {
		r := w.newSemRun(tb, patient, c)
		c.run(r)
		clean := r.requests()
		n = len(clean)
		t.Logf("%-36s %2d requests: %s", c.name, n, ops(clean))
		r.ends()
	})
	return n
}

func eachSemRequest(t testing.TB, fn func(ss *sides, w cutWorld, c semCall, i int)) {
	w := newCutWorld(t)
	ss := newSampledSides(t, 32)
	defer ss.wg.Wait()
	for _, c := range semCalls() {
		for i := range c.clean(t, w) {
			fn(ss, w, c, i)
		}
	}
}

// TestSemaphoreWhateverIsCut breaks the connection at each request of each call, and at this one and the next: before the server sees it and after it was
// answered. No lease is lost, the call ends as it would have, and nothing is left.
// Reports: python-zk/kazoo #429, python-zk/kazoo #315, python-zk/kazoo #288, CURATOR-315.
func TestSemaphoreWhateverIsCut(t *testing.T) {
	t.Parallel()
	semaphoreWhateverIsCut(t)
}

func semaphoreWhateverIsCut(t testing.TB) {
	w := newCutWorld(t)
	ss := newSampledSides(t, 32)
	defer ss.wg.Wait()
	for _, c := range semCalls() {
		n := c.clean(t, w)
		for _, faults := range neighbours(n, 1) {
			ss.add(fmt.Sprint(c.name, " ", faults), func(t testing.TB) {
				r := w.newSemRun(t, patient, c)
				struck := r.breaks(faults...)
				c.run(r)
				if len(faults) == 1 && faults[0].at < n-2 && wayOf(t) == dialed { // lists are shared now and then, and without a wire reads repeated
					require.Equal(r, 1, struck(), "the fault did not strike: %s", ops(r.requests()))
				}
				r.ends()
			})
		}
	}
}

// TestSemaphoreWhateverIsSwallowed begins a black hole at each request of each call, before the server sees it or after. It heals at once; or when the
// clock has ended the leases but not the server the session; or when the session is over.
func TestSemaphoreWhateverIsSwallowed(t *testing.T) {
	t.Parallel()
	semaphoreWhateverIsSwallowed(t)
}

func semaphoreWhateverIsSwallowed(t testing.TB) {
	type hole struct {
		timeout, until time.Duration
		loss           bool
	}
	healed, ended := hole{patient, 0, false}, hole{3 * time.Second, 2300 * time.Millisecond, true}
	over := hole{time.Second, 1500 * time.Millisecond, true}
	eachSemRequest(t, func(ss *sides, w cutWorld, c semCall, i int) {
		for how, holes := range map[string][]hole{"before": {healed, over}, "after": {healed, ended, over}} {
			for _, hole := range holes {
				ss.add(fmt.Sprintf("%s, %s %d, for %v", c.name, how, i, hole.until), func(t testing.TB) {
					r := w.newSemRun(t, hole.timeout, c)
					r.loss = hole.loss
					do := zktest.BlackHoleAfter()
					if how == "before" {
						do = zktest.BlackHoleBefore()
					}
					r.p.OnRequest(zktest.Rule{Match: zktest.Nth(i, counts), Times: 1, Do: do})
					r.healsOnce(hole.until, false)
					c.run(r)
					r.ends()
				})
			}
		}
	})
}

// TestSemaphoreSessionEndsAtAnyRequest ends the session when the i-th request of a call is on its way to the server, or its answer on the way back.
func TestSemaphoreSessionEndsAtAnyRequest(t *testing.T) {
	t.Parallel()
	semaphoreSessionEndsAtAnyRequest(t)
}

func semaphoreSessionEndsAtAnyRequest(t testing.TB) {
	eachSemRequest(t, func(ss *sides, w cutWorld, c semCall, i int) {
		for _, answered := range []bool{false, true} {
			ss.add(fmt.Sprintf("%s, at %d, answered=%v", c.name, i, answered), func(t testing.TB) {
				r := w.newSemRun(t, 4*time.Second, c)
				r.loss, r.forced = true, true
				r.sessionEndsAt(i, answered)
				c.run(r)
				r.ends()
			})
		}
	})
}

// sessionEndsAt ends the session at a request, before the test ends.
func (r *cutRun) sessionEndsAt(i int, answered bool) {
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
		gate := zktest.NewGate()
		do = zktest.HoldReply(gate)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		wg.Go(func() {
			select {
			case <-gate.Reached():
				end()
				gate.Open()
			case <-stop:
			}
		})
		r.Cleanup(func() { close(stop); wg.Wait(); gate.Open() })
	}
	r.p.OnRequest(zktest.Rule{Match: zktest.Nth(i, counts), Times: 1, Do: do})
}

// TestSemaphoreCloseAtAnyRequest closes the Session when the i-th request of a call is on its way. Calls and leases end with it, and nothing is left.
func TestSemaphoreCloseAtAnyRequest(t *testing.T) {
	t.Parallel()
	semaphoreCloseAtAnyRequest(t)
}

func semaphoreCloseAtAnyRequest(t testing.TB) {
	eachSemRequest(t, func(ss *sides, w cutWorld, c semCall, i int) {
		ss.add(fmt.Sprintf("%s, at %d", c.name, i), func(t testing.TB) {
			r := w.newSemRun(t, 30*time.Second, c) // too long for the server to clean up
			r.loss, r.closed = true, true
			closed := make(chan error, 1)
			end := sync.OnceFunc(func() { go func() { closed <- r.s.Close() }() })
			r.p.OnRequest(zktest.Rule{Match: zktest.Nth(i, counts), Times: 1, Do: zktest.Call(func(zktest.Frame) { end() })})
			c.run(r)
			end() // the request was one of what comes behind
			select {
			case err := <-closed:
				require.NoError(t, err)
			case <-time.After(10 * time.Second):
				t.Fatalf("not closed: %s", ops(r.requests()))
			}
			sent := r.p.Counts().Requests[zktest.OpCreate]
			for _, l := range r.ours {
				require.Error(t, l.Err())
			}
			_, err := r.sem.Acquire(context.Background(), 1)
			require.ErrorIs(t, err, ErrClosed)
			r.ends()
			require.Equal(t, sent, r.p.Counts().Requests[zktest.OpCreate], "something was created after Close")
		})
	})
}

// The same in the ways of NewSession.
func TestAdoptedSemaphoreWhateverIsCut(t *testing.T) {
	t.Parallel()
	underFaults(t, semaphoreWhateverIsCut)
}

func TestAdoptedSemaphoreSessionEndsAtAnyRequest(t *testing.T) {
	t.Parallel()
	underFaults(t, semaphoreSessionEndsAtAnyRequest)
}

func TestAdoptedSemaphoreCloseAtAnyRequest(t *testing.T) {
	t.Parallel()
	underFaults(t, semaphoreCloseAtAnyRequest)
}
