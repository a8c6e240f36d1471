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

// clean lets a participant go through it with nothing broken, and returns how many requests that takes.
func (c leaderCall) clean(t testing.TB, w cutWorld) (n int) {
	(&side{TB: t, name: c.name}).run(func(tb testing.TB) {
		r := w.newLeaderRun(tb, patient, c)
		c.run(r)
		clean := r.requests()
		n = len(clean)
		t.Logf("%-32s %2d requests: %s", c.name, n, ops(clean))
		r.ends()
	})
	return n
}

func eachLeaderRequest(t testing.TB, fn func(ss *sides, w cutWorld, c leaderCall, n, i int)) {
	w := newCutWorld(t)
	ss := newSampledSides(t, 32)
	defer ss.wg.Wait()
	for _, c := range leaderCalls() {
		n := c.clean(t, w)
		for i := range n {
			fn(ss, w, c, n, i)
		}
	}
}

// TestLeaderWhateverIsCut breaks the connection at each request of a participant's life, and at this one and the next: before the server sees it and after
// it was answered. No leadership is lost by that, the life goes on as it would have, and nothing is left.
func TestLeaderWhateverIsCut(t *testing.T) {
	t.Parallel()
	leaderWhateverIsCut(t)
}

func leaderWhateverIsCut(t testing.TB) {
	w := newCutWorld(t)
	ss := newSampledSides(t, 32)
	defer ss.wg.Wait()
	for _, c := range leaderCalls() {
		n := c.clean(t, w)
		for _, faults := range neighbours(n, 1) {
			ss.add(fmt.Sprint(c.name, " ", faults), func(t testing.TB) {
				r := w.newLeaderRun(t, patient, c)
				struck := r.breaks(faults...)
				c.run(r)
				if len(faults) == 1 && faults[0].at < n-2 && wayOf(t) == dialed { // without a wire reads are repeated, or there are fewer
					require.Equal(r, 1, struck(), "the fault did not strike: %s", ops(r.requests()))
				}
				r.ends()
			})
		}
	}
}

// TestLeaderWhateverIsSwallowed begins a black hole at each request of a participant's life, before the server sees it or after. It heals at once; or when
// the clock has ended the term but not the server the session; or when the session is over. Whoever leads then finds the term before told.
func TestLeaderWhateverIsSwallowed(t *testing.T) {
	t.Parallel()
	type hole struct {
		timeout, until time.Duration
		loss           bool
	}
	healed, ended := hole{patient, 0, false}, hole{3 * time.Second, 2300 * time.Millisecond, true}
	over := hole{time.Second, 1500 * time.Millisecond, true}
	eachLeaderRequest(t, func(ss *sides, w cutWorld, c leaderCall, _, i int) {
		for how, holes := range map[string][]hole{"before": {healed, over}, "after": {healed, ended, over}} {
			for _, hole := range holes {
				ss.add(fmt.Sprintf("%s, %s %d, for %v", c.name, how, i, hole.until), func(t testing.TB) {
					r := w.newLeaderRun(t, hole.timeout, c)
					r.loss = hole.loss
					do := zktest.BlackHoleAfter()
					if how == "before" {
						do = zktest.BlackHoleBefore()
					}
					r.cutRun.p.OnRequest(zktest.Rule{Match: zktest.Nth(i, counts), Times: 1, Do: do})
					(&rwRun{cutRun: r.cutRun}).healsOnce(hole.until, false)
					c.run(r)
					r.ends()
				})
			}
		}
	})
}

// TestLeaderSessionEndsAtAnyRequest ends the session when the i-th request of a participant's life is on its way to the server, or its answer on the way
// back. The term is told, and the participant takes part in the next session.
func TestLeaderSessionEndsAtAnyRequest(t *testing.T) {
	t.Parallel()
	leaderSessionEndsAtAnyRequest(t)
}

func leaderSessionEndsAtAnyRequest(t testing.TB) {
	eachLeaderRequest(t, func(ss *sides, w cutWorld, c leaderCall, _, i int) {
		for _, answered := range []bool{false, true} {
			ss.add(fmt.Sprintf("%s, at %d, answered=%v", c.name, i, answered), func(t testing.TB) {
				r := w.newLeaderRun(t, 4*time.Second, c)
				r.loss, r.forced = true, true
				(&rwRun{cutRun: r.cutRun}).sessionEndsAt(i, answered)
				c.run(r)
				r.ends()
			})
		}
	})
}

// TestLeaderCloseAtAnyRequest closes the Session when the i-th request of a participant's life is on its way. Run returns ErrClosed, the term is told,
// nothing is left, and nothing comes after Close has returned: no create, no term, no leadership (K31, B28, B29).
func TestLeaderCloseAtAnyRequest(t *testing.T) {
	t.Parallel()
	leaderCloseAtAnyRequest(t)
}

func leaderCloseAtAnyRequest(t testing.TB) {
	eachLeaderRequest(t, func(ss *sides, w cutWorld, c leaderCall, _, i int) {
		ss.add(fmt.Sprintf("%s, at %d", c.name, i), func(t testing.TB) {
			r := w.newLeaderRun(t, 30*time.Second, c) // too long for the server to clean up
			r.loss, r.closed = true, true
			type closing struct {
				err     error
				creates int
				terms   int // that had begun when Close returned
			}
			closed := make(chan closing, 1)
			end := sync.OnceFunc(func() {
				go func() {
					err := r.s.Close()
					<-r.ready
					_, terms, _, _ := r.who.current()
					closed <- closing{err, r.cutRun.p.Counts().Requests[zktest.OpCreate], terms}
				}()
			})
			r.cutRun.p.OnRequest(zktest.Rule{Match: zktest.Nth(i, counts), Times: 1, Do: zktest.Call(func(zktest.Frame) { end() })})
			c.run(r)
			end() // the request was one of what comes behind
			var was closing
			select {
			case was = <-closed:
				require.NoError(t, was.err)
			case <-time.After(10 * time.Second):
				t.Fatalf("not closed: %s", ops(r.requests()))
			}
			require.ErrorIs(t, NewLeaderLatch(r.s, r.path).Run(context.Background()), ErrClosed)
			r.ends()
			require.Equal(t, was.creates, r.cutRun.p.Counts().Requests[zktest.OpCreate], "something was created after Close")
			if _, terms, _, _ := r.who.current(); terms != was.terms {
				// One that was granted before is counted by Run, for which Close does not wait: it had ended with Close.
				require.Equal(t, was.terms+1, terms, "a term began after Close")
			}
			for begun := true; begun; {
				select {
				case l := <-r.who.terms:
					require.Error(t, l.Err(), "a term began after Close")
				default:
					begun = false
				}
			}
			require.False(t, r.who.isLeader())
		})
	})
}

// The same in the ways of NewSession.
func TestAdoptedLeaderWhateverIsCut(t *testing.T) {
	t.Parallel()
	underFaults(t, leaderWhateverIsCut)
}

func TestAdoptedLeaderSessionEndsAtAnyRequest(t *testing.T) {
	t.Parallel()
	underFaults(t, leaderSessionEndsAtAnyRequest)
}

func TestAdoptedLeaderCloseAtAnyRequest(t *testing.T) {
	t.Parallel()
	underFaults(t, leaderCloseAtAnyRequest)
}
