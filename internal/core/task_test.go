package core

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// However many tasks there are, a few goroutines run them, in the order in which they came, and all of them, also when Close comes in between; after that
// there are no new ones.
func TestTasks(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
		const n = 10 * workers
		var running, ran, last atomic.Int64
		gate := make(chan struct{})
		for i := range int64(n) {
			require.True(t, e.Soon(taskFunc(func() {
				last.Store(i)
				running.Add(1)
				<-gate
				running.Add(-1)
				ran.Add(1)
			})))
		}
		pass(0)
		require.EqualValues(t, workers, running.Load())
		for i := range int64(workers) {
			gate <- struct{}{}
			pass(0)
			require.EqualValues(t, workers, running.Load())
			require.Equal(t, workers+i, last.Load(), "the next one")
		}
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			closeWithin(e, time.Second)
		}()
		pass(time.Millisecond)
		close(gate)
		<-closed
		require.EqualValues(t, n, ran.Load())
		require.False(t, e.Soon(taskFunc(func() { t.Error("after Close") })))
	})
}

// Each of many subscribers to one path is woken until it has left, in whatever order they leave.
func TestSubscribersLeaveInAnyOrder(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
		const n = 5
		ls := make([]*listener, n)
		for i := range ls {
			ls[i] = subscribe(t, e, "/w", Data)
		}
		woken := make([]int, n)
		for gone, i := range []int{1, 4, 0, 3, 2} {
			e.hub.dispatch(zk.Event{Type: zk.EventNodeDataChanged, Path: "/w"})
			for j, l := range ls {
				if l != nil {
					woken[j]++
					require.Len(t, l.wakes, woken[j], "%d, when %d had left", j, gone)
				}
			}
			ls[i].Cancel()
			ls[i].Cancel()
			ls[i] = nil
		}
		require.Zero(t, e.Watched())
	})
}
