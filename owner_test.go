package zkrecipes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// waitingFor waits until n znodes stand under path.
func waitingFor(t testing.TB, path string, n int) {
	t.Helper()
	c := admin(t)
	eventually(t, 10*time.Second, fmt.Sprintf("%d znodes under %s", n, path), func() bool { return len(children(t, c, path)) == n })
}

type lockResult struct {
	lease *Lease
	err   error
}

// goLock runs Lock on a goroutine of its own.
func goLock(ctx context.Context, l Locker) <-chan lockResult {
	ch := make(chan lockResult, 1)
	go func() {
		lease, err := l.Lock(ctx)
		ch <- lockResult{lease, err}
	}()
	return ch
}

func mustLease(t testing.TB, ch <-chan lockResult) *Lease {
	t.Helper()
	select {
	case r := <-ch:
		require.NoError(t, r.err)
		return r.lease
	case <-time.After(10 * time.Second):
		t.Fatal("no lease within 10 s")
		return nil
	}
}

// Reports: python-zk/kazoo #291, python-zk/kazoo #134, apache/dolphinscheduler #17744, Netflix/curator #75.
func TestReentry(t *testing.T) {
	s := dialShared(t, calm)
	c := admin(t)
	type again func(path string, first *Lease) (Locker, context.Context)
	bg := context.Background()
	for name, tc := range map[string]struct {
		first Owner // for WithOwner; empty: none
		ctx   context.Context
		again again
	}{
		"lease context, same value of Mutex": {again: func(path string, l *Lease) (Locker, context.Context) {
			return NewMutex(s, path), l.Context()
		}},
		"lease context through a wrapped ctx": {again: func(path string, l *Lease) (Locker, context.Context) {
			type key struct{}
			return NewMutex(s, path), context.WithValue(l.Context(), key{}, 1)
		}},
		"lease context, first had WithOwner": {first: "w", again: func(path string, l *Lease) (Locker, context.Context) {
			return NewMutex(s, path), l.Context()
		}},
		"WithOwner on another Mutex": {first: "o", again: func(path string, _ *Lease) (Locker, context.Context) {
			return NewMutex(s, path, WithOwner("o")), bg
		}},
		"owner in ctx": {ctx: ContextWithOwner(bg, "c"), again: func(path string, _ *Lease) (Locker, context.Context) {
			return NewMutex(s, path), ContextWithOwner(bg, "c")
		}},
		"owner in ctx overrides WithOwner": {ctx: ContextWithOwner(bg, "c"), first: "o", again: func(path string, _ *Lease) (Locker, context.Context) {
			return NewMutex(s, path, WithOwner("another")), ContextWithOwner(bg, "c")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			var opts []LockOption
			if tc.first != "" {
				opts = append(opts, WithOwner(tc.first))
			}
			ctx := tc.ctx
			if ctx == nil {
				ctx = bg
			}
			outer, err := NewMutex(s, path, opts...).Lock(ctx)
			require.NoError(t, err)
			m, ctx := tc.again(path, outer)
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			inner, err := m.Lock(ctx)
			require.NoError(t, err)
			tried, err := m.TryLock(ctx)
			require.NoError(t, err)
			require.Equal(t, outer.Token(), inner.Token())
			require.Equal(t, outer.Node(), inner.Node())
			require.NotSame(t, outer, inner)
			require.Len(t, children(t, c, path), 1)
			// Released in any order, each by its own lease, and only the last takes the znode along.
			require.NoError(t, outer.Release(bg))
			require.NoError(t, outer.Release(bg))
			require.ErrorIs(t, outer.Err(), ErrReleased)
			require.NoError(t, inner.Err())
			require.NoError(t, tried.Release(bg))
			require.Len(t, children(t, c, path), 1)
			require.NoError(t, inner.Release(bg))
			require.Empty(t, children(t, c, path))
		})
	}
}

func TestNoReentryAcrossPathsAndEndedLeases(t *testing.T) {
	s := dialShared(t, calm)
	bg := context.Background()
	path := newPath(t)
	outer, err := NewMutex(s, path).Lock(bg)
	require.NoError(t, err)

	other, err := NewMutex(s, path+"-other").Lock(outer.Context())
	require.NoError(t, err)
	require.NotEqual(t, outer.Owner(), other.Owner(), "a lease's ctx enters that lease's path only")

	// From the inner lease's ctx, the outer path is entered too.
	again, err := NewMutex(s, path).TryLock(other.Context())
	require.NoError(t, err)
	require.Equal(t, outer.Token(), again.Token())
	require.NoError(t, again.Release(bg))

	// A lease that is over is no owner, even through WithoutCancel.
	dead := context.WithoutCancel(outer.Context())
	require.NoError(t, outer.Release(bg))
	fresh, err := NewMutex(s, path).Lock(dead)
	require.NoError(t, err)
	require.NotEqual(t, outer.Owner(), fresh.Owner())
	_, err = NewMutex(s, path).TryLock(dead)
	require.ErrorIs(t, err, ErrHeld)
	require.NoError(t, fresh.Release(bg))
	require.NoError(t, other.Release(bg))
}

