package zkrecipes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/znode"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// membersAt returns the names of the members that are at a double barrier.
func membersAt(t testing.TB, c Conn, path string) []string {
	return slices.DeleteFunc(children(t, c, path), func(name string) bool { return !znode.IsUUID(name) })
}

// assembled waits until so many members are there.
func assembled(t testing.TB, c Conn, path string, n int) {
	t.Helper()
	eventually(t, 10*time.Second, fmt.Sprint(n, " members"), func() bool { return len(membersAt(t, c, path)) == n })
}

// enterAll lets members enter together, and requires that they do.
func enterAll(t testing.TB, bs ...*DoubleBarrier) {
	t.Helper()
	ctx := within(t, 20*time.Second)
	var calls []<-chan error
	for _, b := range bs {
		calls = append(calls, goCall(func() error { return b.Enter(ctx) }))
	}
	for _, call := range calls {
		require.NoError(t, next(t, call))
	}
}

func leaveAll(t testing.TB, bs ...*DoubleBarrier) {
	t.Helper()
	ctx := within(t, 20*time.Second)
	var calls []<-chan error
	for _, b := range bs {
		calls = append(calls, goCall(func() error { return b.Leave(ctx) }))
	}
	for _, call := range calls {
		require.NoError(t, next(t, call))
	}
}

// Curator's testMultiClient and testBasic: five members, each on a connection of its own or all on one, enter together and leave together, again and again.
func TestDoubleBarrier(t *testing.T) {
	t.Parallel()
	forEachWay(t, func(t testing.TB) {
		for _, shared := range []bool{true, false} {
			path, c, ctx := newPath(t)+"/deeper", admin(t), within(t, 30*time.Second)
			s := dialShared(t, calm)
			var bs []*DoubleBarrier
			for i := range 5 {
				if !shared {
					s = dialShared(t, calm)
				}
				bs = append(bs, NewDoubleBarrier(s, path, 5, WithOwner(Owner(fmt.Sprint("member ", i)))))
				require.Equal(t, path, bs[i].Path())
			}
			for range 3 {
				var enters, leaves []<-chan error
				for _, b := range bs[:4] {
					enters = append(enters, goCall(func() error { return b.Enter(ctx) }))
				}
				assembled(t, c, path, 4)
				for _, e := range enters {
					still(t, e)
				}
				require.NoError(t, bs[4].Enter(ctx))
				for _, e := range enters {
					require.NoError(t, next(t, e))
				}
				var owners []string
				for _, name := range membersAt(t, c, path) {
					data, stat, err := c.Get(path + "/" + name)
					require.NoError(t, err)
					require.NotZero(t, stat.EphemeralOwner)
					owners = append(owners, string(data))
				}
				slices.Sort(owners)
				require.Equal(t, []string{"member 0", "member 1", "member 2", "member 3", "member 4"}, owners)
				_, stat, err := c.Get(path + "/ready")
				require.NoError(t, err)
				require.Zero(t, stat.EphemeralOwner)

				for _, b := range bs[:4] {
					leaves = append(leaves, goCall(func() error { return b.Leave(ctx) }))
				}
				for _, l := range leaves {
					still(t, l)
				}
				require.NoError(t, bs[4].Leave(ctx))
				for _, l := range leaves {
					require.NoError(t, next(t, l))
				}
				require.Empty(t, children(t, c, path))
			}
		}
	})
}

// Curator's testOverSubscribed: one more than the number enters too, at the same time or later, and all leave together.
func TestDoubleBarrierTakesMore(t *testing.T) {
	t.Parallel()
	path, c := newPath(t), admin(t)
	var bs []*DoubleBarrier
	for range 6 {
		bs = append(bs, NewDoubleBarrier(dialShared(t, calm), path, 3))
	}
	for range 3 {
		enterAll(t, bs[:4]...)
		ctx := within(t, 20*time.Second)
		left := []<-chan error{goCall(func() error { return bs[0].Leave(ctx) })}
		still(t, left[0])
		enterAll(t, bs[4:]...) // alone they would not be enough
		ready, _, err := c.Get(path + "/ready")
		require.NoError(t, err)
		require.Len(t, strings.Split(string(ready), "\n"), 6)
		for _, b := range bs[1:5] {
			left = append(left, goCall(func() error { return b.Leave(ctx) }))
		}
		for _, l := range left {
			still(t, l)
		}
		require.NoError(t, bs[5].Leave(ctx))
		for _, l := range left {
			require.NoError(t, next(t, l))
		}
		require.Empty(t, children(t, c, path))
	}
}

