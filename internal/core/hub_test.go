package core

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A listener is a subscriber that counts its wake-ups.
type listener struct {
	*Sub
	wakes chan Wake
}

func subscribe(t testing.TB, e *Engine, path string, kind Kind) *listener {
	l := &listener{wakes: make(chan Wake, 10_000)}
	l.Sub = e.Watch(path, kind, func(w Wake) { l.wakes <- w })
	t.Cleanup(l.Cancel)
	return l
}

func (l *listener) arm(t testing.TB) (Node, Span) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	n, span, err := l.Arm(ctx)
	require.NoError(t, err)
	return n, span
}

func (l *listener) next(t testing.TB) Wake {
	t.Helper()
	select {
	case w := <-l.wakes:
		return w
	case <-time.After(15 * time.Second):
		t.Fatal("not woken")
		panic("unreachable")
	}
}

func (l *listener) quiet(t testing.TB) {
	t.Helper()
	require.Empty(t, l.wakes)
}

// reads counts the reads of a path that went through the proxy.
func reads(p *zktest.Proxy, path string) (n int) {
	for _, r := range p.Requests() {
		switch r.Op {
		case zktest.OpGetData, zktest.OpGetChildren2, zktest.OpExists:
			if r.Path == path {
				n++
			}
		}
	}
	return n
}

// Whoever joins an outstanding watch is given what its read found, without another one, and is woken like the first.
func TestManySubscribersShareOneWatch(t *testing.T) {
	e, _, p := connectShared(t, Config{})
	path := newPath(t)
	mk(t, e, path, "one")
	p.ResetCounters()
	var subs []*listener
	for range 100 {
		l := subscribe(t, e, path, Data)
		n, span := l.arm(t)
		require.Equal(t, "one", string(n.Data))
		require.NotNil(t, n.Stat)
		require.True(t, span.SameConn())
		subs = append(subs, l)
	}
	require.Equal(t, 1, reads(p, path))
	do(t, e, func(c Conn) error { _, err := c.Set(path, []byte("two"), -1); return err })
	for _, l := range subs {
		require.Equal(t, Changed, l.next(t))
	}
	for _, l := range subs {
		n, _ := l.arm(t)
		require.Equal(t, "two", string(n.Data))
	}
	require.Equal(t, 2, reads(p, path), "armed again by the first that looks")
	subs[0].Cancel()
	do(t, e, func(c Conn) error { return c.Delete(path, -1) })
	for _, l := range subs[1:] {
		require.Equal(t, Deleted, l.next(t))
	}
	subs[0].quiet(t)
	for _, l := range subs[1:] {
		l.quiet(t)
	}
	require.Equal(t, 2, p.Counts().Events, "one for each change")
	for _, l := range subs {
		l.Cancel()
	}
	require.Zero(t, e.Watched())
	_, _, err := subs[0].Arm(context.Background())
	require.ErrorIs(t, err, context.Canceled)
}

// Kinds do not mix, and each tells what it is for.
func TestKindsOfWatch(t *testing.T) {
	e, _, _ := connectShared(t, Config{})
	path := newPath(t)
	data, children, presence := subscribe(t, e, path, Data), subscribe(t, e, path, Children), subscribe(t, e, path, Presence)
	_, _, err := data.Arm(within(t, 5*time.Second))
	require.ErrorIs(t, err, zk.ErrNoNode)
	_, _, err = children.Arm(within(t, 5*time.Second))
	require.ErrorIs(t, err, zk.ErrNoNode)
	n, _ := presence.arm(t)
	require.Nil(t, n.Stat)
	mk(t, e, path, "")
	require.Equal(t, Changed, presence.next(t))
	data.arm(t)
	n, _ = children.arm(t)
	require.Empty(t, n.Children)
	n, _ = presence.arm(t)
	require.NotNil(t, n.Stat)
	for len(data.wakes) > 0 { // the znode's creation is of interest to whoever asked for its data, too
		<-data.wakes
	}
	mk(t, e, path+"/a", "")
	require.Equal(t, Changed, children.next(t))
	data.quiet(t)
	n, _ = children.arm(t)
	require.Equal(t, []string{"a"}, n.Children)
	do(t, e, func(c Conn) error { return c.Delete(path+"/a", -1) })
	require.Equal(t, Changed, children.next(t))
	children.arm(t)
	do(t, e, func(c Conn) error { return c.Delete(path, -1) })
	for _, l := range []*listener{data, children, presence} {
		require.Equal(t, Deleted, l.next(t))
	}
}

