package zkrecipes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// goCall makes a call on a goroutine of its own.
func goCall(call func() error) <-chan error {
	ch := make(chan error, 1)
	go func() { ch <- call() }()
	return ch
}

// still requires that a call has not returned after a while.
func still(t testing.TB, ch <-chan error) {
	t.Helper()
	select {
	case err := <-ch:
		t.Fatalf("it has returned: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
}

// Curator's testMultiClient, testNoBarrier and testBasic: who waits passes when another client removes the barrier, and at once where there is none.
func TestBarrier(t *testing.T) {
	t.Parallel()
	forEachWay(t, func(t testing.TB) {
		path, c, ctx := newPath(t)+"/deeper", admin(t), within(t, 20*time.Second)
		b := NewBarrier(dialShared(t), path, WithOwner("who sets it"))
		require.Equal(t, path, b.Path())
		require.NoError(t, b.Wait(ctx))
		require.NoError(t, b.Remove(ctx))
		require.Empty(t, children(t, c, path[:strings.LastIndex(path, "/")]))
		for range 3 {
			require.NoError(t, b.Set(ctx))
			require.NoError(t, b.Set(ctx))
			data, stat, err := c.Get(path)
			require.NoError(t, err)
			require.Equal(t, "who sets it", string(data))
			require.Zero(t, stat.EphemeralOwner)
			var waits []<-chan error
			for range 3 {
				other := NewBarrier(dialShared(t), path)
				waits = append(waits, goCall(func() error { return other.Wait(ctx) }))
			}
			waits = append(waits, goCall(func() error { return b.Wait(ctx) }))
			for _, w := range waits {
				still(t, w)
			}
			require.NoError(t, NewBarrier(dialShared(t), path).Remove(ctx))
			for _, w := range waits {
				require.NoError(t, next(t, w))
			}
		}
		require.NoError(t, b.Remove(ctx))
		eventually(t, 5*time.Second, "nothing is left", func() bool { return len(children(t, c, path[:strings.LastIndex(path, "/")])) == 0 })
	})
}

// forEachWay runs a test, which may cut connections, in all three ways to come to a Session; see adopted_faults_test.go for what -race has to do with that.
func forEachWay(t *testing.T, fn func(t testing.TB)) {
	for _, w := range []way{dialed, tracked, observed} {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			if w == observed && raceEnabled {
				runPlain(t)
				return
			}
			fn(via{t, w})
		})
	}
}

// The barrier outlives the one that set it.
func TestBarrierStaysWithoutItsSetter(t *testing.T) {
	t.Parallel()
	path, ctx := newPath(t), within(t, 10*time.Second)
	setter := dialShared(t)
	require.NoError(t, NewBarrier(setter, path, WithData(nil)).Set(ctx))
	require.NoError(t, setter.Close())
	data, _, err := admin(t).Get(path)
	require.NoError(t, err)
	require.Empty(t, data)
	b := NewBarrier(dialShared(t), path)
	w := goCall(func() error { return b.Wait(ctx) })
	still(t, w)
	require.NoError(t, b.Remove(ctx))
	require.NoError(t, next(t, w))
}

// Curator's testServerCrash, whose waiter fails: ours goes on over lost connections and sessions.
func TestBarrierWaitSurvives(t *testing.T) {
	t.Parallel()
	forEachWay(t, func(t testing.TB) {
		path, ctx := newPath(t), within(t, 30*time.Second)
		b := NewBarrier(dialShared(t), path)
		require.NoError(t, b.Set(ctx))
		s, p := dialProxy(t)
		w := goCall(func() error { return NewBarrier(s, path).Wait(ctx) })
		still(t, w)
		for range 3 {
			p.Cut()
			still(t, w)
		}
		expireSession(t, p)
		still(t, w)
		p.Cut()
		require.NoError(t, b.Remove(ctx))
		require.NoError(t, next(t, w))
	})
}