// Curator's testSpuriousWakeup, GH-1290: a member that waits is woken by lost connections, by a lost session, by changes of what is beside it, and does not pass
// the barrier alone. It times out, is withdrawn, and enters with the others afterwards.
func TestDoubleBarrierIsNotPassedAlone(t *testing.T) {
	t.Parallel()
	forEachWay(t, func(t testing.TB) {
		path, c := newPath(t), admin(t)
		s, p := dialProxy(t)
		a := NewDoubleBarrier(s, path, 3)
		ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Second, errImpatient)
		defer cancel()
		entered := goCall(func() error { return a.Enter(ctx) })
		assembled(t, c, path, 1)
		own := membersAt(t, c, path)[0]
		for i := range 20 {
			p.Cut()
			name := []string{"0000000000", "lock-0000000000", "x" + own, strings.ToUpper(own), "_c_" + own + "-ready"}[i%5]
			_, err := c.Create(path+"/"+name, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			if err != zk.ErrNodeExists {
				require.NoError(t, err)
			}
		}
		expireSession(t, p)
		eventually(t, 10*time.Second, "another znode", func() bool {
			ms := membersAt(t, c, path)
			return len(ms) == 1 && ms[0] != own
		})
		require.NoError(t, c.Delete(path+"/"+membersAt(t, c, path)[0], -1))
		assembled(t, c, path, 1)
		_, err := c.Set(path+"/"+membersAt(t, c, path)[0], []byte("somebody's"), -1)
		require.NoError(t, err)
		eventually(t, 10*time.Second, "another znode", func() bool {
			ms := membersAt(t, c, path)
			if len(ms) != 1 {
				return false
			}
			_, stat, err := c.Get(path + "/" + ms[0])
			return err == nil && stat.Version == 0
		})
		still(t, entered)
		began := time.Now()
		cancel()
		err = next(t, entered)
		require.ErrorIs(t, err, context.Canceled)
		if strings.Contains(err.Error(), "not known") { // the server has not answered in time
			require.Greater(t, time.Since(began), withdrawal)
		} else {
			require.ErrorContains(t, err, "of 3 members are there")
		}
		eventually(t, 5*time.Second, "withdrawn", func() bool { return len(membersAt(t, c, path)) == 0 })
		enterAll(t, a, NewDoubleBarrier(dialShared(t), path, 3), NewDoubleBarrier(dialShared(t), path, 3))
	})
}

// Netflix/curator #99: who lists late finds ready among the members, and takes it for what it is.
func TestDoubleBarrierReadyIsNoMember(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	s, p := dialProxy(t)
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpGetChildren2), Times: 1, Do: zktest.HoldReply(gate)})
	late := NewDoubleBarrier(s, path, 3)
	entered := goCall(func() error { return late.Enter(ctx) })
	next(t, gate.Reached())
	bs := []*DoubleBarrier{NewDoubleBarrier(dialShared(t), path, 3), NewDoubleBarrier(dialShared(t), path, 3)}
	enterAll(t, bs...)
	require.Contains(t, children(t, c, path), "ready")
	gate.Open()
	require.NoError(t, next(t, entered))
	leaveAll(t, append(bs, late)...)
	require.Empty(t, children(t, c, path))
}

// CURATOR-233, CURATOR-536: who cannot leave in time says so, and who is inside; its znode goes. The last one leaves without trouble.
func TestDoubleBarrierLeaveEnds(t *testing.T) {
	t.Parallel()
	path, c := newPath(t), admin(t)
	s, p := dialProxy(t, calm)
	other, q := dialProxy(t, calm)
	a, b, d := NewDoubleBarrier(s, path, 3), NewDoubleBarrier(other, path, 3), NewDoubleBarrier(dialShared(t, calm), path, 3)
	enterAll(t, a, b, d)
	p.ResetCounters()
	q.ResetCounters()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var left []<-chan error
	for _, m := range []*DoubleBarrier{a, b} {
		left = append(left, goCall(func() error { return m.Leave(ctx) }))
	}
	for _, p := range []*zktest.Proxy{p, q} {
		eventually(t, 5*time.Second, "it waits for another one", func() bool {
			return slices.ContainsFunc(p.Requests(), func(r zktest.Record) bool {
				name, ok := strings.CutPrefix(r.Path, path+"/")
				return ok && r.Op == zktest.OpGetData && name != readyName && r.Answered
			})
		})
	}
	began := time.Now()
	cancel(errImpatient)
	for _, l := range left {
		err := next(t, l)
		require.Less(t, time.Since(began), withdrawal+time.Second)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errImpatient)
		require.ErrorContains(t, err, "others are inside")
		var e *Error
		require.ErrorAs(t, err, &e)
		require.NotEmpty(t, e.Ahead)
	}
	assembled(t, c, path, 1)
	require.NoError(t, d.Leave(within(t, 5*time.Second)))
	require.Empty(t, children(t, c, path))
	enterAll(t, a, b, d)
	leaveAll(t, a, b, d)
}

