package zkrecipes

import (
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// newAdopted opens a connection through a proxy and a Session on it, with a directory.
func newAdopted(t testing.TB, timeout time.Duration) (*cutRun, *service) {
	t.Helper()
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	s, sv := adopt(t, []string{p.Addr()}, WithTimeout(timeout))
	r := &cutRun{TB: t, cutWorld: cutWorld{admin: admin(t)}, s: s, p: p}
	r.at(newPath(t))
	r.mkdirs()
	r.begin()
	return r, sv
}

// usable checks that the service can go on with its connection, in the session that it has had.
func (sv *service) usable(t testing.TB, session int64) {
	t.Helper()
	require.Equal(t, zk.StateHasSession, sv.conn.State())
	require.Equal(t, session, sv.conn.SessionID())
	path := newPath(t)
	_, err := sv.conn.Create(path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	require.NoError(t, sv.conn.Delete(path, -1))
}

// Close deletes what it must, and leaves no goroutine and a connection that works.
func TestAdoptedCloseLeavesTheConnection(t *testing.T) {
	for _, w := range adoptions {
		t.Run(w.String(), func(t *testing.T) {
			path, look := newPath(t), admin(t)
			dialer, track := TrackContact(nil)
			if w == observed {
				dialer, track = nil, WithTimeout(10*time.Second)
			}
			sv := newService(t, zktest.Shared(t).Addrs(), 10*time.Second, dialer)
			sv.hasSession(t)
			children(t, look, path) // what each client runs when it is connected, it runs by now
			children(t, sv.conn, path)
			goroutines := runtime.NumGoroutine()
			s, err := NewSession(sv.conn, nil, track, WithLogger(quiet(t)))
			require.NoError(t, err)
			held, err := NewMutex(s, path).Lock(within(t, 5*time.Second))
			require.NoError(t, err)
			got := make(chan error, 3)
			for range 3 {
				go func() {
					_, err := NewMutex(s, path).Lock(context.Background())
					got <- err
				}()
			}
			eventually(t, 5*time.Second, "they wait", func() bool { return len(children(t, look, path)) == 4 && s.engine.Watched() == 4 })
			begun := time.Now()
			require.NoError(t, s.Close())
			require.Less(t, time.Since(begun), 2*time.Second)
			require.Empty(t, children(t, look, path))
			for range 3 {
				require.ErrorIs(t, <-got, ErrClosed)
			}
			lost, ok := held.Err().(*LostError)
			require.True(t, ok)
			require.Equal(t, ReasonSessionClosed, lost.Reason)
			require.NoError(t, s.Close())
			eventually(t, 5*time.Second, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
			sv.usable(t, s.ID())
			ok, _, err = s.Conn().Exists("/")
			require.ErrorIs(t, err, zk.ErrConnectionClosed)
			require.False(t, ok)
		})
	}
}

// Close at any request of a Lock leaves nothing, once the requests that were under way are answered; it creates nothing afterwards.
func TestAdoptedCloseAtAnyTimeLeavesNothing(t *testing.T) {
	forAdoptions(t, func(t testing.TB) {
		w := newCutWorld(t)
		ss := newSampledSides(t, 16)
		defer ss.wg.Wait()
		for i := range 60 {
			at, held, how := i%6-1, i%4 == 3, i%3 // -1: at once
			ss.add(fmt.Sprintf("%d: at request %d, held=%v, %d", i, at, held, how), func(t testing.TB) {
				r := w.newRun(t, 30*time.Second)
				var live []string
				if held {
					theirs := r.rivalHolds()
					t.Cleanup(func() { _ = theirs.Release(context.Background()) })
					live = append(live, theirs.Node())
				}
				now := make(chan struct{})
				if at < 0 {
					close(now)
				} else {
					nth := zktest.Nth(at, counts)
					r.p.OnRequest(zktest.Rule{Match: func(f zktest.Frame) bool {
						if nth(f) {
							close(now)
						}
						return false
					}})
				}
				got := make(chan result, 1)
				go func() {
					l, err := r.m.Lock(context.Background())
					got <- result{lease: l, err: err}
				}()
				select {
				case <-now:
				case g := <-got:
					got <- g
				case <-answeredSoon(r, zktest.OpGetData, strings.Join(live, "")):
				}
				require.NoError(t, r.s.Close())
				sent := r.p.Counts().Requests[zktest.OpCreate]
				r.exactly(live...)
				g := <-got
				if g.err != nil {
					require.ErrorIs(t, g.err, ErrClosed)
				} else {
					require.ErrorIs(t, g.lease.Err(), ErrLost)
				}
				require.Empty(t, r.s.Leases())
				require.Equal(t, sent, r.p.Counts().Requests[zktest.OpCreate], "something was created after Close")
			})
		}
	})
}

// A create whose reply the client does not have when Close gives up waiting is undone when the reply comes.
func TestAdoptedCloseWithACreateInFlight(t *testing.T) {
	forAdoptions(t, func(t testing.TB) {
		r, sv := newAdopted(t, 10*time.Second)
		gate := zktest.NewGate()
		r.p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpCreate), Times: 1, Do: zktest.HoldReply(gate)})
		got := make(chan error, 1)
		go func() {
			_, err := r.m.Lock(context.Background())
			got <- err
		}()
		next(t, gate.Reached())
		closing := make(chan error, 1)
		begun := time.Now()
		go func() { closing <- r.s.Close() }()
		require.ErrorIs(t, <-got, ErrClosed)
		require.Len(t, children(t, r.admin, r.path), 1)
		// Whoever holds the reply holds the connection: pings too. It is let go before the client finds it dead.
		select {
		case err := <-closing:
			t.Fatalf("Close returned after %v while a create was under way: %v", time.Since(begun), err)
		case <-time.After(300 * time.Millisecond):
		}
		gate.Open()
		require.NoError(t, <-closing)
		r.exactly()
		sv.usable(t, r.s.ID())
	})
}

