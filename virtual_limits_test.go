package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// away are the ways in which the server of a bubble is not there.
var away = map[string]func(*zktest.Server, *Session){
	"stopped": func(s *zktest.Server, _ *Session) { s.Stop() },
	"silent":  func(s *zktest.Server, session *Session) { s.Partition(session.ID()) },
}

// exactly runs a call that ctx bounds, from now on, and checks that it returns when ctx ends, to the nanosecond.
func exactly(t testing.TB, end, name string, call func(context.Context) error) {
	began, ctx := time.Now(), ends[end](t)
	err := call(ctx)
	timedOut(t, ctx, err)
	if took := time.Since(began); took != limit {
		t.Errorf("%s, %s: returned after %v, not %v", name, end, took, limit)
	}
}

// Each call that a ctx bounds, on a Session whose server has gone, when it knows and when it does not.
func TestVirtualCallsReturnAtTheirTime(t *testing.T) {
	for how, away := range away {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, known=%v", how, known), func(t *testing.T) {
				virtual(t, func(t *testing.T, s *zktest.Server) {
					session, _ := dialVirtual(t, s)
					calls := bounded(session, "/v/lock", "/v/other")
					var held []*Lease
					for range ends {
						l, err := NewMutex(session, fmt.Sprintf("/v/held-%d", len(held))).Lock(t.Context())
						require.NoError(t, err)
						held = append(held, l)
					}
					away(s, session)
					for known && session.State() == StateConnected {
						time.Sleep(time.Millisecond)
					}
					var wg sync.WaitGroup
					defer wg.Wait()
					for end := range ends {
						release := held[0]
						held = held[1:]
						if release.Err() == nil {
							wg.Go(func() { exactly(t, end, "Release", release.Release) })
						}
						for name, call := range calls {
							wg.Go(func() { exactly(t, end, name, call) })
						}
					}
				})
			})
		}
	}
}

// The answer to one of the requests of a call is not there when ctx ends. When it comes nothing of the call is left.
func TestVirtualCallsReturnAtTheirTimeWithoutAnAnswer(t *testing.T) {
	besideWaiters(t)
	ops := []zktest.Op{zktest.OpCreate, zktest.OpCreateContainer, zktest.OpGetChildren, zktest.OpGetChildren2, zktest.OpGetData, zktest.OpExists, zktest.OpMulti}
	held := 0
	for _, name := range []string{"Lock", "TryLock", "Participants", "Gone", "Data", "Children"} {
		for _, free := range []bool{true, false} {
			for _, op := range ops {
				for end := range ends {
					t.Run(fmt.Sprintf("%s, free=%v, %v, %s", name, free, op, end), func(t *testing.T) {
						virtual(t, func(t *testing.T, s *zktest.Server) {
							session, _ := dialVirtual(t, s)
							rival, _ := dialVirtual(t, s)
							theirs, err := NewMutex(rival, "/v/lock").Lock(t.Context())
							require.NoError(t, err)
							var left []string
							if free {
								require.NoError(t, theirs.Release(t.Context()))
							} else {
								left = []string{theirs.Node()}
							}
							call := bounded(session, "/v/lock", theirs.Node())[name]
							if name == "Gone" && free {
								return // it is
							}
							settle() // what the rival asks for comes to an end, too
							gate := s.Hold(op, "/v/lock")
							ctx, began := ends[end](t), time.Now()
							err = call(ctx)
							select {
							case <-gate.Reached():
								held++
								if err == nil { // nothing of what ctx bounds
									break
								}
								if name != "TryLock" || !errors.Is(err, ErrHeld) { // what it asked for then is who holds it
									timedOut(t, ctx, err)
								}
								require.Equal(t, limit, time.Since(began))
							default:
								if err == nil {
									require.Zero(t, time.Since(began))
								}
							}
							gate.Open()
							synctest.Wait()
							time.Sleep(time.Second)
							require.Equal(t, left, znodes(s, "/v/lock"))
						})
					})
				}
			}
		}
	}
	require.Greater(t, held, 15, "requests that were not answered")
}

