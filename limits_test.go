package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

const (
	limit = 200 * time.Millisecond // of a call
	slack = time.Second            // after it
)

// errImpatient is the cause with which the ctx of a limited call ends.
var errImpatient = errors.New("had enough")

// ends are the ways in which a ctx ends.
var ends = map[string]func(testing.TB) context.Context{
	"deadline": func(t testing.TB) context.Context {
		ctx, cancel := context.WithTimeoutCause(context.Background(), limit, errImpatient)
		t.Cleanup(cancel)
		return ctx
	},
	"cancelled": func(t testing.TB) context.Context {
		ctx, cancel := context.WithCancelCause(context.Background())
		timer := time.AfterFunc(limit, func() { cancel(errImpatient) })
		t.Cleanup(func() { timer.Stop(); cancel(nil) })
		return ctx
	},
}

// limited runs a call that ctx bounds and checks that it returns when ctx has ended, give or take the slack.
func limited(t testing.TB, ctx context.Context, what string, call func(context.Context) error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(slack)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		t.Fatalf("%s has not returned %v after the end of its ctx", what, slack)
		return nil
	}
}

// staysHeld calls what waits for somebody who holds, and returns its error when its ctx has ended. A second is time enough to learn who holds, but on a machine
// that is very busy.
func staysHeld(t testing.TB, ctx context.Context, acquire func(context.Context) (*Lease, error)) error {
	t.Helper()
	for d := time.Second; ; d *= 2 {
		limited, cancel := context.WithTimeout(ctx, d)
		_, err := acquire(limited)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		if errors.Is(err, ErrHeld) || d > 8*time.Second {
			return err
		}
	}
}

// timedOut checks the error of a call that ctx ended.
func timedOut(t testing.TB, ctx context.Context, err error) {
	t.Helper()
	require.Error(t, err)
	require.ErrorIs(t, err, ctx.Err())
	require.ErrorIs(t, err, errImpatient)
	var e *Error
	require.ErrorAs(t, err, &e)
}

