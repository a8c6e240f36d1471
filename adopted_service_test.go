package zkrecipes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// The service goes on as if it were alone on its connection: its loop sees the events that the client has to tell, in order, and each of its watches
// fires once, while a Session takes and loses locks on the same connection, and the connection is cut and its session ends.
func TestAdoptedServiceIsNotDisturbed(t *testing.T) {
	t.Parallel()
	underFaults(t, adoptedServiceIsNotDisturbed)
}

func adoptedServiceIsNotDisturbed(t testing.TB) {
	bg, path, look := context.Background(), newPath(t), admin(t)
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	dialer, opt := TrackContact(nil)
	if wayOf(t) == observed {
		dialer, opt = nil, WithTimeout(4*time.Second)
	}
	var mu sync.Mutex
	var called []zk.Event
	var reads atomic.Pointer[service] // nil while fewer events have come than fit
	sv := newServiceWith(t, []string{p.Addr()}, 4*time.Second, dialer, func(ev zk.Event) {
		mu.Lock()
		called = append(called, ev)
		n := len(called)
		mu.Unlock()
		// The client throws away what does not fit into its channel of six, where this one comes next.
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); <-time.After(time.Millisecond) {
			if sv := reads.Load(); sv == nil || n-len(sv.seen()) <= 5 {
				return
			}
		}
	})
	reads.Store(sv)
	sv.hasSession(t)
	s, err := NewSession(sv.conn, nil, opt, WithLogger(quiet(t)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	mkdirs(t, look, path)
	mkdirs(t, look, path+"/own")
	var busy sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(bg, 10*time.Second)
				if l, err := NewMutex(s, path+"/lock").Lock(ctx); err == nil {
					_ = l.Release(ctx)
				}
				cancel()
			}
		})
	}
	// The service's own watches, on a path of the Session's and on others.
	fired := func(what string, ch <-chan zk.Event, want zk.EventType) {
		t.Helper()
		select {
		case ev := <-ch:
			require.Equal(t, want, ev.Type, what)
		case <-time.After(10 * time.Second):
			t.Fatalf("no event: %s", what)
		}
	}
	for i := range 30 {
		var data, kids <-chan zk.Event
		err := fmt.Errorf("not yet")
		for deadline := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(deadline); {
			if _, _, data, err = sv.conn.GetW(path + "/own"); err == nil {
				_, _, kids, err = sv.conn.ChildrenW(path + "/own")
			}
		}
		require.NoError(t, err)
		if i%10 == 5 {
			p.Cut()
		}
		_, err = look.Set(path+"/own", []byte{byte(i)}, -1)
		require.NoError(t, err)
		fired("data", data, zk.EventNodeDataChanged)
		_, err = look.Create(fmt.Sprintf("%s/own/%d", path, i), nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		fired("children", kids, zk.EventNodeChildrenChanged)
	}
	close(stop)
	busy.Wait()
	_, _, gone, err := sv.conn.GetW(path + "/own")
	require.NoError(t, err)
	old := sv.conn.SessionID()
	expireSession(t, p)
	fired("expired", gone, zk.EventNotWatching)
	eventually(t, 10*time.Second, "a new session", func() bool { return sv.conn.SessionID() != old && sv.conn.State() == zk.StateHasSession })
	_ = s.Close()
	sv.closed()
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, called, sv.seen(), "all, and in the order in which the client told it")
	require.True(t, slices.ContainsFunc(called, func(ev zk.Event) bool { return ev.State == zk.StateExpired && ev.Type == zk.EventSession }))
}

// With the events, a Session learns at once of what it would else see a little later, and of the end of the connection.
func TestAdoptedEvents(t *testing.T) {
	t.Parallel()
	underFaults(t, adoptedEvents)
}

func adoptedEvents(t testing.TB) {
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	dialer, opt := TrackContact(nil)
	zopts := zk.WithDialer(dialer)
	if wayOf(t) == observed {
		opt, zopts = WithTimeout(10*time.Second), zk.WithLogger(discard{})
	}
	conn, events, err := zk.Connect([]string{p.Addr(), p.Addr(), p.Addr()}, 10*time.Second, zopts, zk.WithLogger(discard{}))
	require.NoError(t, err)
	s, err := NewSession(conn, events, opt, WithLogger(quiet(t)))
	require.NoError(t, err)
	l, err := NewMutex(s, newPath(t)).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	old := s.ID()
	expireSession(t, p)
	mustBeLost(t, l, ReasonSessionExpired)
	eventually(t, 5*time.Second, "another session", func() bool { return s.ID() != old && s.engine.Ready() })
	l, err = NewMutex(s, newPath(t)).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	began := time.Now()
	conn.Close()
	mustBeLost(t, l, ReasonSessionExpired)
	require.Less(t, time.Since(began), 2*time.Second, "long before the clock runs out")
	_, err = NewMutex(s, newPath(t)).Lock(within(t, 5*time.Second))
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorContains(t, err, "closed by its owner")
	_ = s.Close()
}

// Two Sessions on one connection are as far apart as any.
func TestTwoSessionsOnOneConnection(t *testing.T) {
	sv := newService(t, zktest.Shared(t).Addrs(), testTimeout, nil)
	path := newPath(t)
	var ss []*Session
	for range 2 {
		s, err := NewSession(sv.conn, nil, WithTimeout(testTimeout), WithLogger(quiet(t)))
		require.NoError(t, err)
		defer s.Close()
		ss = append(ss, s)
	}
	l, err := NewMutex(ss[0], path).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	_, err = NewMutex(ss[1], path).TryLock(within(t, 5*time.Second))
	require.ErrorIs(t, err, ErrHeld)
	require.NoError(t, ss[0].Close())
	require.ErrorIs(t, l.Err(), ErrLost)
	other, err := NewMutex(ss[1], path).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	require.NoError(t, other.Release(within(t, 5*time.Second)))
}
