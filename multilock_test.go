package zkrecipes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// All of them or none; ordered, without duplicates, re-entrant through its context, released with all its parts.
func TestMultiLock(t *testing.T) {
	t.Parallel()
	s, other := dialShared(t, calm), dialShared(t, calm)
	top := newPath(t)
	a, b, c := top+"/a", top+"/b", top+"/c"
	sem := NewSemaphore(s, c, 3)
	m := NewMultiLock(NewMutex(s, b), sem.Locker(2), NewRWLock(s, a).RLocker(), NewMutex(s, b), NewMultiLock(NewRWLock(s, a), sem.Locker(1)))
	require.Equal(t, a+","+b+","+c, m.Path())
	l, err := m.Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	parts := l.Parts()
	require.Len(t, parts, 3)
	require.Equal(t, m.Path(), l.Path())
	require.Zero(t, l.Token())
	require.Nil(t, l.Check())
	require.Empty(t, l.Node())
	require.Len(t, parts[2].Parts(), 2)
	for _, locker := range []Locker{NewMutex(other, b), NewRWLock(other, a).RLocker(), NewSemaphore(other, c, 3).Locker(2)} {
		_, err := locker.TryLock(within(t, 5*time.Second))
		require.ErrorIs(t, err, ErrHeld, locker.Path())
	}
	again, err := m.members[1].TryLock(l.Context()) // the same hold
	require.NoError(t, err)
	require.NoError(t, again.Release(within(t, 5*time.Second)))
	require.NoError(t, l.Err())

	_, err = NewMultiLock(NewMutex(other, top+"/free"), NewMutex(other, b)).TryLock(within(t, 5*time.Second))
	require.ErrorIs(t, err, ErrHeld)
	require.ErrorContains(t, err, b)
	require.Empty(t, children(t, other.Conn(), top+"/free"))

	require.NoError(t, l.Release(within(t, 5*time.Second)))
	require.ErrorIs(t, l.Err(), ErrReleased)
	for _, dir := range []string{a, b, c + "/leases"} {
		require.Empty(t, children(t, other.Conn(), dir))
	}
}

// The loss of one member is the loss of the lease, at once, and the others are given back.
func TestMultiLockIsLostWithAMember(t *testing.T) {
	t.Parallel()
	s := dialShared(t, calm)
	top := newPath(t)
	m := NewMultiLock(NewMutex(s, top+"/a"), NewMutex(s, top+"/b"), NewMutex(s, top+"/c"))
	l, err := m.Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	c := admin(t)
	require.NoError(t, c.Delete(l.Parts()[1].Node(), -1))
	select {
	case <-l.Context().Done():
	case <-time.After(5 * time.Second):
		t.Fatal("not lost")
	}
	var lost *LostError
	require.ErrorAs(t, l.Err(), &lost)
	require.Equal(t, ReasonNodeDeleted, lost.Reason)
	require.Equal(t, m.Path(), lost.Path)
	require.ErrorContains(t, lost, top+"/b")
	eventually(t, 5*time.Second, "the others are given back", func() bool {
		return len(children(t, c, top+"/a")) == 0 && len(children(t, c, top+"/c")) == 0
	})
	require.ErrorIs(t, l.Release(within(t, 5*time.Second)), ErrLost)
	require.Empty(t, s.Leases())
	l, err = m.Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	require.NoError(t, l.Release(within(t, 5*time.Second)))
}

// A stubborn Locker is never granted, and notes how much time it was given.
type stubborn struct {
	path  string
	given *[]time.Duration
}

func (l stubborn) Lock(ctx context.Context) (*Lease, error) {
	end, _ := ctx.Deadline()
	*l.given = append(*l.given, time.Until(end))
	<-ctx.Done()
	return nil, &Error{Op: "lock", Path: l.path, Err: ctx.Err()}
}
func (l stubborn) TryLock(ctx context.Context) (*Lease, error) { return l.Lock(ctx) }
func (l stubborn) Path() string                                { return l.path }