// A Wait whose ctx ends returns at once and says so, also without a connection; many of them leave nothing behind.
func TestBarrierWaitEnds(t *testing.T) {
	t.Parallel()
	server := newTestServer(t, 100*time.Millisecond)
	s := dial(t, []string{server.addr})
	path := newPath(t)
	b := NewBarrier(s, path)
	require.NoError(t, b.Set(within(t, 5*time.Second)))
	n := rounds(t, 2000)
	for range n {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Microsecond)
		require.ErrorIs(t, b.Wait(ctx), context.DeadlineExceeded)
		cancel()
	}
	require.LessOrEqual(t, server.watches(t), 1)
	require.LessOrEqual(t, s.engine.Watched(), 1)
	require.NoError(t, server.stop())
	eventually(t, 5*time.Second, "the Session has noticed", func() bool { return s.State() != StateConnected })
	ctx, cancel := context.WithTimeoutCause(context.Background(), 100*time.Millisecond, errImpatient)
	defer cancel()
	began := time.Now()
	err := b.Wait(ctx)
	require.Less(t, time.Since(began), 1100*time.Millisecond)
	require.ErrorIs(t, err, errImpatient)
	require.ErrorIs(t, err, ErrNoConnection)
	for _, call := range []func(context.Context) error{b.Set, b.Remove} {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		err := call(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrNoConnection)
	}
	w := goCall(func() error { return b.Wait(context.Background()) })
	require.NoError(t, server.start())
	_ = s.Close()
	require.ErrorIs(t, next(t, w), ErrClosed)
}

func TestBarrierBadInput(t *testing.T) {
	t.Parallel()
	s, ctx := dialShared(t), within(t, 10*time.Second)
	closed := dialShared(t)
	require.NoError(t, closed.Close())
	for name, b := range map[string]*Barrier{
		"no Session":         NewBarrier(nil, "/x"),
		"relative path":      NewBarrier(s, "x"),
		"the server's":       NewBarrier(s, "/zookeeper/x"),
		"a hold limit":       NewBarrier(s, "/x", WithMaxHold(time.Second)),
		"too much data":      NewBarrier(s, "/x", WithData(make([]byte, 1<<20))),
		"an empty owner":     NewBarrier(s, "/x", WithOwner("")),
		"no owner's message": NewBarrier(s, "/x", WithOwner("__REVOKE__")),
	} {
		for _, call := range []func(context.Context) error{b.Set, b.Remove, b.Wait} {
			err := call(ctx)
			require.ErrorIs(t, err, ErrInvalid, name)
			var e *Error
			require.ErrorAs(t, err, &e, name)
			require.Equal(t, b.Path(), e.Path)
		}
	}
	b := NewBarrier(closed, "/x")
	for _, call := range []func(context.Context) error{b.Set, b.Remove, b.Wait} {
		require.ErrorIs(t, call(ctx), ErrClosed)
		require.ErrorIs(t, call(context.Background()), ErrClosed)
		over, cancel := context.WithCancel(ctx)
		cancel()
		require.Error(t, call(over))
	}
	require.ErrorIs(t, NewBarrier(s, newPath(t)).Set(ContextWithOwner(ctx, "")), ErrInvalid)

	path, c := newPath(t), admin(t)
	_, err := c.Create(path, nil, 0, zk.WorldACL(zk.PermRead))
	require.NoError(t, err)
	err = NewBarrier(s, path+"/below").Set(ctx)
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.ErrorIs(t, NewBarrier(s, path+"/below").Remove(ctx), zk.ErrNoAuth)
	require.Empty(t, children(t, c, path))
}

