package zkrecipes

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/snapshot"
	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// startAt starts a server with directories whose next sequence numbers are these.
func startAt(t *testing.T, counters map[string]int32) (addrs []string) {
	t.Helper()
	if !testrun.Real() {
		s := zktest.NewServer(t)
		put(t, adminAt(t, []string{s.Addr()}), slices.Collect(maps.Keys(counters))...)
		for dir, n := range counters {
			require.True(t, s.SetCounter(dir, n))
		}
		return []string{s.Addr()}
	}
	e := zktest.Start(t, zktest.SystemProperty("zookeeper.digest.enabled", "false"))
	c := adminAt(t, e.Addrs())
	put(t, c, slices.Collect(maps.Keys(counters))...)
	require.NoError(t, snapshot.SetCounters(within(t, 10*time.Second), e.Server(0), counters))
	return e.Addrs()
}

// A directory whose counter is at its limit: numbers stick, repeat, and run backwards in a burst (experiment B77). Nobody may
// overtake a holder, and waiters are granted in the order of their creation.
// Reports: python-zk/kazoo #606, python-zk/kazoo #730, ZOOKEEPER-2944, ZOOKEEPER-4706.
func TestDirectoryAtTheLimit(t *testing.T) {
	const dir = "/at-the-limit"
	addrs := startAt(t, map[string]int32{dir: 1<<31 - 4})
	bg := context.Background()
	var sessions []*Session
	for range 4 {
		sessions = append(sessions, dial(t, addrs, WithTimeout(4*time.Second)))
	}
	numbers := make(map[string]bool)
	var mu sync.Mutex
	var tokens []Token
	inside := 0
	enter := func(l *Lease) {
		mu.Lock()
		defer mu.Unlock()
		inside++
		if inside != 1 {
			t.Error("two holders")
		}
		tokens = append(tokens, l.Token())
		numbers[l.Node()[len(l.Node())-11:]] = true
	}
	leave := func() {
		mu.Lock()
		inside--
		mu.Unlock()
	}
	first, err := NewMutex(sessions[0], dir).Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	enter(first)
	var wg sync.WaitGroup
	work := func(i int) {
		wg.Go(func() {
			l, err := NewMutex(sessions[i%len(sessions)], dir).Lock(bg)
			if err != nil {
				t.Error(err)
				return
			}
			enter(l)
			if err := l.Err(); err != nil {
				t.Error(err)
			}
			leave()
			if err := l.Release(bg); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range 6 { // one at a time: the number sticks
		work(i)
		eventually(t, 10*time.Second, "queued", func() bool { return len(children(t, sessions[0].Conn(), dir)) == i+2 })
	}
	for i := range 12 { // a burst: the counter wraps
		work(i)
	}
	eventually(t, 10*time.Second, "all queued", func() bool { return len(children(t, sessions[0].Conn(), dir)) == 19 })
	_, err = NewMutex(sessions[1], dir).TryLock(bg)
	require.ErrorIs(t, err, ErrHeld)
	ps, err := NewMutex(sessions[1], dir).Participants(bg)
	require.NoError(t, err)
	require.Equal(t, first.Node(), ps[0].Node)
	leave()
	require.NoError(t, first.Release(bg))
	wg.Wait()
	require.Len(t, tokens, 19)
	require.IsIncreasing(t, tokens)
	require.True(t, numbers["-2147483647"], "the limit was reached: %v", numbers)
	require.Empty(t, children(t, sessions[0].Conn(), dir))
}

// Somebody makes a child with a number at the limit while a reader holds in its writer's old place and a writer waits. From then on the order is that
// of creation, in which that reader is the later one: it stands before the writer all the same.
func TestHandMadeNumberAtTheLimitLetsNobodyIn(t *testing.T) {
	t.Parallel()
	a, c := dialShared(t, calm), admin(t)
	b, p := dialProxy(t, calm)
	path := newPath(t)
	ctx := within(t, 30*time.Second)
	w, err := NewRWLock(a, path).Lock(ctx)
	require.NoError(t, err)
	next := goLock(ctx, NewRWLock(b, path))
	waitingFor(t, path, 2)
	r, err := NewRWLock(a, path).RLock(w.Context())
	require.NoError(t, err)
	require.NoError(t, w.Release(ctx))
	put(t, c, path+"/lock-2147483647")
	all := p.Requests()
	before := all[len(all)-1].Conn
	p.Cut()
	looked := func() bool { // at each znode of the list, and then it watches
		n := 0
		for _, q := range p.Requests() {
			if q.Op == zktest.OpGetData && q.Path == r.Node() && q.Answered && q.Conn > before {
				n++
			}
		}
		return n > 0
	}
	eventually(t, 10*time.Second, "it waits for the reader, or is granted", func() bool { return looked() || len(next) > 0 })
	require.Empty(t, next, "granted beside the reader")
	require.NoError(t, r.Err())
	require.NoError(t, c.Delete(path+"/lock-2147483647", -1))
	require.NoError(t, r.Release(ctx))
	require.NoError(t, mustLease(t, next).Release(ctx))
}
