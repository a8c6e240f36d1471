package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// A set is some locks under one path, two mutexes around a semaphore, with a session through a proxy that takes them all.
type lockSet struct {
	*cutRun
	dirs []string // where their znodes are
	of   func(s *Session) []Locker
}

func (w cutWorld) newSet(t testing.TB, timeout time.Duration) *lockSet {
	r := w.newRun(t, timeout)
	a, b, c := r.path+"/a", r.path+"/b", r.path+"/c"
	return &lockSet{r, []string{a, b + "/leases", b + "/locks", c}, func(s *Session) []Locker {
		return []Locker{NewMutex(s, a), NewSemaphore(s, b, 2).Locker(2), NewMutex(s, c)}
	}}
}

// empty waits until no znode is left, and takes all of it from another session.
func (r *lockSet) empty() {
	r.Helper()
	eventually(r, 5*time.Second, "nothing is left", func() bool {
		return !slices.ContainsFunc(r.dirs, func(dir string) bool { return len(children(r, r.admin, dir)) > 0 })
	})
	l, err := NewMultiLock(r.of(r.fresh)...).TryLock(within(r, 5*time.Second))
	require.NoError(r, err)
	require.NoError(r, l.Release(within(r, 5*time.Second)))
}

// A connection is cut before or after each request of a group's calls, with every subset of its members held by somebody else: a call that fails leaves
// nothing, one that succeeds holds all.
// Reports: redisson #4031, bsm/redislock #70.
func TestMultiLockWhateverIsCut(t *testing.T) {
	t.Parallel()
	w := newCutWorld(t)
	ss := newSampledSides(t, 32)
	defer ss.wg.Wait()
	for subset := range 8 {
		for _, call := range []string{"Lock", "TryLock", "Release"} {
			if call == "Release" && subset != 0 {
				continue
			}
			for i := range 24 { // no call makes more requests
				for how, action := range map[string]func() zktest.Action{"before": zktest.CutBefore, "after": zktest.CutAfter} {
					ss.add(fmt.Sprintf("%s, %d held, cut %s %d", call, subset, how, i), func(t testing.TB) {
						w.newSet(t, 10*time.Second).isCut(call, subset, i, action())
					})
				}
			}
		}
	}
}

func (r *lockSet) isCut(call string, subset, i int, action zktest.Action) {
	var theirs []*Lease
	for i, l := range r.of(r.rival) {
		if subset&(1<<i) != 0 {
			held, err := l.Lock(within(r, 10*time.Second))
			require.NoError(r, err)
			theirs = append(theirs, held)
		}
	}
	m := NewMultiLock(r.of(r.s)...)
	var mine *Lease
	var err error
	if call == "Release" {
		mine, err = m.Lock(within(r, 10*time.Second))
		require.NoError(r, err)
	}
	r.begin()
	remove := r.p.OnRequest(zktest.Rule{Match: zktest.Nth(i, counts), Times: 1, Do: action})
	ctx := within(r, 20*time.Second)
	if call == "Lock" && subset != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
	}
	switch call {
	case "Lock":
		mine, err = m.Lock(ctx)
	case "TryLock":
		mine, err = m.TryLock(ctx)
	}
	remove()
	switch {
	case subset == 0 && call != "TryLock", subset == 0 && err == nil:
		require.NoError(r, err, "%s", ops(r.requests()))
		require.NoError(r, mine.Err())
		require.Len(r, mine.Parts(), 3)
		require.NoError(r, mine.Release(within(r, 10*time.Second)))
	case subset == 0: // a member of its own may stand in its way still, that a cut left
		require.ErrorIs(r, err, ErrHeld)
	default:
		require.Error(r, err)
		// Who is in the way it may not have come to know, after a cut.
		require.True(r, errors.Is(err, ErrHeld) || errors.Is(err, ErrNoConnection) || errors.Is(err, context.DeadlineExceeded), "%v", err)
	}
	for _, l := range theirs {
		require.NoError(r, l.Err())
		require.NoError(r, l.Release(within(r, 10*time.Second)))
	}
	r.empty()
	require.Empty(r, r.s.Leases())
}

