package core

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// The events of an adopted connection may be old. That a session has expired is not true of the one that the connection is still in.
func TestOldExpiryEndsNoSession(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		conn, own, err := zk.Connect([]string{"zk:2181"}, testTimeout, zk.WithDialer(f.Dial), zk.WithHostProvider(oneServer{}),
			zk.WithLogInfo(false), zk.WithLogger(clientLogger{quiet(t)}))
		require.NoError(t, err)
		t.Cleanup(func() {
			conn.Close()
			for range own {
			}
		})
		pass(time.Second)
		r, events := &recorder{}, make(chan zk.Event)
		e := NewAdopted(Config{Timeout: testTimeout, ACL: world, Logger: quiet(t), Listener: r}, conn, events, nil)
		require.NoError(t, e.Start())
		t.Cleanup(func() { _ = closeWithin(e, time.Second) })
		pass(time.Second)
		session := e.Epoch().Session
		events <- zk.Event{Type: zk.EventSession, State: zk.StateExpired}
		pass(time.Second)
		require.False(t, e.Over(session))
		require.True(t, e.Ready())
		require.Zero(t, r.count(fmt.Sprintf("over %x", session)))
	})
}

// What was made in a session that is over has gone with it. A znode of that name is somebody else's by now, and nothing is asked of the server.
func TestNothingOfAnEndedSessionIsDeleted(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
		first := e.Epoch()
		f.expire(first.Session)
		f.cut()
		pass(time.Second)
		require.NotEqual(t, first.Session, await(t, e).Session)
		f.make("/dir", "/dir/name")
		r := e.Remove("/dir/name", first.Session)
		pass(time.Second)
		<-r.Done()
		require.ErrorIs(t, r.Err(), zk.ErrSessionExpired)
		require.Empty(t, f.requests(opDelete))
		require.Len(t, f.has("/dir/name"), 1)
	})
}

// A client that is refused is replaced when its session was ended for certain, and not before: leases are told of its end then, and nobody else may hold what
// they held until that.
func TestClientIsKeptUntilItsSessionIsEnded(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		e, r := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
		first, client := e.Epoch(), owner(e).client
		var ends atomic.Bool
		f.setOnConnect(func(c *fakeConn, q fakeConnect) bool {
			if q.session != first.Session || ends.Load() && q.zxid == 0 {
				return false
			}
			c.close()
			return true
		})
		do(t, e, func(c Conn) error { _, err := c.Sync("/"); return err }) // so that the client has seen a zxid
		f.cut()
		pass(20 * testTimeout)
		require.Same(t, client, owner(e).client)
		require.Zero(t, r.count(fmt.Sprintf("over %x", first.Session)))
		require.True(t, f.lives(first.Session))
		ends.Store(true)
		require.NotEqual(t, first.Session, await(t, e).Session)
		require.False(t, f.lives(first.Session))
		require.Equal(t, 1, r.count(fmt.Sprintf("over %x", first.Session)))
	})
}

// A list is as new as the sync before it only on the connection on which that was answered: the next server may lag behind.
func TestSyncOfAnotherConnectionMakesNoListNew(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		f.make("/dir", "/dir/there")
		e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
		var synced, cuts, stale atomic.Int64 // synced: the connection that has caught up
		f.setOnRequest(func(c *fakeConn, r fakeRequest) bool {
			switch {
			case int32(r.op) == opSync && r.path == "/dir":
				synced.Store(int64(c.n))
				if cuts.Add(1)%2 == 1 { // its answer is the last that the connection brings
					c.reply(r.xid, 1, 0, appendString(nil, r.path))
					c.close()
					return true
				}
			case int32(r.op) == opGetChildren2 && int64(c.n) != synced.Load():
				stale.Add(1)
				c.reply(r.xid, 1, 0, append(binary.BigEndian.AppendUint32(nil, 0), stat(0)...))
				return true
			}
			return false
		})
		for range 200 {
			names, _, err := e.SyncedChildren(t.Context(), "/dir")
			require.NoError(t, err)
			require.True(t, slices.Contains(names, "there"), "the list of a server that lags behind")
			pass(2 * time.Second)
		}
		t.Logf("%d lists were asked for on a connection without a sync", stale.Load())
	})
}
