package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A handOver is a session behind a proxy that holds a lock, with waiters of its own right behind.
type handOver struct {
	testing.TB
	s    *Session
	p    *zktest.Proxy
	c    *zk.Conn
	path string
	l    *Lease // who holds
}

func newHandOver(t testing.TB, opts ...DialOption) *handOver {
	h := &handOver{TB: t, c: admin(t), path: newPath(t)}
	h.s, h.p = dialProxy(t, append([]DialOption{calm, withShortcuts}, opts...)...)
	mkdirs(t, h.c, h.path)
	h.l = h.take(NewMutex(h.s, h.path))
	return h
}

// take takes a lock, and waits until the session watches its znode.
func (h *handOver) take(of Locker) *Lease {
	h.Helper()
	l, err := of.Lock(within(h, 10*time.Second))
	require.NoError(h, err)
	h.watched(l.Node())
	return l
}

func (h *handOver) watched(node string) {
	h.Helper()
	eventually(h, 10*time.Second, "it is watched", func() bool {
		return slices.ContainsFunc(h.p.Requests(), func(q zktest.Record) bool { return q.Op == zktest.OpGetData && q.Path == node && q.Answered })
	})
}

// behind lets one wait right behind a znode, and returns its own.
func (h *handOver) behind(ctx context.Context, node string, of Locker) (<-chan lockResult, string) {
	h.Helper()
	got := goLock(ctx, of)
	return got, claimant(h, h.s, node)
}

// claimant waits until somebody claims the place of a znode, and returns the one that stands right behind it.
func claimant(t testing.TB, s *Session, node string) (own string) {
	t.Helper()
	eventually(t, 10*time.Second, "somebody claims the place", func() bool {
		own = claimantOf(s, node)
		return own != ""
	})
	return own
}

func claimantOf(s *Session, node string) string {
	s.heirs.mu.Lock()
	defer s.heirs.mu.Unlock()
	if h := s.heirs.m[node]; h != nil {
		return h.node
	}
	return ""
}

// sent returns what went out since the counters were reset, but heartbeats.
func (h *handOver) sent() map[zktest.Op]int {
	counts := h.p.Counts().Requests
	delete(counts, zktest.OpPing)
	delete(counts, zktest.OpSync)
	return counts
}

// Whoever stands right behind in the same Session is granted by the one request that deletes the znode before it: no list, no read. The znode of the last
// one is deleted alone.
func TestHandOverInsideASession(t *testing.T) {
	t.Parallel()
	mutex, write := lockers["mutex"], lockers["write"]
	for name, kinds := range map[string][2]func(*Session, string) Locker{"mutex": {mutex, mutex}, "write": {write, write}, "both": {write, mutex}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bg, h := context.Background(), newHandOver(t)
			const waiters = 6
			var got []<-chan lockResult
			last := h.l.Node()
			for i := range waiters {
				var next <-chan lockResult
				next, last = h.behind(bg, last, kinds[i%2](h.s, h.path))
				got = append(got, next)
			}
			h.p.ResetCounters()
			l := h.l
			for i := range waiters {
				require.NoError(t, l.Release(bg))
				next := mustLease(t, got[i])
				require.Greater(t, next.Token(), l.Token())
				require.NoError(t, next.Err())
				l = next
			}
			require.Equal(t, map[zktest.Op]int{zktest.OpMulti: waiters}, h.sent())
			require.NoError(t, l.Release(bg))
			require.Equal(t, map[zktest.Op]int{zktest.OpMulti: waiters, zktest.OpDelete: 1}, h.sent())
			require.Empty(t, children(t, h.c, h.path))
			require.Empty(t, h.s.heirs.m)
			require.Zero(t, h.s.engine.Owing())
		})
	}
}

// With the shortcut off every waiter lists.
func TestHandOverCanBeTurnedOff(t *testing.T) {
	t.Parallel()
	bg, h := context.Background(), newHandOver(t, withoutShortcuts)
	got := goLock(bg, NewMutex(h.s, h.path))
	waitingFor(t, h.path, 2)
	require.NoError(t, h.l.Release(bg))
	require.NoError(t, mustLease(t, got).Release(bg))
	require.Zero(t, h.p.Counts().Requests[zktest.OpMulti])
}

// Latches and the queue of a semaphore are handed over in the same way.
func TestHandOverOfOtherQueues(t *testing.T) {
	t.Parallel()
	bg, h := context.Background(), newHandOver(t)
	t.Run("latch", func(t *testing.T) {
		t.Parallel()
		path := newPath(t)
		first, second := NewLeaderLatch(h.s, path), NewLeaderLatch(h.s, path)
		ctx, stop := context.WithCancel(bg)
		ended := make(chan error, 2)
		go func() { ended <- first.Run(ctx) }()
		l, err := first.Await(within(t, 10*time.Second))
		require.NoError(t, err)
		go func() { ended <- second.Run(within(t, 30*time.Second)) }()
		claimant(t, h.s, l.Node())
		stop()
		require.NoError(t, next(t, ended))
		_, err = second.Await(within(t, 10*time.Second))
		require.NoError(t, err)
		require.Equal(t, 1, requestsOn(h.p, zktest.OpMulti, l.Node()))
	})
	t.Run("semaphore", func(t *testing.T) {
		t.Parallel()
		path := newPath(t)
		m := NewSemaphore(h.s, path, 1).Locker(1)
		l, err := m.Lock(within(t, 10*time.Second))
		require.NoError(t, err)
		first := goLock(bg, m)
		waitingFor(t, path+"/leases", 2) // it waits there, first in locks
		names := children(t, h.c, path+"/locks")
		require.Len(t, names, 1)
		second := goLock(bg, m)
		claimant(t, h.s, path+"/locks/"+names[0])
		require.NoError(t, l.Release(bg))
		require.NoError(t, mustLease(t, first).Release(bg))
		require.NoError(t, mustLease(t, second).Release(bg))
		require.Equal(t, 1, requestsOn(h.p, zktest.OpMulti, path+"/locks/"+names[0]))
	})
}