// The same, but the last one dies inside: the others are told when its session is over. What is left of the barrier then lets nobody in alone.
func TestDoubleBarrierMemberDiesInside(t *testing.T) {
	t.Parallel()
	for range rounds(t, 6) { // the names decide who waits for whom
		path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
		s, p := dialProxy(t)
		bs := []*DoubleBarrier{NewDoubleBarrier(dialShared(t), path, 3), NewDoubleBarrier(dialShared(t), path, 3), NewDoubleBarrier(s, path, 3)}
		enterAll(t, bs...)
		var left []<-chan error
		for _, b := range bs[:2] {
			left = append(left, goCall(func() error { return b.Leave(ctx) }))
		}
		for _, l := range left {
			still(t, l)
		}
		expireSession(t, p)
		for _, l := range left {
			require.NoError(t, next(t, l))
		}
		err := bs[2].Leave(ctx)
		require.ErrorIs(t, err, ErrLost)
		require.ErrorContains(t, err, "session expired")
		require.Empty(t, children(t, c, path))
		entered := goCall(func() error { return bs[0].Enter(ctx) })
		still(t, entered)
		enterAll(t, bs[1:]...)
		require.NoError(t, next(t, entered))
		leaveAll(t, bs...)
	}
}

// All die inside, and ready stays. It lets nobody in: a new round begins with nobody.
func TestDoubleBarrierAllDieInside(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	var bs []*DoubleBarrier
	for range 3 {
		s := dialShared(t)
		bs = append(bs, NewDoubleBarrier(s, path, 3))
	}
	enterAll(t, bs...)
	for _, b := range bs {
		require.NoError(t, b.spec.s.Close())
	}
	require.Equal(t, []string{"ready"}, children(t, c, path))
	bs = nil
	for range 3 {
		bs = append(bs, NewDoubleBarrier(dialShared(t), path, 3))
	}
	entered := goCall(func() error { return bs[0].Enter(ctx) })
	eventually(t, 5*time.Second, "ready is removed", func() bool { return !slices.Contains(children(t, c, path), "ready") })
	still(t, entered)
	enterAll(t, bs[1:]...)
	require.NoError(t, next(t, entered))
	leaveAll(t, bs...)
	require.Empty(t, children(t, c, path))
}