// When and why a lease is lost, of a Mutex, a writer and a reader; all leases of a hold at once.
func TestVirtualLossesAreToldAtTheirTime(t *testing.T) {
	besideWaiters(t)
	type world struct {
		s      *zktest.Server
		holder *Session
		lease  *Lease
	}
	for _, c := range []struct {
		name   string
		dial   []DialOption
		lock   []LockOption
		lose   func(t *testing.T, w world)
		reason LossReason
		after  time.Duration // of the cause, or of the last proof
		proof  bool
	}{
		{name: "deleted", lose: func(t *testing.T, w world) {
			other, _ := dialVirtual(t, w.s)
			require.NoError(t, other.Conn().Delete(w.lease.Node(), -1))
		}, reason: ReasonNodeDeleted},
		{name: "expired", lose: func(_ *testing.T, w world) { w.s.Expire(w.holder.ID()) }, reason: ReasonSessionExpired},
		{name: "closed", lose: func(t *testing.T, w world) { require.NoError(t, w.holder.Close()) }, reason: ReasonSessionClosed},
		{name: "disconnected", dial: []DialOption{WithLoseOnDisconnect()}, lose: func(_ *testing.T, w world) { w.s.Disconnect() }, reason: ReasonUnconfirmed},
		{name: "partition", lose: func(_ *testing.T, w world) { w.s.Partition(w.holder.ID()) }, reason: ReasonUnconfirmed, after: virtualTimeout * 2 / 3, proof: true},
		{name: "stopped", lose: func(_ *testing.T, w world) { w.s.Stop() }, reason: ReasonUnconfirmed, after: virtualTimeout * 2 / 3, proof: true},
		{name: "answers too late", lose: func(_ *testing.T, w world) { w.s.Delay(virtualTimeout * 2 / 3) }, reason: ReasonUnconfirmed, after: virtualTimeout * 2 / 3, proof: true},
		{name: "only pings answered", lose: func(_ *testing.T, w world) { holdSyncs(w.s) }, reason: ReasonUnconfirmed, after: virtualTimeout * 2 / 3, proof: true},
		{name: "max hold", lock: []LockOption{WithMaxHold(time.Hour)}, lose: func(*testing.T, world) {}, reason: ReasonHoldLimit, after: time.Hour},
		{name: "max hold, cut off", lock: []LockOption{WithMaxHold(7 * time.Second)}, lose: func(_ *testing.T, w world) { w.s.Partition(w.holder.ID()) }, reason: ReasonHoldLimit, after: 7 * time.Second},
	} {
		for kind, locker := range map[string]func(*Session, string, ...LockOption) Locker{
			"mutex": func(s *Session, path string, o ...LockOption) Locker { return NewMutex(s, path, o...) },
			"write": func(s *Session, path string, o ...LockOption) Locker { return NewRWLock(s, path, o...) },
			"read":  func(s *Session, path string, o ...LockOption) Locker { return NewRWLock(s, path, o...).RLocker() },
		} {
			t.Run(c.name+", "+kind, func(t *testing.T) {
				virtual(t, func(t *testing.T, s *zktest.Server) {
					holder, proofs := dialVirtual(t, s, c.dial...)
					if c.lock == nil {
						time.Sleep(17*time.Minute + 123*time.Millisecond)
					}
					lock := locker(holder, "/v/lock", c.lock...)
					lease, err := lock.Lock(t.Context())
					require.NoError(t, err)
					again, err := lock.Lock(lease.Context())
					require.NoError(t, err)
					if c.lock == nil {
						time.Sleep(3*time.Second + 4*time.Millisecond)
					}
					synctest.Wait()
					require.NoError(t, lease.Err())
					since := time.Now()
					if c.proof {
						since = proofs.get()
						require.Less(t, time.Since(since), virtualTimeout/6+time.Millisecond)
					}
					c.lose(t, world{s, holder, lease})
					for _, l := range []*Lease{lease, again} {
						<-l.Context().Done() // which asks no clock
						require.Equal(t, c.after, time.Since(since))
						mustBeLost(t, l, c.reason)
					}
				})
			})
		}
	}
}

// holdSyncs lets no sync be answered, and what comes behind one on its connection.
func holdSyncs(s *zktest.Server) {
	for range 10 {
		s.Hold(zktest.OpSync, "")
	}
}

// A lease that the server's answers confirm late, but not too late, goes on for as long as one likes.
func TestVirtualSlowAnswersLoseNothing(t *testing.T) {
	virtual(t, func(t *testing.T, s *zktest.Server) {
		holder, _ := dialVirtual(t, s)
		lease, err := NewMutex(holder, "/v/lock").Lock(t.Context())
		require.NoError(t, err)
		s.Delay(virtualTimeout/3 - time.Millisecond) // one proof is asked for at a time, so at its answer the last one is twice as old
		time.Sleep(3 * time.Hour)
		require.NoError(t, lease.Err())
		s.Delay(0)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// When Close returns nothing of the Session runs any more, whatever became of the server: the bubble ends right then.
func TestVirtualCloseLeavesNothingRunning(t *testing.T) {
	for how, away := range away {
		for _, since := range []time.Duration{0, time.Millisecond, time.Second, virtualTimeout * 2 / 3, time.Minute, time.Hour} {
			t.Run(fmt.Sprintf("%s for %v", how, since), func(t *testing.T) {
				virtual(t, func(t *testing.T, s *zktest.Server) {
					session, err := Dial(t.Context(), []string{"zk:2181"}, WithDialer(s.Dialer()), WithTimeout(virtualTimeout), WithLogger(quiet(t)))
					require.NoError(t, err)
					_, err = NewMutex(session, "/v/lock").Lock(t.Context())
					require.NoError(t, err)
					away(s, session)
					time.Sleep(since)
					began := time.Now()
					_ = session.Close()
					require.LessOrEqual(t, time.Since(began), virtualTimeout)
				})
			})
		}
	}
}

// A server that is too busy, and says so to every request for ten seconds, is not asked again at once; and nothing is lost by it.
func TestVirtualBusyServerIsNotAskedAtOnce(t *testing.T) {
	const busy, throttled = 10 * time.Second, -127
	for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpGetChildren2, zktest.OpGetData, zktest.OpDelete} {
		t.Run(op.String(), func(t *testing.T) {
			virtual(t, func(t *testing.T, s *zktest.Server) {
				holder, _ := dialVirtual(t, s)
				session, _ := dialVirtual(t, s)
				for _, free := range []bool{true, false} {
					held, err := NewMutex(holder, "/v/lock").Lock(t.Context())
					require.NoError(t, err)
					if free {
						require.NoError(t, held.Release(t.Context()))
					} else {
						time.AfterFunc(time.Minute, func() { _ = held.Release(t.Context()) })
					}
					synctest.Wait()
					for range 1000 {
						s.Fail(op, "/v/lock", throttled)
					}
					time.AfterFunc(busy, s.Forget)
					before := s.Counts().Requests[op]
					lease, err := NewMutex(session, "/v/lock").Lock(t.Context())
					require.NoError(t, err)
					require.NoError(t, lease.Release(t.Context()))
					require.Less(t, s.Counts().Requests[op]-before, int(2*busy/(200*time.Millisecond)))
					time.Sleep(2 * time.Minute)
					require.Empty(t, znodes(s, "/v/lock"))
				}
			})
		})
	}
}