// Everything is swallowed while Close wants to delete. It returns in time with an error that says so, and what was held is deleted when the network is
// back, in the session that is still there.
func TestAdoptedCloseIntoABlackHole(t *testing.T) {
	t.Parallel()
	underFaults(t, adoptedCloseIntoABlackHole)
}

func adoptedCloseIntoABlackHole(t testing.TB) {
	for _, what := range []string{"held", "in flight"} {
		subtest(t, what, func(t testing.TB) {
			const timeout = 6 * time.Second
			r, sv := newAdopted(t, timeout)
			session := sv.conn.SessionID()
			var held *Lease
			got := make(chan error, 1)
			if what == "held" {
				var err error
				held, err = r.m.Lock(within(t, 5*time.Second))
				held = r.holding(held, err)
				got <- nil
				r.p.BlackHole(zktest.Both)
			} else {
				r.p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpCreate), Times: 1, Do: zktest.BlackHoleAfter()})
				go func() {
					_, err := r.m.Lock(context.Background())
					got <- err
				}()
				eventually(t, 5*time.Second, "the create is executed", func() bool { return len(children(t, r.admin, r.path)) == 1 })
			}
			creates := r.p.Counts().Requests[zktest.OpCreate]
			closed := make(chan error, 1)
			begun := time.Now()
			go func() { closed <- r.s.Close() }()
			if what == "held" {
				next(t, held.Context().Done())
				lost, ok := held.Err().(*LostError)
				require.True(t, ok)
				require.Equal(t, ReasonSessionClosed, lost.Reason, "by Close, and not by the clock")
			} else {
				require.ErrorIs(t, <-got, ErrClosed)
			}
			// Silence ends with a reset after a while, as it does when a firewall gives up.
			heal := time.AfterFunc(timeout/4, func() { r.p.BlackHole(zktest.None) })
			defer heal.Stop()
			err := <-closed
			require.Less(t, time.Since(begun), min(timeout, 5*time.Second)+time.Second)
			if err != nil {
				require.ErrorContains(t, err, "background")
			}
			r.exactly()
			require.Equal(t, creates, r.p.Counts().Requests[zktest.OpCreate])
			sv.hasSession(t)
			require.Equal(t, session, sv.conn.SessionID())
			sv.usable(t, session)
		})
	}
}

// A network that is down for longer than Close waits: the deletes go on in the background.
func TestAdoptedCloseWhileDisconnected(t *testing.T) {
	t.Parallel()
	waitsUnderFaults(t, adoptedCloseWhileDisconnected)
}

func adoptedCloseWhileDisconnected(t testing.TB) {
	r, sv := newAdopted(t, 12*time.Second)
	session := sv.conn.SessionID()
	l, err := r.m.Lock(within(t, 5*time.Second))
	l = r.holding(l, err)
	r.p.Refuse(true)
	begun := time.Now()
	err = r.s.Close()
	require.InDelta(t, 5*time.Second, time.Since(begun), float64(time.Second))
	require.ErrorContains(t, err, "background")
	require.ErrorIs(t, err, ErrNoConnection)
	require.ErrorIs(t, l.Err(), ErrLost)
	r.exactly(l.Node())
	r.p.Refuse(false)
	sv.hasSession(t)
	r.exactly()
	sv.usable(t, session)
}

