package zkrecipes

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

func count(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

// The count is lowered between the look at it and the grant: while its answer is held, or while that of the create is. Nobody is let in beside a holder.
func TestVirtualCountIsLoweredBeforeTheGrant(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpGetData, zktest.OpCreate, zktest.OpGetChildren2} {
		for _, try := range []bool{false, true} {
			t.Run(op.String(), func(t *testing.T) {
				virtual(t, func(t *testing.T, s *zktest.Server) {
					a, _ := dialVirtual(t, s)
					b, _ := dialVirtual(t, s)
					_, err := a.Conn().Create("/count", count(2), 0, zk.WorldACL(zk.PermAll))
					require.NoError(t, err)
					l, err := NewCountedSemaphore(a, "/sem", "/count").Acquire(t.Context(), 1)
					require.NoError(t, err)
					synctest.Wait()
					path := "/sem/leases"
					if op == zktest.OpGetData {
						path = "/count"
					}
					gate := s.Hold(op, path)
					m := NewCountedSemaphore(b, "/sem", "/count")
					call := m.Locker(1).Lock
					if try {
						call = m.Locker(1).TryLock
					}
					type got struct {
						l   *Lease
						err error
					}
					done := make(chan got, 1)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					go func() {
						l, err := call(ctx)
						done <- got{l, err}
					}()
					<-gate.Reached()
					_, err = a.Conn().Set("/count", count(1), -1)
					require.NoError(t, err)
					time.Sleep(2 * time.Second)
					gate.Open()
					time.Sleep(time.Minute)
					if try {
						require.ErrorIs(t, (<-done).err, ErrHeld)
						return
					}
					require.Empty(t, done, "let in, with one permit in all and one held")
					require.NoError(t, l.Release(t.Context()))
					require.NoError(t, (<-done).err)
				})
			})
		}
	}
}

// A permit that is free is free at once: behind one that was granted just now nobody is refused, in the same session or another one.
func TestVirtualTrialRightBehindAGrant(t *testing.T) {
	for _, delay := range []time.Duration{0, 5 * time.Millisecond} {
		virtual(t, func(t *testing.T, s *zktest.Server) {
			a, _ := dialVirtual(t, s)
			b, _ := dialVirtual(t, s)
			s.Delay(delay)
			for range 50 {
				for _, session := range []*Session{a, b} {
					one, err := NewSemaphore(a, "/sem", 2).Acquire(t.Context(), 1)
					require.NoError(t, err)
					two, err := NewSemaphore(session, "/sem", 2).TryAcquire(t.Context(), 1)
					require.NoError(t, err)
					require.NoError(t, two.Release(t.Context()))
					require.NoError(t, one.Release(t.Context()))
				}
			}
		})
	}
}

// A wait for a permit that nobody holds, because there is none, is told as one that is held.
func TestVirtualWaitBehindNobody(t *testing.T) {
	virtual(t, func(t *testing.T, s *zktest.Server) {
		a, _ := dialVirtual(t, s)
		_, err := a.Conn().Create("/count", count(0), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		m := NewCountedSemaphore(a, "/sem", "/count")
		_, err = m.Acquire(ctx, 1)
		require.ErrorIs(t, err, ErrHeld)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "too few permits")
		time.Sleep(time.Second) // its znodes go in the background
		_, err = m.TryAcquire(t.Context(), 1)
		require.ErrorIs(t, err, ErrHeld)
		require.ErrorContains(t, err, "too few permits")
	})
}

// Who waits for several permits holds none of them, and is shown so.
func TestVirtualParticipantsOfAWaiterForSeveral(t *testing.T) {
	virtual(t, func(t *testing.T, s *zktest.Server) {
		a, _ := dialVirtual(t, s)
		b, _ := dialVirtual(t, s)
		m := NewSemaphore(a, "/sem", 3)
		_, err := m.Acquire(t.Context(), 1)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := goLock(ctx, NewSemaphore(b, "/sem", 3).Locker(3))
		synctest.Wait()
		next := goLock(ctx, NewSemaphore(b, "/sem", 3).Locker(1))
		time.Sleep(time.Second)
		for name, look := range map[string]func() (Participants, error){
			"Participants": func() (Participants, error) { return m.Participants(t.Context()) },
			"Inspect":      func() (Participants, error) { return Inspect(t.Context(), a, "/sem") },
		} {
			ps, err := look()
			require.NoError(t, err)
			require.Len(t, ps.Holders(), 1, name)
			require.Len(t, ps.Waiters(), 4, name) // three permits of one, and the next one
		}
		cancel()
		require.Error(t, (<-waiting).err)
		if r := <-next; r.err == nil { // its turn came
			require.NoError(t, r.lease.Release(t.Context()))
		}
	})
}

