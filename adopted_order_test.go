package zkrecipes

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// lateConn hands on the events of data watches, but those of one path, only when open is closed, as if whoever reads their channels did not get to run.
type lateConn struct {
	*zk.Conn
	punctual string
	open     chan struct{}

	mu      sync.Mutex
	watched map[string]bool
}

func (c *lateConn) GetW(path string) ([]byte, *zk.Stat, <-chan zk.Event, error) {
	data, stat, events, err := c.Conn.GetW(path)
	if err != nil {
		return data, stat, events, err
	}
	c.mu.Lock()
	c.watched[path] = true
	c.mu.Unlock()
	if path == c.punctual {
		return data, stat, events, nil
	}
	late := make(chan zk.Event, 1)
	go func() {
		defer close(late)
		ev, ok := <-events
		<-c.open
		if ok {
			late <- ev
		}
	}()
	return data, stat, late, nil
}

func (c *lateConn) watches(paths ...string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range paths {
		if !c.watched[p] {
			return false
		}
	}
	return true
}

// The events of an adopted connection come through a channel for each watch, in any order: the end of the one in the way says nothing of what befell the own
// znode before.
func TestAdoptedEventsHaveNoOrder(t *testing.T) {
	t.Parallel()
	forAdoptions(t, func(t testing.TB) {
		bg, path, look := context.Background(), newPath(t), admin(t)
		first, err := NewMutex(dialShared(t, calm), path).Lock(bg)
		require.NoError(t, err)
		dialer, track := TrackContact(nil)
		opts := []SessionOption{WithLogger(quiet(t)), track}
		if wayOf(t) == observed {
			dialer, opts[1] = nil, WithTimeout(10*time.Second)
		}
		sv := newService(t, zktest.Shared(t).Addrs(), 10*time.Second, dialer)
		conn := &lateConn{Conn: sv.conn, punctual: first.Node(), open: make(chan struct{}), watched: make(map[string]bool)}
		t.Cleanup(func() { close(conn.open) })
		s, err := NewSession(conn, nil, opts...)
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		got := goLock(bg, NewMutex(s, path))
		var node string
		eventually(t, 10*time.Second, "it waits, and watches both", func() bool {
			node = nodeOf(t, look, path, sv.conn.SessionID())
			return node != "" && conn.watches(first.Node(), node)
		})
		require.NoError(t, look.Delete(node, -1))
		require.NoError(t, first.Release(bg))
		lease := mustLease(t, got)
		require.NotEqual(t, node, lease.Node())
		require.NoError(t, lease.Err())
		require.NoError(t, lease.Release(bg))
	})
}
