package zkrecipes

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// Who stands before a waiter goes between the list that shows it and the read that sets the watch. That read finds nothing, so no event will come: it means
// look again, at once (helix PR #44 slept for ever), and never costs the own place (CURATOR-645: two candidates made each other begin anew without end).
// Reports: FLINK-28078, apache/helix #44, CURATOR-527.
func TestPredecessorGoesBeforeTheWatchIsSet(t *testing.T) {
	t.Parallel()
	for name, locker := range lockers {
		for _, chain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, behind a waiter=%v", name, chain), func(t *testing.T) {
				t.Parallel()
				bg, path := context.Background(), newPath(t)
				holders := dialShared(t, calm)
				s, p := dialProxy(t, calm)
				first, err := NewMutex(holders, path).Lock(bg)
				require.NoError(t, err)
				before := first.Node()
				ctx, cancel := context.WithCancel(bg)
				defer cancel()
				var leaves <-chan lockResult
				if chain { // the one before is a waiter that gives up
					leaves = goLock(ctx, NewMutex(holders, path))
					waitingFor(t, path, 2)
					ps, err := NewMutex(holders, path).Participants(within(t, 5*time.Second))
					require.NoError(t, err)
					before = ps[1].Node
				}
				gate := zktest.NewGate()
				defer gate.Open()
				p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpGetData, before), Times: 1, Do: zktest.HoldRequest(gate)})
				got := goLock(bg, locker(s, path))
				next(t, gate.Reached())
				if chain {
					cancel()
					require.ErrorIs(t, (<-leaves).err, context.Canceled)
					look := admin(t)
					eventually(t, 5*time.Second, "it has gone", func() bool {
						ok, _, err := look.Exists(before)
						require.NoError(t, err)
						return !ok
					})
				} else {
					require.NoError(t, first.Release(bg))
				}
				gate.Open()
				if chain {
					require.NoError(t, first.Release(bg))
				}
				l := mustLease(t, got)
				require.NoError(t, l.Release(bg))
				require.Equal(t, 1, p.Counts().Requests[zktest.OpCreate], "it has kept its place")
			})
		}
	}
}

// When the only one in the way has gone before its watch is set, the answer that it is not there is the grant; nobody lists again.
func TestPredecessorThatIsGoneIsNotListedAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		option DialOption
		lists  int
	}{"shortcuts": {withShortcuts, 1}, "no shortcuts": {withoutShortcuts, 2}} {
		t.Run(name, func(t *testing.T) {
			bg, path := context.Background(), newPath(t)
			first, err := NewMutex(dialShared(t, calm), path).Lock(bg)
			require.NoError(t, err)
			s, p := dialProxy(t, calm, tt.option)
			gate := zktest.NewGate()
			defer gate.Open()
			p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpGetData, first.Node()), Times: 1, Do: zktest.HoldRequest(gate)})
			got := goLock(bg, NewMutex(s, path))
			next(t, gate.Reached())
			require.NoError(t, first.Release(bg))
			gate.Open()
			l := mustLease(t, got)
			require.Equal(t, tt.lists, p.Counts().Requests[zktest.OpGetChildren2])
			require.NoError(t, l.Release(bg))
		})
	}
}

// Somebody deletes the znode of a waiter, then the holder gives its own up, and the next one is granted. All that the waiter has asked is whether the holder's
// znode is there: the answer that it is not comes behind the notice of its own loss, and must not be taken before it.
func TestPredecessorThatIsGoneDecidesNothingBeforeAnEarlierEvent(t *testing.T) {
	t.Parallel()
	bg, path := context.Background(), newPath(t)
	others := dialShared(t, calm)
	first, err := NewMutex(others, path).Lock(bg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	leaves := goLock(ctx, NewMutex(others, path))
	waitingFor(t, path, 2)
	s, p := dialProxy(t, calm, withShortcuts)
	got := goLock(bg, NewMutex(s, path))
	waitingFor(t, path, 3)
	gate := zktest.NewGate()
	defer gate.Open()
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpGetData, first.Node()), Times: 1, Do: zktest.HoldRequest(gate)})
	cancel()
	require.ErrorIs(t, (<-leaves).err, context.Canceled)
	next(t, gate.Reached()) // it has looked again, and its own znode is watched since it looked first
	look := admin(t)
	own := secondOf(t, look, path, first.Node())
	third := goLock(bg, NewMutex(others, path))
	waitingFor(t, path, 3)

	reached, goOn := make(chan struct{}), make(chan struct{})
	require.True(t, s.engine.Behind(func() { close(reached); <-goOn })) // whoever tells events on does not get to run
	next(t, reached)
	require.NoError(t, look.Delete(own, -1))
	require.NoError(t, first.Release(bg))
	l := mustLease(t, third)
	gate.Open()
	select {
	case r := <-got:
		t.Errorf("granted beside another one: %v", r)
	case <-time.After(200 * time.Millisecond):
	}
	close(goOn)
	waitingFor(t, path, 2) // it queues again
	require.NoError(t, l.Release(bg))
	require.Greater(t, mustLease(t, got).Token(), l.Token())
}

