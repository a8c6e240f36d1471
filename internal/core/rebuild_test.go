package core

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// setBack makes the fake behave as a server whose data was set back: it hangs up on clients that have seen a later zxid, and knows no session.
func setBack(f *fake, session int64) {
	f.expire(session)
	f.setOnConnect(func(c *fakeConn, r fakeConnect) bool {
		if r.zxid > 0 {
			c.close()
			return true
		}
		return false
	})
}

// A client whose last zxid lies beyond what the servers know is refused for ever, and never told that its session is over.
func TestClientThatIsRefusedForEverIsReplaced(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		e, r := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
		first, client := e.Epoch(), owner(e).client
		do(t, e, func(c Conn) error { _, err := c.Sync("/"); return err }) // so that the client has seen a zxid
		waiting := make(chan Epoch, 1)
		setBack(f, first.Session)
		f.cut()
		began := time.Now()
		pass(0)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			epoch, err := e.Await(ctx)
			if err != nil {
				t.Error(err)
			}
			waiting <- epoch
		}()
		pass(rebuildAfter * testTimeout)
		require.Same(t, client, owner(e).client, "not before it was given its time")
		second := <-waiting
		// A timeout to ask whether a server serves, one more to be sure, half of one between two looks of the watchdog, each of them.
		require.Less(t, time.Since(began), (rebuildAfter+2)*testTimeout+testTimeout/2)
		require.NotEqual(t, first.Session, second.Session)
		require.Greater(t, second.Conn, first.Conn)
		require.Equal(t, 1, r.count(fmt.Sprintf("over %x", first.Session)))
		do(t, e, func(c Conn) error { _, err := c.Sync("/"); return err })
		require.NotSame(t, client, owner(e).client)
		pass(5 * time.Second)
		require.True(t, f.lives(second.Session))
		for _, c := range f.open() {
			require.Equal(t, second.Session, c.session, "nothing is left of the old client")
		}
	})
}

// While no server serves there is nobody to ask whether the client is at fault, and it may yet resume its session.
func TestClientIsKeptWhileNoServerServes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		var down atomic.Bool
		f.setOnDial(func(string) error {
			if down.Load() {
				return fmt.Errorf("connection refused")
			}
			return nil
		})
		e, r := connect(t, Config{Servers: []string{"zk1:2181", "zk2:2181"}, Dialer: f.Dial})
		first, client := e.Epoch(), owner(e).client
		down.Store(true)
		f.cut()
		pass(20 * testTimeout)
		require.Same(t, client, owner(e).client)
		down.Store(false)
		require.Equal(t, first.Session, await(t, e).Session)
		require.Same(t, client, owner(e).client)
		require.Zero(t, r.count(fmt.Sprintf("over %x", first.Session)))
	})
}

// The watchdog decides on a reading of a moment ago. A client that has a session by now is left alone: leases may depend on it, and a session that is
// closed at the server before they are told gives them to two holders at once.
func TestLivingSessionIsNotEndedByTheWatchdog(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		e, r := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
		first, client := e.Epoch(), owner(e).client
		require.Positive(t, e.Left(first.Session))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		owner(e).rebuild(ctx, client)
		pass(time.Second)
		require.True(t, f.lives(first.Session))
		require.Equal(t, first.Session, await(t, e).Session)
		require.Same(t, client, owner(e).client)
		require.Zero(t, r.count(fmt.Sprintf("over %x", first.Session)))
	})
}

// Close while the watchdog makes a new client: one of the two ends it.
func TestCloseDuringARebuild(t *testing.T) {
	for i := range 60 {
		virtual(t, func(t *testing.T) { // which fails when a goroutine is left
			f := newFake(t)
			e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
			do(t, e, func(c Conn) error { _, err := c.Sync("/"); return err })
			var wg sync.WaitGroup
			closing := make(chan struct{})
			setBack(f, e.Epoch().Session)
			f.cut()
			pass(testTimeout) // the clock has run out
			client := owner(e).client
			e.wg.Go(func() {
				if i%2 == 0 {
					<-closing
				}
				owner(e).rebuild(context.Background(), client)
			})
			wg.Go(func() {
				if i%2 == 1 {
					<-closing
				}
				_ = closeWithin(e, time.Second)
			})
			close(closing)
			wg.Wait()
			require.Equal(t, Closed, e.State())
		})
	}
}