func requestsOn(p *zktest.Proxy, op zktest.Op, node string) (n int) {
	for _, q := range p.Requests() {
		if q.Op == op && q.Path == node {
			n++
		}
	}
	return n
}

// Nothing is handed over where somebody else stands in between, where a reader waits or reads, or where a read is left in the place of a write.
func TestNoHandOver(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	type scene struct {
		*handOver
		foreign *Session
	}
	for name, play := range map[string]func(h scene){
		"a waiter of another session in between": func(h scene) {
			other := goLock(bg, NewMutex(h.foreign, h.path))
			waitingFor(h, h.path, 2)
			mine := goLock(bg, NewMutex(h.s, h.path))
			waitingFor(h, h.path, 3)
			node := nodeOf(h, h.c, h.path, h.foreign.ID())
			claimant(h, h.s, node) // which nobody here lets go
			require.NoError(h, h.l.Release(bg))
			theirs := mustLease(h, other)
			require.Empty(h, mine)
			require.NoError(h, theirs.Release(bg))
			require.NoError(h, mustLease(h, mine).Release(bg))
		},
		"a znode of zk.Lock's in between": func(h scene) {
			node, err := h.c.CreateProtectedEphemeralSequential(h.path+"/lock-", nil, zk.WorldACL(zk.PermAll))
			require.NoError(h, err)
			mine, _ := h.behind(bg, node, NewMutex(h.s, h.path))
			require.NoError(h, h.l.Release(bg))
			require.Never(h, func() bool { return len(mine) > 0 }, 100*time.Millisecond, 10*time.Millisecond)
			require.NoError(h, h.c.Delete(node, -1))
			require.NoError(h, mustLease(h, mine).Release(bg))
		},
		"readers behind a writer": func(h scene) {
			first, second := goLock(bg, NewRWLock(h.s, h.path).RLocker()), goLock(bg, NewRWLock(h.s, h.path).RLocker())
			waitingFor(h, h.path, 3)
			require.NoError(h, h.l.Release(bg))
			one, two := mustLease(h, first), mustLease(h, second)
			require.NoError(h, errors.Join(one.Err(), two.Err()))
			require.NoError(h, errors.Join(one.Release(bg), two.Release(bg)))
		},
		"a writer behind readers": func(h scene) {
			require.NoError(h, h.l.Release(bg))
			one, two := h.take(NewRWLock(h.s, h.path).RLocker()), h.take(NewRWLock(h.s, h.path).RLocker())
			write := goLock(bg, NewRWLock(h.s, h.path))
			waitingFor(h, h.path, 3)
			require.NoError(h, two.Release(bg))
			require.Never(h, func() bool { return len(write) > 0 }, 100*time.Millisecond, 10*time.Millisecond)
			require.NoError(h, one.Release(bg))
			require.NoError(h, mustLease(h, write).Release(bg))
		},
		"a waiter that gives up": func(h scene) {
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			first, node := h.behind(ctx, h.l.Node(), NewMutex(h.s, h.path))
			second, _ := h.behind(bg, node, NewMutex(h.s, h.path))
			cancel()
			require.ErrorIs(h, next(h, first).err, context.Canceled)
			waitingFor(h, h.path, 2)
			require.Empty(h, second)
			claimant(h, h.s, h.l.Node()) // it has moved up
			h.p.ResetCounters()          // from here on it may
			require.NoError(h, h.l.Release(bg))
			require.NoError(h, mustLease(h, second).Release(bg))
			require.Equal(h, 1, h.sent()[zktest.OpMulti])
			h.p.ResetCounters()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHandOver(t)
			play(scene{h, dialShared(t, calm)})
			require.Zero(t, h.p.Counts().Requests[zktest.OpMulti])
			require.Empty(t, children(t, h.c, h.path))
		})
	}
}

// A write that leaves its owner's read behind in its place is deleted alone, also when that read has gone meanwhile, and the writer behind waits for the read.
func TestNoHandOverOfAWriteThatWasReadUnder(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprintf("read given back first=%v", gone), func(t *testing.T) {
			t.Parallel()
			h := newHandOver(t)
			require.NoError(t, h.l.Release(bg))
			l := NewRWLock(h.s, h.path)
			w := h.take(l)
			second, _ := h.behind(bg, w.Node(), NewRWLock(h.s, h.path))
			r, err := l.RLock(w.Context())
			require.NoError(t, err)
			if gone {
				require.NoError(t, r.Release(bg))
			}
			require.NoError(t, w.Release(bg))
			if !gone {
				require.Never(t, func() bool { return len(second) > 0 }, 200*time.Millisecond, 10*time.Millisecond)
				require.NoError(t, r.Err())
				require.NoError(t, r.Release(bg))
			}
			require.NoError(t, mustLease(t, second).Release(bg))
			require.Equal(t, 1, requestsOn(h.p, zktest.OpMulti, w.Node()), "that made the read")
			require.Equal(t, 1, requestsOn(h.p, zktest.OpDelete, w.Node()))
		})
	}
}