// Whatever is cut of Set and Remove, they come into effect, once: a request that was not answered has none after a later call, of another client. The rival
// undoes what the call did before the caller has learned of it, and the call does not do it again.
func TestBarrierChangesOnce(t *testing.T) {
	t.Parallel()
	forEachWay(t, func(t testing.TB) {
		ctx := within(t, 60*time.Second)
		rival := NewBarrier(dialShared(t), newPath(t))
		s, p := dialProxy(t, calm)
		b := NewBarrier(s, rival.Path())
		c := admin(t)
		for _, set := range []bool{true, false} {
			call, undo := b.Set, rival.Remove
			if !set {
				call, undo = b.Remove, rival.Set
			}
			for range rounds(t, 12) {
				require.NoError(t, undo(ctx))
				gate := zktest.NewGate()
				p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldReply(gate)})
				done := goCall(func() error { return call(ctx) })
				next(t, gate.Reached())
				require.NoError(t, undo(ctx))
				p.Cut()
				gate.Open()
				require.NoError(t, next(t, done))
				there, _, err := c.Exists(b.Path())
				require.NoError(t, err)
				require.Equal(t, !set, there, "it was done twice")
			}
		}
	})
}

// A Set whose ctx has ended comes into effect before it is over or never: the request that reaches the server late is refused.
func TestBarrierChangeThatComesLate(t *testing.T) {
	t.Parallel()
	ctx := within(t, 30*time.Second)
	c := admin(t)
	for _, set := range []bool{true, false} {
		s, p := dialProxy(t, calm)
		b := NewBarrier(s, newPath(t))
		call := b.Remove
		if set {
			call = b.Set
		} else {
			require.NoError(t, b.Set(ctx))
		}
		gate := zktest.NewGate()
		p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldRequest(gate)})
		short, cancel := context.WithCancel(ctx)
		done := goCall(func() error { return call(short) })
		next(t, gate.Reached())
		cancel()
		require.ErrorIs(t, next(t, done), context.Canceled)
		// The held request stands for one that is stuck in a follower: what is sent behind it goes another way.
		tickets := children(t, c, "/")
		var mine []string
		for _, name := range tickets {
			if strings.HasSuffix(name, "-"+barrierTicket) {
				if _, stat, err := c.Exists("/" + name); err == nil && stat.EphemeralOwner == s.ID() {
					mine = append(mine, name)
				}
			}
		}
		require.Len(t, mine, 1)
		require.NoError(t, c.Delete("/"+mine[0], -1))
		gate.Open()
		_, err := s.Conn().Sync("/")
		require.NoError(t, err)
		there, _, err := c.Exists(b.Path())
		require.NoError(t, err)
		require.Equal(t, !set, there)
		eventually(t, 5*time.Second, "nothing is owed", func() bool { return s.engine.Owing() == 0 })
	}
}

// Twenty processes' worth of callers set, remove and wait at random, over a bad network: none gets stuck, and who waits passes when it is over.
func TestBarrierUnderFaults(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	dir, c := newPath(t), admin(t)
	put(t, c, dir)
	path := dir + "/barrier"
	ctx, cancel := context.WithTimeout(context.Background(), tortureTime(t)/2)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 4 {
		s, p := dialProxy(t)
		rnd := newRand(seed + uint64(i))
		wg.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-time.After(time.Duration(rnd.Int64N(int64(300 * time.Millisecond)))):
					p.Cut()
				case <-ctx.Done():
				}
			}
		})
		for k := range 3 {
			b, rnd := NewBarrier(s, path), newRand(seed+uint64(100+10*i+k))
			wg.Go(func() {
				for ctx.Err() == nil {
					err := []func(context.Context) error{b.Set, b.Remove, b.Wait}[rnd.IntN(3)](ctx)
					// A create whose connection breaks three times running ends with that.
					if err != nil && !errors.Is(err, ctx.Err()) && !strings.Contains(err.Error(), "times running") {
						t.Errorf("%v", err)
						return
					}
				}
			})
		}
		waiter := NewBarrier(s, path)
		t.Cleanup(func() {
			if err := waiter.Wait(within(t, 10*time.Second)); err != nil {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	// A Set that was under way at the end may come into effect as long as its ticket is there.
	eventually(t, 10*time.Second, "no ticket is left", func() bool {
		return !slices.ContainsFunc(children(t, c, dir), func(name string) bool { return name != "barrier" })
	})
	require.NoError(t, NewBarrier(dialShared(t), path).Remove(within(t, 10*time.Second)))
}
