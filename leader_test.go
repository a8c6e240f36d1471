package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// goRun runs a participant until the returned function is called, which returns what Run did.
func goRun(t testing.TB, run func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(10 * time.Second):
			return errors.New("Run has not returned 10 s after the end of its ctx")
		}
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// runs runs a latch until the test ends, and returns when it does: Await lets it begin for no longer than startGrace, which a slow machine may use up.
func runs(t testing.TB, l *LeaderLatch) (stop func() error) {
	t.Helper()
	stop = goRun(t, l.Run)
	begins(t, l)
	return stop
}

func begins(t testing.TB, l *LeaderLatch) {
	t.Helper()
	eventually(t, 10*time.Second, "Run begins", func() bool { return hasBegun(l) })
}

func hasBegun(l *LeaderLatch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun
}

// Curator's testBasic: leadership passes through all participants, in the order of their coming; the id is what others see.
func TestLeaderLatch(t *testing.T) {
	t.Parallel()
	path, c := newPath(t), admin(t)
	var latches []*LeaderLatch
	var stops []func() error
	for i := range 4 {
		l := NewLeaderLatch(dialShared(t), path, WithOwner(Owner(fmt.Sprint("participant ", i))))
		_, err := l.Leader(within(t, 5*time.Second))
		require.Equal(t, i == 0, errors.Is(err, ErrNoLeader))
		latches, stops = append(latches, l), append(stops, goRun(t, l.Run))
		waitingFor(t, path, i+1)
	}
	for i, l := range latches {
		lease, err := l.Await(within(t, 5*time.Second))
		require.NoError(t, err)
		require.NoError(t, lease.Err())
		for k, o := range latches {
			require.Equal(t, k == i, o.IsLeader())
		}
		ps, err := l.Participants(within(t, 5*time.Second))
		require.NoError(t, err)
		require.Len(t, ps, 4-i)
		leader, err := l.Leader(within(t, 5*time.Second))
		require.NoError(t, err)
		require.Equal(t, ps[0], leader)
		require.Equal(t, Owner(fmt.Sprint("participant ", i)), leader.Owner)
		require.Equal(t, lease.Token(), leader.Token)
		require.Equal(t, lease.Node(), leader.Node)
		require.NoError(t, stops[i]())
		require.False(t, l.IsLeader())
		_, err = l.Await(within(t, 5*time.Second))
		require.ErrorIs(t, err, ErrInvalid, "Run does not run")
	}
	eventually(t, 5*time.Second, "nothing is left", func() bool { return len(children(t, c, path)) == 0 })
}

// Releasing the lease of Await gives leadership up: the participant queues again, at the tail.
func TestLeaderLatchGivesUpAndRejoins(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	a, b := NewLeaderLatch(dialShared(t), path), NewLeaderLatch(dialShared(t), path, WithOwner(""))
	stopA := runs(t, a)
	first, err := a.Await(within(t, 5*time.Second))
	require.NoError(t, err)
	again, err := a.Await(within(t, 5*time.Second))
	require.NoError(t, err)
	require.Same(t, first, again)
	stopB := runs(t, b)
	waitingFor(t, path, 2)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	changes := make(chan bool, 10)
	go func() {
		for leads := range a.Changes(ctx) {
			changes <- leads
		}
		close(changes)
	}()
	require.True(t, next(t, changes))
	require.NoError(t, first.Release(within(t, 5*time.Second)))
	require.False(t, next(t, changes))
	lease, err := b.Await(within(t, 5*time.Second))
	require.NoError(t, err)
	require.Greater(t, lease.Token(), first.Token())
	waitingFor(t, path, 2)
	require.False(t, a.IsLeader())
	leader, err := b.Leader(within(t, 5*time.Second))
	require.NoError(t, err)
	require.Empty(t, leader.Owner)
	require.NoError(t, stopB())
	require.True(t, next(t, changes))
	require.NoError(t, stopA())
	require.False(t, next(t, changes))
	cancel()
	for range changes {
	}
}

