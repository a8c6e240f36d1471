package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// follow runs a Watcher's Data loop and passes on what it yields.
func follow(ctx context.Context, w *Watcher) (<-chan Znode, <-chan error) {
	values, ended := make(chan Znode, 100), make(chan error, 1)
	go func() {
		defer close(values)
		for z, err := range w.Data(ctx) {
			if err != nil {
				ended <- err
				return
			}
			values <- z
		}
		ended <- nil
	}()
	return values, ended
}

func next[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(10 * time.Second):
		t.Fatal("nothing within 10 s")
		panic("unreachable")
	}
}

func TestWatcherDataFollowsTheZnode(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t)
	c := admin(t)
	path := newPath(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	values, ended := follow(ctx, NewWatcher(s, path))

	z := next(t, values)
	require.False(t, z.Exists(), "a missing znode is a value")
	require.Equal(t, path, z.Path)
	for round, change := range []func(){
		func() { put(t, c, path) },
		func() { _, err := c.Set(path, []byte("1"), -1); require.NoError(t, err) },
		func() { p.Cut(); _, err := c.Set(path, []byte("2"), -1); require.NoError(t, err) },
		func() { require.NoError(t, c.Delete(path, -1)) },
		func() { p.Cut(); put(t, c, path) },
		func() {
			expireSession(t, p)
			_, err := c.Set(path, []byte("3"), -1)
			require.NoError(t, err)
		},
	} {
		change()
		z := next(t, values)
		want := []string{"", "1", "2", "-", "", "3"}[round]
		require.Equal(t, want != "-", z.Exists(), "round %d", round)
		if z.Exists() {
			require.Equal(t, want, string(z.Data), "round %d", round)
		}
	}
	// Reconnects alone are no change.
	p.Cut()
	eventually(t, 5*time.Second, "back", func() bool { return s.State() == StateConnected })
	require.NoError(t, c.Delete(path, -1))
	require.False(t, next(t, values).Exists())

	why := errors.New("enough")
	cancel(why)
	err := next(t, ended)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, why)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, path, e.Path)
}

// Reports: CURATOR-240, GH-1292, CURATOR-729, CURATOR-710, python-zk/kazoo #543.
func TestWatcherEndsWithALoopThatBreaks(t *testing.T) {
	s := dialShared(t)
	for range NewWatcher(s, "/").Data(context.Background()) {
		break
	}
	for names, err := range NewWatcher(s, "/").Children(context.Background()) {
		require.NoError(t, err)
		require.Contains(t, names, "zookeeper")
		break
	}
}

// Reports: CURATOR-308, CURATOR-388.
func TestWatcherChildren(t *testing.T) {
	s, p := dialProxy(t)
	c := admin(t)
	path := newPath(t)
	lists, ended := make(chan []string, 100), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for names, err := range NewWatcher(s, path).Children(ctx) {
			if err != nil {
				ended <- err
				return
			}
			lists <- names
		}
	}()
	require.Nil(t, next(t, lists), "a missing znode has no children, not even none")
	put(t, c, path)
	require.Equal(t, []string{}, next(t, lists))
	put(t, c, path+"/b")
	require.Equal(t, []string{"b"}, next(t, lists))
	p.Cut()
	put(t, c, path+"/a")
	require.Equal(t, []string{"a", "b"}, next(t, lists))
	_, err := c.Set(path, []byte("data"), -1)
	require.NoError(t, err)
	require.NoError(t, c.Delete(path+"/b", -1))
	require.Equal(t, []string{"a"}, next(t, lists), "data is no change of the children")
	require.NoError(t, c.Delete(path+"/a", -1))
	require.Equal(t, []string{}, next(t, lists))
	require.NoError(t, c.Delete(path, -1))
	require.Nil(t, next(t, lists))
	put(t, c, path)
	require.Equal(t, []string{}, next(t, lists), "made again")
	put(t, c, path+"/c")
	require.Equal(t, []string{"c"}, next(t, lists))
	cancel()
	require.ErrorIs(t, next(t, ended), context.Canceled)
}

func TestWatcherGone(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t)
	c := admin(t)
	path := newPath(t)
	p.ResetCounters()
	require.NoError(t, NewWatcher(s, path).Gone(within(t, 5*time.Second)))
	for _, op := range writes {
		require.Zero(t, p.Counts().Requests[op], "observers create nothing")
	}
	put(t, c, path)
	require.ErrorIs(t, NewWatcher(s, path).Gone(within(t, 50*time.Millisecond)), context.DeadlineExceeded)
	gone := make(chan error, 1)
	go func() { gone <- NewWatcher(s, path).Gone(context.Background()) }()
	_, err := c.Set(path, []byte("x"), -1)
	require.NoError(t, err)
	p.Cut()
	require.NoError(t, c.Delete(path, -1))
	require.NoError(t, next(t, gone))
}

