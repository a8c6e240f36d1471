package zkrecipes

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// rwSides are the ways to have a lease of a read/write lock, some with another lease of the same owner beside it.
var rwSides = map[string]func(r *rwRun) (l, beside *Lease){
	"read": func(r *rwRun) (l, beside *Lease) {
		l, err := r.lock.RLock(r.take())
		require.True(r, r.got(l, err))
		r.stands(l)
		return l, nil
	},
	"write":       func(r *rwRun) (l, beside *Lease) { r.write(false); return r.w, nil },
	"nested read": func(r *rwRun) (l, beside *Lease) { r.write(false); r.nest(); r.stands(r.r, r.w); return r.r, r.w },
	"write over a nested read": func(r *rwRun) (l, beside *Lease) {
		r.write(false)
		r.nest()
		r.stands(r.r, r.w)
		return r.w, r.r
	},
	"downgraded read": func(r *rwRun) (l, beside *Lease) {
		r.write(false)
		r.nest()
		r.stands(r.r, r.w)
		r.gives(r.w)
		return r.r, nil
	},
	"read in a mutex's znode": func(r *rwRun) (l, beside *Lease) {
		r.write(true)
		r.nest()
		r.gives(r.w)
		return r.r, nil
	},
}

// TestLateReadWriteReleaseNeverRemovesAnothersZnode is TestLateReleaseNeverRemovesAnothersZnode for each side of a read/write lock; a lease beside
// the one that is over goes on where it may.
func TestLateReadWriteReleaseNeverRemovesAnothersZnode(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	w := newCutWorld(t)
	ss := newSampledSides(t, 16)
	defer ss.wg.Wait()
	for side, take := range rwSides {
		ss.add(side+", session expired", func(t testing.TB) {
			r := w.newRWRun(t, 4*time.Second)
			l, beside := take(r)
			old := r.s.ID()
			r.begin()
			eventually(t, 10*time.Second, "the session is closed", func() bool { return r.p.Expire(within(t, 5*time.Second)) == nil })
			r.imitate(l)
			for _, l := range []*Lease{l, beside} {
				if l != nil {
					eventually(t, 10*time.Second, "the lease ends", func() bool { return l.Err() != nil })
					require.ErrorIs(t, l.Release(bg), ErrLost)
				}
			}
			r.untouched(l, old)
		})
		ss.add(side+", deleted by hand", func(t testing.TB) {
			r := w.newRWRun(t, 4*time.Second)
			l, beside := take(r)
			require.NoError(t, r.admin.Delete(l.Node(), -1))
			mustBeLost(t, l, ReasonNodeDeleted)
			r.imitate(l)
			r.begin()
			require.ErrorIs(t, l.Release(bg), ErrLost)
			if beside != nil {
				r.fixed = append(r.fixed, strings.TrimPrefix(beside.Node(), r.path+"/"))
			}
			r.untouched(l, 0)
			if beside != nil {
				require.NoError(t, beside.Err())
				r.gives(beside)
				r.fixed = nil
				r.untouched(l, 0)
			}
		})
		ss.add(side+", released before", func(t testing.TB) {
			r := w.newRWRun(t, 4*time.Second)
			l, beside := take(r)
			r.gives(l)
			if beside != nil {
				r.fixed = append(r.fixed, strings.TrimPrefix(beside.Node(), r.path+"/"))
			}
			r.exactly()
			r.imitate(l)
			r.begin()
			require.NoError(t, l.Release(bg))
			r.untouched(l, 0)
			require.NoError(t, l.Release(bg))
		})
		ss.add(side+", reply lost, directory made anew", func(t testing.TB) {
			r := w.newRWRun(t, 4*time.Second)
			l, beside := take(r)
			r.gives(beside)
			r.p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpDelete), Times: 1, Do: zktest.CutAfter()})
			require.NoError(t, l.Release(bg))
			r.exactly()
			require.NoError(t, r.admin.Delete(r.path, -1))
			r.mkdirs()
			next, err := r.lock.Lock(r.take())
			require.True(t, r.got(next, err))
			require.Equal(t, l.Node()[len(l.Node())-10:], next.Node()[len(next.Node())-10:], "the numbers are equal")
			require.Greater(t, next.Token(), l.Token())
			r.stands(next)
			r.begin()
			require.NoError(t, l.Release(bg))
			if beside != nil {
				require.NoError(t, beside.Release(bg))
			}
			r.p.Cut()
			_, err = r.s.Conn().Sync("/")
			for err != nil {
				_, err = r.s.Conn().Sync("/")
			}
			r.holds(next)
			require.NotContains(t, ops(r.requests()), "delete")
			r.gives(next)
			r.ends()
		})
	}
}