// Who waits for himself is told what to do.
func TestSelfDeadlockSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s := dialShared(t, calm)
	m := NewMutex(s, newPath(t))
	l, err := m.Lock(context.Background())
	require.NoError(t, err)
	_, try := m.TryLock(within(t, 5*time.Second))
	lock := staysHeld(t, context.Background(), m.Lock)
	for _, err := range []error{try, lock} {
		require.ErrorIs(t, err, ErrHeld)
		require.Contains(t, err.Error(), "this Session")
		require.Contains(t, err.Error(), "Lease.Context")
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, l.Owner(), e.Ahead[0].Owner)
		require.Equal(t, l.Token(), e.Ahead[0].Token)
	}
	require.NoError(t, l.Release(context.Background()))
}

func TestContextWithOwnerSeparatesGoroutinesOfALease(t *testing.T) {
	s := dialShared(t, calm)
	m := NewMutex(s, newPath(t))
	l, err := m.Lock(context.Background())
	require.NoError(t, err)
	_, err = m.TryLock(ContextWithOwner(l.Context(), NewOwner()))
	require.ErrorIs(t, err, ErrHeld)
	require.NoError(t, l.Release(context.Background()))
}

func TestJoinersOfAnAcquisitionShareItsPlace(t *testing.T) {
	holder, s := dialShared(t, calm), dialShared(t, calm)
	bg := context.Background()
	path := newPath(t)
	first, err := NewMutex(holder, path).Lock(bg)
	require.NoError(t, err)
	m := NewMutex(s, path, WithOwner("team"))

	ctx1, cancel1 := context.WithCancelCause(bg)
	one := goLock(ctx1, m)
	waitingFor(t, path, 2)
	two := goLock(bg, NewMutex(s, path, WithOwner("team")))
	three := goLock(bg, m)
	eventually(t, 5*time.Second, "three joiners", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, h := range s.holds {
			n := 0
			for j := h.joiners; j != nil; j = j.next {
				n++
			}
			return n == 3 && len(h.seeker.whoIsAhead()) > 0
		}
		return false
	})
	names := children(t, admin(t), path)
	require.Len(t, names, 2, "joiners queue no further znode")

	_, err = m.TryLock(bg)
	require.ErrorIs(t, err, ErrHeld, "TryLock does not wait for the own owner's acquisition either")

	gone := fmt.Errorf("the first caller went away")
	cancel1(gone)
	r := <-one
	require.ErrorIs(t, r.err, gone)
	require.ErrorIs(t, r.err, context.Canceled)
	require.ErrorIs(t, r.err, ErrHeld)
	require.ElementsMatch(t, names, children(t, admin(t), path), "the contender outlives its first caller, in its place")

	require.NoError(t, first.Release(bg))
	l2, l3 := mustLease(t, two), mustLease(t, three)
	require.Equal(t, l2.Token(), l3.Token())
	require.NoError(t, l2.Release(bg))
	require.NoError(t, l3.Release(bg))
	require.Empty(t, children(t, admin(t), path))
}