func TestNoClientIsMadeAfterClose(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		e, _ := newEngine(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
		require.NoError(t, closeWithin(e, time.Second))
		require.ErrorIs(t, e.Start(), ErrClosed)
		require.Empty(t, f.dialed())
	})
}

// The data of a real server is set back while a client has a session: the client reconnects in an endless loop.
func TestServerSetBack(t *testing.T) {
	ens := zktest.Start(t)
	other, _ := connect(t, Config{Servers: ens.Addrs(), Timeout: 10 * time.Second})
	for i := range 20 { // transactions for the new server to be behind of
		mk(t, other, fmt.Sprintf("/n%d", i), "")
	}
	require.NoError(t, closeWithin(other, 10*time.Second))
	timeout := 2 * time.Second
	e, r := connect(t, Config{Servers: ens.Addrs(), Timeout: timeout})
	first := do(t, e, func(c Conn) error { _, err := c.Sync("/"); return err }).After // the client has heard how far the server is
	s := ens.Server(0)
	require.NoError(t, s.Stop())
	require.NoError(t, s.Wipe())
	require.NoError(t, s.Start())
	eventually(t, (rebuildAfter+3)*timeout+10*time.Second, "there is a session again", func() bool {
		return e.Ready() && e.Epoch().Session != first.Session
	})
	require.Equal(t, 1, r.count(fmt.Sprintf("over %x", first.Session)))
	mk(t, e, "/again", "")
}

// badWriter fails the writes of auth frames when told to, without a byte having gone out.
type badWriter struct {
	net.Conn
	bad *atomic.Int32 // how many writes are still to fail
}

func (c badWriter) Write(b []byte) (int, error) {
	if len(b) >= 12 && b[11] == opAuth && b[4] != 0xff && c.bad.Load() > 0 {
		c.bad.Add(-1)
		return 0, fmt.Errorf("write: connection reset by peer")
	}
	return c.Conn.Write(b)
}

// A write that fails while go-zookeeper sends its credentials again leaves it hanging for good: its own error handling waits for itself. It is a
// connection cut at an unlucky moment, no more: the session goes on over the next one.
func TestFailedWriteOfACredentialCostsOneConnection(t *testing.T) {
	withoutPauses(t)
	var bad atomic.Int32
	dialer := func(network, addr string, d time.Duration) (net.Conn, error) {
		c, err := net.DialTimeout(network, addr, d)
		if err != nil {
			return nil, err
		}
		return badWriter{c, &bad}, nil
	}
	e, r, p := connectShared(t, Config{Dialer: dialer, Auth: []Auth{{"digest", []byte("u:p")}, {"digest", []byte("v:q")}}})
	path := newPath(t)
	do(t, e, func(c Conn) error {
		_, err := c.Create(path, nil, 0, zk.DigestACL(zk.PermAll, "u", "p"))
		return err
	})
	first := e.Epoch().Session
	for range 3 {
		conn := e.Epoch().Conn
		bad.Store(2)
		p.Cut()
		eventually(t, 2*testTimeout, "the client is back", func() bool { return e.Ready() && e.Epoch().Conn > conn && bad.Load() == 0 })
		require.Equal(t, first, e.Epoch().Session)
		// The last of the bad connections may not be over yet.
		_, _, err := Read(within(t, 10*time.Second), e, func(c Conn) (data []byte, err error) { data, _, err = c.Get(path); return data, err })
		require.NoError(t, err)
	}
	require.Zero(t, r.count(fmt.Sprintf("over %x", first)))
}
