package zkrecipes

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// leasesOf lists the permits of a semaphore on the server.
func leasesOf(t testing.TB, c Conn, path string) []string {
	t.Helper()
	return children(t, c, path+"/leases")
}

// Curator's testSimple and testSimple2: as many as there are permits, and one more when one has gone.
func TestSemaphorePermits(t *testing.T) {
	t.Parallel()
	s, c, path := dialShared(t, calm), admin(t), newPath(t)
	m := NewSemaphore(s, path, 3)
	var held []*Lease
	for range 3 {
		l, err := m.Acquire(within(t, 5*time.Second), 1)
		require.NoError(t, err)
		held = append(held, l)
	}
	require.Len(t, leasesOf(t, c, path), 3)
	require.ErrorIs(t, staysHeld(t, context.Background(), m.Locker(1).Lock), ErrHeld)
	_, err := m.TryAcquire(within(t, 5*time.Second), 1)
	require.ErrorIs(t, err, ErrHeld)
	eventually(t, 5*time.Second, "the waiter leaves nothing", func() bool {
		return len(leasesOf(t, c, path)) == 3 && len(children(t, c, path+"/locks")) == 0
	})
	waiting := goLock(context.Background(), m.Locker(1))
	eventually(t, 5*time.Second, "it waits", func() bool { return len(leasesOf(t, c, path)) == 4 })
	require.NoError(t, held[1].Release(within(t, 5*time.Second)))
	held[1] = mustLease(t, waiting)
	for _, l := range held {
		require.NoError(t, l.Err())
		require.NoError(t, l.Release(within(t, 5*time.Second)))
	}
	require.Empty(t, leasesOf(t, c, path))
}

// Several permits in one lease: all or none, a part for each.
func TestSemaphoreSeveralPermitsInOneLease(t *testing.T) {
	t.Parallel()
	s, c, path := dialShared(t, calm), admin(t), newPath(t)
	m := NewSemaphore(s, path, 5, WithOwner("me"))
	three, err := m.Acquire(within(t, 5*time.Second), 3)
	require.NoError(t, err)
	require.Len(t, three.Parts(), 3)
	require.Zero(t, three.Token())
	require.Empty(t, three.Node())
	require.Nil(t, three.Check())
	require.Equal(t, path, three.Path())
	require.Equal(t, Owner("me"), three.Owner())
	var nodes []string
	for _, p := range three.Parts() {
		nodes = append(nodes, p.Node())
		require.Positive(t, p.Token())
		require.NotNil(t, p.Check())
		require.Equal(t, []*Lease{p}, p.Parts())
	}
	require.Len(t, leasesOf(t, c, path), 3)
	_, err = m.TryAcquire(within(t, 5*time.Second), 3)
	require.ErrorIs(t, err, ErrHeld)
	two, err := m.TryAcquire(within(t, 5*time.Second), 2)
	require.NoError(t, err)
	ps, err := m.Participants(within(t, 5*time.Second))
	require.NoError(t, err)
	require.Len(t, ps.Holders(), 5)
	require.Equal(t, nodes, []string{ps[0].Node, ps[1].Node, ps[2].Node})
	require.NoError(t, three.Release(within(t, 5*time.Second)))
	require.NoError(t, three.Release(within(t, 5*time.Second)))
	require.ErrorIs(t, three.Err(), ErrReleased)
	require.Len(t, leasesOf(t, c, path), 2)

	// The loss of one part is the loss of the lease, and what is left of it is given back.
	require.NoError(t, c.Delete(two.Parts()[1].Node(), -1))
	<-two.Context().Done()
	require.ErrorIs(t, two.Err(), ErrLost)
	require.ErrorIs(t, two.Release(within(t, 5*time.Second)), ErrLost)
	eventually(t, 5*time.Second, "nothing is left", func() bool { return len(leasesOf(t, c, path)) == 0 })
	require.Empty(t, s.Leases())
}