// The read of the one in the way is refused, and its znode is there: that is no deletion.
func TestPredecessorThatIsNotReadIsNotGone(t *testing.T) {
	t.Parallel()
	server := zktest.NewServer(t)
	bg, path := context.Background(), newPath(t)
	first, err := NewMutex(dial(t, []string{server.Addr()}, calm), path).Lock(bg)
	require.NoError(t, err)
	eventually(t, 10*time.Second, "its holder has read it", func() bool { return serverWatches(server) == 1 })
	server.Fail(zktest.OpGetData, first.Node(), -127) // throttled
	p := zktest.NewProxy(t, server.Addr())
	got := goLock(bg, NewMutex(dial(t, []string{p.Addr()}, calm, withShortcuts), path))
	eventually(t, 10*time.Second, "it has asked again", func() bool { return requestsOn(p, zktest.OpGetData, first.Node()) > 1 || len(got) > 0 })
	require.Empty(t, got, "granted beside the holder")
	require.NoError(t, first.Release(bg))
	require.NoError(t, mustLease(t, got).Release(bg))
}

// secondOf returns the one znode of a queue of two that is not the first.
func secondOf(t testing.TB, c *zk.Conn, path, first string) (second string) {
	t.Helper()
	eventually(t, 10*time.Second, "two in the queue", func() bool {
		second = ""
		for _, name := range children(t, c, path) {
			if node := path + "/" + name; node != first {
				second = node
			}
		}
		return second != ""
	})
	return second
}

// Four wait behind a holder and give up in every order there is, and each time those that are left are granted in the order in which they came. A lock in C
// chose its neighbour by a wrong comparison (ZOOKEEPER-3162), and one in Java by whole names, with the id of the session in front (ZOOKEEPER-2931).
// Reports: shayhatsor/zookeeper #4.
func TestWaitersLeaveInEveryOrder(t *testing.T) {
	t.Parallel()
	const waiters = 4
	ss := newSampledSides(t, 8)
	defer ss.wg.Wait()
	var sessions []*Session
	for range waiters + 1 {
		sessions = append(sessions, dialShared(t, calm))
	}
	var orders func(done, rest []int)
	orders = func(done, rest []int) {
		if len(rest) == 0 {
			ss.add(fmt.Sprint(done), func(t testing.TB) { waitersLeave(t, sessions, done) })
			return
		}
		for i, n := range rest {
			others := append(append([]int{}, rest[:i]...), rest[i+1:]...)
			orders(append(append([]int{}, done...), n), others)
		}
	}
	orders(nil, []int{0, 1, 2, 3})
}

// waitersLeave lets the first two of an order give up, and the others be granted. The session of the i-th waiter is as far from the first as its place.
func waitersLeave(t testing.TB, sessions []*Session, order []int) {
	bg, path := context.Background(), newPath(t)
	holder, err := NewMutex(sessions[len(order)], path).Lock(bg)
	require.NoError(t, err)
	results := make([]<-chan lockResult, len(order))
	cancels := make([]context.CancelFunc, len(order))
	for i := range order {
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		s := sessions[(i+order[0])%len(order)] // ids of sessions in another order than places
		results[i], cancels[i] = goLock(ctx, NewMutex(s, path)), cancel
		waitingFor(t, path, 2+i)
	}
	gone := make(map[int]bool)
	for _, n := range order[:2] {
		cancels[n]()
		require.ErrorIs(t, (<-results[n]).err, context.Canceled)
		gone[n] = true
	}
	waitingFor(t, path, 1+len(order)-len(gone))
	last := holder
	for i := range order {
		if gone[i] {
			continue
		}
		for j := i; j < len(order); j++ {
			if !gone[j] {
				require.Empty(t, results[j])
			}
		}
		require.NoError(t, last.Release(bg))
		l := mustLease(t, results[i])
		require.Greater(t, l.Token(), last.Token())
		last = l
	}
	require.NoError(t, last.Release(bg))
}