// A second Run at the same time, and what cannot be.
func TestLeaderBadInput(t *testing.T) {
	s := dialShared(t)
	ctx := within(t, 10*time.Second)
	l := NewLeaderLatch(s, newPath(t))
	runs(t, l)
	_, err := l.Await(ctx)
	require.NoError(t, err)
	err = l.Run(ctx)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "runs already")
	lead := func(context.Context) error { return nil }
	require.ErrorIs(t, NewLeaderSelector(s, newPath(t)).Run(ctx, nil), ErrInvalid)
	for _, run := range []func(context.Context) error{
		NewLeaderLatch(nil, "/x").Run,
		NewLeaderLatch(s, "x").Run,
		NewLeaderLatch(s, "/x", WithMaxHold(-1)).Run,
		func(ctx context.Context) error { return NewLeaderSelector(nil, "/x").Run(ctx, lead) },
		func(ctx context.Context) error { return NewLeaderSelector(s, "/zookeeper").Run(ctx, lead) },
		func(ctx context.Context) error { _, err := NewLeaderLatch(nil, "/x").Await(ctx); return err },
		func(ctx context.Context) error { _, err := NewLeaderLatch(s, "/x").Await(ctx); return err },
		func(ctx context.Context) error { _, err := NewLeaderLatch(nil, "/x").Leader(ctx); return err },
		func(ctx context.Context) error { _, err := NewLeaderSelector(s, "").Participants(ctx); return err },
	} {
		err := run(ctx)
		require.ErrorIs(t, err, ErrInvalid)
		var e *Error
		require.ErrorAs(t, err, &e)
	}
	closed := dialShared(t)
	ended := NewLeaderLatch(closed, newPath(t))
	done := make(chan error, 1)
	go func() { done <- ended.Run(ctx) }()
	lease, err := ended.Await(ctx)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	require.ErrorIs(t, <-done, ErrClosed)
	require.ErrorIs(t, lease.Err(), ErrLost)
	_, err = ended.Await(ctx)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, err, ErrInvalid)
	require.False(t, ended.IsLeader())
}

// What lead returns decides how it goes on.
func TestLeaderSelector(t *testing.T) {
	t.Parallel()
	path, c := newPath(t), admin(t)
	broken := errors.New("broken")
	for _, tc := range []struct {
		name string
		opts []LeaderOption
		lead func(t testing.TB, e *LeaderSelector, ctx context.Context, term int) error
		want error
		term int // that was the last
	}{
		{"nil, and again", nil, func(_ testing.TB, _ *LeaderSelector, _ context.Context, term int) error {
			if term < 3 {
				return nil
			}
			return broken
		}, broken, 3},
		{"once", []LeaderOption{WithoutRequeue()}, func(testing.TB, *LeaderSelector, context.Context, int) error { return nil }, nil, 1},
		{"an error", nil, func(testing.TB, *LeaderSelector, context.Context, int) error { return broken }, broken, 1},
		{"resigned, and again", nil, func(t testing.TB, e *LeaderSelector, ctx context.Context, term int) error {
			if term == 2 {
				return broken
			}
			require.True(t, e.IsLeader())
			e.Resign()
			<-ctx.Done()
			require.Equal(t, ErrResigned, context.Cause(ctx))
			require.True(t, e.IsLeader(), "it leads until it has returned")
			return ctx.Err()
		}, broken, 2},
		{"lost, and again", nil, func(t testing.TB, e *LeaderSelector, ctx context.Context, term int) error {
			if term == 2 {
				return broken
			}
			lease, ok := LeaseFromContext(ctx)
			require.True(t, ok)
			require.NoError(t, c.Delete(lease.Node(), -1))
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), ErrLost)
			require.False(t, e.IsLeader())
			return errors.New("of no interest")
		}, broken, 2},
		{"lost, once", []LeaderOption{WithoutRequeue()}, func(t testing.TB, _ *LeaderSelector, ctx context.Context, _ int) error {
			lease, _ := LeaseFromContext(ctx)
			require.NoError(t, c.Delete(lease.Node(), -1))
			<-ctx.Done()
			return nil
		}, ErrLost, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := NewLeaderSelector(dialShared(t), path, tc.opts...)
			term := 0
			err := e.Run(within(t, 20*time.Second), func(ctx context.Context) error {
				term++
				return tc.lead(t, e, ctx, term)
			})
			if tc.want == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, tc.want)
			}
			require.Equal(t, tc.term, term)
			require.False(t, e.IsLeader())
			e.Resign() // nothing
			eventually(t, 5*time.Second, "nothing is left", func() bool { return len(children(t, c, path)) == 0 })
		})
	}
	// The end of ctx: lead is waited for, and what it returns matters only if it is not that.
	for _, own := range []error{nil, broken} {
		e := NewLeaderSelector(dialShared(t), path)
		ctx, cancel := context.WithCancel(context.Background())
		returned := false
		err := e.Run(ctx, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			returned = true
			if own != nil {
				return own
			}
			return ctx.Err()
		})
		require.True(t, returned)
		require.Equal(t, own, err)
	}
	// A panic gives leadership up.
	e := NewLeaderSelector(dialShared(t), path)
	require.PanicsWithValue(t, "at work", func() { _ = e.Run(context.Background(), func(context.Context) error { panic("at work") }) })
	require.False(t, e.IsLeader())
	l, err := NewMutex(dialShared(t), path).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	require.NoError(t, l.Release(within(t, 5*time.Second)))
}