// bounded are the calls that a ctx bounds. Those that acquire give back what they got.
func bounded(s *Session, path, other string) map[string]func(context.Context) error {
	back := func(l *Lease, err error) error {
		if err == nil {
			_ = l.Release(context.Background())
		}
		return err
	}
	m := NewMutex(s, path)
	return map[string]func(context.Context) error{
		"Lock":         func(ctx context.Context) error { return back(m.Lock(ctx)) },
		"TryLock":      func(ctx context.Context) error { return back(m.TryLock(ctx)) },
		"Do":           func(ctx context.Context) error { return Do(ctx, m, func(context.Context) error { return nil }) },
		"TryDo":        func(ctx context.Context) error { return TryDo(ctx, m, func(context.Context) error { return nil }) },
		"Participants": func(ctx context.Context) error { _, err := m.Participants(ctx); return err },
		"Gone":         NewWatcher(s, other).Gone,
		"Data": func(ctx context.Context) error {
			for _, err := range NewWatcher(s, other).Data(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"Children": func(ctx context.Context) error {
			for _, err := range NewWatcher(s, other).Children(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// vanish are the ways in which a server is not there.
var vanish = map[string]func(*zktest.Proxy){
	"refused": func(p *zktest.Proxy) { p.Refuse(true) },
	"silent":  func(p *zktest.Proxy) { p.BlackHole(zktest.Both) },
}

func TestDialReturnsAtItsTime(t *testing.T) {
	t.Parallel()
	for how, away := range vanish {
		for end, ctxOf := range ends {
			for _, servers := range []int{1, 3} {
				t.Run(fmt.Sprintf("%s, %s, %d servers", how, end, servers), func(t *testing.T) {
					var addrs []string
					for range servers {
						p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
						away(p)
						addrs = append(addrs, p.Addr())
					}
					eventually(t, 10*time.Second, "it has time to try each, and says so", func() bool {
						ctx := ctxOf(t)
						err := limited(t, ctx, "Dial", func(ctx context.Context) error {
							s, err := Dial(ctx, addrs, WithLogger(quiet(t)))
							if err == nil {
								_ = s.Close()
							}
							return err
						})
						timedOut(t, ctx, err)
						require.ErrorIs(t, err, ErrNoConnection)
						require.NotErrorIs(t, err, ErrHeld)
						return how != "refused" || strings.Contains(err.Error(), "refused") &&
							!slices.ContainsFunc(addrs, func(a string) bool { return !strings.Contains(err.Error(), a) })
					})
				})
			}
		}
	}
	t.Run("over before", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errImpatient)
		err := limited(t, ctx, "Dial", func(ctx context.Context) error {
			_, err := Dial(ctx, zktest.Shared(t).Addrs(), WithLogger(quiet(t)))
			return err
		})
		timedOut(t, ctx, err)
	})
}

// TestCallsReturnAtTheirTimeWithoutAServer makes each call on a Session whose only server has gone, when the Session knows it and when it does not.
// Reports: spring-integration #1863.
func TestCallsReturnAtTheirTimeWithoutAServer(t *testing.T) {
	t.Parallel()
	states := newSides(t, 4)
	defer states.wg.Wait()
	for how, away := range vanish {
		for _, known := range []bool{true, false} {
			states.add(fmt.Sprintf("%s, known=%v", how, known), func(t testing.TB) {
				s, p := dialProxy(t, WithTimeout(4*time.Second))
				path, other := newPath(t), newPath(t)
				var held []*Lease
				for range ends {
					l, err := NewMutex(s, newPath(t)).Lock(within(t, 5*time.Second))
					require.NoError(t, err)
					held = append(held, l)
				}
				calls := bounded(s, path, other)
				calls["Release"] = nil
				away(p)
				if known {
					eventually(t, 10*time.Second, "the session notices", func() bool { return s.State() != StateConnected })
				}
				ss := newSides(t, len(calls)*len(ends))
				for end, ctxOf := range ends {
					release := held[0].Release
					held = held[1:]
					for name, call := range calls {
						if name == "Release" {
							call = release
						}
						ss.add(name+", "+end, func(t testing.TB) {
							ctx := ctxOf(t)
							err := limited(t, ctx, name, call)
							if errors.Is(err, ErrLost) && name == "Release" && known && how == "silent" {
								return // it took the session so long to notice
							}
							timedOut(t, ctx, err)
							if known {
								require.ErrorIs(t, err, ErrNoConnection)
							}
							require.NotErrorIs(t, err, ErrHeld)
						})
					}
				}
				ss.wg.Wait()
			})
		}
	}
}

// TestCallsReturnAtTheirTimeInABlackHole swallows everything from the i-th request of each call on, or from its answer on. When the hole is healed
// nothing of the call is left.
func TestCallsReturnAtTheirTimeInABlackHole(t *testing.T) {
	t.Parallel()
	w := newCutWorld(t)
	ss := newSides(t, 24)
	defer ss.wg.Wait()
	actions := map[string]func() zktest.Action{"before": zktest.BlackHoleBefore, "after": zktest.BlackHoleAfter}
	for _, c := range []struct {
		name, where string
		requests    int // that ctx bounds
	}{
		{"Lock", "free", 3}, {"Lock", "held", 4}, {"Lock", "parents missing", 8},
		{"TryLock", "free", 4}, {"TryLock", "held", 1}, {"TryLock", "parents missing", 9},
		{"Do", "free", 2}, {"Do", "held", 4}, {"TryDo", "free", 3}, // then fn has run, and the release has a limit of its own
		{"Participants", "held", 2}, {"Gone", "held", 1}, {"Data", "held", 1}, {"Children", "held", 1},
	} {
		for how, action := range actions {
			for end, ctxOf := range ends {
				for i := range c.requests {
					ss.add(fmt.Sprintf("%s, %s, hole %s %d, %s", c.name, c.where, how, i, end), func(t testing.TB) {
						r := w.newRun(t, 4*time.Second)
						var theirs *Lease
						var live []string
						watched := r.path
						switch c.where {
						case "held":
							theirs = r.rivalHolds()
							watched = theirs.Node()
							live = append(live, watched)
						case "parents missing":
							r.at(r.path + "/missing/too")
						}
						call := bounded(r.s, r.path, watched)[c.name]
						if c.name == "Lock" || c.name == "TryLock" {
							call = acquireOnly(r, c.name)
						}
						r.begin()
						remove := r.p.OnRequest(zktest.Rule{Match: zktest.Nth(i, counts), Times: 1, Do: action()})
						ctx := ctxOf(t)
						err := limited(r, ctx, c.name, call)
						if err != nil {
							timedOut(r, ctx, err)
							// The second request is the list; from the third on it knows that somebody is ahead.
							if c.where == "held" && (c.name == "Lock" || c.name == "Do") && i >= 2 && len(r.requests()) > i {
								require.ErrorIs(r, err, ErrHeld)
								var e *Error
								require.ErrorAs(r, err, &e)
								require.Equal(r, theirs.Node(), e.Ahead[0].Node)
							}
						}
						remove()
						r.staysHealed()
						r.exactly(live...)
						if theirs != nil {
							require.NoError(r, theirs.Release(context.Background()))
						}
						r.settled()
					})
				}
			}
		}
	}
}

// acquireOnly is a call that gives the lease back in the background.
func acquireOnly(r *cutRun, name string) func(context.Context) error {
	acquire := map[string]func(context.Context) (*Lease, error){"Lock": r.m.Lock, "TryLock": r.m.TryLock}[name]
	return func(ctx context.Context) error {
		l, err := acquire(ctx)
		if err == nil {
			over, cancel := context.WithCancel(context.Background())
			cancel()
			_ = l.Release(over)
		}
		return err
	}
}

// TestWaitingLockReturnsAtItsTime ends the ctx of a waiter, connected and not. The error says who is ahead, and the znode goes as soon as that is
// possible.
// Reports: zk-ruby/zk #49, zk-ruby/zk #51, python-zk/kazoo #54, python-zk/kazoo #264, docker/libkv #12, vitessio/vitess #11678, etcd-io/jetcd #291.
func TestWaitingLockReturnsAtItsTime(t *testing.T) {
	t.Parallel()
	w := newCutWorld(t)
	ss := newSides(t, 12)
	defer ss.wg.Wait()
	for _, end := range []string{"deadline", "cancelled"} {
		for _, how := range []string{"connected", "refused", "silent"} {
			for _, call := range []string{"Lock", "Do"} {
				ss.add(fmt.Sprintf("%s, %s, %s", call, how, end), func(t testing.TB) {
					waits := make(chan struct{})
					var once sync.Once
					r := w.newRun(t, 4*time.Second, WithTrace(&Trace{Waiting: func(context.Context, string, string, int) { once.Do(func() { close(waits) }) }}))
					theirs := r.rivalHolds()
					// Time enough to begin to wait; then the server goes.
					ctx, stop := context.WithTimeoutCause(context.Background(), 15*limit, errImpatient)
					defer stop()
					ctx, cancel := context.WithCancelCause(ctx)
					defer cancel(nil)
					var away sync.WaitGroup
					away.Go(func() {
						select {
						case <-waits:
						case <-ctx.Done():
							return
						}
						if how != "connected" {
							vanish[how](r.p)
						}
						if end == "cancelled" {
							cancel(errImpatient)
						}
					})
					err := limited(t, ctx, call, func(ctx context.Context) error {
						if call == "Do" {
							return Do(ctx, r.m, func(context.Context) error { return nil })
						}
						_, err := r.m.Lock(ctx)
						return err
					})
					away.Wait()
					timedOut(t, ctx, err)
					require.ErrorIs(t, err, ErrHeld)
					if how == "refused" && end == "deadline" {
						require.ErrorIs(t, err, ErrNoConnection)
					}
					var e *Error
					require.ErrorAs(t, err, &e)
					require.Equal(t, theirs.Node(), e.Ahead[0].Node)
					require.Equal(t, theirs.Owner(), e.Ahead[0].Owner)
					require.Equal(t, r.rival.ID(), e.Ahead[0].Session)
					require.Equal(t, theirs.Token(), e.Ahead[0].Token)
					// The server is back: what was to be cleaned up is.
					r.p.Refuse(false)
					r.staysHealed()
					r.exactly(theirs.Node())
					require.NoError(t, theirs.Release(context.Background()))
					r.settled()
				})
			}
		}
	}
}

// TestLockBehindAnUnderwayTryLockReturnsAtItsTime has two calls of one owner: Lock waits for what becomes of the other's TryLock.
func TestLockBehindAnUnderwayTryLockReturnsAtItsTime(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t, WithTimeout(5*time.Second))
	m := NewMutex(s, newPath(t), WithOwner("one"))
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpGetChildren2), Times: 1, Do: zktest.BlackHoleAfter()})
	tried := make(chan error, 1)
	go func() {
		_, err := m.TryLock(within(t, 2*time.Second))
		tried <- err
	}()
	eventually(t, 2*time.Second, "the TryLock is under way", func() bool { return p.Counts().Requests[zktest.OpGetChildren2] == 1 })
	ctx := ends["deadline"](t)
	timedOut(t, ctx, limited(t, ctx, "Lock", func(ctx context.Context) error { _, err := m.Lock(ctx); return err }))
	require.ErrorIs(t, <-tried, context.DeadlineExceeded)
	p.BlackHole(zktest.None)
}

