package zkrecipes

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// The tests of Curator's for its semaphores, as far as they are not others already; docs/parity.md has the table.

// testAcquireAfterLostServer (CURATOR-335): the connection is lost twice between the znode of a lease and the list behind it.
func TestSemaphoreAfterLostConnectionsBehindTheLease(t *testing.T) {
	t.Parallel()
	path, look := newPath(t), admin(t)
	var wg sync.WaitGroup
	for range 5 {
		s, p := dialProxy(t, calm)
		created := false
		p.OnRequest(zktest.Rule{Times: 2, Do: zktest.CutBefore(), Match: func(f zktest.Frame) bool {
			was := created
			created = f.Op == zktest.OpCreate && len(f.Path) > len(path) && f.Path[len(path):][:8] == "/leases/"
			return was && f.Op == zktest.OpGetChildren2 && f.Path == path+"/leases"
		}})
		wg.Go(func() {
			for range 5 {
				l, err := NewSemaphore(s, path, 1).Acquire(within(t, 30*time.Second), 1)
				if err != nil {
					t.Error(err)
					return
				}
				if err := l.Release(within(t, 10*time.Second)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Empty(t, leasesOf(t, look, path))
	all, err := NewSemaphore(dialShared(t, calm), path, 1).Acquire(within(t, 10*time.Second), 1)
	require.NoError(t, err)
	require.NoError(t, all.Release(within(t, 5*time.Second)))
}

// testClientClose: what a Session holds, and what it waits for, goes with it.
func TestSemaphoreCloseLetsTheNextOneIn(t *testing.T) {
	t.Parallel()
	holder, first, second := dialShared(t, calm), dialShared(t, calm), dialShared(t, calm)
	path, look := newPath(t), admin(t)
	l, err := NewSemaphore(holder, path, 1).Acquire(within(t, 5*time.Second), 1)
	require.NoError(t, err)
	gone := goLock(context.Background(), NewSemaphore(first, path, 1).Locker(1))
	eventually(t, 5*time.Second, "it waits", func() bool { return len(leasesOf(t, look, path)) == 2 })
	next := goLock(context.Background(), NewSemaphore(second, path, 1).Locker(1))
	eventually(t, 5*time.Second, "it queues", func() bool { return len(children(t, look, path+"/locks")) == 2 })
	require.NoError(t, first.Close())
	require.ErrorIs(t, (<-gone).err, ErrClosed)
	require.Empty(t, next)
	require.NoError(t, holder.Close())
	require.ErrorIs(t, l.Err(), ErrLost)
	require.NoError(t, mustLease(t, next).Release(within(t, 5*time.Second)))
}

// testKilledSession, of the semaphore mutex: the session of the holder is ended, and the waiter is granted.
func TestSemaphoreEndOfTheSessionLetsTheNextOneIn(t *testing.T) {
	t.Parallel()
	holder, p := dialProxy(t, calm)
	path := newPath(t)
	three, err := NewSemaphore(holder, path, 3).Acquire(within(t, 5*time.Second), 3)
	require.NoError(t, err)
	next := goLock(context.Background(), NewSemaphore(dialShared(t, calm), path, 3).Locker(3))
	eventually(t, 5*time.Second, "it waits", func() bool { return len(leasesOf(t, admin(t), path)) == 6 })
	expireSession(t, p)
	require.NoError(t, mustLease(t, next).Release(within(t, 5*time.Second)))
	<-three.Done()
	require.ErrorIs(t, three.Err(), ErrLost)
}

// testMaxPerSession, testRelease1AtATime, testReleaseInChunks and testThreads: many callers take and give back, one or several at a time, in every order.
// As many as there are permits hold at once, and never more.
func TestSemaphoreManyCallers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ callers, sessions, limit, most int }{
		"one at a time": {10, 10, 5, 1},
		"quantities":    {10, 10, 11, 7},
		"in chunks":     {100, 4, 11, 3},
		"one permit":    {10, 1, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, look := newPath(t), admin(t)
			var sessions []*Session
			for range c.sessions {
				sessions = append(sessions, dialShared(t, calm))
			}
			var held, most, done atomic.Int64
			var wg sync.WaitGroup
			for i := range c.callers {
				n := 1 + i%c.most
				m := NewSemaphore(sessions[i%c.sessions], path, c.limit)
				wg.Go(func() {
					for range 3 {
						l, err := m.Acquire(within(t, 60*time.Second), n)
						if err != nil {
							t.Error(err)
							return
						}
						now := held.Add(int64(n))
						for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
						}
						full := int64(c.limit - c.most + 1) // of which one more may not go beside
						for began := time.Now(); most.Load() < full && time.Since(began) < 5*time.Second; {
							<-time.After(time.Millisecond)
						}
						<-time.After(rand.N(10 * time.Millisecond)) // what it does with them
						held.Add(int64(-n))
						if err := l.Release(within(t, 10*time.Second)); err != nil {
							t.Error(err)
						}
						done.Add(1)
					}
				})
			}
			wg.Wait()
			require.LessOrEqual(t, most.Load(), int64(c.limit))
			require.GreaterOrEqual(t, most.Load(), int64(c.limit-c.most+1), "they hold at the same time")
			require.EqualValues(t, 3*c.callers, done.Load())
			eventually(t, 5*time.Second, "nothing is left", func() bool {
				return len(leasesOf(t, look, path)) == 0 && len(children(t, look, path+"/locks")) == 0
			})
		})
	}
}

// testGetParticipantNodes: the permits that are held, and then those who wait.
func TestSemaphoreParticipants(t *testing.T) {
	t.Parallel()
	s, path, look := dialShared(t, calm), newPath(t), admin(t)
	m := NewSemaphore(s, path, 5)
	for i := range 5 {
		_, err := m.Acquire(within(t, 5*time.Second), 1)
		require.NoError(t, err)
		ps, err := m.Participants(within(t, 5*time.Second))
		require.NoError(t, err)
		require.Len(t, ps.Holders(), i+1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	one, two := goLock(ctx, m.Locker(1)), goLock(ctx, m.Locker(1))
	eventually(t, 5*time.Second, "they wait", func() bool {
		return len(leasesOf(t, look, path)) == 6 && len(children(t, look, path+"/locks")) == 2
	})
	ps, err := m.Participants(within(t, 5*time.Second))
	require.NoError(t, err)
	require.Len(t, ps.Holders(), 5)
	require.Len(t, ps.Waiters(), 2)
	cancel()
	require.ErrorIs(t, (<-one).err, context.Canceled)
	require.ErrorIs(t, (<-two).err, context.Canceled)
}

// testWithNamespace: the znodes are below the namespace, and so is the count.
func TestSemaphoreInANamespace(t *testing.T) {
	t.Parallel()
	top, look := newPath(t), admin(t)
	mkdirs(t, look, top)
	s := dialShared(t, calm, WithNamespace(top))
	setCount(t, look, top+"/count", 2)
	m := NewCountedSemaphore(s, "/sem", "/count")
	l, err := m.Acquire(within(t, 5*time.Second), 2)
	require.NoError(t, err)
	require.Equal(t, "/sem", l.Path())
	require.Len(t, leasesOf(t, look, top+"/sem"), 2)
	require.NoError(t, l.Release(within(t, 5*time.Second)))
}

// test2Clients and testReentrant of the semaphore mutex, which is not reentrant: also under the lease's own ctx a second call waits, and whoever has the
// Lease may release it.
func TestSemaphoreIsNotReentrant(t *testing.T) {
	t.Parallel()
	s, other := dialShared(t, calm), dialShared(t, calm)
	path := newPath(t)
	m := NewSemaphore(s, path, 1, WithOwner("me"))
	l, err := m.Acquire(within(t, 5*time.Second), 1)
	require.NoError(t, err)
	require.ErrorIs(t, staysHeld(t, l.Context(), m.Locker(1).Lock), ErrHeld)
	_, err = NewSemaphore(other, path, 1).TryAcquire(within(t, 5*time.Second), 1)
	require.ErrorIs(t, err, ErrHeld)
	next := goLock(context.Background(), NewSemaphore(other, path, 1).Locker(1))
	released := make(chan error, 1)
	go func() { released <- l.Release(context.Background()) }()
	require.NoError(t, <-released)
	l = mustLease(t, next)
	require.NoError(t, l.Err())
	require.NoError(t, l.Release(within(t, 5*time.Second)))
}

// testWaitingProcessKilledServer, and B105: the server is away for longer than the session lives. The holder is told; when the server is back the waiter
// is granted within two timeouts.
// Reports: CURATOR-595.
func TestSemaphoreOverAStoppedServer(t *testing.T) {
	t.Parallel()
	server := newTestServer(t, testTick)
	holder, waiter := dial(t, []string{server.addr}), dial(t, []string{server.addr})
	path := newPath(t)
	l, err := NewSemaphore(holder, path, 2).Acquire(within(t, 5*time.Second), 2)
	require.NoError(t, err)
	next := goLock(context.Background(), NewSemaphore(waiter, path, 2).Locker(1))
	look := adminAt(t, []string{server.addr})
	eventually(t, 5*time.Second, "it waits", func() bool { return len(leasesOf(t, look, path)) == 3 })
	require.NoError(t, server.stop())
	<-l.Done()
	require.ErrorIs(t, l.Err(), ErrLost)
	_ = holder.Close() // it can only let its session end with the timeout
	require.NoError(t, server.start())
	select {
	case r := <-next:
		require.NoError(t, r.err)
		require.NoError(t, r.lease.Release(within(t, 10*time.Second)))
	case <-time.After(2*testTimeout + 10*time.Second): // and what a real server takes to begin
		t.Fatal("not granted")
	}
}

// testSomeReleasesFail: one member cannot be given back, which is told; the others are given back all the same.
func TestMultiLockReleasesAllWhateverBecomesOfOne(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t, calm)
	top, look := newPath(t), admin(t)
	l, err := NewMultiLock(NewMutex(s, top+"/a"), NewSemaphore(s, top+"/b", 2).Locker(2), NewMutex(s, top+"/c")).Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	eventually(t, 5*time.Second, "nobody queues", func() bool { return len(children(t, look, top+"/b/locks")) == 0 })
	const noAuth = -102
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpDelete, l.Parts()[1].Parts()[0].Node()), Times: 1, Do: zktest.ReplyError(noAuth)})
	require.Error(t, l.Release(within(t, 10*time.Second)))
	for _, dir := range []string{"/a", "/b/leases", "/c"} {
		eventually(t, 5*time.Second, dir, func() bool { return len(children(t, look, top+dir)) == 0 })
	}
}

