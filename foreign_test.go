package zkrecipes

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// put makes persistent znodes by hand.
func put(t testing.TB, c Conn, paths ...string) {
	t.Helper()
	for _, p := range paths {
		_, err := c.Create(p, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err, p)
	}
}

// mkdirs makes a persistent directory with what is missing above it.
func mkdirs(t testing.TB, c Conn, path string) {
	t.Helper()
	for i := 1; i <= len(path); i++ {
		if i == len(path) || path[i] == '/' {
			if _, err := c.Create(path[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
				require.ErrorIs(t, err, zk.ErrNodeExists)
			}
		}
	}
}

// Reports: CURATOR-43, samuel/go-zookeeper #64, go-zookeeper/zk #44, metamx/zk-lock #6.
func TestForeignChildrenChangeNothing(t *testing.T) {
	s, p := dialProxy(t)
	c := admin(t)
	bg := context.Background()
	path := newPath(t)
	mkdirs(t, c, path)
	ghosts := []string{
		"0", "!", "content", "zzz", "readme", "lock", "lock-", "lock-abc", "lock-1", "lock-00000000001", "lock-+000000001", "lock--2147483649",
		"_c_", "_c_x", "_c_0", "_c_-lock-0000000000", "_c_00000000-0000-0000-0000-000000000000", "_c_00000000-0000-0000-0000-000000000000-",
		"_c_zzzzzzzz-0000-0000-0000-000000000000-lock-0000000000", "foo-lock-0000000000", "latch-0000000000", "lease-0000000000", "__lock__",
		"__READ__", "__WRIT__x", "x__lock__0000000000", "träge-lock-0000000000", "lock-٠٠٠٠٠٠٠٠٠٠",
	}
	for _, g := range ghosts {
		put(t, c, path+"/"+g)
	}
	m := NewMutex(s, path)
	for _, rule := range []*zktest.Rule{nil, {Match: zktest.MatchOp(zktest.OpCreate), Times: 1, Do: zktest.CutAfter()}} {
		if rule != nil {
			p.OnRequest(*rule)
		}
		l, err := m.Lock(within(t, 10*time.Second))
		require.NoError(t, err)
		_, err = m.TryLock(bg)
		require.ErrorIs(t, err, ErrHeld)
		ps, err := m.Participants(bg)
		require.NoError(t, err)
		require.Len(t, ps, 1)
		require.NoError(t, l.Release(bg))
		require.ElementsMatch(t, ghosts, children(t, c, path))
	}
}

// Hand-made nodes with the numbers in question stand beside a real one: what counts then is the order by czxid. TestDirectoryAtTheLimit has the
// real thing.
func TestSequenceNumbersAtAndPastTheLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		before []string // made by another session before ours, in this order
		after  []string // made while ours stands in the queue
		ahead  int
	}{
		"the last number":            {before: []string{"lock-2147483647"}, ahead: 1},
		"the last number, repeated":  {before: []string{"lock-2147483647", "_c_11111111-1111-1111-1111-111111111111-lock-2147483647"}, ahead: 2},
		"wrapped":                    {before: []string{"lock--2147483648"}, ahead: 1},
		"short negative":             {before: []string{"lock--000000003", "lock--000000002"}, ahead: 2},
		"wrapped, arriving later":    {after: []string{"lock--2147483648", "lock-2147483647"}, ahead: 0},
		"on both sides":              {before: []string{"lock-2147483647"}, after: []string{"lock--2147483648", "lock-2147483646"}, ahead: 1},
		"far below the limit, later": {before: []string{"lock-2147483646"}, ahead: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, other := dialShared(t), admin(t)
			bg := context.Background()
			path := newPath(t)
			mkdirs(t, other, path)
			make := func(names []string) {
				for _, n := range names {
					_, err := other.Create(path+"/"+n, []byte("x"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
					require.NoError(t, err)
				}
			}
			make(tc.before)
			m := NewMutex(s, path)
			got := goLock(bg, m)
			waitingFor(t, path, len(tc.before)+1)
			make(tc.after)
			for i := range tc.ahead {
				ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
				select {
				case <-got:
					t.Fatal("granted with somebody ahead by czxid")
				case <-ctx.Done():
				}
				cancel()
				require.NoError(t, other.Delete(path+"/"+tc.before[i], -1))
			}
			l := mustLease(t, got)
			require.NoError(t, l.Err())
			ps, err := m.Participants(bg)
			require.NoError(t, err)
			require.Equal(t, l.Node(), ps[0].Node)
			require.NoError(t, l.Release(bg))
		})
	}
}