// getData on a missing node leaves nothing at the server, exists would: a watch for every predecessor that was gone when it was looked at.
// Reports: CURATOR-107, CURATOR-105.
func TestMissingNodeLeavesNoWatch(t *testing.T) {
	e, _, p := connectShared(t, Config{})
	path := newPath(t)
	server := zktest.Shared(t).Server(0)
	for i := range 50 {
		l := subscribe(t, e, fmt.Sprintf("%s-%d", path, i), Data)
		_, _, err := l.Arm(within(t, 5*time.Second))
		require.ErrorIs(t, err, zk.ErrNoNode)
		l.Cancel()
	}
	require.NotContains(t, word(t, server, "wchc"), path)
	require.Zero(t, e.Watched())
	p.ResetCounters()
	conn := e.Epoch().Conn
	p.Cut()
	eventually(t, 10*time.Second, "it is back", func() bool { return e.Ready() && e.Epoch().Conn > conn })
	do(t, e, func(c Conn) error { _, err := c.Sync("/"); return err })
	require.Zero(t, p.Counts().Requests[zktest.OpSetWatches])
	subscribe(t, e, path+"-presence", Presence).arm(t)
	require.Contains(t, word(t, server, "wchc"), path+"-presence", "that this test would see it")
}

// A watch that is known from an earlier connection may have fired unseen. On a new connection everybody is woken, and the first to look reads.
// Reports: python-zk/kazoo #170.
func TestEverybodyLooksAgainAfterAReconnect(t *testing.T) {
	e, _, p := connectShared(t, Config{})
	path := newPath(t)
	mk(t, e, path, "one")
	a, b := subscribe(t, e, path, Data), subscribe(t, e, path, Data)
	a.arm(t)
	b.arm(t)
	idle := subscribe(t, e, path+"/never-armed", Data)
	p.Refuse(true)
	eventually(t, 5*time.Second, "it is cut off", func() bool { return !e.Ready() })
	a.quiet(t)
	b.quiet(t)
	// Nobody joins a watch while there is no connection.
	_, _, err := b.Arm(within(t, 50*time.Millisecond))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	p.ResetCounters()
	p.Refuse(false)
	for _, l := range []*listener{a, b, idle} {
		require.Equal(t, Recheck, l.next(t))
	}
	_, span := a.arm(t)
	require.Equal(t, await(t, e), span.After)
	b.arm(t)
	require.Equal(t, 1, reads(p, path))
}

// When the session is over, or the engine is closed, everybody is woken at once, armed or not, connected or not.
func TestEverybodyIsWokenByLossAndClose(t *testing.T) {
	t.Run("expired", func(t *testing.T) {
		e, _, p := connectShared(t, Config{})
		path := newPath(t)
		mk(t, e, path, "")
		a, idle := subscribe(t, e, path, Data), subscribe(t, e, path, Children)
		a.arm(t)
		expire(t, p)
		require.Equal(t, Recheck, a.next(t))
		require.Equal(t, Recheck, idle.next(t))
	})
	t.Run("lost without a word", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			f := newFake(t)
			f.make("/w")
			e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
			pass(0)
			a, idle := subscribe(t, e, "/w", Data), subscribe(t, e, "/w", Children)
			a.arm(t)
			e.tracker.Add(func() { e.sessionOver(e.session, true) })
			pass(0)
			require.Len(t, a.wakes, 1)
			require.Len(t, idle.wakes, 1)
			require.Equal(t, Recheck, a.next(t))
			require.Equal(t, Recheck, idle.next(t))
		})
	})
	t.Run("closed", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			f := newFake(t)
			f.make("/w")
			e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
			pass(0)
			a, idle := subscribe(t, e, "/w", Data), subscribe(t, e, "/w", Children)
			a.arm(t)
			f.setOnRequest(func(*fakeConn, fakeRequest) bool { return true }) // Close will have to wait
			closed := make(chan struct{})
			go func() { defer close(closed); _ = closeWithin(e, 5*time.Second) }()
			pass(0)
			require.Len(t, a.wakes, 1)
			require.Len(t, idle.wakes, 1)
			<-closed
			_, _, err := idle.Arm(context.Background())
			require.ErrorIs(t, err, ErrClosed)
		})
	})
}

