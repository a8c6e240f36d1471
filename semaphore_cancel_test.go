package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// TestSemaphoreCancelledAtAnyRequest ends the ctx of a call in the moment in which its i-th request is on its way, and does something to that request
// besides. The call ends within a second, with a lease that is one or with an error that leaves nothing, and has no later effect.
// Reports: CURATOR-462.
func TestSemaphoreCancelledAtAnyRequest(t *testing.T) {
	t.Parallel()
	semaphoreCancelledAtAnyRequest(t)
}

func TestAdoptedSemaphoreCancelledAtAnyRequest(t *testing.T) {
	t.Parallel()
	underFaults(t, semaphoreCancelledAtAnyRequest)
}

func semaphoreCancelledAtAnyRequest(t testing.TB) {
	w := newCutWorld(t)
	reason := errors.New("not wanted any more")
	ss := newSampledSides(t, 32)
	defer ss.wg.Wait()
	none := func(*semRun) {}
	holder := func(r *semRun) { r.rivals(1) }
	call := func(name string, limit int, counted, parents bool, prepare func(*semRun)) semCall {
		return semCall{name, limit, counted, parents, prepare, nil}
	}
	for _, c := range []struct {
		semCall
		n, requests int
		try         bool
	}{
		{call("Acquire(1), free", 1, false, false, none), 1, 6, false},
		{call("Acquire(3), free", 3, false, false, none), 3, 12, false},
		{call("Acquire(3), parents missing", 3, false, true, none), 3, 16, false},
		{call("Acquire(1), behind a holder", 1, false, false, holder), 1, 7, false},
		{call("Acquire(3), behind a holder, counted", 3, true, false, holder), 3, 12, false},
		{call("TryAcquire(1), free", 1, false, false, none), 1, 5, true},
		{call("TryAcquire(3), free, counted", 3, true, false, none), 3, 12, true},
		{call("TryAcquire(1), held", 1, false, false, holder), 1, 2, true},
	} {
		for _, how := range []string{"answered", "before", "after", "reply held", "hole"} {
			for i := range c.requests {
				ss.add(fmt.Sprintf("%s, %s %d", c.name, how, i), func(t testing.TB) {
					r := w.newSemRun(t, patient, c.semCall)
					r.later = true
					ctx, cancel := context.WithCancelCause(r.take())
					defer cancel(nil)
					gate := zktest.NewGate()
					defer gate.Open()
					do := map[string]zktest.Action{
						"answered": {}, "before": zktest.CutBefore(), "after": zktest.CutAfter(), "reply held": zktest.HoldReply(gate), "hole": zktest.BlackHoleAfter(),
					}[how]
					nth, struck := zktest.Nth(i, counts), make(chan struct{})
					r.p.OnRequest(zktest.Rule{Times: 1, Do: do, Match: func(f zktest.Frame) bool {
						if !nth(f) {
							return false
						}
						cancel(reason)
						close(struck)
						return true
					}})
					if how == "hole" {
						r.heals(0, r.breaks())
					}
					take := r.sem.Acquire
					if c.try {
						take = r.sem.TryAcquire
					}
					got := lockedIn(func() (*Lease, error) { return take(ctx, c.n) })
					if r.theirs != nil && !c.try {
						select { // it waits, having made all the requests that it makes
						case <-struck:
						case <-answeredSoon(r.cutRun, zktest.OpGetData, r.theirs.Node()):
							cancel(reason)
						}
					}
					var g lockResult
					select {
					case g = <-got:
					case <-struck:
						select {
						case g = <-got:
						case <-time.After(time.Second):
							r.Fatalf("it has not returned: %s", ops(r.requests()))
						}
					}
					gate.Open()
					switch {
					case g.err == nil:
						require.Nil(r, r.theirs)
						r.stands(0, g.lease)
						r.gives(g.lease)
					case errors.Is(g.err, context.Canceled):
						require.ErrorIs(r, g.err, reason)
					default:
						require.True(r, errors.Is(g.err, ErrHeld) && r.theirs != nil && c.try, "%v", g.err)
					}
					if r.theirs != nil {
						r.stands(0, r.theirs)
						r.gives(r.theirs)
					}
					r.ends()
				})
			}
		}
	}
}

// A waiter whose clock has run out, though it is connected, is not granted before its session is proved. It keeps its place meanwhile.
func TestNoPermitWhenTheClockHasRunOut(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			bg, path, look := context.Background(), newPath(t), admin(t)
			s, p := dialProxy(t, WithTimeout(3*time.Second))
			session := s.ID()
			first, err := NewSemaphore(dialShared(t, calm), path, 3).Acquire(bg, 3)
			require.NoError(t, err)
			got := goLock(bg, NewSemaphore(s, path, 3).Locker(n))
			answered := func(op zktest.Op, path string) (n int) {
				for _, q := range p.Requests() {
					if q.Op == op && q.Path == path && q.Answered {
						n++
					}
				}
				return n
			}
			eventually(t, 5*time.Second, "it waits", func() bool { return answered(zktest.OpGetData, first.Parts()[2].Node()) > 0 })
			before := leasesOf(t, look, path)
			remove := p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpSync), Do: zktest.DropReply()})
			eventually(t, 5*time.Second, "its clock has run out", func() bool { return s.engine.Left(session) <= 0 })
			require.Equal(t, StateConnected, s.State())
			lists, syncs := answered(zktest.OpGetChildren2, path+"/leases"), answered(zktest.OpSync, "/")
			require.NoError(t, first.Release(bg))
			eventually(t, 5*time.Second, "it sees that it is first", func() bool { return answered(zktest.OpGetChildren2, path+"/leases") > lists })
			eventually(t, 5*time.Second, "it asks for proof", func() bool {
				select {
				case r := <-got:
					t.Fatalf("granted without proof: %+v", r)
				default:
				}
				return answered(zktest.OpSync, "/") > syncs
			})
			remove()
			p.Cut() // what was dropped is never answered; a new connection proves the session as well
			lease := mustLease(t, got)
			require.NoError(t, lease.Err())
			require.Equal(t, session, s.ID())
			for _, part := range lease.Parts() {
				require.Contains(t, before, part.Node()[len(path+"/leases/"):], "it kept its place")
			}
			require.NoError(t, lease.Release(bg))
		})
	}
}