// TestReadAndWriteZnodesAreDeletedByHand deletes one znode of an owner that writes and reads. That lease is lost and the other one goes on, alone in
// its mode, as if the lost one had been released.
func TestReadAndWriteZnodesAreDeletedByHand(t *testing.T) {
	t.Parallel()
	w := newCutWorld(t)
	both := func(t testing.TB, mutex bool) *rwRun {
		r := w.newRWRun(t, 10*time.Second)
		r.write(mutex)
		require.True(t, r.nest())
		if !mutex {
			r.stands(r.r, r.w)
		}
		r.queue(true)
		r.queue(false)
		return r
	}
	t.Run("writer's", func(t *testing.T) {
		r := both(t, false)
		require.NoError(t, r.admin.Delete(r.w.Node(), -1))
		mustBeLost(t, r.w, ReasonNodeDeleted)
		r.holds(r.r)
		r.probe()
		again, err := r.lock.RLock(r.r.Context())
		require.NoError(t, err)
		require.Equal(t, r.r.Node(), again.Node())
		_, err = r.lock.Lock(r.r.Context())
		require.ErrorIs(t, err, ErrUpgrade)
		r.gives(again)
		r.holds(r.r)
		require.Nil(t, r.others[0].granted())
		r.gives(r.r)
		r.ends()
	})
	t.Run("reader's", func(t *testing.T) {
		r := both(t, false)
		require.NoError(t, r.admin.Delete(r.r.Node(), -1))
		mustBeLost(t, r.r, ReasonNodeDeleted)
		r.holds(r.w)
		r.probe()
		lost := r.r
		require.True(t, r.nest())
		require.NotEqual(t, lost.Node(), r.r.Node())
		r.holds(r.w, r.r)
		r.gives(r.w)
		r.holds(r.r)
		require.Nil(t, r.others[0].granted())
		r.gives(r.r)
		r.ends()
	})
	t.Run("mutex's, which both share", func(t *testing.T) {
		r := both(t, true)
		r.forced = true
		require.NoError(t, r.admin.Delete(r.w.Node(), -1))
		mustBeLost(t, r.w, ReasonNodeDeleted)
		mustBeLost(t, r.r, ReasonNodeDeleted)
		r.ends()
	})
	t.Run("writer's, before the nested read is made", func(t *testing.T) {
		r := w.newRWRun(t, 10*time.Second)
		r.write(false)
		r.queue(true)
		r.forced = true
		// The session hears of it when its transaction has been refused.
		gate := zktest.NewGate()
		defer gate.Open()
		r.p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldReply(gate)})
		r.p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpEvent), Times: 1, Do: zktest.DropReply()})
		require.NoError(t, r.admin.Delete(r.w.Node(), -1))
		got := lockedIn(func() (*Lease, error) { return r.lock.RLock(r.ctx()) })
		next(t, gate.Reached())
		gate.Open()
		l := mustLease(t, got)
		mustBeLost(t, r.w, ReasonNodeDeleted)
		require.Greater(t, l.Token(), r.others[0].granted().Token(), "it queued like anybody else")
		require.True(t, r.got(l, nil))
		r.gives(l)
		r.p.Cut() // the client has a watch whose notice was dropped
		r.ends()
	})
}

// TestReadersPredecessorIsDeletedByHand deletes the writer for which a reader waits: the holder, which lets the reader in, or one that waits itself,
// which goes to the tail and lets nobody in.
func TestReadersPredecessorIsDeletedByHand(t *testing.T) {
	t.Parallel()
	bg, c, path := context.Background(), admin(t), newPath(t)
	first, err := NewRWLock(dialShared(t, calm), path).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	second := dialShared(t, calm)
	write := goLock(bg, NewRWLock(second, path))
	waitingFor(t, path, 2)
	node := nodeOf(t, c, path, second.ID())
	s, p := dialProxy(t, calm)
	read := goLock(bg, NewRWLock(s, path).RLocker())
	eventually(t, 5*time.Second, "the reader watches the second writer", func() bool {
		for _, q := range p.Requests() {
			if q.Op == zktest.OpGetData && q.Path == node && q.Answered {
				return true
			}
		}
		return false
	})

	require.NoError(t, c.Delete(node, -1))
	eventually(t, 5*time.Second, "the reader waits for the first writer", func() bool {
		for _, q := range p.Requests() {
			if q.Op == zktest.OpGetData && q.Path == first.Node() && q.Answered {
				return true
			}
		}
		return false
	})
	waitingFor(t, path, 3)
	require.NotEqual(t, node, nodeOf(t, c, path, second.ID()), "the second writer is at the tail")
	require.Empty(t, read)
	require.Empty(t, write)

	require.NoError(t, c.Delete(first.Node(), -1))
	r := mustLease(t, read)
	mustBeLost(t, first, ReasonNodeDeleted)
	require.Empty(t, write)
	require.NoError(t, r.Err())
	require.NoError(t, r.Release(bg))
	w := mustLease(t, write)
	require.Greater(t, w.Token(), r.Token())
	require.NoError(t, w.Release(bg))
	require.Empty(t, children(t, c, path))
}

// TestEqualOwnersInTwoSessionsReadAndWriteApart: the label in a znode is no proof, also for the rules that one owner has.
func TestEqualOwnersInTwoSessionsReadAndWriteApart(t *testing.T) {
	t.Parallel()
	bg, c, path := context.Background(), admin(t), newPath(t)
	a, b := NewRWLock(dialShared(t, calm), path, WithOwner("same")), NewRWLock(dialShared(t, calm), path, WithOwner("same"))
	limit := within(t, 20*time.Second)
	w, err := a.Lock(limit)
	require.NoError(t, err)
	_, err = b.TryRLock(limit)
	require.ErrorIs(t, err, ErrHeld, "it does not read under the other's write lease")
	read := goLock(bg, b.RLocker())
	waitingFor(t, path, 2)
	_, err = c.Set(w.Node(), []byte("somebody"), -1)
	require.NoError(t, err)
	r, err := a.RLock(limit)
	require.NoError(t, err)
	require.Empty(t, read)
	require.NoError(t, w.Release(bg))
	other := mustLease(t, read)
	require.NotEqual(t, r.Token(), other.Token())
	_, err = b.TryLock(limit)
	require.ErrorIs(t, err, ErrUpgrade)
	require.NoError(t, other.Release(bg))
	_, err = b.TryLock(limit)
	require.ErrorIs(t, err, ErrHeld, "a reader of that label stands in its way, and is another owner")
	write := goLock(bg, b)
	waitingFor(t, path, 2)
	require.NoError(t, r.Release(bg))
	w = mustLease(t, write)
	require.NoError(t, w.Release(bg))
	require.Empty(t, children(t, c, path))
}