// An event that comes while an arming read is under way makes the read void: it may have found what was before.
func TestEventDuringAnArmingRead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		f.make("/w")
		e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
		pass(0)
		l, other := subscribe(t, e, "/w", Data), subscribe(t, e, "/w", Data)
		f.setOnRequest(func(c *fakeConn, r fakeRequest) bool {
			if int32(r.op) == opGetData {
				// Of an earlier watch of the client's, or of another reader's.
				c.event(3, "/w")
			}
			return false
		})
		l.arm(t)
		pass(0)
		require.Equal(t, Changed, l.next(t))
		require.Equal(t, Changed, other.next(t))
		f.setOnRequest(nil)
		other.arm(t)
		require.Len(t, f.requests(int(opGetData)), 2, "nobody joins the first one")
		l.arm(t)
		require.Len(t, f.requests(int(opGetData)), 2, "the second one stands")
	})
}

// A read that began on one connection and was answered on another set its watch nobody knows where.
func TestReadAcrossConnectionsArmsNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		f.make("/w")
		e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial, Timeout: 20 * time.Second})
		pass(0)
		var stopped atomic.Bool
		stopped.Store(true)
		f.setOnRequest(func(c *fakeConn, r fakeRequest) bool {
			if stopped.Load() {
				<-c.done
			}
			return false
		})
		sync := func() { _, _ = e.Do(context.Background(), func(c Conn) error { _, err := c.Sync("/"); return err }) }
		for range 2 { // one is read and not answered, the next fills the socket, what comes then waits in the client's queue
			go sync()
			pass(10 * time.Millisecond)
		}
		l := subscribe(t, e, "/w", Data)
		type result struct {
			span Span
			err  error
		}
		done := make(chan result, 1)
		go func() {
			_, span, err := l.Arm(context.Background())
			done <- result{span, err}
		}()
		pass(10 * time.Millisecond)
		stopped.Store(false)
		f.cut()
		r := <-done
		pass(0)
		require.NoError(t, r.err)
		require.False(t, r.span.SameConn())
		require.True(t, r.span.SameSession())
		n := len(f.requests(int(opGetData)))
		l.arm(t)
		require.Len(t, f.requests(int(opGetData)), n+1)
	})
}

// Nobody waits for ever on a fault that nobody thought of; and not often for nothing.
func TestSafetyCheck(t *testing.T) {
	require.GreaterOrEqual(t, safetyCheck, 10*time.Second)
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		f.make("/w")
		e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
		pass(0)
		l, gone := subscribe(t, e, "/w", Data), subscribe(t, e, "/w", Data)
		l.arm(t)
		gone.Cancel()
		pass(10 * safetyCheck)
		require.GreaterOrEqual(t, len(l.wakes), 8)
		require.LessOrEqual(t, len(l.wakes), 10)
		require.Equal(t, Safety, l.next(t))
		l.Cancel()
		n := len(l.wakes)
		pass(10 * safetyCheck)
		require.Len(t, l.wakes, n)
		gone.quiet(t)
	})
}

// The look after a safety check asks the server, not the watch that may be the fault, and sets no other one: what a watch sets in the client stays there
// until it fires. What it finds gone is not taken for there again.
func TestLookAfterASafetyCheckAsksTheServer(t *testing.T) {
	for _, kind := range []Kind{Data, Children, Presence} {
		virtual(t, func(t *testing.T) {
			f := newFake(t)
			f.make("/w")
			e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
			l, other := subscribe(t, e, "/w", kind), subscribe(t, e, "/w", kind)
			op := map[Kind]int{Data: opGetData, Children: opGetChildren2, Presence: opExists}[kind]
			watches := func() (set []bool) {
				for _, r := range f.requests(op) {
					set = append(set, r.body[len(r.body)-1] == 1)
				}
				return set
			}
			l.arm(t)
			other.arm(t)
			pass(safetyCheck * 5 / 4)
			require.Equal(t, Safety, l.next(t))
			n, _ := l.arm(t)
			require.NotNil(t, n.Stat)
			l.arm(t)
			require.Equal(t, []bool{true, false}, watches(), "once, without a watch")

			do(t, e, func(c Conn) error { return c.Delete("/w", -1) }) // and no event comes
			pass(safetyCheck * 5 / 4)
			require.Equal(t, Safety, l.next(t))
			for range 2 {
				n, _, err := l.Arm(context.Background())
				if kind == Presence {
					require.NoError(t, err)
					require.Nil(t, n.Stat)
				} else {
					require.ErrorIs(t, err, zk.ErrNoNode)
				}
			}
		})
	}
}

