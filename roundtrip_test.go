package zkrecipes

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// writes are the requests that change something.
var writes = []zktest.Op{zktest.OpCreate, zktest.OpCreate2, zktest.OpCreateContainer, zktest.OpCreateTTL, zktest.OpDelete, zktest.OpSetData, zktest.OpMulti}

func TestFailedTryLockIsOneReadAndNoWrite(t *testing.T) {
	holder := dialShared(t)
	s, p := dialProxy(t)
	bg := context.Background()
	path := newPath(t)
	l, err := NewMutex(holder, path).Lock(bg)
	require.NoError(t, err)
	p.ResetCounters()
	began := time.Now()
	const n = 20
	for range n {
		_, err := NewMutex(s, path).TryLock(bg)
		require.ErrorIs(t, err, ErrHeld)
	}
	counts := p.Counts().Requests
	require.Equal(t, n, counts[zktest.OpGetChildren2])
	delete(counts, zktest.OpGetChildren2)
	delete(counts, zktest.OpPing)
	require.LessOrEqual(t, counts[zktest.OpSync], 2+int(time.Since(began)/(testTimeout/6)), "the heartbeat, at most")
	delete(counts, zktest.OpSync)
	require.Empty(t, counts)
	require.NoError(t, l.Release(bg))
}

// A free lock: create, list and own watch, delete.
func TestRequestsOfAFreeLock(t *testing.T) {
	s, p := dialProxy(t, calm)
	bg, path := context.Background(), newPath(t)
	put(t, admin(t), path) // no container, which may go between two cycles
	m := NewMutex(s, path)
	cycle := func() {
		l, err := m.Lock(bg)
		require.NoError(t, err)
		require.NoError(t, l.Release(bg))
	}
	cycle()
	p.ResetCounters()
	const n = 100
	for range n {
		cycle()
	}
	c := p.Counts()
	require.Equal(t, n, c.Requests[zktest.OpCreate])
	require.Equal(t, n, c.Requests[zktest.OpDelete])
	// The list that goes out behind the create is the only one; on a busy machine it may miss its create now and then.
	require.InDelta(t, n, c.Requests[zktest.OpGetChildren2], n/20)
	require.LessOrEqual(t, c.Requests[zktest.OpGetData], n+1) // that of the cycle before may be late
	for _, op := range writes {
		if op != zktest.OpCreate && op != zktest.OpDelete {
			require.Zero(t, c.Requests[op])
		}
	}
}

// A hand-over wakes one waiter, whatever the length of the queue, and costs a handful of requests.
// Reports: kazoo commit 7dd4c4c.
func TestAHandOverWakesOneWaiter(t *testing.T) {
	bg := context.Background()
	path := newPath(t)
	holder := dialShared(t, calm)
	l, err := NewMutex(holder, path).Lock(bg)
	require.NoError(t, err)
	const waiters = 10
	var proxies []*zktest.Proxy
	var got []<-chan lockResult
	for i := range waiters {
		s, p := dialProxy(t, WithTimeout(10*time.Second))
		proxies = append(proxies, p)
		got = append(got, goLock(bg, NewMutex(s, path)))
		waitingFor(t, path, i+2)
	}
	eventually(t, 5*time.Second, "all wait", func() bool {
		for _, p := range proxies {
			if p.Counts().Requests[zktest.OpGetData] < 2 {
				return false
			}
		}
		return true
	})
	for i := range waiters {
		for _, p := range proxies {
			p.ResetCounters()
		}
		require.NoError(t, l.Release(bg))
		l = mustLease(t, got[i])
		for j, p := range proxies {
			c := p.Counts()
			switch {
			case j == i-1: // who released, and is told that its own znode went
			case j != i:
				require.Zero(t, c.Events, "waiter %d was woken by hand-over %d", j, i)
				require.Zero(t, c.Total()-c.Requests[zktest.OpSync])
			case i == 0 && !shortcutsOff():
				require.Zero(t, c.Requests[zktest.OpGetChildren2], "its list had shown that it was next")
			default:
				require.Equal(t, 1, c.Requests[zktest.OpGetChildren2])
			}
		}
	}
	require.NoError(t, l.Release(bg))
}

// BenchmarkRoundTrips measures Lock and Release of a free lock through a proxy that delays each direction, at two delays. The slope of the time over
// the delay is the number of round trips, free of what this machine takes for the rest. go test -run '^$' -bench RoundTrips .
func BenchmarkRoundTrips(b *testing.B) {
	const near, far = 20 * time.Millisecond, 80 * time.Millisecond
	per := make(map[time.Duration]time.Duration)
	for _, rtt := range []time.Duration{0, near, far} {
		b.Run(fmt.Sprintf("rtt=%v", rtt), func(b *testing.B) {
			benchmarkCycle(b, rtt)
			per[rtt] = b.Elapsed() / time.Duration(b.N)
			if rtt == far && per[near] > 0 {
				trips := float64(per[far]-per[near]) / float64(far-near)
				b.ReportMetric(trips, "round-trips")
				if trips > 2.3 {
					b.Errorf("%.2f round trips, the target is at most 2.3", trips)
				}
			}
		})
	}
}

func benchmarkCycle(b *testing.B, rtt time.Duration) {
	p := zktest.NewProxy(b, zktest.Shared(b).Addrs()[0])
	s := dial(b, []string{p.Addr()}, WithTimeout(20*time.Second))
	ctx := context.Background()
	m := NewMutex(s, newPath(b))
	cycle := func() {
		l, err := m.Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
	cycle()
	p.Delay(rtt / 2)
	for b.Loop() {
		cycle()
	}
	b.StopTimer()
	p.Delay(0)
}

// BenchmarkReentry is a Lock and Release by an owner that holds already.
func BenchmarkReentry(b *testing.B) {
	s := dialShared(b)
	ctx := context.Background()
	m := NewMutex(s, newPath(b), WithOwner("bench"))
	l, err := m.Lock(ctx)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		again, err := m.Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		_ = again.Release(ctx)
	}
	_ = l.Release(ctx)
}

// BenchmarkErr is what a holder pays to ask whether it still holds.
func BenchmarkErr(b *testing.B) {
	l, err := NewMutex(dialShared(b), newPath(b)).Lock(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if l.Err() != nil {
			b.Fatal(l.Err())
		}
	}
	_ = l.Release(context.Background())
}
