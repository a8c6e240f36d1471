package zkrecipes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// setCount writes the number of permits that a counted semaphore follows.
func setCount(t testing.TB, c *zk.Conn, path string, n int32) {
	t.Helper()
	data := binary.BigEndian.AppendUint32(nil, uint32(n))
	if _, err := c.Set(path, data, -1); err != zk.ErrNoNode {
		require.NoError(t, err)
		return
	}
	_, err := c.Create(path, data, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
}

// holdLeaseCreate holds the first create of a lease before the server sees it.
func holdLeaseCreate(p *zktest.Proxy, path string) *zktest.Gate {
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, path+"/leases/"), Times: 1, Do: zktest.HoldRequest(gate)})
	return gate
}

// A TryAcquire whose znode somebody deletes before it has seen where that stands starts anew. It does not ask for ever.
func TestTryAcquireWhoseLeaseIsDeletedByHand(t *testing.T) {
	t.Parallel()
	c := admin(t)
	for _, taken := range []bool{false, true} {
		t.Run(fmt.Sprint("taken meanwhile ", taken), func(t *testing.T) {
			s, p := dialProxy(t, calm)
			path := newPath(t)
			mkdirs(t, c, path+"/leases")
			gate := zktest.NewGate()
			defer gate.Open()
			created := false
			p.OnRequest(zktest.Rule{Times: 1, Do: zktest.HoldRequest(gate), Match: func(f zktest.Frame) bool {
				created = created || f.Op == zktest.OpCreate && strings.HasPrefix(f.Path, path+"/leases/")
				return created && f.Op == zktest.OpGetChildren2 && f.Path == path+"/leases"
			}})
			got := lockedIn(func() (*Lease, error) { return NewSemaphore(s, path, 1).TryAcquire(within(t, 10*time.Second), 1) })
			next(t, gate.Reached())
			eventually(t, 5*time.Second, "the lease is there", func() bool { return len(leasesOf(t, c, path)) == 1 })
			require.NoError(t, c.Delete(path+"/leases/"+leasesOf(t, c, path)[0], -1))
			var theirs *Lease
			if taken {
				var err error
				theirs, err = NewSemaphore(dialShared(t, calm), path, 1).Acquire(within(t, 5*time.Second), 1)
				require.NoError(t, err)
			}
			gate.Open()
			select {
			case r := <-got:
				if taken {
					require.ErrorIs(t, r.err, ErrHeld)
					require.NoError(t, theirs.Release(within(t, 5*time.Second)))
				} else {
					require.NoError(t, r.err)
					require.NoError(t, r.lease.Release(within(t, 5*time.Second)))
				}
			case <-time.After(5 * time.Second):
				t.Fatalf("it goes on asking: %d requests", p.Counts().Total())
			}
			require.Less(t, p.Counts().Total(), 40)
			eventually(t, 5*time.Second, "nothing is left", func() bool { return len(leasesOf(t, c, path)) == 0 })
		})
	}
}

// Who has just been granted is not in the queue any more, though its znode in locks is still on its way out: the permits that are free are free for the
// next call of its Session.
func TestTryAcquireRightBehindAnAcquire(t *testing.T) {
	t.Parallel()
	s := dialShared(t, calm)
	m := NewSemaphore(s, newPath(t), 2)
	for range 50 {
		one, err := m.Acquire(within(t, 5*time.Second), 1)
		require.NoError(t, err)
		two, err := m.TryAcquire(within(t, 5*time.Second), 1)
		require.NoError(t, err)
		require.NoError(t, one.Release(within(t, 5*time.Second)))
		require.NoError(t, two.Release(within(t, 5*time.Second)))
	}
}

// A number that is lowered while a lease is being made counts for that lease: nobody is let in by the number from before.
func TestCountIsLoweredWhileALeaseIsMade(t *testing.T) {
	t.Parallel()
	c := admin(t)
	for _, try := range []bool{false, true} {
		t.Run(fmt.Sprint("try ", try), func(t *testing.T) {
			s, p := dialProxy(t, calm)
			path, count := newPath(t), newPath(t)
			setCount(t, c, count, 2)
			first, err := NewCountedSemaphore(dialShared(t, calm), path, count).Acquire(within(t, 5*time.Second), 1)
			require.NoError(t, err)
			eventually(t, 5*time.Second, "nobody queues", func() bool { return len(children(t, c, path+"/locks")) == 0 })
			m := NewCountedSemaphore(s, path, count)
			gate := holdLeaseCreate(p, path)
			defer gate.Open()
			take := m.Acquire
			if try {
				take = m.TryAcquire
			}
			got := lockedIn(func() (*Lease, error) { return take(within(t, 20*time.Second), 1) })
			next(t, gate.Reached())
			events := p.Counts().Events
			setCount(t, c, count, 1)
			eventually(t, 5*time.Second, "it is told", func() bool { return p.Counts().Events > events })
			gate.Open()
			if try {
				require.ErrorIs(t, (<-got).err, ErrHeld)
				require.NoError(t, first.Release(within(t, 5*time.Second)))
				return
			}
			eventually(t, 5*time.Second, "it waits", func() bool { return p.Counts().Requests[zktest.OpGetData] >= 3 })
			select {
			case r := <-got:
				t.Fatalf("granted beside another, with one permit: %v", r.err)
			default:
			}
			require.NoError(t, first.Release(within(t, 5*time.Second)))
			require.NoError(t, mustLease(t, got).Release(within(t, 5*time.Second)))
		})
	}
}