// A ready that names nobody is Curator's, or an operator's: it lets in who waits and who comes, and goes with the last one.
func TestDoubleBarrierOpenedByOthers(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
		a, b := NewDoubleBarrier(dialShared(t), path, 5), NewDoubleBarrier(dialShared(t), path, 5)
		put(t, c, path)
		open := func() {
			_, err := c.Create(path+"/ready", []byte("127.0.0.1"), 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		if before {
			open()
		}
		entered := goCall(func() error { return a.Enter(ctx) })
		if !before {
			assembled(t, c, path, 1)
			still(t, entered)
			open()
		}
		require.NoError(t, next(t, entered))
		require.NoError(t, b.Enter(ctx))
		left := goCall(func() error { return a.Leave(ctx) })
		still(t, left)
		require.NoError(t, b.Leave(ctx))
		require.NoError(t, next(t, left))
		require.Empty(t, children(t, c, path))
	}
}

// A znode that is lost inside, by hand or with its session, is told by Leave; the others leave without it.
func TestDoubleBarrierLostInside(t *testing.T) {
	t.Parallel()
	forEachWay(t, func(t testing.TB) {
		path, c := newPath(t), admin(t)
		s, p := dialProxy(t)
		a, b := NewDoubleBarrier(s, path, 2), NewDoubleBarrier(dialShared(t), path, 2)
		enterAll(t, a, b)
		require.NoError(t, c.Delete(path+"/"+a.in.name(), -1))
		err := a.Leave(within(t, 5*time.Second))
		require.ErrorIs(t, err, ErrLost)
		require.ErrorContains(t, err, "znode was deleted")
		var lost *LostError
		require.ErrorAs(t, err, &lost)
		require.Equal(t, path, lost.Path)
		leaveAll(t, b)
		require.Empty(t, children(t, c, path))
		enterAll(t, a, b)
		expireSession(t, p)
		require.ErrorIs(t, a.Leave(within(t, 10*time.Second)), ErrLost)
		leaveAll(t, b)
		enterAll(t, a, b)
		leaveAll(t, a, b)
	})
}

func TestDoubleBarrierBadInput(t *testing.T) {
	t.Parallel()
	s, ctx := dialShared(t), within(t, 10*time.Second)
	for name, b := range map[string]*DoubleBarrier{
		"no Session":    NewDoubleBarrier(nil, "/x", 1),
		"relative path": NewDoubleBarrier(s, "x", 1),
		"no members":    NewDoubleBarrier(s, "/x", 0),
		"fewer":         NewDoubleBarrier(s, "/x", -1),
		"too many":      NewDoubleBarrier(s, "/x", 1<<20),
		"a hold limit":  NewDoubleBarrier(s, "/x", 1, WithMaxHold(time.Second)),
	} {
		for _, call := range []func(context.Context) error{b.Enter, b.Leave} {
			err := call(ctx)
			require.ErrorIs(t, err, ErrInvalid, name)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, b.Path(), e.Path)
		}
	}
	path, c := newPath(t), admin(t)
	b := NewDoubleBarrier(s, path, 1)
	require.ErrorIs(t, b.Leave(ctx), ErrInvalid)
	over, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, b.Enter(over), context.Canceled)
	require.Empty(t, children(t, c, path))
	require.ErrorIs(t, b.Enter(ContextWithOwner(ctx, "")), ErrInvalid)
	require.NoError(t, b.Enter(ctx))
	err := b.Enter(ctx)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "Leave first")
	require.NoError(t, b.Leave(ctx))

	two := NewDoubleBarrier(s, path, 2, WithData(nil))
	waits, stop := context.WithCancel(ctx)
	entered := goCall(func() error { return two.Enter(waits) })
	assembled(t, c, path, 1)
	for _, call := range []func(context.Context) error{two.Enter, two.Leave} {
		err := call(ctx)
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, "entering in another call")
	}
	stop()
	require.ErrorIs(t, next(t, entered), context.Canceled)
	require.ErrorIs(t, NewDoubleBarrier(s, path, 1, WithData(make([]byte, 1<<20))).Enter(ctx), ErrInvalid)

	entered = goCall(func() error { return two.Enter(context.Background()) })
	assembled(t, c, path, 1)
	require.NoError(t, s.Close())
	require.ErrorIs(t, next(t, entered), ErrClosed)
	require.ErrorIs(t, two.Enter(ctx), ErrClosed)
	require.ErrorIs(t, b.Enter(ctx), ErrClosed)
}

// Where a permission is missing the error says of which znode, and nothing is left.
func TestDoubleBarrierWithoutPermission(t *testing.T) {
	t.Parallel()
	c, ctx := admin(t), within(t, 10*time.Second)
	for perms, missing := range map[int32]string{
		zk.PermRead: "", zk.PermRead | zk.PermDelete: "", zk.PermCreate | zk.PermRead | zk.PermDelete: "",
	} {
		path := newPath(t)
		_, err := c.Create(path, []byte("its own"), 0, zk.WorldACL(perms))
		require.NoError(t, err)
		err = NewDoubleBarrier(dialShared(t), path, 1).Enter(ctx)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, path+missing)
		eventually(t, 5*time.Second, "nothing is left", func() bool { return len(children(t, c, path)) == 0 })
	}
	path := newPath(t)
	_, err := c.Create(path, []byte("its own"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	b := NewDoubleBarrier(dialShared(t), path, 1)
	enterAll(t, b)
	leaveAll(t, b)
	data, _, err := c.Get(path)
	require.NoError(t, err)
	require.Equal(t, "its own", string(data))
}
