package zkrecipes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// The kind K10: a participant that stops for good without saying so. Until its ctx ends it leads again within two session timeouts after all is well,
// whatever came in between; or Run returns, with an error that says why.

// B65 (CURATOR-15 and 16): each error code there is, as the refusal of each kind of request, in each phase of a participant's life. It goes on, or Run says why.
func TestVirtualAnyErrorAtAnyRequestOfAParticipant(t *testing.T) {
	besideWaiters(t)
	// Those that go-zookeeper has a name for and those it has none for; connection loss, a timeout, what ends a session, moved and throttled pass.
	codes := []int32{-1, -4, -5, -6, -7, -8, -12, -100, -101, -102, -110, -112, -114, -118, -119, -125, -127, -999}
	passing := []int32{-4, -7, -12, -112, -118, -127}
	ops := []zktest.Op{zktest.OpCreate, zktest.OpCreateContainer, zktest.OpGetChildren2, zktest.OpGetData, zktest.OpDelete, zktest.OpSync}
	said, n := make(map[int32]int), 0
	for _, kind := range []string{aLatch, aSelector} {
		for _, op := range ops {
			for _, code := range codes {
				if code == -101 && op != zktest.OpCreate && op != zktest.OpCreateContainer {
					continue // no server says so of a znode that is there
				}
				for _, phase := range []string{"queueing", "waiting", "leading"} {
					if op == zktest.OpCreateContainer && phase != "queueing" {
						continue
					}
					if n++; n%oneIn(t) != 0 {
						continue
					}
					name := fmt.Sprintf("%s, %s, %v refused with %d", kind, phase, op, code)
					virtual(t, func(t *testing.T, server *zktest.Server) {
						if err := refused(named{t, name}, server, kind, phase, op, code); err != nil {
							said[code]++
						}
					})
				}
			}
		}
	}
	t.Logf("Run returned: %v", said)
	for _, code := range passing {
		require.Zero(t, said[code], "Run returned because of %d", code)
	}
}

// refused lets one request be refused, and returns what Run returned by itself.
func refused(t named, server *zktest.Server, kind, phase string, op zktest.Op, code int32) (err error) {
	path := "/v/leader"
	fail := func(in string) {
		if phase == in && op == zktest.OpSync {
			path = "/"
		}
		if phase == in {
			server.Fail(op, path, code)
		}
	}
	s, other := dial(t, []string{"zk:2181"}, WithDialer(server.Dialer()), WithTimeout(virtualTimeout)), dial(t, []string{"zk:2181"}, WithDialer(server.Dialer()), WithTimeout(virtualTimeout))
	var rival *Lease
	if op != zktest.OpCreateContainer { // which is sent to a directory that is not there
		rival, err = queue(kind, other, "/v/leader")(t.Context(), false)
		require.NoError(t, err)
	}
	fail("queueing")
	one := partake(t, kind, s, "/v/leader")
	time.Sleep(2 * virtualTimeout)
	fail("waiting")
	if rival != nil {
		if err := rival.Release(t.Context()); op != zktest.OpDelete {
			require.NoError(t, err)
		}
	}
	again := func() { // a delete that was refused is tried again with each connection
		if op == zktest.OpDelete {
			server.Disconnect()
		}
	}
	again()
	leads := func() bool {
		select {
		case l := <-one.terms:
			require.NoError(t, l.Err())
			fail("leading")
			time.Sleep(2 * virtualTimeout)
			l.end()
			synctest.Wait()
			again()
			return true
		case <-one.ended:
			err = one.stop()
			var e *Error
			require.ErrorAs(t, err, &e, "it stopped and did not say why")
			require.Equal(t, "/v/leader", e.Path)
			return false
		case <-time.After(2 * virtualTimeout):
			t.Fatalf("it does not lead, and does not say why")
			return false
		}
	}
	for range 3 {
		if !leads() {
			break
		}
	}
	_ = one.stop()
	synctest.Wait()
	again()
	server.Forget()
	time.Sleep(2 * virtualTimeout)
	require.Empty(t, znodes(server, "/v/leader"))
	require.NoError(t, s.Close())
	require.NoError(t, other.Close())
	return err
}

// A trouble that may pass, such as a quota that is exceeded, keeps a participant trying, once a second, and is logged once, not each time.
func TestVirtualTroubleOfAParticipantIsLogged(t *testing.T) {
	virtual(t, func(t *testing.T, server *zktest.Server) {
		var logged bytes.Buffer
		s, _ := dialVirtual(t, server, WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
		const times = 5
		for range times {
			server.Fail(zktest.OpCreate, "/v/leader", -125)
		}
		began := time.Now()
		one := partake(t, aLatch, s, "/v/leader")
		one.leads(t)
		require.Equal(t, times*time.Second, time.Since(began))
		require.NoError(t, one.stop())
		require.NoError(t, s.Close())
		require.Equal(t, 1, strings.Count(logged.String(), "cannot take part"))
		require.Contains(t, logged.String(), "quota exceeded")
		require.Contains(t, logged.String(), "path=/v/leader")
	})
}

// B67 (CURATOR-518): Resign a thousand times, by several goroutines, in whatever state. It ends the present term at most; the participant goes on.
func TestResignAThousandTimes(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	e := NewLeaderSelector(dialShared(t, calm), path)
	other := partake(t, aSelector, dialShared(t, calm), path)
	var mu sync.Mutex
	terms, inside := 0, 0
	stop := goRun(t, func(ctx context.Context) error {
		return e.Run(ctx, func(ctx context.Context) error {
			mu.Lock()
			terms++
			inside++
			if inside != 1 {
				t.Error("lead runs twice")
			}
			mu.Unlock()
			defer func() { mu.Lock(); inside--; mu.Unlock() }()
			<-ctx.Done()
			return context.Cause(ctx)
		})
	})
	led := func() int { mu.Lock(); defer mu.Unlock(); return terms }
	done := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { // the other one lets it in again and again
		for {
			select {
			case l := <-other.terms:
				l.end()
			case <-done:
				return
			}
		}
	})
	var resigning sync.WaitGroup
	for range 4 {
		resigning.Go(func() {
			for range 250 {
				e.Resign()
				<-time.After(100 * time.Microsecond)
			}
		})
	}
	resigning.Wait()
	for range 3 {
		before := led()
		e.Resign()
		eventually(t, 5*time.Second, "it leads again", func() bool { return led() > before && e.IsLeader() })
	}
	close(done)
	require.NoError(t, stop())
	require.NoError(t, other.stop())
}