// The number of permits is followed while callers wait.
func TestCountedSemaphore(t *testing.T) {
	t.Parallel()
	s, c, path := dialShared(t, calm), admin(t), newPath(t)
	count := newPath(t)
	set := func(n int32) {
		data := binary.BigEndian.AppendUint32(nil, uint32(n))
		if _, err := c.Set(count, data, -1); err == zk.ErrNoNode {
			_, err = c.Create(count, data, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
	}
	m := NewCountedSemaphore(s, path, count)
	_, err := m.Acquire(within(t, 5*time.Second), 1)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, count)
	set(1)
	first, err := m.Acquire(within(t, 5*time.Second), 1)
	require.NoError(t, err)
	second := goLock(context.Background(), m.Locker(1))
	eventually(t, 5*time.Second, "it waits", func() bool { return len(leasesOf(t, c, path)) == 2 })
	set(2)
	l := mustLease(t, second)
	third := goLock(context.Background(), m.Locker(2)) // more than there are
	eventually(t, 5*time.Second, "it waits", func() bool { return len(leasesOf(t, c, path)) == 4 })
	set(1)
	require.NoError(t, first.Release(within(t, 5*time.Second)))
	require.NoError(t, l.Release(within(t, 5*time.Second)))
	ps, err := m.Participants(within(t, 5*time.Second))
	require.NoError(t, err)
	require.Len(t, ps.Waiters(), 2, "both, for it holds none before it has all")
	require.Empty(t, third)
	set(2)
	l = mustLease(t, third)
	require.NoError(t, l.Release(within(t, 5*time.Second)))
	set(0)
	_, err = m.TryAcquire(within(t, 5*time.Second), 1)
	require.ErrorIs(t, err, ErrHeld)
	eventually(t, 5*time.Second, "nothing is left", func() bool {
		return len(leasesOf(t, c, path)) == 0 && len(children(t, c, path+"/locks")) == 0
	})
	require.False(t, slices.Contains(children(t, c, path), "count"))
}

// What a grant costs, and its Release.
func TestRequestsOfASemaphore(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t, calm)
	bg, look := context.Background(), admin(t)
	path := newPath(t)
	mkdirs(t, look, path+"/leases")
	mkdirs(t, look, path+"/locks")
	m := NewSemaphore(s, path, 5)
	requests := func() int { // but the heartbeat
		c := p.Counts()
		return c.Total() - c.Requests[zktest.OpSync]
	}
	costs := func(what string, n int, do func()) {
		t.Helper()
		before := requests()
		do()
		for began := time.Now(); requests()-before < n && time.Since(began) < time.Second; {
			<-time.After(10 * time.Millisecond) // what comes in the background comes soon
		}
		<-time.After(20 * time.Millisecond) // and no more
		took := requests() - before
		t.Logf("| %-28s | %2d |", what, took)
		// The list behind a create goes out only where it can be in the same trip. Without it the next look is one that sets watches.
		require.InDelta(t, n, took, 2, "%s: %s", what, ops(p.Requests()))
	}
	var l *Lease
	var err error
	release := func() { require.NoError(t, l.Release(bg)) }
	// Create and list in locks and in leases; the znode in locks is deleted, the lease watched.
	costs("Acquire(1), free", 6, func() { l, err = m.Acquire(bg, 1); require.NoError(t, err) })
	costs("Release", 1, release)
	costs("Acquire(3), free", 12, func() { l, err = m.Acquire(bg, 3); require.NoError(t, err) })
	costs("Release of three", 3, release)
	costs("TryAcquire(1), free", 5, func() { l, err = m.TryAcquire(bg, 1); require.NoError(t, err) })
	costs("Release", 1, release)
	all, err := NewSemaphore(dialShared(t, calm), path, 5).Acquire(bg, 5)
	require.NoError(t, err)
	eventually(t, 5*time.Second, "nobody queues", func() bool { return len(children(t, look, path+"/locks")) == 0 })
	costs("TryAcquire(1), held", 2, func() { _, err = m.TryAcquire(bg, 1); require.ErrorIs(t, err, ErrHeld) })
	var got <-chan lockResult
	// Create and list in locks and in leases; watches on leases and on the own znode in locks; who is ahead.
	costs("Acquire(1), begins to wait", 7, func() { got = goLock(bg, m.Locker(1)) })
	var next <-chan lockResult
	costs("Acquire(1), queues behind it", 3, func() { next = goLock(bg, m.Locker(1)) })
	require.NoError(t, all.Parts()[0].Release(bg)) // the others go with it
	// The list, once or at each of the five; the delete in locks, the lease watched; the second one comes: list in locks, create and list, and the same.
	before := requests()
	one, two := mustLease(t, got), mustLease(t, next)
	eventually(t, 5*time.Second, "nobody queues", func() bool { return len(children(t, look, path+"/locks")) == 0 })
	<-time.After(20 * time.Millisecond) // what comes in the background comes soon
	t.Logf("| %-28s | %2d |", "two waiters woken", requests()-before)
	require.LessOrEqual(t, requests()-before, 20)
	require.NoError(t, one.Release(bg))
	require.NoError(t, two.Release(bg))
}