// Nobody is granted: each member of a majority lock is given 1.5 of 4.5 seconds, until no majority is left, and then anew of the rest; one of a multi-lock
// all of them.
func TestVirtualSharesOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given []time.Duration
		members := []Locker{stubborn{"/a", &given}, stubborn{"/b", &given}, stubborn{"/c", &given}}
		ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer cancel()
		_, err := NewMajorityLock(members...).Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []time.Duration{1500 * time.Millisecond, 1500 * time.Millisecond}, given[:2])
		require.LessOrEqual(t, given[2], 500*time.Millisecond)
		require.Error(t, ctx.Err())

		given = nil
		_, err = NewMajorityLock(members...).TryLock(t.Context())
		require.Error(t, err)
		require.Equal(t, []time.Duration{memberTimeout, memberTimeout}, given)
		given = nil
		_, err = NewMajorityLock(members...).WithMemberTimeout(time.Second).TryLock(t.Context())
		require.Error(t, err)
		require.Equal(t, []time.Duration{time.Second, time.Second}, given)

		given = nil
		ctx, cancel = context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer cancel()
		_, err = NewMultiLock(members...).Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []time.Duration{4500 * time.Millisecond}, given)
	})
}

// The two time rules side by side, with three members of which one is held: in a majority lock that one costs its share, in a multi-lock it may use it all.
func TestVirtualTimeRulesOfMultiLocks(t *testing.T) {
	for held, want := range map[int]time.Duration{0: 1500 * time.Millisecond, 1: 2250 * time.Millisecond, 2: 0, 3: 0} {
		synctest.Test(t, func(t *testing.T) {
			const budget = 4500 * time.Millisecond
			var members, rivals []Locker
			for i := range 3 { // independent ensembles
				s := zktest.NewServer(t, zktest.TickTime(time.Second))
				path := "/m/" + string(rune('a'+i))
				mine, _ := dialVirtual(t, s)
				theirs, _ := dialVirtual(t, s)
				members, rivals = append(members, NewMutex(mine, path)), append(rivals, NewMutex(theirs, path))
			}
			if held < 3 {
				l, err := rivals[held].Lock(t.Context())
				require.NoError(t, err)
				defer l.Release(context.Background())
			}
			settle()
			ctx, cancel := context.WithTimeout(t.Context(), budget)
			defer cancel()
			began := time.Now()
			l, err := NewMajorityLock(members...).Lock(ctx)
			require.NoError(t, err)
			require.Equal(t, want, time.Since(began), "its share of what was left; beyond the majority nobody is waited for")
			require.Len(t, l.Parts(), 3-min(1, 3-held))
			require.NoError(t, l.Release(t.Context()))

			began = time.Now()
			ctx, cancel = context.WithTimeout(t.Context(), budget)
			defer cancel()
			l, err = NewMultiLock(members...).Lock(ctx)
			if held == 3 {
				require.NoError(t, err)
				require.NoError(t, l.Release(t.Context()))
				return
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, ErrHeld)
			require.Equal(t, budget, time.Since(began), "one member may use it all")
		})
	}
}

// A majority of three with one ensemble down: it is granted, survives the loss of a minority, and is lost with the next.
func TestVirtualMajorityWithAnEnsembleDown(t *testing.T) {
	for down := range 3 {
		synctest.Test(t, func(t *testing.T) {
			var members []Locker
			var servers []*zktest.Server
			var sessions []*Session
			for i := range 3 {
				s := zktest.NewServer(t, zktest.TickTime(time.Second))
				session, _ := dialVirtual(t, s)
				servers, sessions = append(servers, s), append(sessions, session)
				members = append(members, NewMutex(session, "/m/"+string(rune('a'+i))))
			}
			m := NewMajorityLock(members...).WithMemberTimeout(time.Second)
			servers[down].Stop()
			began := time.Now()
			l, err := m.Lock(t.Context())
			require.NoError(t, err)
			require.LessOrEqual(t, time.Since(began), time.Second)
			require.Len(t, l.Parts(), 2)
			_, err = m.TryLock(ContextWithOwner(t.Context(), "another"))
			require.ErrorIs(t, err, ErrHeld)
			require.NoError(t, servers[down].Start())
			time.Sleep(time.Minute)
			require.NoError(t, l.Err())
			require.NoError(t, l.Release(t.Context()))

			l, err = m.Lock(t.Context())
			require.NoError(t, err)
			require.Len(t, l.Parts(), 3)
			servers[down].Expire(sessions[down].ID())
			time.Sleep(time.Minute)
			require.NoError(t, l.Err(), "two of three")
			next := (down + 1) % 3
			servers[next].Partition(sessions[next].ID())
			<-l.Done()
			require.ErrorIs(t, l.Err(), ErrLost)
			time.Sleep(time.Minute)
			require.Empty(t, sessions[(down+2)%3].Leases(), "what is left is given back")
		})
	}
}