// testSomeLocksFailToLock: one member ends with an error, and those that were held meanwhile are given back.
func TestMultiLockGivesBackWhatItHadWhenOneFails(t *testing.T) {
	t.Parallel()
	s, look := dialShared(t, calm), admin(t)
	top := newPath(t)
	_, err := NewMultiLock(NewMutex(s, top+"/a"), NewSemaphore(s, top+"/b", 2).Locker(1), NewCountedSemaphore(s, top+"/c", top+"/none").Locker(1)).Lock(within(t, 10*time.Second))
	require.ErrorIs(t, err, ErrInvalid)
	for _, dir := range []string{"/a", "/b/leases", "/b/locks", "/c/leases", "/c/locks"} {
		eventually(t, 5*time.Second, dir, func() bool { return len(children(t, look, top+dir)) == 0 })
	}
	require.Empty(t, s.Leases())
}

// Every test that docs/parity.md names is there.
func TestTestsOfTheParityTable(t *testing.T) {
	text, err := os.ReadFile("docs/parity.md")
	require.NoError(t, err)
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	interop, err := filepath.Glob("interop/*_test.go")
	require.NoError(t, err)
	there := make(map[string]bool)
	for _, name := range append(files, interop...) {
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllStringSubmatch(string(source), -1) {
			there[m[1]] = true
		}
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(named), 20)
	for _, m := range named {
		require.True(t, there[m[1]], m[1])
	}
}

// testContainerCleanup: the server removes the directories of a semaphore when they have become empty, and the next one makes them again.
func TestSemaphoreParentsAreContainersThatGo(t *testing.T) {
	t.Parallel()
	s, path, look := dialShared(t, calm), newPath(t), admin(t)
	for range 2 {
		l, err := NewSemaphore(s, path+"/made", 1).Acquire(within(t, 5*time.Second), 1)
		require.NoError(t, err)
		require.NoError(t, l.Release(within(t, 5*time.Second)))
		eventually(t, 20*time.Second, "the server removes the empty containers", func() bool {
			ok, _, err := look.Exists(path)
			require.NoError(t, err)
			return !ok
		})
	}
}