// Release and Do wait one session timeout for all the parts of a lease together.
func TestVirtualReleaseOfSeveralTakesOneTimeout(t *testing.T) {
	virtual(t, func(t *testing.T, s *zktest.Server) {
		a, _ := dialVirtual(t, s)
		var began time.Time
		err := Do(t.Context(), NewSemaphore(a, "/sem", 5).Locker(5), func(context.Context) error {
			s.Partition(a.ID())
			time.Sleep(time.Second)
			began = time.Now()
			return nil
		})
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(began), virtualTimeout)
	})
}

// A majority lease that outlived the loss of a minority was held to its end.
func TestVirtualMajorityOutlivesAMinority(t *testing.T) {
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
		m := NewMajorityLock(members...)
		for i := range 3 {
			require.NoError(t, Do(t.Context(), m, func(ctx context.Context) error {
				servers[i].Expire(sessions[i].ID())
				time.Sleep(time.Minute)
				return ctx.Err()
			}))
			err := Do(t.Context(), m, func(ctx context.Context) error {
				for k := range 2 {
					servers[(i+k)%3].Expire(sessions[(i+k)%3].ID())
				}
				<-ctx.Done()
				return nil
			})
			require.ErrorIs(t, err, ErrLost)
			time.Sleep(time.Minute)
		}
	})
}

// The hooks of a semaphore's Session are called for the lease that the caller has, once, whatever it has parts.
func TestVirtualHooksOfSeveralPermits(t *testing.T) {
	virtual(t, func(t *testing.T, s *zktest.Server) {
		var mu sync.Mutex
		calls := make(map[*Lease][]string)
		note := func(l *Lease, call string) {
			mu.Lock()
			defer mu.Unlock()
			calls[l] = append(calls[l], call)
		}
		a, _ := dialVirtual(t, s, WithTrace(&Trace{
			AcquireDone: func(_ context.Context, _, _ string, l *Lease, _ error) { note(l, "acquired") },
			Released:    func(l *Lease, _ time.Duration) { note(l, "released") },
			Lost:        func(l *Lease, _ *LostError) { note(l, "lost") },
		}))
		m := NewSemaphore(a, "/sem", 3)
		one, err := m.Acquire(t.Context(), 3)
		require.NoError(t, err)
		require.NoError(t, one.Release(t.Context()))
		two, err := m.Acquire(t.Context(), 3)
		require.NoError(t, err)
		require.NoError(t, a.Conn().Delete(two.Parts()[0].Node(), -1))
		time.Sleep(time.Second)
		require.ErrorIs(t, two.Release(t.Context()), ErrLost)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, map[*Lease][]string{one: {"acquired", "released"}, two: {"acquired", "lost"}}, calls)
	})
}

// A hook for the end of a lease that closes the Session does not wait for itself.
func TestHookOfALostGroupMayClose(t *testing.T) {
	t.Parallel()
	var s *Session
	closed := make(chan error, 3)
	hook := sync.OnceFunc(func() { closed <- s.Close() })
	s = dialShared(t, WithTrace(&Trace{
		Released: func(*Lease, time.Duration) { hook() },
		Lost:     func(*Lease, *LostError) { hook() },
	}))
	path := newPath(t)
	l, err := NewMultiLock(NewMutex(s, path+"/a"), NewMutex(s, path+"/b")).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	require.NoError(t, admin(t).Delete(l.Parts()[0].Node(), -1))
	select {
	case <-closed:
	case <-time.After(15 * time.Second):
		t.Fatal("Close does not return")
	}
}

// A lease that exists already, as the term of a leader does, can be a part of several composites; all are told of its end.
type taken struct {
	Locker
	l *Lease
}

func (x taken) Lock(context.Context) (*Lease, error)    { return x.l, nil }
func (x taken) TryLock(context.Context) (*Lease, error) { return x.l, nil }

func TestVirtualLeaseInTwoGroups(t *testing.T) {
	virtual(t, func(t *testing.T, s *zktest.Server) {
		a, _ := dialVirtual(t, s)
		l, err := NewMutex(a, "/leader").Lock(t.Context())
		require.NoError(t, err)
		lead := taken{NewMutex(a, "/leader"), l}
		one, err := NewMultiLock(lead, NewMutex(a, "/x")).Lock(t.Context())
		require.NoError(t, err)
		two, err := NewMultiLock(lead, NewMutex(a, "/y")).Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, a.Conn().Delete(l.Node(), -1))
		for _, group := range []*Lease{one, two} {
			<-group.Context().Done()
			require.ErrorIs(t, group.Err(), ErrLost)
		}
	})
}