func TestWatcherIsRefused(t *testing.T) {
	c := admin(t)
	s := dialShared(t)
	path := newPath(t)
	put(t, c, path)
	_, err := c.SetACL(path, zk.WorldACL(zk.PermAdmin), -1)
	require.NoError(t, err)
	for _, err := range []error{
		NewWatcher(s, path).Gone(within(t, 5*time.Second)),
		func() error {
			for _, err := range NewWatcher(s, path).Children(within(t, 5*time.Second)) {
				return err
			}
			return nil
		}(),
	} {
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.Contains(t, err.Error(), path)
	}
}

// No change is lost between a read and its watch: whatever comes in between, the last value is seen in the end.
func TestWatcherSeesTheLastValue(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t)
	c := admin(t)
	path := newPath(t)
	put(t, c, path)
	values, _ := follow(within(t, 60*time.Second), NewWatcher(s, path))
	for round := range 20 {
		want := ""
		for i := range 20 {
			want = fmt.Sprintf("%d/%d", round, i)
			_, err := c.Set(path, []byte(want), -1)
			require.NoError(t, err)
			if i == round {
				p.Cut()
			}
		}
		for got := ""; got != want; {
			value := next(t, values)
			require.NotNil(t, value.Stat, "the end of the values")
			got = string(value.Data)
		}
	}
}

func TestConnIsAStableForwarder(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t)
	conn := s.Conn()
	path := newPath(t)
	acl := zk.WorldACL(zk.PermAll)
	_, err := conn.Create(path, []byte("a"), 0, acl)
	require.NoError(t, err)
	_, _, changed, err := conn.GetW(path)
	require.NoError(t, err)
	_, err = conn.Set(path, []byte("b"), 0)
	require.NoError(t, err)
	require.Equal(t, zk.EventNodeDataChanged, next(t, changed).Type)
	expireSession(t, p)
	eventually(t, 10*time.Second, "a new session", func() bool {
		data, _, err := conn.Get(path)
		return err == nil && string(data) == "b"
	})
	require.Equal(t, s.ID(), conn.SessionID())
	require.Equal(t, zk.StateHasSession, conn.State())
	_, err = conn.Create(path, nil, 0, acl)
	require.ErrorIs(t, err, zk.ErrNodeExists)
	_, err = conn.CreateContainer(path+"/c", nil, zk.FlagContainer, acl)
	require.NoError(t, err)
	ok, _, created, err := conn.ExistsW(path + "/d")
	require.NoError(t, err)
	require.False(t, ok)
	names, _, more, err := conn.ChildrenW(path)
	require.NoError(t, err)
	require.Equal(t, []string{"c"}, names)
	_, err = conn.CreateTTL(path+"/d", nil, zk.FlagTTL, acl, time.Hour)
	require.NoError(t, err)
	require.Equal(t, zk.EventNodeCreated, next(t, created).Type)
	require.Equal(t, zk.EventNodeChildrenChanged, next(t, more).Type)
	_, err = conn.Sync(path)
	require.NoError(t, err)
	_, err = conn.Multi(&zk.DeleteRequest{Path: path + "/d", Version: -1}, &zk.CheckVersionRequest{Path: path, Version: 1})
	require.NoError(t, err)
	require.NoError(t, conn.Delete(path+"/c", -1))
	ok, _, err = conn.Exists(path + "/c")
	require.NoError(t, err)
	require.False(t, ok)

	p.Refuse(true)
	defer p.Refuse(false)
	eventually(t, 5*time.Second, "the cut is known", func() bool { return s.State() != StateConnected })
	start := time.Now()
	_, _, err = conn.Children(path)
	require.ErrorIs(t, err, zk.ErrNoServer)
	require.Less(t, time.Since(start), testTimeout+time.Second)
}

