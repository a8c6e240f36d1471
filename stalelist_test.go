package zkrecipes

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// A slowConn hands the answer to the next list on, and sends the next delete, only when a test says so.
type slowConn struct {
	*zk.Conn
	armed            atomic.Bool
	listed, asked    chan struct{}
	goOnList, goOnIt chan struct{}
	once             sync.Once
}

func (c *slowConn) Children(path string) ([]string, *zk.Stat, error) {
	names, stat, err := c.Conn.Children(path)
	if c.armed.CompareAndSwap(true, false) {
		close(c.listed)
		<-c.goOnList
	}
	return names, stat, err
}

func (c *slowConn) Delete(path string, version int32) error {
	select {
	case <-c.goOnIt:
	default:
		c.once.Do(func() { close(c.asked) })
		<-c.goOnIt
	}
	return c.Conn.Delete(path, version)
}

// Two owners share a Session. One writes; the other, who wants to, has the list of the queue, but has not looked at it yet, when the first reads under its
// write lease and gives that one back. The list does not show the read, and the writer in it is on its way out: that must not read as "nobody is ahead".
func TestListFromBeforeAReadLetsNoWriterIn(t *testing.T) {
	t.Parallel()
	conn := &slowConn{
		Conn: admin(t), listed: make(chan struct{}), asked: make(chan struct{}), goOnList: make(chan struct{}), goOnIt: make(chan struct{}),
	}
	s, err := NewSession(conn, nil, WithTimeout(4*time.Second), WithLogger(quiet(t)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	path := newPath(t)
	ctx := within(t, 30*time.Second)
	w, err := NewRWLock(s, path).Lock(ctx)
	require.NoError(t, err)
	conn.armed.Store(true)
	second := goLock(ctx, NewRWLock(s, path))
	next(t, conn.listed)
	r, err := NewRWLock(s, path).RLock(w.Context())
	require.NoError(t, err)
	done, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, w.Release(done), context.Canceled)
	next(t, conn.asked)
	close(conn.goOnList)
	eventually(t, 10*time.Second, "it waits, or is granted", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, h := range s.holds {
			if h.phase == acquiring && len(h.seeker.whoIsAhead()) > 0 {
				return true
			}
		}
		return len(second) > 0
	})
	require.Empty(t, second, "granted beside the reader")
	close(conn.goOnIt)
	require.NoError(t, r.Err())
	require.NoError(t, r.Release(ctx))
	require.NoError(t, mustLease(t, second).Release(ctx))
}