// A znode that the server does not let be deleted keeps Close no longer than it takes to learn that.
func TestAdoptedCloseIsRefused(t *testing.T) {
	forAdoptions(t, func(t testing.TB) {
		goroutines := func() string {
			b := make([]byte, 1<<20)
			return string(b[:runtime.Stack(b, true)])
		}
		s, _ := adopt(t, zktest.Shared(t).Addrs(), calm) // whose timeout is what Close would wait for
		look, path := admin(t), newPath(t)
		require.NoError(t, look.AddAuth("digest", []byte("them:x")))
		_, err := look.Create(path, nil, 0, zk.DigestACL(zk.PermAll, "them", "x"))
		require.NoError(t, err)
		_, err = look.SetACL(path, append(zk.DigestACL(zk.PermAll, "them", "x"), zk.WorldACL(zk.PermRead|zk.PermCreate)...), -1)
		require.NoError(t, err)
		l, err := NewMutex(s, path).Lock(within(t, 5*time.Second))
		require.NoError(t, err)
		begun := time.Now()
		err = s.Close()
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.NotErrorIs(t, err, ErrNoConnection)
		require.Less(t, time.Since(begun), 2*time.Second)
		eventually(t, 5*time.Second, "nothing goes on", func() bool { return wayOf(t) == observed || !strings.Contains(goroutines(), "(*finish).run(") })
		require.Equal(t, []string{strings.TrimPrefix(l.Node(), path+"/")}, children(t, look, path))
	})
}

// The owner closes the connection first. Leases end, calls end, Close of the Session ends, and so do all goroutines.
func TestAdoptedOwnerClosesFirst(t *testing.T) {
	t.Parallel()
	addrs := zktest.Shared(t).Addrs()
	pprof.Do(context.Background(), pprof.Labels("test", t.Name()), func(context.Context) { ownerClosesFirst(t, addrs) })
	eventually(t, 10*time.Second, "no goroutine is left", func() bool { return !strings.Contains(goroutinesByLabel(), strconv.Quote(t.Name())) })
}

// goroutinesByLabel are all goroutines with their labels, which are those of the goroutine that began them.
func goroutinesByLabel() string {
	var all strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&all, 1) // a Builder takes all
	return all.String()
}

func ownerClosesFirst(t *testing.T, addrs []string) {
	ss := newSides(t, 4)
	for _, w := range adoptions {
		for _, how := range []string{"connected", "disconnected"} {
			ss.add(fmt.Sprint(w, " ", how), func(t testing.TB) {
				p := zktest.NewProxy(t, addrs[0])
				dialer, track := TrackContact(nil)
				if w == observed {
					dialer, track = nil, WithTimeout(testTimeout)
				}
				sv := newService(t, []string{p.Addr()}, testTimeout, dialer)
				s, err := NewSession(sv.conn, nil, track, WithLogger(quiet(t)))
				require.NoError(t, err)
				path := newPath(t)
				l, err := NewMutex(s, path).Lock(within(t, 5*time.Second))
				require.NoError(t, err)
				var calls sync.WaitGroup
				for range 2 {
					calls.Go(func() {
						_, err := NewMutex(s, path).Lock(within(t, 10*time.Second))
						if err == nil {
							t.Error("granted on a connection that is closed")
						}
					})
				}
				eventually(t, 5*time.Second, "they wait", func() bool { return s.engine.Watched() == 3 })
				if how == "disconnected" {
					p.Refuse(true)
				}
				sv.closed()
				lostSomehow(t, l)
				_, err = NewMutex(s, path).Lock(within(t, 200*time.Millisecond))
				require.Error(t, err)
				begun := time.Now()
				err = s.Close()
				require.Less(t, time.Since(begun), testTimeout+time.Second)
				if how == "connected" && w == tracked { // a wire saw the server's answer
					require.NoError(t, err)
				}
				calls.Wait()
			})
		}
	}
	require.Contains(t, goroutinesByLabel(), strconv.Quote(t.Name()))
	ss.wg.Wait()
}

// lostSomehow waits for a loss, by the clock or because the session is over.
func lostSomehow(t testing.TB, l *Lease) {
	t.Helper()
	select {
	case <-l.Context().Done():
	case <-time.After(5 * time.Second):
		t.Fatal("the lease is not lost")
	}
	require.ErrorIs(t, l.Err(), ErrLost)
}