// Random groups of six locks, of which some are shared, taken by twenty clients that wait, try and give up: everybody gets on, and no two hold what excludes
// the other.
// Reports: segmentio/consul-go #9.
func TestMultiLockGroups(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	server := newTestServer(t, tortureTick)
	s := make([]*Session, 20)
	for i := range s {
		s[i] = dial(t, []string{server.addr}, calm)
	}
	groupsGetOn(t, s, seed, tortureTime(t), 5*time.Millisecond)
	look := adminAt(t, []string{server.addr})
	for i := range 6 {
		dir := groupPath(i)
		eventually(t, 10*time.Second, "nothing is left", func() bool {
			return len(children(t, look, dir)) == 0 && len(children(t, look, dir+"/leases")) == 0 && len(children(t, look, dir+"/locks")) == 0
		})
	}
}

// The same for an hour of virtual time, in which a deadlock is the end of the test, with sessions that end and connections that break. With -race, for which
// an hour of twenty sessions is much, it is five minutes.
func TestVirtualMultiLockGroups(t *testing.T) {
	seed, long := testSeed(t), time.Hour
	if raceEnabled || !testrun.Real() {
		long = 5 * time.Minute
	}
	virtual(t, func(t *testing.T, server *zktest.Server) {
		s := make([]*Session, 20)
		for i := range s {
			s[i], _ = dialVirtual(t, server)
		}
		rnd := rand.New(rand.NewPCG(seed, 1000))
		f := strikeAtRandom(t, rnd, time.Minute, []strike{
			{"disconnect", func(*faults, zktest.Direction) { server.Disconnect(s[rnd.IntN(len(s))].ID()) }},
			{"partition", func(f *faults, _ zktest.Direction) {
				heal := server.Partition(s[rnd.IntN(len(s))].ID(), s[rnd.IntN(len(s))].ID())
				f.wait(f.between(time.Millisecond, 2*virtualTimeout))
				heal()
			}},
			{"stop", func(f *faults, _ zktest.Direction) {
				server.Stop()
				f.wait(f.between(time.Millisecond, virtualTimeout))
				if err := server.Start(); err != nil {
					t.Error(err)
				}
			}},
		})
		groupsGetOn(t, s, seed, long, 10*time.Second)
		f.stop()
		time.Sleep(2 * time.Minute)
		for i := range 6 {
			for _, z := range znodes(server, groupPath(i)) {
				require.Contains(t, []string{groupPath(i) + "/leases", groupPath(i) + "/locks"}, z)
			}
		}
	})
}

func groupPath(i int) string { return fmt.Sprintf("/groups/%d", i) }

// groupsGetOn lets each session take random groups for a while.
func groupsGetOn(t testing.TB, sessions []*Session, seed uint64, d, hold time.Duration) {
	t.Helper()
	var mu sync.Mutex
	inside := make([]map[*Lease]bool, 6) // of each lock, who is inside; the value is whether it is shared
	for i := range inside {
		inside[i] = make(map[*Lease]bool)
	}
	var wrong []string
	permits := func(i int) int { return 1 + i%3 } // of those that are semaphores
	ctx, stop := context.WithTimeout(context.Background(), d+60*time.Second)
	defer stop()
	granted := make([]int, len(sessions))
	var waiting atomic.Int64 // for their first grant
	waiting.Store(int64(len(sessions)))
	end := time.AfterFunc(d, func() {
		for waiting.Load() > 0 && ctx.Err() == nil { // on a slow machine
			<-time.After(hold)
		}
		stop()
	})
	defer end.Stop()
	var wg sync.WaitGroup
	for n, s := range sessions {
		rnd := rand.New(rand.NewPCG(seed, uint64(n)))
		wg.Go(func() {
			for ctx.Err() == nil {
				var lockers []Locker
				var which []int
				for _, i := range rnd.Perm(6)[:1+rnd.IntN(4)] {
					which = append(which, i)
					switch {
					case i >= 4:
						lockers = append(lockers, NewSemaphore(s, groupPath(i), permits(i)).Locker(1))
					case rnd.IntN(2) == 0:
						lockers = append(lockers, NewRWLock(s, groupPath(i)).RLocker())
					default:
						lockers = append(lockers, NewMutex(s, groupPath(i)))
					}
					if rnd.IntN(3) == 0 { // the same again
						lockers = append(lockers, lockers[len(lockers)-1])
					}
				}
				m := NewMultiLock(lockers...)
				var l *Lease
				var err error
				switch rnd.IntN(4) {
				case 0:
					l, err = m.TryLock(ctx)
				case 1:
					limited, cancel := context.WithTimeout(ctx, 10*hold)
					l, err = m.Lock(limited)
					cancel()
				default:
					l, err = m.Lock(ctx)
				}
				if err != nil {
					if ctx.Err() == nil && !errors.Is(err, ErrHeld) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrNoConnection) {
						t.Errorf("%v", err)
					}
					<-time.After(hold)
					continue
				}
				if granted[n]++; granted[n] == 1 {
					waiting.Add(-1)
				}
				mu.Lock()
				for _, i := range which {
					inside[i][l] = shared(l, i)
				}
				mu.Unlock()
				check := func() {
					mu.Lock()
					defer mu.Unlock()
					for _, i := range which {
						if text := crowded(inside[i], l, i, permits(i)); text != "" && len(wrong) < 10 {
							wrong = append(wrong, text)
						}
					}
				}
				check()
				<-time.After(time.Duration(rnd.Int64N(int64(hold))))
				check()
				mu.Lock()
				for _, i := range which {
					delete(inside[i], l)
				}
				mu.Unlock()
				_ = l.Release(context.Background())
			}
		})
	}
	wg.Wait()
	require.Empty(t, wrong)
	t.Logf("granted: %v", granted)
	for n := range granted {
		require.Positive(t, granted[n], "client %d", n)
	}
}

