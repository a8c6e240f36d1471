package zkrecipes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// TestReleaseWhileDisconnectedIsFinished releases without a server, with a ctx that is over. The error says so; the znode goes as soon as there is a
// session; a second Release waits for that; and the same Mutex locks again.
// Reports: etcd-io/etcd #22123.
func TestReleaseWhileDisconnectedIsFinished(t *testing.T) {
	releaseWhileDisconnectedIsFinished(t)
}

func releaseWhileDisconnectedIsFinished(t testing.TB) {
	r := newCutWorld(t).newRun(t, 10*time.Second)
	l, err := r.m.Lock(within(t, 5*time.Second))
	l = r.holding(l, err)
	r.p.Refuse(true)
	eventually(t, 5*time.Second, "the session notices", func() bool { return r.s.State() == StateSuspended })
	reason := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(reason)
	for range 2 {
		err = l.Release(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, reason)
		require.ErrorIs(t, err, ErrNoConnection)
		require.NotErrorIs(t, err, ErrLost)
		require.ErrorIs(t, l.Err(), ErrReleased)
	}
	r.exactly(l.Node())
	r.p.Refuse(false)
	require.NoError(t, l.Release(within(t, 5*time.Second)))
	r.exactly()
	require.NoError(t, l.Release(ctx))
	r.settled()
}

// imitate makes a znode of somebody else's under the name of a lease's.
func (r *cutRun) imitate(l *Lease) {
	r.Helper()
	_, err := r.admin.Create(l.Node(), []byte("theirs"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(r, err)
}

// untouched has a session release a lease that is over once more, in a new epoch twice, and checks that the imitation of its znode stays. The session
// is not that old one.
func (r *cutRun) untouched(l *Lease, old int64) {
	r.Helper()
	bg := context.Background()
	// The session has a new epoch in which it could do harm, twice.
	eventually(r, 10*time.Second, "a session", func() bool { return r.s.ID() != old && r.s.State() == StateConnected })
	other, err := NewMutex(r.s, r.path+"-other").Lock(within(r, 5*time.Second))
	require.NoError(r, err)
	require.NoError(r, other.Release(bg))
	_ = l.Release(bg)
	id := r.s.ID()
	r.p.Cut()
	_, err = r.s.Conn().Sync("/")
	for err != nil {
		_, err = r.s.Conn().Sync("/")
	}
	require.Equal(r, id, r.s.ID())
	r.exactly(l.Node())
	data, _, err := r.admin.Get(l.Node())
	require.NoError(r, err)
	require.Equal(r, "theirs", string(data))
	for _, q := range r.requests() {
		// In the session that is over the server answers no request any more.
		require.False(r, q.Op == zktest.OpDelete && q.Path == l.Node() && q.Answered, "%s", ops(r.requests()))
	}
}

// TestLateReleaseNeverRemovesAnothersZnode makes somebody else's znode under the very name of a lease's that is over. Nothing that the old holder
// does afterwards may touch it, nor anything that was under way.
// Reports: zk-ruby/zk #34.
func TestLateReleaseNeverRemovesAnothersZnode(t *testing.T) {
	t.Parallel()
	lateReleaseNeverRemovesAnothersZnode(t)
}

func lateReleaseNeverRemovesAnothersZnode(t testing.TB) {
	bg := context.Background()
	w := newCutWorld(t)
	ss := newSides(t, 5)
	defer ss.wg.Wait()
	ss.add("session expired", func(t testing.TB) {
		r := w.newRun(t, testTimeout)
		l := r.holding(r.m.Lock(within(t, 5*time.Second)))
		old := r.s.ID()
		r.begin()
		// The client may re-attach in the middle of it, and take the connection with the close along.
		eventually(t, 5*time.Second, "the session is closed", func() bool { return r.p.Expire(within(t, 5*time.Second)) == nil })
		r.imitate(l)
		eventually(t, 5*time.Second, "the lease ends", func() bool { return l.Err() != nil })
		err := l.Release(bg)
		var lost *LostError
		require.ErrorAs(t, err, &lost)
		r.untouched(l, old)
	})
	ss.add("session expired while nobody could tell", func(t testing.TB) {
		r := w.newRun(t, testTimeout)
		l := r.holding(r.m.Lock(within(t, 5*time.Second)))
		old := r.s.ID()
		r.begin()
		r.p.BlackHole(zktest.Both)
		<-l.Done()
		require.ErrorIs(t, l.Release(bg), ErrLost)
		eventually(t, 10*time.Second, "the server expires it", func() bool { return len(children(t, r.admin, r.path)) == 0 })
		r.imitate(l)
		r.p.BlackHole(zktest.None)
		r.untouched(l, old)
	})
	ss.add("released while nobody could tell", func(t testing.TB) {
		r := w.newRun(t, testTimeout)
		l := r.holding(r.m.Lock(within(t, 5*time.Second)))
		old := r.s.ID()
		r.begin()
		r.p.Refuse(true)
		require.Error(t, l.Release(within(t, 10*time.Millisecond)))
		eventually(t, 10*time.Second, "the server expires it", func() bool { return len(children(t, r.admin, r.path)) == 0 })
		r.imitate(l)
		r.p.Refuse(false)
		r.untouched(l, old)
	})
	ss.add("deleted by hand", func(t testing.TB) {
		r := w.newRun(t, testTimeout)
		l := r.holding(r.m.Lock(within(t, 5*time.Second)))
		require.NoError(t, r.admin.Delete(l.Node(), -1))
		<-l.Done()
		r.imitate(l)
		r.begin()
		require.ErrorIs(t, l.Release(bg), ErrLost)
		r.untouched(l, 0)
	})
	ss.add("released before", func(t testing.TB) {
		r := w.newRun(t, testTimeout)
		l := r.holding(r.m.Lock(within(t, 5*time.Second)))
		r.release(l)
		r.imitate(l)
		r.begin()
		require.NoError(t, l.Release(bg))
		r.untouched(l, 0)
		require.NoError(t, l.Release(bg))
	})
}
