package zkrecipes

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// The place of the holder is handed over, and before the waiter gets to look at the answer it is told that its own znode has gone: nobody is granted what is
// known to be gone. It queues again.
func TestHandOverOfAZnodeThatIsKnownToBeGone(t *testing.T) {
	t.Parallel()
	bg, h := context.Background(), newHandOver(t)
	got, node := h.behind(bg, h.l.Node(), NewMutex(h.s, h.path))
	h.s.heirs.mu.Lock()
	claim := h.s.heirs.m[h.l.Node()]
	h.s.heirs.mu.Unlock()
	waiter := claim.by
	waiter.machine.mu.Lock() // it takes no step
	goOn := sync.OnceFunc(waiter.machine.mu.Unlock)
	defer goOn()
	released := goCall(func() error { return h.l.Release(bg) })
	eventually(t, 5*time.Second, "it is handed over", func() bool {
		h.s.heirs.mu.Lock()
		defer h.s.heirs.mu.Unlock()
		return claim.state == heirHanded
	})
	require.NoError(t, h.c.Delete(node, -1))
	eventually(t, 5*time.Second, "it is told", waiter.ownWoken.Load)
	goOn()
	require.NoError(t, next(t, released))
	l := mustLease(t, got)
	require.NotEqual(t, node, l.Node())
	require.NoError(t, l.Err())
	require.NoError(t, l.Release(bg))
	require.Empty(t, children(t, h.c, h.path))
}

// A transaction whose answer never comes, though others do, keeps the waiter for no longer than until it looks by itself.
func TestVirtualHandOverThatIsNeverAnswered(t *testing.T) {
	virtual(t, func(t *testing.T, server *zktest.Server) {
		dial := server.Dialer()
		s, _ := dialVirtual(t, server, withShortcuts, WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			c, err := dial(network, address, timeout)
			if err != nil {
				return nil, err
			}
			return &deafConn{Conn: c, op: zktest.OpMulti}, nil
		}))
		l, err := NewMutex(s, "/v/lock").Lock(t.Context())
		require.NoError(t, err)
		got := goLock(t.Context(), NewMutex(s, "/v/lock"))
		settle()
		synctest.Wait()
		require.NotEmpty(t, claimantOf(s, l.Node()))
		over, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, l.Release(over), context.Canceled)
		settle()
		synctest.Wait()
		require.Len(t, znodes(server, "/v/lock"), 1, "it has been executed")
		require.Empty(t, got)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, got, 1)
		require.NoError(t, mustLease(t, got).Release(t.Context()))
	})
}

// A deafConn never hears the answers to one kind of request, and all others.
type deafConn struct {
	net.Conn
	op zktest.Op

	mu     sync.Mutex
	unread map[int32]bool // by their xids

	first bytes.Reader // what is left of the frame that is being read
}

func (c *deafConn) Write(b []byte) (int, error) {
	if len(b) >= 12 && zktest.Op(binary.BigEndian.Uint32(b[8:])) == c.op {
		c.mu.Lock()
		if c.unread == nil {
			c.unread = make(map[int32]bool)
		}
		c.unread[int32(binary.BigEndian.Uint32(b[4:]))] = true
		c.mu.Unlock()
	}
	return c.Conn.Write(b)
}

func (c *deafConn) Read(b []byte) (int, error) {
	for c.first.Len() == 0 {
		frame := make([]byte, 4)
		if _, err := io.ReadFull(c.Conn, frame); err != nil {
			return 0, err
		}
		frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
		if _, err := io.ReadFull(c.Conn, frame[4:]); err != nil {
			return 0, err
		}
		c.mu.Lock()
		if xid := int32(binary.BigEndian.Uint32(frame[4:])); !c.unread[xid] {
			c.first.Reset(frame)
		}
		c.mu.Unlock()
	}
	return c.first.Read(b)
}