// TestCallsReturnAtTheirTimeWhenTheQueueIsFull has more requests under way, none of them answered, than the client takes.
func TestCallsReturnAtTheirTimeWhenTheQueueIsFull(t *testing.T) {
	s, p := dialProxy(t, WithTimeout(5*time.Second))
	path := newPath(t)
	p.BlackHole(zktest.Both)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() { _, _, _ = s.Conn().Exists("/") })
		wg.Go(func() { _, _ = NewMutex(s, path).Lock(ctx) })
		wg.Go(func() { _ = NewWatcher(s, path).Gone(ctx) })
	}
	eventually(t, 5*time.Second, "they are", func() bool { return p.Counts().Total() >= 12 })
	ss := newSides(t, 32)
	for end, ctxOf := range ends {
		for name, call := range bounded(s, newPath(t), newPath(t)) {
			ss.add(name+", "+end, func(t testing.TB) {
				ctx := ctxOf(t)
				timedOut(t, ctx, limited(t, ctx, name, call))
			})
		}
	}
	ss.wg.Wait()
	cancel()
	p.BlackHole(zktest.None)
	wg.Wait()
}

// TestReleaseReturnsAtItsTime gives a lease back into a black hole. With a ctx it returns when that ends, without one when the session is over; the
// znode is gone all the same.
func TestReleaseReturnsAtItsTime(t *testing.T) {
	t.Parallel()
	w := newCutWorld(t)
	ss := newSides(t, 6)
	defer ss.wg.Wait()
	for _, how := range []string{"before", "after"} {
		for end := range ends {
			ss.add(how+", "+end, func(t testing.TB) {
				r := w.newRun(t, 4*time.Second)
				l := r.holding(r.m.Lock(within(t, 5*time.Second)))
				action := map[string]zktest.Action{"before": zktest.BlackHoleBefore(), "after": zktest.BlackHoleAfter()}[how]
				r.p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpDelete), Times: 1, Do: action})
				for range 2 {
					ctx := ends[end](t)
					timedOut(t, ctx, limited(t, ctx, "Release", l.Release))
				}
				require.ErrorIs(t, l.Err(), ErrReleased)
				r.staysHealed()
				require.NoError(t, l.Release(within(t, 5*time.Second)))
				r.exactly()
				r.settled()
			})
		}
	}
	const timeout = 2 * time.Second
	ss.add("no ctx", func(t testing.TB) {
		r := w.newRun(t, timeout)
		l := r.holding(r.m.Lock(within(t, 5*time.Second)))
		r.p.BlackHole(zktest.Both)
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		err := limited(t, ctx, "Release", func(context.Context) error { return l.Release(context.Background()) })
		require.ErrorIs(t, err, ErrNoConnection)
		require.NotErrorIs(t, err, ErrLost)
		r.loss = true
		r.staysHealed()
		r.settled()
	})
	ss.add("Do", func(t testing.TB) {
		r := w.newRun(t, timeout)
		fn := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		over, stop := context.WithCancel(context.Background())
		defer stop()
		err := limited(t, over, "Do", func(context.Context) error {
			return Do(ctx, r.m, func(context.Context) error {
				r.p.BlackHole(zktest.Both)
				cancel()
				time.AfterFunc(timeout, stop)
				close(fn)
				return nil
			})
		})
		<-fn
		require.NoError(t, err) // it held the lock to the end
		r.loss = true
		r.staysHealed()
		r.settled()
	})
}

