package zkrecipes

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// TestCreateStuckInAPausedFollowerLeavesNoOrphan sends a create to a follower that stands still, goes on with another one, which knows nothing of it,
// and comes back to the first when that wakes up. What it then finds in its old socket it may execute: the session is its own again. So a create that
// was looked for and not found can still land, later than the one that was made in its place.
func TestCreateStuckInAPausedFollowerLeavesNoOrphan(t *testing.T) {
	createStuckInAPausedFollowerLeavesNoOrphan(t)
}

func createStuckInAPausedFollowerLeavesNoOrphan(t testing.TB) {
	const (
		most     = 20 // pauses, until a create has landed late: about a third do, but those of one pause tend to agree
		atOnce   = 9  // runs per pause
		timeout  = 10 * time.Second
		patience = 3 * time.Second
	)
	pauses := rounds(t, 4)
	// The leader must bear with the paused follower; else it comes back with all its connections closed.
	ens := zktest.Start(t, zktest.Servers(3), zktest.SyncLimit(50))
	followers := ens.Followers()
	require.Len(t, followers, 2)
	far, near := followers[0], followers[1]
	leader := ens.Leader()
	c := adminAt(t, []string{leader.Addr()})
	fresh := dial(t, []string{leader.Addr()}, WithTimeout(timeout))
	late := 0 // creates that were executed after all
	var all []*cutRun
	for pause := 0; pause < pauses || late == 0 && pause < most; pause++ {
		var runs []*cutRun
		for range atOnce {
			p := zktest.NewProxy(t, far.Addr())
			s := dial(t, []string{p.Addr()}, WithTimeout(timeout))
			r := &cutRun{TB: t, cutWorld: cutWorld{fresh: fresh, admin: c}, s: s, p: p}
			r.at(newPath(t))
			r.mkdirs()
			// The follower must have the directory before it stops.
			_, err := s.Conn().Sync(r.path)
			require.NoError(t, err)
			r.begin()
			runs = append(runs, r)
		}
		require.NoError(t, far.Pause())
		results := make([]result, atOnce)
		cancels := make([]context.CancelFunc, atOnce)
		var calls sync.WaitGroup
		for i, r := range runs {
			ctx, cancel := context.WithCancel(within(t, 20*time.Second))
			defer cancel()
			cancels[i] = cancel
			calls.Go(func() {
				l, err := r.m.Lock(ctx)
				results[i] = result{lease: l, err: err}
			})
		}
		for i, r := range runs {
			eventually(t, 5*time.Second, "the create is on its way", func() bool {
				for _, q := range r.requests() {
					if q.Op == zktest.OpCreate && q.Fate == zktest.FateForwarded {
						return true
					}
				}
				return false
			})
			if i%3 == 2 { // the caller does not wait for what becomes of it
				cancels[i]()
			}
			r.p.SetTarget(near.Addr())
			r.p.Cut()
		}
		calls.Wait()
		for i, r := range runs {
			// The session is on the other one.
			_, err := r.s.Conn().Sync(r.path)
			require.NoError(t, err)
			if i%3 == 2 {
				require.ErrorIs(t, results[i].err, context.Canceled)
			} else {
				require.NoError(t, results[i].err)
			}
			r.p.SetTarget(far.Addr())
			r.p.Cut()
		}
		require.NoError(t, far.Resume())
		for i, r := range runs {
			_, err := r.s.Conn().Sync(r.path)
			require.NoError(t, err)
			if l := results[i].lease; l != nil {
				require.NoError(t, l.Err())
				r.exactly(l.Node())
				if i%3 == 1 {
					require.NoError(t, l.Release(within(t, patience)))
				} else {
					r.release(l)
				}
			}
			r.exactly()
			next, err := NewMutex(fresh, r.path).Lock(within(t, patience))
			require.NoError(t, err, "%s", ops(r.requests()))
			require.NoError(t, next.Release(context.Background()))
			_, stat, err := c.Get(r.path)
			require.NoError(t, err)
			made := 1 // the fresh one's
			for _, q := range r.requests() {
				if q.Op == zktest.OpCreate && q.Answered && q.Err == 0 {
					made++
				}
			}
			late += (int(stat.Cversion) - 2*made) / 2
		}
		all = append(all, runs...)
		t.Logf("pause %d: %d of %d creates have landed late", pause, late, len(all))
	}
	require.NotZero(t, late, "no create landed late, which is what this is about")
	for _, r := range all {
		r.exactly()
	}
}