// A thousand waiters of several Sessions: each release costs the same few requests of all of them together, however many wait.
func TestAReleaseWakesOneWaiterOfASemaphore(t *testing.T) {
	t.Parallel()
	bg, look, path := context.Background(), admin(t), newPath(t)
	const sessions, waiters, limit, releases = 4, 1000, 2, 100
	var held []*Lease
	holder := dialShared(t, calm)
	for range limit {
		l, err := NewSemaphore(holder, path, limit).Acquire(bg, 1)
		require.NoError(t, err)
		held = append(held, l)
	}
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	var proxies []*zktest.Proxy
	got := make(chan *Lease, waiters)
	var wg sync.WaitGroup
	began := time.Now()
	for range sessions {
		s, p := dialProxy(t, calm)
		proxies = append(proxies, p)
		for range waiters / sessions {
			wg.Go(func() {
				l, err := NewSemaphore(s, path, limit).Acquire(ctx, 1)
				if err == nil {
					got <- l
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
	}
	requests := func() (n int) {
		for _, p := range proxies {
			c := p.Counts()
			n += c.Total() - c.Requests[zktest.OpSync]
		}
		return n
	}
	eventually(t, 60*time.Second, "all wait", func() bool {
		watched := 0 // each reads its own znode when it knows who is ahead
		for _, p := range proxies {
			watched += p.Counts().Requests[zktest.OpGetData]
		}
		return watched >= waiters && len(children(t, look, path+"/locks")) == waiters && len(leasesOf(t, look, path)) == limit+1
	})
	quiet := func() {
		last, since := -1, time.Now()
		eventually(t, 60*time.Second, "nothing is asked any more", func() bool {
			if now := requests(); now != last {
				last, since = now, time.Now()
			}
			return time.Since(since) > time.Second
		})
	}
	quiet()
	before := requests()
	for range releases {
		require.NoError(t, held[0].Release(bg))
		held = held[1:]
		select {
		case l := <-got:
			require.NoError(t, l.Err())
			held = append(held, l)
		case <-time.After(10 * time.Second):
			t.Fatal("nobody is granted")
		}
	}
	quiet()
	per := float64(requests()-before) / releases
	t.Logf("%d waiters: %.1f requests for each release and the grant behind it", waiters, per)
	looks := int(time.Since(began) / (30 * time.Second)) // of each waiter, whether it has missed anything
	require.Less(t, per, 12+float64(4*waiters*looks)/releases)
	cancel()
	wg.Wait()
	for _, l := range held {
		require.NoError(t, l.Release(bg))
	}
	close(got)
	for l := range got {
		require.NoError(t, l.Release(bg))
	}
	eventually(t, 30*time.Second, "nothing is left", func() bool {
		return len(children(t, look, path+"/locks")) == 0 && len(leasesOf(t, look, path)) == 0
	})
}