// Reports: CURATOR-724, apache/druid #17786, apache/fluss #4382, CURATOR-180.
func TestParentThatKeepsVanishing(t *testing.T) {
	path := newPath(t)
	janitor := admin(t)
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_ = janitor.Delete(path, -1)
		}
	})
	var held, inside int
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range 4 {
		m := NewMutex(dialShared(t), path)
		workers.Go(func() {
			for range 40 {
				err := Do(within(t, 30*time.Second), m, func(context.Context) error {
					mu.Lock()
					held++
					inside++
					if inside != 1 {
						t.Error("two holders")
					}
					mu.Unlock()
					mu.Lock()
					inside--
					mu.Unlock()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	stop()
	wg.Wait()
	require.Equal(t, 160, held)
}

func TestParentsAreContainersThatGo(t *testing.T) {
	t.Parallel()
	s := dialShared(t)
	path := newPath(t)
	l, err := NewMutex(s, path+"/a/b").Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	require.NoError(t, l.Release(context.Background()))
	c := admin(t)
	eventually(t, 20*time.Second, "the server removes the empty containers", func() bool {
		ok, _, err := c.Exists(path)
		require.NoError(t, err)
		return !ok
	})
	l, err = NewMutex(s, path+"/a/b").Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	require.NoError(t, l.Release(context.Background()))
}

func TestServerWithoutContainersGetsPersistentParents(t *testing.T) {
	s, p := dialProxy(t)
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpCreateContainer), Do: zktest.ReplyError(-6)}) // unimplemented
	for i := range 2 {
		p.ResetCounters()
		path := newPath(t)
		l, err := NewMutex(s, path+"/deep").Lock(within(t, 5*time.Second))
		require.NoError(t, err)
		require.NoError(t, l.Release(context.Background()))
		if i == 1 {
			require.Zero(t, p.Counts().Requests[zktest.OpCreateContainer], "not asked for a second time")
			require.Equal(t, 3, p.Counts().Requests[zktest.OpCreate]-2, "three parents; our own node was tried twice")
		}
	}
}

// zk.Lock and ours exclude each other on one path, in either order, and hand over.
func TestZkLockOnTheSamePath(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	s := dialShared(t)
	path := newPath(t)
	m := NewMutex(s, path)

	ours, err := m.Lock(bg)
	require.NoError(t, err)
	theirs := zk.NewLock(admin(t), path, zk.WorldACL(zk.PermAll))
	theirsHeld := make(chan error, 1)
	go func() { theirsHeld <- theirs.Lock() }()
	waitingFor(t, path, 2)
	select {
	case <-theirsHeld:
		t.Fatal("zk.Lock was granted beside ours")
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, ours.Release(bg))
	require.NoError(t, <-theirsHeld)

	_, err = m.TryLock(bg)
	require.ErrorIs(t, err, ErrHeld)
	got := goLock(bg, m)
	waitingFor(t, path, 2)
	select {
	case <-got:
		t.Fatal("granted beside zk.Lock")
	case <-time.After(100 * time.Millisecond):
	}
	ps, err := m.Participants(bg)
	require.NoError(t, err)
	require.Len(t, ps, 2)
	require.True(t, ps[0].Holding)
	require.NoError(t, theirs.Unlock())
	l := mustLease(t, got)
	require.NoError(t, l.Release(bg))
}

// Contention of both kinds: a counter that nothing else protects stays exact.
func TestZkLockAndOursInTurn(t *testing.T) {
	path := newPath(t)
	counter := 0
	var wg sync.WaitGroup
	for i := range 3 {
		m := NewMutex(dialShared(t), path)
		l := zk.NewLock(admin(t), path, zk.WorldACL(zk.PermAll))
		wg.Go(func() {
			for range 25 {
				if err := Do(context.Background(), m, func(context.Context) error { counter++; return nil }); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 25 {
				if err := l.Lock(); err != nil {
					t.Error(i, err)
					return
				}
				counter++
				if err := l.Unlock(); err != nil {
					t.Error(i, err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 150, counter)
}