// Somebody deletes a znode of a waiter's, or of one that queues, at whatever place: it comes again at the tail, is granted in the end, alone, and leaves
// nothing. Curator's testNoOrphanedNodes is the first of them.
func TestSemaphoreZnodesOfWaitersAreDeletedByHand(t *testing.T) {
	t.Parallel()
	c := admin(t)
	nodes := func(path, dir string, s *Session) (all []string) {
		for _, name := range children(t, c, path+"/"+dir) {
			ok, stat, err := c.Exists(path + "/" + dir + "/" + name)
			require.NoError(t, err)
			if ok && stat.EphemeralOwner == s.ID() {
				all = append(all, path+"/"+dir+"/"+name)
			}
		}
		return all
	}
	for name, doomed := range map[string]func(path string, first, second *Session) []string{
		"a lease":         func(path string, first, _ *Session) []string { return nodes(path, "leases", first)[:1] },
		"all leases":      func(path string, first, _ *Session) []string { return nodes(path, "leases", first) },
		"first in locks":  func(path string, first, _ *Session) []string { return nodes(path, "locks", first) },
		"second in locks": func(path string, _, second *Session) []string { return nodes(path, "locks", second) },
		"both in locks": func(path string, first, second *Session) []string {
			return append(nodes(path, "locks", first), nodes(path, "locks", second)...)
		},
		"all that is not held": func(path string, first, second *Session) []string {
			return append(nodes(path, "leases", first), append(nodes(path, "locks", first), nodes(path, "locks", second)...)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holder, first, second := dialShared(t, calm), dialShared(t, calm), dialShared(t, calm)
			path := newPath(t)
			l, err := NewSemaphore(holder, path, 2).Acquire(within(t, 5*time.Second), 1)
			require.NoError(t, err)
			queued := func(leases, locks int) func() bool {
				return func() bool { return len(leasesOf(t, c, path)) == leases && len(children(t, c, path+"/locks")) == locks }
			}
			one := goLock(context.Background(), NewSemaphore(first, path, 2).Locker(2))
			eventually(t, 5*time.Second, "one waits", queued(3, 1))
			two := goLock(context.Background(), NewSemaphore(second, path, 2).Locker(2))
			eventually(t, 5*time.Second, "two queues", queued(3, 2))
			gone := doomed(path, first, second)
			require.NotEmpty(t, gone)
			for _, node := range gone {
				if err := c.Delete(node, -1); err != zk.ErrNoNode { // it was given up itself, for another was deleted
					require.NoError(t, err)
				}
			}
			eventually(t, 5*time.Second, "both wait again, elsewhere", func() bool {
				names := append(leasesOf(t, c, path), children(t, c, path+"/locks")...)
				for _, node := range gone {
					for _, name := range names {
						if strings.HasSuffix(node, name) {
							return false
						}
					}
				}
				return queued(3, 2)()
			})
			require.NoError(t, l.Err())
			require.NoError(t, l.Release(within(t, 5*time.Second)))
			var a lockResult
			next := two
			select {
			case a = <-one:
			case a = <-two:
				next = one
			case <-time.After(10 * time.Second):
				t.Fatal("nobody is granted")
			}
			require.NoError(t, a.err)
			require.NoError(t, a.lease.Err())
			require.Empty(t, next)
			require.NoError(t, a.lease.Release(within(t, 5*time.Second)))
			require.NoError(t, mustLease(t, next).Release(within(t, 5*time.Second)))
			eventually(t, 5*time.Second, "nothing is left", queued(0, 0))
		})
	}
}

// Two sessions, and many, try for the last permit at once: never more than one gets it, and what the others wrote is gone when they are told.
func TestTryAcquireRaces(t *testing.T) {
	t.Parallel()
	c, path := admin(t), newPath(t)
	const limit = 2
	var sessions []*Session
	for range 20 {
		sessions = append(sessions, dialShared(t, calm))
	}
	for round := range 30 {
		var wg sync.WaitGroup
		var taken atomic.Int64
		leases := make([]*Lease, len(sessions))
		for i, s := range sessions {
			wg.Go(func() {
				l, err := NewSemaphore(s, path, limit).TryAcquire(within(t, 10*time.Second), 1+(i+round)%2)
				if err != nil {
					if !errors.Is(err, ErrHeld) {
						t.Error(err)
					}
					return
				}
				leases[i] = l
				taken.Add(int64(len(l.Parts())))
			})
		}
		wg.Wait()
		require.LessOrEqual(t, taken.Load(), int64(limit))
		require.Len(t, leasesOf(t, c, path), int(taken.Load()))
		for _, l := range leases {
			if l != nil {
				require.NoError(t, l.Err())
				require.NoError(t, l.Release(within(t, 5*time.Second)))
			}
		}
	}
	require.Empty(t, children(t, c, path+"/locks"))
}