// B68 (CURATOR-724, druid #17786, fluss #4382): all znodes have gone with their sessions, and the directory with them: removed by the server or by hand, or
// the ensemble is another one, that was made empty. The participant makes it again and leads.
func TestDirectoryOfAnElectionIsGone(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{aLatch, aSelector} {
		t.Run(kind+", removed", func(t *testing.T) {
			t.Parallel()
			c, path := admin(t), newPath(t)
			s, p := dialProxy(t)
			one := partake(t, kind, s, path+"/a/b")
			l := one.leads(t)
			p.Refuse(true)
			require.NoError(t, p.Expire(within(t, 5*time.Second)))
			for _, dir := range []string{"/a/b", "/a", ""} {
				if err := c.Delete(path+dir, -1); err != zk.ErrNoNode { // the server may be faster
					require.NoError(t, err)
				}
			}
			p.Refuse(false)
			again := one.leads(t)
			require.ErrorIs(t, l.Err(), ErrLost)
			require.Greater(t, again.Token(), l.Token())
			require.Equal(t, again.Node(), nodeOf(t, c, path+"/a/b", s.ID()))
			require.NoError(t, one.stop())
		})
	}
	t.Run("another ensemble", func(t *testing.T) { // which takes long, so that it begins at once
		old, fresh := newTestServer(t, testTick), newTestServer(t, testTick)
		for range 5 { // servers of this process number their sessions alike, and this one shall be of no other client of the next server
			dial(t, []string{old.addr})
		}
		p := zktest.NewProxy(t, old.addr)
		s := dial(t, []string{p.Addr()}, WithTimeout(time.Second))
		elections := make(map[string][]*partaker)
		for _, kind := range []string{aLatch, aSelector} {
			both := []*partaker{partake(t, kind, s, "/a/"+kind), partake(t, kind, s, "/a/"+kind)}
			eventually(t, 5*time.Second, "one leads", func() bool { return len(leadersOf(both)) == 1 })
			elections["/a/"+kind] = both
		}
		p.SetTarget(fresh.addr)
		p.Cut()
		// A server refuses a client that has seen more than itself; it takes some timeouts until the Session begins anew for that.
		c := adminAt(t, []string{fresh.addr})
		for path, both := range elections {
			settles(t, c, path, both, 15*time.Second)
			for _, p := range both {
				require.NoError(t, p.stop())
			}
		}
	})
}

// B69 (marathon #1043 and others): what lead does when it is called, and what becomes of the participant. The next one leads within a second in any case, and
// the participant is back in the queue, or its Run has said why.
func TestLeadThatFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		lead     func(t testing.TB, e *LeaderSelector, c *zk.Conn, ctx context.Context) error
		returns  bool // Run does
		panicked any
	}{
		"an error":           {func(testing.TB, *LeaderSelector, *zk.Conn, context.Context) error { return broken }, true, nil},
		"a panic":            {func(testing.TB, *LeaderSelector, *zk.Conn, context.Context) error { panic("at work") }, true, "at work"},
		"nil at once":        {func(testing.TB, *LeaderSelector, *zk.Conn, context.Context) error { return nil }, false, nil},
		"an error, resigned": {func(_ testing.TB, e *LeaderSelector, _ *zk.Conn, _ context.Context) error { e.Resign(); return broken }, false, nil},
		"blocks when it is lost": {func(t testing.TB, e *LeaderSelector, c *zk.Conn, ctx context.Context) error {
			l, _ := LeaseFromContext(ctx)
			require.NoError(t, c.Delete(l.Node(), -1))
			eventually(t, 5*time.Second, "the next one leads, though lead has not returned", func() bool {
				p, err := e.Leader(context.Background())
				return err == nil && p.Owner == "next"
			})
			require.Error(t, ctx.Err())
			return broken
		}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, path := admin(t), newPath(t)
			e := NewLeaderSelector(dialShared(t, calm), path)
			queued := make(chan *partaker, 1)
			called, panicked := 0, any(nil)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() {
				var err error
				defer func() { panicked = recover(); done <- err }()
				err = e.Run(ctx, func(ctx context.Context) error {
					if called++; called > 1 {
						<-ctx.Done()
						return nil
					}
					following := partake(t, aSelector, dialShared(t, calm), path, WithOwner("next"))
					waitingFor(t, path, 2)
					queued <- following
					return tc.lead(t, e, c, ctx)
				})
			}()
			defer cancel()
			l := next(t, queued).leads(t)
			if tc.returns {
				err := next(t, done)
				require.Equal(t, tc.panicked, panicked)
				if panicked == nil {
					require.Equal(t, broken, err)
				}
				waitingFor(t, path, 1)
				return
			}
			waitingFor(t, path, 2)
			l.end()
			eventually(t, 5*time.Second, "it leads again", e.IsLeader)
			cancel()
			require.NoError(t, next(t, done))
		})
	}
}