// Reports: CURATOR-689, CURATOR-542, KAFKA-6082.
func TestCheckGuardsWrites(t *testing.T) {
	s := dialShared(t, calm)
	bg := context.Background()
	path := newPath(t)
	put(t, s.Conn(), path+"-data")
	l, err := NewMutex(s, path).Lock(bg)
	require.NoError(t, err)
	set := &zk.SetDataRequest{Path: path + "-data", Data: []byte("x"), Version: -1}
	_, err = s.Conn().Multi(l.Check(), set)
	require.NoError(t, err)
	require.NoError(t, admin(t).Delete(l.Node(), -1))
	_, err = s.Conn().Multi(l.Check(), set)
	require.ErrorIs(t, err, zk.ErrNoNode)
	eventually(t, 5*time.Second, "told", func() bool { return errors.Is(l.Err(), ErrLost) })
}

// Loops on one znode do not share what they are given.
func TestWatchersShareNothing(t *testing.T) {
	s := dialShared(t)
	path := newPath(t)
	put(t, s.Conn(), path)
	_, err := s.Conn().Set(path, []byte("abc"), -1)
	require.NoError(t, err)
	one, _ := follow(within(t, 10*time.Second), NewWatcher(s, path))
	z := next(t, one)
	z.Data[0], z.Stat.Version = 'X', 99
	two, _ := follow(within(t, 10*time.Second), NewWatcher(s, path))
	z = next(t, two)
	require.Equal(t, "abc", string(z.Data))
	require.EqualValues(t, 1, z.Stat.Version)
}

// Reports: CURATOR-337, spring-integration #2116.
func TestDo(t *testing.T) {
	s := dialShared(t, calm)
	bg := context.Background()
	m := NewMutex(s, newPath(t))
	held := func() int { return len(children(t, s.Conn(), m.Path())) }
	failure := errors.New("fn failed")

	require.ErrorIs(t, Do(bg, m, func(context.Context) error { return failure }), failure)
	require.Zero(t, held())

	require.PanicsWithValue(t, "boom", func() { _ = Do(bg, m, func(context.Context) error { panic("boom") }) })
	require.Zero(t, held(), "a panic releases")

	// fn's ctx ends with the caller's, keeps its deadline and values, and carries the lease.
	type key struct{}
	ctx, cancel := context.WithCancelCause(context.WithValue(within(t, time.Minute), key{}, 1))
	why := errors.New("stop")
	err := Do(ctx, m, func(ctx context.Context) error {
		require.Equal(t, 1, ctx.Value(key{}))
		_, ok := ctx.Deadline()
		require.True(t, ok)
		l, ok := LeaseFromContext(ctx)
		require.True(t, ok)
		require.NoError(t, l.Err())
		cancel(why)
		<-ctx.Done()
		require.NoError(t, l.Err(), "the lease does not end with the caller's ctx")
		return context.Cause(ctx)
	})
	require.ErrorIs(t, err, why)
	require.NotErrorIs(t, err, ErrLost)
	require.Zero(t, held())

	// It ends with the lease, and the loss is in the result beside fn's own error.
	err = Do(bg, m, func(ctx context.Context) error {
		l, _ := LeaseFromContext(ctx)
		require.NoError(t, admin(t).Delete(l.Node(), -1))
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), ErrLost)
		return failure
	})
	require.ErrorIs(t, err, ErrLost)
	require.ErrorIs(t, err, failure)
	// And when fn does not care.
	err = Do(bg, m, func(ctx context.Context) error {
		l, _ := LeaseFromContext(ctx)
		require.NoError(t, admin(t).Delete(l.Node(), -1))
		<-l.Done()
		return nil
	})
	require.ErrorIs(t, err, ErrLost)

	l, err := m.Lock(bg)
	require.NoError(t, err)
	require.ErrorIs(t, TryDo(bg, m, func(context.Context) error { t.Error("fn ran"); return nil }), ErrHeld)
	require.NoError(t, l.Release(bg))
	require.NoError(t, TryDo(bg, m, func(context.Context) error { return nil }))
}

func TestRevokedIsTold(t *testing.T) {
	s, p := dialProxy(t, calm)
	c := admin(t)
	bg := context.Background()
	l, err := NewMutex(s, newPath(t)).Lock(bg)
	require.NoError(t, err)
	_, err = c.Set(l.Node(), []byte("something else"), -1)
	require.NoError(t, err)
	p.Cut() // the request comes while nobody listens
	_, err = c.Set(l.Node(), []byte("__REVOKE__"), -1)
	require.NoError(t, err)
	next(t, l.Revoked())
	require.NoError(t, l.Err(), "it is a request")
	ps, err := NewMutex(s, l.Path()).Participants(bg)
	require.NoError(t, err)
	require.Empty(t, ps[0].Owner)
	require.NoError(t, l.Release(bg))
}