// The count changes in every way while somebody waits for three permits of three, of which one is held.
func TestCountChangesUnderAWaiter(t *testing.T) {
	t.Parallel()
	c := admin(t)
	raw := func(data []byte) func(t testing.TB, count string) {
		return func(t testing.TB, count string) {
			_, err := c.Set(count, data, -1)
			require.NoError(t, err)
		}
	}
	set := func(numbers ...int32) func(t testing.TB, count string) {
		return func(t testing.TB, count string) {
			for _, n := range numbers {
				setCount(t, c, count, n)
			}
		}
	}
	for name, tc := range map[string]struct {
		change        func(t testing.TB, count string)
		ends, granted bool
	}{
		"it vanishes":               {func(t testing.TB, count string) { require.NoError(t, c.Delete(count, -1)) }, true, false},
		"it has three bytes":        {raw([]byte{0, 0, 9}), true, false},
		"it is empty":               {raw(nil), true, false},
		"it shrinks, and is raised": {set(1, 3), false, false},
		"to zero":                   {set(0, 3), false, false},
		"below zero":                {set(-1, 3), false, false},
		"it is raised":              {set(4), false, true},
		"up and down and up":        {set(9, 1, 4), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, other := dialShared(t, calm), dialShared(t, calm)
			path, count := newPath(t), newPath(t)
			setCount(t, c, count, 3)
			held, err := NewCountedSemaphore(other, path, count).Acquire(within(t, 5*time.Second), 1)
			require.NoError(t, err)
			one := goLock(context.Background(), NewCountedSemaphore(s, path, count).Locker(3))
			eventually(t, 5*time.Second, "it waits", func() bool { return len(leasesOf(t, c, path)) == 4 })
			two := goLock(context.Background(), NewCountedSemaphore(other, path, count).Locker(1))
			eventually(t, 5*time.Second, "somebody queues", func() bool { return len(children(t, c, path+"/locks")) == 2 })
			tc.change(t, count)
			switch {
			case tc.ends:
				for _, ch := range []<-chan lockResult{one, two} {
					r := <-ch
					require.ErrorIs(t, r.err, ErrInvalid)
					require.ErrorContains(t, r.err, count)
				}
			case tc.granted:
				l := mustLease(t, one)
				require.NoError(t, held.Err())
				require.NoError(t, l.Release(within(t, 5*time.Second)))
				require.NoError(t, mustLease(t, two).Release(within(t, 5*time.Second)))
			default:
				require.NoError(t, held.Err())
				require.Empty(t, one)
				require.NoError(t, held.Release(within(t, 5*time.Second)))
				require.NoError(t, mustLease(t, one).Release(within(t, 5*time.Second)))
				require.NoError(t, mustLease(t, two).Release(within(t, 5*time.Second)))
			}
			require.NoError(t, held.Release(within(t, 5*time.Second)))
			eventually(t, 5*time.Second, "nothing is left", func() bool {
				return len(leasesOf(t, c, path)) == 0 && len(children(t, c, path+"/locks")) == 0
			})
		})
	}
}

// Holders leave in every order (B106): each time the next one in the queue is granted, and nobody else.
// Reports: CURATOR-75.
func TestHoldersOfASemaphoreLeaveInEveryOrder(t *testing.T) {
	t.Parallel()
	s, path := dialShared(t, calm), newPath(t)
	m := NewSemaphore(s, path, 3)
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		var held []*Lease
		for range 3 {
			l, err := m.Acquire(within(t, 5*time.Second), 1)
			require.NoError(t, err)
			held = append(held, l)
		}
		var waiting []<-chan lockResult
		for i := range 3 {
			waiting = append(waiting, goLock(context.Background(), m.Locker(1)))
			eventually(t, 5*time.Second, "it queues", func() bool { return len(children(t, s.Conn(), path+"/locks")) == i+1 })
		}
		for i, leaves := range order {
			for _, ch := range waiting[i:] {
				require.Empty(t, ch)
			}
			require.NoError(t, held[leaves].Release(within(t, 5*time.Second)))
			held[leaves] = mustLease(t, waiting[i])
		}
		for _, l := range held {
			require.NoError(t, l.Release(within(t, 5*time.Second)))
		}
	}
}
