package zkrecipes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

func requireHoldLimit(t testing.TB, l *Lease) {
	t.Helper()
	var lost *LostError
	require.ErrorAs(t, l.Err(), &lost)
	require.Equal(t, ReasonHoldLimit, lost.Reason)
	require.Equal(t, l.Path(), lost.Path)
	require.ErrorContains(t, lost, "WithMaxHold")
	require.ErrorIs(t, context.Cause(l.Context()), ErrLost)
}

// A holder that is stuck, and never looks, has lost its lease by the time the next one is granted; what it does afterwards harms nobody.
// Reports: etcd-io/etcd #17470, microsoft/etcd3 #56, etcd-io/etcd #9218.
func TestMaxHoldEndsAStuckHolder(t *testing.T) {
	t.Parallel()
	for _, stuck := range []byte("MWR") {
		for _, next := range []byte("MW") {
			t.Run(string(stuck)+string(next), func(t *testing.T) {
				t.Parallel()
				a, b, c := dialShared(t, calm), dialShared(t, calm), admin(t)
				path := newPath(t)
				bg := context.Background()
				began := time.Now()
				l, err := lockerOf(a, path, stuck, WithMaxHold(200*time.Millisecond)).Lock(bg)
				require.NoError(t, err)
				waiter := mustLease(t, goLock(bg, lockerOf(b, path, next)))
				select { // not by asking, which would end it
				case <-l.Context().Done():
				default:
					t.Fatal("the next one was granted, and the stuck one not told")
				}
				require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
				requireHoldLimit(t, l)
				require.Greater(t, waiter.Token(), l.Token())
				require.ErrorIs(t, l.Release(bg), ErrLost)
				require.ErrorIs(t, l.Release(bg), ErrLost, "again")
				ok, _, err := c.Exists(waiter.Node())
				require.NoError(t, err)
				require.True(t, ok)
				require.NoError(t, waiter.Err())
				require.NoError(t, waiter.Release(bg))
				require.Empty(t, children(t, c, path))
			})
		}
	}
}

// All that one owner holds of a path ends at the earliest of its deadlines, whichever lease brought that: entering again neither extends nor escapes it.
func TestMaxHoldIsTheOwners(t *testing.T) {
	t.Parallel()
	const soon, late = 2 * time.Second, time.Minute // soon is time enough to take them all
	for name, tc := range map[string]struct {
		takes string
		holds []time.Duration
	}{
		"entered again with a later one":    {"MM", []time.Duration{soon, late}},
		"entered again with an earlier one": {"MM", []time.Duration{late, soon}},
		"entered again without":             {"WW", []time.Duration{soon, 0}},
		"first without":                     {"WW", []time.Duration{0, soon}},
		"read under write":                  {"WR", []time.Duration{soon, late}},
		"read under write brings it":        {"WR", []time.Duration{0, soon}},
		"read under write, write again":     {"WRW", []time.Duration{late, late, soon}},
		"read under mutex":                  {"MR", []time.Duration{soon, late}},
		"read under mutex brings it":        {"MR", []time.Duration{late, soon}},
		"readers":                           {"RRR", []time.Duration{late, soon, late}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, c := dialShared(t, calm), dialShared(t, calm), admin(t)
			path := newPath(t)
			bg := context.Background()
			ctx := ContextWithOwner(bg, "o")
			var ls []*Lease
			for i := range len(tc.takes) {
				var opts []LockOption
				if tc.holds[i] > 0 {
					opts = append(opts, WithMaxHold(tc.holds[i]))
				}
				l, err := lockerOf(a, path, tc.takes[i], opts...).Lock(ctx)
				require.NoError(t, err)
				ls = append(ls, l)
			}
			next := mustLease(t, goLock(bg, NewRWLock(b, path)))
			for _, l := range ls {
				select {
				case <-l.Context().Done():
				default:
					t.Fatal("not told")
				}
				requireHoldLimit(t, l)
				require.ErrorIs(t, l.Release(bg), ErrLost)
			}
			require.NoError(t, next.Release(bg))
			// The owner starts anew, with a time of its own.
			l, err := NewRWLock(a, path, WithMaxHold(time.Minute)).Lock(ctx)
			require.NoError(t, err)
			require.NoError(t, l.Release(bg))
			require.Empty(t, children(t, c, path))
			require.Empty(t, a.Leases())
		})
	}
}

// The deadline of a write lease goes on for the read that was taken under it.
func TestMaxHoldOverADowngrade(t *testing.T) {
	t.Parallel()
	for _, first := range []byte("MW") {
		t.Run(string(first), func(t *testing.T) {
			t.Parallel()
			a, b := dialShared(t, calm), dialShared(t, calm)
			path := newPath(t)
			bg := context.Background()
			w, err := lockerOf(a, path, first, WithMaxHold(3*time.Second)).Lock(bg)
			require.NoError(t, err)
			r, err := NewRWLock(a, path).RLock(w.Context())
			require.NoError(t, err)
			require.NoError(t, w.Release(bg))
			require.NoError(t, r.Err())
			next := mustLease(t, goLock(bg, NewMutex(b, path)))
			requireHoldLimit(t, r)
			require.ErrorIs(t, w.Err(), ErrReleased)
			require.NoError(t, w.Release(bg))
			require.NoError(t, next.Release(bg))
			require.Empty(t, children(t, admin(t), path))
		})
	}
}

// The time passes while a read under the write lease is on its way: that read is not granted in a hold that is over, but queues.
func TestMaxHoldPassesWhileAReadIsMade(t *testing.T) {
	t.Parallel()
	a, p := dialProxy(t, calm)
	b := dialShared(t, calm)
	path := newPath(t)
	bg := context.Background()
	w, err := NewRWLock(a, path, WithOwner("o")).Lock(bg)
	require.NoError(t, err)
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldReply(gate)})
	read := goLock(bg, NewRWLock(a, path, WithOwner("o")).RLocker())
	waitingFor(t, path, 2) // the read's znode is there, its answer is not
	next := goLock(bg, NewRWLock(b, path))
	waitingFor(t, path, 3)
	_, err = NewRWLock(a, path, WithMaxHold(300*time.Millisecond), WithOwner("o")).Lock(bg) // which limits the whole hold
	require.NoError(t, err)
	<-w.Done()
	requireHoldLimit(t, w)
	gate.Open()
	l := mustLease(t, next)
	select {
	case got := <-read:
		t.Fatalf("granted in a hold that was over: %v, %v", got.lease, got.err)
	default:
	}
	require.NoError(t, l.Release(bg))
	r := mustLease(t, read)
	require.Greater(t, r.Token(), l.Token())
	require.NoError(t, r.Release(bg))
	require.Empty(t, children(t, admin(t), path))
}
