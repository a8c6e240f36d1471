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

// TestReadWriteCancelledAtAnyRequest ends the ctx of a call in the moment in which its i-th request is on its way, and does something to that request
// besides. The call ends within a second, with a lease that is one or with an error that leaves nothing; the write lease under which it was to read,
// and a writer that waits behind, know nothing of it.
func TestReadWriteCancelledAtAnyRequest(t *testing.T) {
	t.Parallel()
	w := newCutWorld(t)
	reason := errors.New("not wanted any more")
	ss := newSampledSides(t, 32)
	defer ss.wg.Wait()
	nothing := func(*rwRun) {}
	held := func(r *rwRun) {
		var err error
		r.theirs, err = NewRWLock(r.rival, r.path).Lock(r.take())
		require.NoError(r, err)
	}
	under := func(r *rwRun) { r.write(false); r.queue(true) }
	rlock := func(r *rwRun, ctx context.Context) (*Lease, error) { return r.lock.RLock(ctx) }
	try := func(r *rwRun, ctx context.Context) (*Lease, error) { return r.lock.TryRLock(ctx) }
	for _, c := range []struct {
		name     string
		prepare  func(r *rwRun)
		call     func(r *rwRun, ctx context.Context) (*Lease, error)
		requests int
		releases bool // the write lease, meanwhile
	}{
		{"RLock, free", nothing, rlock, 3, false},
		{"RLock, behind a writer", held, rlock, 4, false},
		{"RLock, nested", under, rlock, 2, false},
		{"RLock, nested, the write lease is released", under, rlock, 4, true},
		{"TryRLock, free", nothing, try, 4, false},
		{"TryRLock, held", held, try, 1, false},
	} {
		for _, how := range []string{"answered", "before", "after", "reply held", "hole"} {
			for i := range c.requests {
				ss.add(fmt.Sprintf("%s, %s %d", c.name, how, i), func(t testing.TB) {
					r := w.newRWRun(t, patient)
					c.prepare(r)
					ctx, cancel := context.WithCancelCause(r.ctx())
					defer cancel(nil)
					gate := zktest.NewGate()
					defer gate.Open()
					do := map[string]zktest.Action{
						"answered": {}, "before": zktest.CutBefore(), "after": zktest.CutAfter(), "reply held": zktest.HoldReply(gate), "hole": zktest.BlackHoleAfter(),
					}[how]
					r.begin()
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
					got := lockedIn(func() (*Lease, error) { return c.call(r, ctx) })
					released := make(chan error, 1)
					if c.releases {
						go func() { released <- r.w.Release(context.Background()) }()
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
					if c.releases {
						require.NoError(r, <-released)
					}
					var ours []*Lease
					if r.w != nil && !c.releases {
						ours = append(ours, r.w)
					}
					switch {
					case g.err == nil:
						require.True(r, r.got(g.lease, nil))
						if r.theirs == nil {
							r.holds(append(ours, g.lease)...)
						}
						r.gives(g.lease)
					case errors.Is(g.err, context.Canceled):
						require.ErrorIs(r, g.err, reason)
					default:
						require.True(r, errors.Is(g.err, ErrHeld) && c.name == "TryRLock, held", "%v", g.err)
					}
					if r.theirs != nil {
						r.exactly(r.theirs.Node())
						require.NoError(r, r.theirs.Release(context.Background()))
					} else if !c.releases {
						r.holds(ours...)
						r.probe()
					}
					r.gives(r.w)
					r.ends()
				})
			}
		}
	}
}