// Scenes of an hour each: twelve participants, half of them on each of two paths, to whose four Sessions everything that the server of this process can do
// happens at random. At every sample at most one of a path believes that it leads, but for one whose session was ended from outside and which has not been
// told; after quiet exactly one leads within two session timeouts, all take part, and nothing else is left.
func TestVirtualLeaderCampaign(t *testing.T) {
	besideWaiters(t)
	seed, began := testSeed(t), time.Now()
	terms, n := 0, 0
	for limit := campaignBudget(t); (n == 0 || time.Since(began) < limit) && !t.Failed(); n++ {
		t.Run(fmt.Sprint(seed+uint64(n)), func(t *testing.T) {
			virtual(t, func(t *testing.T, s *zktest.Server) { terms += virtualElection(t, s, seed+uint64(n)) })
		})
	}
	t.Logf("%d seeds from %d, %.1f per second, each %v; %d terms", n, seed, float64(n)/time.Since(began).Seconds(), campaignTime(), terms)
}

func virtualElection(t *testing.T, server *zktest.Server, seed uint64) (terms int) {
	var mu sync.Mutex
	ended := make(map[int64]bool)
	var sessions []*Session
	ways := []way{dialed, tracked, observed, dialed}
	if raceEnabled { // go-zookeeper's own race is cured by a wire only
		ways[2] = tracked
	}
	for _, way := range ways {
		sessions = append(sessions, dial(via{t, way}, []string{"127.0.0.1:2181"}, WithDialer(server.Dialer()), WithTimeout(virtualTimeout)))
	}
	f := strikeAtRandom(t, newRand(seed), virtualTimeout, strikesOn(t, server, sessions, "/v", func(id int64) {
		mu.Lock()
		defer mu.Unlock()
		ended[id] = true
	}))
	type participant struct {
		*candidate
		stop func() error
	}
	var all [2][]participant
	for i := range 6 {
		s := sessions[i%len(sessions)]
		latch, selector := NewLeaderLatch(s, "/v/latch"), NewLeaderSelector(s, "/v/selector")
		all[0] = append(all[0], participant{&latch.candidate, goRun(t, latch.Run)})
		rnd, releases := newRand(seed+uint64(i)+1), newRand(seed+uint64(i)+100)
		all[1] = append(all[1], participant{&selector.candidate, goRun(t, func(ctx context.Context) error {
			return selector.Run(ctx, func(ctx context.Context) error {
				select {
				case <-ctx.Done():
				case <-time.After(time.Duration(rnd.Int64N(int64(time.Minute)))):
					if rnd.IntN(2) == 0 {
						selector.Resign()
						<-ctx.Done()
					}
				}
				return nil
			})
		})})
		go func() { // gives up now and then
			for {
				lease, err := latch.Await(t.Context())
				if err != nil {
					return
				}
				select {
				case <-time.After(time.Duration(releases.Int64N(int64(2 * time.Minute)))):
					_ = lease.Release(context.Background())
				case <-lease.Context().Done():
				}
			}
		}()
	}
	leaders := func(election []participant) (leading []*Lease) {
		for _, p := range election {
			l, _, _, _ := p.current()
			mu.Lock()
			if l != nil && !ended[l.hold.stake.session] {
				leading = append(leading, l)
			}
			mu.Unlock()
		}
		return slices.DeleteFunc(leading, func(l *Lease) bool { return l.Err() != nil })
	}
	for end := time.Now().Add(campaignTime()); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, election := range all {
			if leading := leaders(election); len(leading) > 1 {
				t.Fatalf("%d lead at once: %v and %v", len(leading), leading[0].Node(), leading[1].Node())
			}
		}
	}
	f.stop()
	time.Sleep(2 * virtualTimeout)
	for _, election := range all {
		require.Eventually(t, func() bool { // between two terms there is a moment
			n := 0
			for _, p := range election {
				if p.isLeader() {
					n++
				}
			}
			return n == 1
		}, time.Second, time.Millisecond)
		for _, p := range election {
			_, began, running, _ := p.current()
			terms += began
			require.True(t, running)
			require.Positive(t, began)
			require.NoError(t, p.stop())
		}
	}
	time.Sleep(time.Minute)
	require.Empty(t, znodes(server, "/v/latch"))
	require.Empty(t, znodes(server, "/v/selector"))
	return terms
}

// Somebody else's znodes in the directory of an election are none of its participants.
func TestLeaderLatchIgnoresOthers(t *testing.T) {
	t.Parallel()
	path, c := newPath(t), admin(t)
	put(t, c, path)
	for _, name := range []string{"lock-0000000000", "_c_00000000-0000-4000-8000-000000000000-lock-0000000000", "x", "latch-", "__WRIT__0000000000"} {
		_, err := c.Create(path+"/"+name, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	l := NewLeaderLatch(dialShared(t), path)
	runs(t, l)
	_, err := l.Await(within(t, 5*time.Second))
	require.NoError(t, err)
	ps, err := l.Participants(within(t, 5*time.Second))
	require.NoError(t, err)
	require.Len(t, ps, 1)
	require.Equal(t, ModeExclusive, ps[0].Mode)
}