// TestCloseReturnsAtItsTime closes a Session without a server: at the latest after its timeout, and with an error, for the znodes stay so long.
func TestCloseReturnsAtItsTime(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	w := newCutWorld(t)
	ss := newSides(t, 4)
	defer ss.wg.Wait()
	for how, away := range vanish {
		for _, known := range []bool{true, false} {
			ss.add(fmt.Sprintf("%s, known=%v", how, known), func(t testing.TB) {
				r := w.newRun(t, timeout)
				theirs := r.rivalHolds()
				other := NewMutex(r.s, r.path+"-other")
				l, err := other.Lock(within(t, 5*time.Second))
				require.NoError(t, err)
				waited := make(chan error, 1)
				go func() {
					_, err := r.m.Lock(context.Background())
					waited <- err
				}()
				r.waits(theirs)
				away(r.p)
				if known {
					eventually(t, 5*time.Second, "the session notices", func() bool { return r.s.State() != StateConnected })
				}
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				defer cancel()
				err = limited(t, ctx, "Close", func(context.Context) error { return r.s.Close() })
				require.ErrorIs(t, err, ErrNoConnection)
				require.ErrorIs(t, <-waited, ErrClosed)
				require.ErrorIs(t, l.Err(), ErrLost)
				require.NoError(t, r.s.Close())
				for name, call := range bounded(r.s, r.path, r.path) {
					require.ErrorIs(t, limited(t, within(t, 5*time.Second), name, call), ErrClosed, name)
				}
				// The server is true to its word.
				r.exactly(theirs.Node())
				require.NoError(t, theirs.Release(context.Background()))
			})
		}
	}
}

// TestCallsWithACtxThatIsOverSendNothing but a Release does: the ctx says how long to wait for the znode to be gone.
func TestCallsWithACtxThatIsOverSendNothing(t *testing.T) {
	r := newCutWorld(t).newRun(t, 4*time.Second)
	l := r.holding(r.m.Lock(within(t, 5*time.Second)))
	r.begin()
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errImpatient)
	for name, call := range bounded(r.s, r.path+"-other", r.path) {
		timedOut(t, ctx, limited(t, ctx, name, call))
	}
	require.Empty(t, r.requests())
	if err := limited(t, ctx, "Release", l.Release); err != nil {
		timedOut(t, ctx, err)
	}
	r.exactly()
	require.NoError(t, l.Release(within(t, 5*time.Second)))
	require.NoError(t, l.Release(ctx)) // it is known to be gone
}