// shared reports whether a group has a lock for reading.
func shared(l *Lease, i int) bool {
	for _, leaf := range l.leaves() {
		if leaf.Path() == groupPath(i) {
			return leaf.hold.key.shared
		}
	}
	return false
}

// crowded says who is inside a lock beside l, though both leases are held.
func crowded(inside map[*Lease]bool, l *Lease, i, permits int) string {
	var beside []*Lease
	for o, reads := range inside {
		if o != l && (i >= 4 || !reads || !inside[l]) && o.Err() == nil && l.Err() == nil {
			beside = append(beside, o)
		}
	}
	limit := 0
	if i >= 4 {
		limit = permits - 1
	}
	if len(beside) <= limit {
		return ""
	}
	return fmt.Sprintf("lock %d: %d beside %v", i, len(beside), l.Parts())
}

func TestMultiLockBadInput(t *testing.T) {
	s := dialShared(t)
	ctx := within(t, 10*time.Second)
	closed := dialShared(t)
	require.NoError(t, closed.Close())
	var none *Mutex
	good := NewMutex(s, newPath(t))
	for why, m := range map[string]*MultiLock{
		"without members":           NewMultiLock(),
		"MultiLock without members": NewMajorityLock(),
		"member 1 of a MultiLock":   NewMultiLock(good, nil),
		"member 0 of a MultiLock":   NewMajorityLock(none),
		"no Session":                NewMultiLock(good, NewMutex(nil, "/x")),
		"relative":                  NewMultiLock(NewSemaphore(s, "x", 1).Locker(1), good),
		"is for NewMajorityLock":    NewMultiLock(good).WithMemberTimeout(time.Second),
		"WithMemberTimeout(-1s)":    NewMajorityLock(good).WithMemberTimeout(-time.Second),
		"2 permits of a semaphore":  NewMultiLock(NewSemaphore(s, newPath(t), 1).Locker(2)),
		"a semaphore of 0 permits":  NewMultiLock(good, NewSemaphore(s, newPath(t), 0).Locker(1)),
		"0 permits: at least one":   NewMajorityLock(NewSemaphore(s, newPath(t), 1).Locker(0)),
	} {
		for _, call := range []func(context.Context) (*Lease, error){m.Lock, m.TryLock} {
			l, err := call(ctx)
			require.Nil(t, l)
			require.ErrorIs(t, err, ErrInvalid, why)
			require.ErrorContains(t, err, why)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, m.Path(), e.Path)
		}
	}
	_, err := NewMultiLock(good, NewMutex(closed, "/x")).Lock(ctx)
	require.ErrorIs(t, err, ErrClosed)
	_, err = NewMajorityLock(NewMutex(closed, "/x")).Lock(ctx)
	require.ErrorIs(t, err, ErrClosed)
	require.Empty(t, s.Leases())

	cancelled, cancel := context.WithCancelCause(ctx)
	cancel(errImpatient)
	for _, m := range []*MultiLock{NewMultiLock(good), NewMajorityLock(good)} {
		_, err = m.Lock(cancelled)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errImpatient)
	}
}