// Through a thousand changes by another client, and cut connections, no subscriber misses the last one: it wakes, looks, and sees it.
func TestNoChangeIsMissed(t *testing.T) {
	e, _, p := connectShared(t, Config{})
	other, _, _ := connectShared(t, Config{})
	dir := newPath(t)
	mk(t, e, dir, "")
	const paths, watchers, changes = 8, 3, 1000
	var mu sync.Mutex
	last := make(map[string]string) // what each path has now; "" when it is missing
	seen := make([]map[string]string, watchers)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	for i := range watchers {
		seen[i] = make(map[string]string)
		for n := range paths {
			path := fmt.Sprintf("%s/%d", dir, n)
			wg.Go(func() {
				woken := make(chan struct{}, 1)
				wake := func(Wake) {
					select {
					case woken <- struct{}{}:
					default:
					}
				}
				sub, presence := e.Watch(path, Data, wake), e.Watch(path, Presence, wake)
				defer sub.Cancel()
				defer presence.Cancel()
				for {
					value := ""
					node, span, err := sub.Arm(ctx)
					again := err != nil || !span.SameConn()
					if err == nil {
						value = string(node.Data)
					}
					if err == zk.ErrNoNode {
						node, span, err = presence.Arm(ctx)
						again = err != nil || !span.SameConn() || node.Stat != nil
					}
					if ctx.Err() != nil {
						return
					}
					if again {
						continue
					}
					mu.Lock()
					seen[i][path] = value
					mu.Unlock()
					select {
					case <-woken:
					case <-ctx.Done():
						return
					}
				}
			})
		}
	}
	for i := range changes {
		path := fmt.Sprintf("%s/%d", dir, rand.N(paths))
		value := fmt.Sprint(i)
		do(t, other, func(c Conn) error {
			_, known := last[path]
			switch {
			case !known || last[path] == "":
				_, err := c.Create(path, []byte(value), 0, world)
				last[path] = value
				return err
			case rand.N(3) == 0:
				last[path] = ""
				return c.Delete(path, -1)
			default:
				last[path] = value
				_, err := c.Set(path, []byte(value), -1)
				return err
			}
		})
		if i%250 == 200 {
			p.Cut()
		}
	}
	eventually(t, 15*time.Second, "every subscriber has seen the last change", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for i := range watchers {
			for path, value := range last {
				if seen[i][path] != value {
					return false
				}
			}
		}
		return true
	})
}

// Subscribers come and go while events and reconnects rain down; in the end nothing is left.
func TestHubUnderChurn(t *testing.T) {
	e, _, p := connectShared(t, Config{})
	dir := newPath(t)
	mk(t, e, dir, "")
	for i := range 4 {
		mk(t, e, fmt.Sprintf("%s/%d", dir, i), "")
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 100 {
				sub := e.Watch(fmt.Sprintf("%s/%d", dir, rand.N(4)), Kind(rand.N(3)), func(Wake) {})
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				_, _, _ = sub.Arm(ctx)
				if rand.N(2) == 0 {
					_, _ = e.Do(ctx, func(c Conn) error { _, err := c.Set(sub.path, nil, -1); return err })
				}
				cancel()
				sub.Cancel()
			}
		})
	}
	stop := make(chan struct{})
	go func() { wg.Wait(); close(stop) }()
	for done := false; !done; {
		select {
		case <-stop:
			done = true
		case <-time.After(100 * time.Millisecond):
			p.Cut()
		}
	}
	eventually(t, 10*time.Second, "it is back from the last cut", func() bool {
		_, err := e.Do(within(t, 5*time.Second), func(c Conn) error { _, err := c.Sync("/"); return err })
		return err == nil && e.Ready()
	})
	for i := range 4 { // outstanding watches go with their events
		path := fmt.Sprintf("%s/%d", dir, i)
		mk(t, e, path+"/c", "")
		do(t, e, func(c Conn) error { return c.Delete(path+"/c", -1) })
		do(t, e, func(c Conn) error { return c.Delete(path, -1) })
	}
	eventually(t, 5*time.Second, "nothing is left in the hub", func() bool { return e.Watched() == 0 })
	require.False(t, slices.ContainsFunc(strings.Split(word(t, zktest.Shared(t).Server(0), "wchc"), "\n"), func(l string) bool {
		return strings.HasPrefix(strings.TrimSpace(l), dir+"/")
	}))
}
