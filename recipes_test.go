package zkrecipes

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// TestRecipes is what a service may count on, told on three nodes of which one is lost now and then. The other tests take each promise apart.
// Reports: CURATOR-444.
func TestRecipes(t *testing.T) {
	t.Parallel()
	e := startThreeNodes(t)
	w := &scenario{e: e, look: adminAt(t, e.Addrs())}
	t.Run("one at a time", w.oneAtATime)
	t.Run("a waiter gives up", w.waiterGivesUp)
	t.Run("the holder's node is cut off", w.nodeCutOff)
	t.Run("the holder's node stops", w.nodeStops)
	t.Run("nothing is left", w.nothingLeft)
}

type scenario struct {
	e     threeNodes
	look  *zk.Conn
	paths []string // of all scenarios, for the last one
}

func (w *scenario) path(t testing.TB) string {
	w.paths = append(w.paths, newPath(t))
	return w.paths[len(w.paths)-1]
}

// Two processes work under one lock: Do takes it, runs the work, and gives it back. They never work at once.
func (w *scenario) oneAtATime(t *testing.T) {
	const each = 10
	path := w.path(t)
	var working, done atomic.Int64
	errs := make(chan error, 2)
	for range 2 {
		session := dial(t, w.e.Addrs()) // one per process, and here one for each that stands for a process
		go func() {
			mutex := NewMutex(session, path)
			for range each {
				err := Do(within(t, 60*time.Second), mutex, func(ctx context.Context) error {
					if working.Add(1) != 1 {
						return errors.New("the other one works, too")
					}
					defer working.Add(-1)
					done.Add(1)
					return ctx.Err() // it would end with the lease
				})
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
	require.EqualValues(t, 2*each, done.Load())
}

// A wait ends with its ctx. The error says who was ahead, and the queue is as if the waiter had never been there.
func (w *scenario) waiterGivesUp(t *testing.T) {
	path := w.path(t)
	holder, waiter := dial(t, w.e.Addrs()), dial(t, w.e.Addrs())
	lease, err := NewMutex(holder, path).Lock(within(t, 20*time.Second))
	require.NoError(t, err)

	_, err = NewMutex(waiter, path).Lock(within(t, 3*time.Second))
	require.ErrorIs(t, err, ErrHeld)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	failure, ok := errors.AsType[*Error](err)
	require.True(t, ok)
	require.Equal(t, lease.Token(), failure.Ahead[0].Token)

	w.soon(t, "the holder is alone", path, 1)
	require.NoError(t, lease.Err())
	require.NoError(t, lease.Release(within(t, 20*time.Second)))
}

// A node loses its network. Who is connected to it hears nothing, which may mean that the session goes on or that it does not. A holder that finds another
// node in time carries on. One that does not is told that its lease is over, before the ensemble can end the session: only after that is its waiter let in.
func (w *scenario) nodeCutOff(t *testing.T) {
	const timeout = 3 * time.Second
	moving, waiter := dial(t, w.e.Addrs(), WithTimeout(timeout)), dial(t, w.e.Addrs(), WithTimeout(timeout))
	node := servedBy(t, w.e, moving)
	stuck := dial(t, w.e.Addrs()[node:node+1], WithTimeout(timeout)) // it knows no other node

	held := map[*Session]*Lease{}
	granted := map[*Session]<-chan *Lease{}
	for _, holder := range []*Session{moving, stuck} {
		path := w.path(t)
		lease, err := NewMutex(holder, path).Lock(within(t, 20*time.Second))
		require.NoError(t, err)
		held[holder], granted[holder] = lease, w.queue(t, waiter, path, lease)
	}
	require.NoError(t, w.e.Cut(node))

	<-held[stuck].Done()
	lost, ok := errors.AsType[*LostError](held[stuck].Err())
	require.True(t, ok, held[stuck].Err())
	require.Equal(t, ReasonUnconfirmed, lost.Reason)
	next := <-granted[stuck]
	require.NotNil(t, next)
	require.Greater(t, next.Token(), held[stuck].Token())
	require.NoError(t, next.Release(within(t, 20*time.Second)))

	// What became of the other lease is a matter of milliseconds. If it lives, it is good.
	if err := held[moving].Release(within(t, 20*time.Second)); !errors.Is(err, ErrLost) {
		require.NoError(t, err)
	}
	next = <-granted[moving]
	require.NotNil(t, next)
	require.Greater(t, next.Token(), held[moving].Token())
	require.NoError(t, next.Release(within(t, 20*time.Second)))

	require.NoError(t, w.e.Heal(node))
	require.NoError(t, w.e.WaitReady(within(t, 60*time.Second)))
	again, err := NewMutex(stuck, held[stuck].Path()).Lock(within(t, 20*time.Second)) // a Session outlives its sessions
	require.NoError(t, err)
	require.NoError(t, again.Release(within(t, 20*time.Second)))
}

// The node that a holder is connected to stops, which its clients notice at once. They move to another node, and neither the lease nor the place in the
// queue is touched.
func (w *scenario) nodeStops(t *testing.T) {
	path := w.path(t)
	// Time enough for an election, in case it is the leader that stops.
	holder, waiter := dial(t, w.e.Addrs(), WithTimeout(30*time.Second)), dial(t, w.e.Addrs(), WithTimeout(30*time.Second))
	id := holder.ID()
	lease, err := NewMutex(holder, path).Lock(within(t, 20*time.Second))
	require.NoError(t, err)
	granted := w.queue(t, waiter, path, lease)

	node := servedBy(t, w.e, holder)
	require.NoError(t, w.e.Stop(node))
	eventually(t, 20*time.Second, "another node has the holder", func() bool { return servedBy(t, w.e, holder) != node })
	require.NoError(t, lease.Err())
	require.Equal(t, id, holder.ID(), "the session is the same")
	w.soon(t, "both kept their places", path, 2)

	require.NoError(t, lease.Release(within(t, 20*time.Second)))
	next := <-granted
	require.NotNil(t, next)
	require.NoError(t, next.Release(within(t, 20*time.Second)))
	require.NoError(t, w.e.Start(node))
	require.NoError(t, w.e.WaitReady(within(t, 60*time.Second)))
}

// Whatever became of the sessions and nodes, no znode is left behind that somebody would wait for.
func (w *scenario) nothingLeft(t *testing.T) {
	for _, path := range w.paths {
		w.soon(t, "nobody is left in "+path, path, 0)
	}
}

// queue has a session wait for a lock that is held, and returns when it stands in the queue. What comes from the channel is its lease, nil after an error.
func (w *scenario) queue(t testing.TB, s *Session, path string, held *Lease) <-chan *Lease {
	t.Helper()
	granted := make(chan *Lease, 1)
	go func() {
		lease, err := NewMutex(s, path).Lock(within(t, 60*time.Second))
		if err != nil {
			t.Error(err)
		} else if held.Err() == nil {
			t.Error("granted while the other holder believes in its lease")
		}
		granted <- lease
	}()
	w.soon(t, "the waiter queues", path, 2)
	return granted
}

// soon waits until a lock has so many contenders, while nodes come and go.
func (w *scenario) soon(t testing.TB, what, path string, contenders int) {
	t.Helper()
	eventually(t, 30*time.Second, what, func() bool {
		if _, err := w.look.Sync(path); err != nil {
			return false
		}
		names, _, err := w.look.Children(path)
		return len(names) == contenders && (err == nil || contenders == 0 && errors.Is(err, zk.ErrNoNode))
	})
}
