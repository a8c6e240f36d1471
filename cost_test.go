package zkrecipes

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkCycle is a Lock and Release of a free lock. The objects are those of the whole process: on a real server, of this library and its client.
func BenchmarkCycle(b *testing.B) {
	ctx := context.Background()
	m := NewMutex(dialShared(b), newPath(b))
	b.ReportAllocs()
	for b.Loop() {
		l, err := m.Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWaiter tells what a waiter takes of the heap beside the goroutine that called, and how many goroutines: a thousand of one session, for one lock.
// It says what it is called for on a real server; that of zktest is in this process.
func BenchmarkWaiter(b *testing.B) {
	const n = 1000
	s := dialShared(b)
	for b.Loop() {
		path := newPath(b)
		held, err := NewMutex(s, path).Lock(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		begin, callers := make(chan struct{}), sync.WaitGroup{}
		for range n {
			m := NewMutex(s, path)
			callers.Go(func() {
				<-begin
				_, _ = m.Lock(ctx)
			})
		}
		before := weigh()
		close(begin)
		eventually(b, time.Minute, "all wait", func() bool { return len(children(b, s.Conn(), path)) == n+1 && atRest() })
		waiter := weigh().per(n, before)
		b.ReportMetric(float64(waiter.heap), "B/waiter")
		b.ReportMetric(float64(waiter.goroutines), "goroutines/waiter")
		cancel()
		callers.Wait()
		_ = held.Release(context.Background())
	}
	b.ReportMetric(0, "ns/op")
}

// atRest waits until this process makes next to nothing: what was under way has been answered.
func atRest() bool {
	made := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.Mallocs
	}
	before := made()
	<-time.After(300 * time.Millisecond)
	return made()-before < 1000
}

// An owner that enters again, and leaves, makes its lease, and nothing else.
func TestReentryMakesOneObject(t *testing.T) {
	if raceEnabled {
		return // it makes objects of its own
	}
	ctx := context.Background()
	m := NewMutex(dialShared(t), newPath(t), WithOwner("again"))
	l, err := m.Lock(ctx)
	require.NoError(t, err)
	require.LessOrEqual(t, testing.AllocsPerRun(10000, func() {
		again, err := m.Lock(ctx)
		if err != nil || again.Release(ctx) != nil {
			t.Error(err)
		}
	}), 1.0)
	require.NoError(t, l.Release(ctx))
}