func TestTheLastJoinerTakesTheZnodeAlong(t *testing.T) {
	holder, s := dialShared(t, calm), dialShared(t, calm)
	bg := context.Background()
	path := newPath(t)
	first, err := NewMutex(holder, path).Lock(bg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(bg)
	a := goLock(ctx, NewMutex(s, path, WithOwner("x")))
	b := goLock(ctx, NewMutex(s, path, WithOwner("x")))
	waitingFor(t, path, 2)
	cancel()
	require.ErrorIs(t, (<-a).err, context.Canceled)
	require.ErrorIs(t, (<-b).err, context.Canceled)
	waitingFor(t, path, 1)
	require.NoError(t, first.Release(bg))
}

// A Lock that finds the hold on its way out starts anew, and is never granted what is being released.
func TestNestedLockRacesTheLastRelease(t *testing.T) {
	s := dialShared(t, calm)
	bg := context.Background()
	m := NewMutex(s, newPath(t), WithOwner("racer"))
	for range 300 {
		l, err := m.Lock(bg)
		require.NoError(t, err)
		released, begins := make(chan error, 1), make(chan struct{})
		go func() {
			close(begins)
			released <- l.Release(bg)
		}()
		<-begins
		for range rand.IntN(8) { // or the Release would always come too late
			runtime.Gosched()
		}
		next, err := m.Lock(bg)
		require.NoError(t, err)
		require.NoError(t, <-released)
		require.NoError(t, next.Err(), "a lease that was granted is alive")
		require.Len(t, children(t, s.Conn(), m.Path()), 1)
		require.NoError(t, next.Release(bg))
	}
}

func TestGoroutinesWithoutAnOwnerExcludeEachOther(t *testing.T) {
	s := dialShared(t, calm)
	m := NewMutex(s, newPath(t))
	var inside, max atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				err := Do(context.Background(), m, func(context.Context) error {
					if n := inside.Add(1); n > max.Load() {
						max.Store(n)
					}
					time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond) // work
					inside.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, max.Load())
}

func TestEqualOwnersInTwoSessionsExcludeEachOther(t *testing.T) {
	a, b := dialShared(t, calm), dialShared(t, calm)
	bg := context.Background()
	path := newPath(t)
	la, err := NewMutex(a, path, WithOwner("same")).Lock(bg)
	require.NoError(t, err)
	_, err = NewMutex(b, path, WithOwner("same")).TryLock(bg)
	require.ErrorIs(t, err, ErrHeld)
	waiting := goLock(bg, NewMutex(b, path, WithOwner("same")))
	waitingFor(t, path, 2)
	// Data is a label: to overwrite it by hand changes nothing.
	_, err = admin(t).Set(la.Node(), []byte("somebody"), -1)
	require.NoError(t, err)
	again, err := NewMutex(a, path, WithOwner("same")).TryLock(bg)
	require.NoError(t, err)
	require.NoError(t, again.Release(bg))
	require.NoError(t, la.Err())
	require.NoError(t, la.Release(bg))
	require.NoError(t, mustLease(t, waiting).Release(bg))
}

func TestReentryCostsNoRequestAndAsksTheClock(t *testing.T) {
	t.Parallel()
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	s := dial(t, []string{p.Addr()}, WithTimeout(3*time.Second))
	bg := context.Background()
	m := NewMutex(s, newPath(t), WithOwner("deep"))
	l, err := m.Lock(bg)
	require.NoError(t, err)
	p.BlackHole(zktest.Both)
	eventually(t, 5*time.Second, "the clock runs out", func() bool { return s.engine.Left(l.hold.stake.session) <= 0 })
	ctx, cancel := context.WithTimeout(bg, 300*time.Millisecond)
	defer cancel()
	_, err = m.Lock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "a dead lease is not entered again")
	require.ErrorIs(t, l.Err(), ErrLost)
	p.BlackHole(zktest.None)
	next, err := m.Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	require.Greater(t, next.Token(), l.Token())
	p.ResetCounters()
	for range 1000 {
		again, err := m.Lock(bg)
		require.NoError(t, err)
		require.NoError(t, again.Release(bg))
	}
	require.Less(t, p.Counts().Total(), 50, "only the heartbeat, and what the loss left to do: %v", p.Counts().Requests)
	require.NoError(t, next.Release(bg))
}

// Who enters again asks the clock: it is refused also in the moment in which the clock has run out and the loss is not told yet, for want of Session.mu.
func TestReentryIsRefusedBeforeTheLossIsTold(t *testing.T) {
	t.Parallel()
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	s := dial(t, []string{p.Addr()}, WithTimeout(3*time.Second))
	bg := context.Background()
	m := NewMutex(s, newPath(t), WithOwner("deep"))
	l, err := m.Lock(bg)
	require.NoError(t, err)
	key, err := s.identify(bg, m.spec)
	require.NoError(t, err)
	enter := func(ready func()) entry {
		s.mu.Lock()
		defer s.mu.Unlock()
		ready()
		return s.enter(bg, key, m.spec, false)
	}
	require.NotNil(t, enter(func() {}).lease)

	e := enter(func() {
		p.BlackHole(zktest.Both)
		eventually(t, 5*time.Second, "the clock runs out", func() bool { return s.engine.Left(l.hold.stake.session) <= 0 })
		require.Equal(t, held, l.hold.phase, "nobody could tell")
	})
	require.Nil(t, e.lease)
	require.NotNil(t, e.tell)
	e.tell()
	require.ErrorIs(t, l.Err(), ErrLost)
	p.BlackHole(zktest.None)
}

func TestOwnersThatCannotBe(t *testing.T) {
	t.Parallel()
	s := dialShared(t)
	long := Owner(make([]byte, maxOwner+1))
	for _, o := range []Owner{"", "__REVOKE__", long} {
		_, err := NewMutex(s, newPath(t), WithOwner(o)).Lock(within(t, time.Second))
		require.ErrorIs(t, err, ErrInvalid)
		_, err = NewMutex(s, newPath(t)).TryLock(ContextWithOwner(within(t, time.Second), o))
		require.ErrorIs(t, err, ErrInvalid)
	}
	l, err := NewMutex(s, newPath(t), WithOwner(long[:maxOwner])).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	require.NoError(t, l.Release(context.Background()))
	require.NotEqual(t, NewOwner(), NewOwner())
}