// A member that is held for less time than it takes to have the others: TryLock says so, and so does Lock, for no waiting mends it.
func TestVirtualMemberWithTooShortAHold(t *testing.T) {
	virtual(t, func(t *testing.T, s *zktest.Server) {
		a, _ := dialVirtual(t, s)
		s.Delay(5 * time.Millisecond)
		m := NewMultiLock(NewMutex(a, "/a", WithMaxHold(4*time.Millisecond)), NewMutex(a, "/b"))
		for _, call := range []func(context.Context) (*Lease, error){m.Lock, m.TryLock} {
			_, err := call(t.Context())
			var lost *LostError
			require.ErrorAs(t, err, &lost)
			require.Equal(t, ReasonHoldLimit, lost.Reason)
			require.NotErrorIs(t, err, context.Canceled)
		}
	})
}

// What ended the wait for a majority is the caller's ctx, with its cause; that of a share of the time is nobody's.
func TestVirtualErrorOfAMajorityThatIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var members []Locker
		for i := range 3 {
			s := zktest.NewServer(t, zktest.TickTime(time.Second))
			mine, _ := dialVirtual(t, s)
			theirs, _ := dialVirtual(t, s)
			members = append(members, NewMutex(mine, "/m/"+string(rune('a'+i))))
			if i < 2 {
				_, err := NewMutex(theirs, "/m/"+string(rune('a'+i))).Lock(t.Context())
				require.NoError(t, err)
			}
		}
		m := NewMajorityLock(members...).WithMemberTimeout(time.Second)
		for i := range 20 {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second+time.Duration(i)*5*time.Millisecond, errImpatient)
			_, err := m.Lock(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, errImpatient)
			require.ErrorIs(t, err, ErrHeld)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.NotEmpty(t, e.Ahead)
			cancel()
		}
		_, err := m.TryLock(context.Background())
		require.ErrorIs(t, err, ErrHeld)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}

// More permits than a count allows are waited for without a znode for each of them.
func TestVirtualMorePermitsThanTheCount(t *testing.T) {
	virtual(t, func(t *testing.T, s *zktest.Server) {
		a, _ := dialVirtual(t, s)
		_, err := a.Conn().Create("/count", count(2), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		m := NewCountedSemaphore(a, "/sem", "/count")
		got := goLock(t.Context(), m.Locker(500))
		time.Sleep(time.Hour)
		require.Equal(t, []string{"/sem/locks"}, slices.DeleteFunc(znodes(s, "/sem"), func(z string) bool { return strings.HasPrefix(z, "/sem/locks/") }))
		_, err = a.Conn().Set("/count", count(500), -1)
		require.NoError(t, err)
		l := mustLease(t, got)
		require.Len(t, l.Parts(), 500)
		require.NoError(t, l.Release(t.Context()))
		for _, n := range []int{math.MaxInt, math.MaxInt32 + 1, 0, -1} {
			_, err = m.Acquire(t.Context(), n)
			require.ErrorIs(t, err, ErrInvalid)
		}
		_, err = m.TryAcquire(t.Context(), math.MaxInt32)
		require.ErrorIs(t, err, ErrHeld)
	})
}

// Session.Leases has what callers got, and giving all of that back is no loss; nor is giving back a part, which ends the whole.
func TestVirtualLeasesAreThoseOfCallers(t *testing.T) {
	virtual(t, func(t *testing.T, s *zktest.Server) {
		a, _ := dialVirtual(t, s)
		m := NewMultiLock(NewMutex(a, "/a"), NewSemaphore(a, "/s", 3).Locker(2), NewMutex(a, "/b"))
		for _, part := range []bool{false, true} {
			group, err := m.Lock(t.Context())
			require.NoError(t, err)
			single, err := NewMutex(a, "/c").Lock(t.Context())
			require.NoError(t, err)
			require.ElementsMatch(t, []*Lease{group, single}, a.Leases())
			if part {
				require.NoError(t, group.Parts()[1].Parts()[0].Release(t.Context()))
				<-group.Context().Done()
			}
			for _, l := range append(a.Leases(), group) {
				require.NoError(t, l.Release(t.Context()))
				require.Equal(t, ErrReleased, l.Err())
			}
			require.Empty(t, a.Leases())
			for _, dir := range []string{"/a", "/b", "/c", "/s/leases"} {
				require.Empty(t, znodes(s, dir))
			}
		}
	})
}

// uncomparable is a Locker whose type can be compared, and whose value cannot.
type uncomparable struct {
	Locker
	attrs any
}

func TestMultiLockOfALockerThatCannotBeCompared(t *testing.T) {
	s := dialShared(t)
	l := uncomparable{NewMutex(s, newPath(t)), []string{"x"}}
	lease, err := NewMultiLock(l).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	require.NoError(t, lease.Release(within(t, 5*time.Second)))
}
