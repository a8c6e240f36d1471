package core

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// oneServer is a host provider that has one server and lets the client try it at once, without a look into the DNS.
type oneServer struct{}

func (oneServer) Init([]string) error  { return nil }
func (oneServer) Len() int             { return 1 }
func (oneServer) Next() (string, bool) { return "zk:2181", false }
func (oneServer) Connected()           {}

// inAdoptions runs a test in virtual time on a connection whose wires are seen, and on one whose are not.
func inAdoptions(t *testing.T, fn func(t *testing.T, tracked bool)) {
	for _, tracked := range []bool{true, false} {
		t.Run(fmt.Sprintf("tracked=%v", tracked), func(t *testing.T) {
			virtual(t, func(t *testing.T) { fn(t, tracked) })
		})
	}
}

// adoptFake makes a client of a fake server and an engine that adopts it.
func adoptFake(t *testing.T, f *fake, tracked bool) (*Engine, *recorder, *zk.Conn) {
	t.Helper()
	var track *Track
	dialer := zk.Dialer(f.Dial)
	if tracked {
		track = NewTrack(f.Dial)
		dialer = track.Dial
	}
	conn, events, err := zk.Connect([]string{"zk:2181"}, testTimeout, zk.WithDialer(dialer), zk.WithHostProvider(oneServer{}),
		zk.WithLogInfo(false), zk.WithLogger(clientLogger{quiet(t)}))
	require.NoError(t, err)
	pass(time.Second) // it is connected before there is an engine, which must learn of that
	e, r := adoptConn(t, conn, track)
	t.Cleanup(func() {
		conn.Close()
		for range events {
		}
	})
	pass(time.Second)
	require.True(t, e.Ready())
	return e, r, conn
}

func adoptConn(t *testing.T, conn Conn, track *Track) (*Engine, *recorder) {
	t.Helper()
	r := &recorder{}
	e := NewAdopted(Config{Timeout: testTimeout, ACL: world, Logger: quiet(t), Listener: r}, conn, nil, track)
	require.NoError(t, e.Start())
	t.Cleanup(func() { _ = closeWithin(e, time.Second) })
	return e, r
}

// Where no wire sees the connection, the clock begins before the call of a sync or a write that succeeded, in the session that is the present one.
// Reads, which a follower answers by itself, and failures prove nothing.
func TestAdoptedClockGoesByOwnSyncsAndWrites(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		f.make("/n", "/d")
		e, _, _ := adoptFake(t, f, false)
		const delay = 300 * time.Millisecond
		f.setOnRequest(func(c *fakeConn, r fakeRequest) bool {
			if r.op != opPing {
				<-time.After(delay)
			}
			return false
		})
		session := e.Epoch().Session
		for name, c := range map[string]struct {
			proves  bool
			request func(Conn) error
		}{
			"sync":        {true, func(c Conn) error { _, err := c.Sync("/"); return err }},
			"create":      {true, func(c Conn) error { _, err := c.Create("/made", nil, 0, world); return err }},
			"set":         {true, func(c Conn) error { _, err := c.Set("/n", nil, -1); return err }},
			"delete":      {true, func(c Conn) error { return c.Delete("/d", -1) }},
			"get":         {false, func(c Conn) error { _, _, err := c.Get("/n"); return err }},
			"children":    {false, func(c Conn) error { _, _, err := c.Children("/"); return err }},
			"exists":      {false, func(c Conn) error { _, _, err := c.Exists("/n"); return err }},
			"failed":      {false, func(c Conn) error { return c.Delete("/missing", -1) }},
			"failed here": {false, func(c Conn) error { _, err := c.Sync("bad"); return err }},
		} {
			pass(testTimeout)
			require.LessOrEqual(t, e.Left(session), time.Duration(0), name)
			_, err := e.Do(t.Context(), c.request)
			require.Equal(t, name == "failed" || name == "failed here", err != nil, "%s: %v", name, err)
			want := time.Duration(0)
			if c.proves {
				want = leaseSpan(testTimeout) - delay
			}
			require.Equal(t, want, max(e.Left(session), 0), name)
		}
		require.Zero(t, e.Left(session+1))
	})
}

// A server that puts the client into another session without having said that the last one is over. It may live on: leases end, what is owed for it is
// done in the new one, and it is over for certain when somebody has ended it or when nothing can keep it alive any more.
func TestAdoptedSessionIsReplaced(t *testing.T) {
	inAdoptions(t, func(t *testing.T, tracked bool) {
		f := newFake(t)
		f.make("/dir")
		e, r, conn := adoptFake(t, f, tracked)
		old := e.Epoch().Session
		f.make("/dir/owed")
		var attach atomic.Bool // somebody may attach to the old session
		f.setOnConnect(func(c *fakeConn, r fakeConnect) bool {
			if r.session != old || attach.Load() {
				return false
			}
			c.welcome(f.newSession(), r.timeout)
			return true
		})
		known := e.Remove("/dir/owed", old)
		f.setOnRequest(func(*fakeConn, fakeRequest) bool { return true }) // no answer
		pass(10 * time.Millisecond)
		unknown := e.claim("/dir", "00000000-0000-4000-8000-000000000001", old)
		e.giveUp(unknown)
		f.cut()
		f.setOnRequest(nil)
		pass(time.Second)
		require.NotEqual(t, old, conn.SessionID())
		require.Equal(t, conn.SessionID(), e.Epoch().Session)
		require.True(t, e.Over(old))
		require.Zero(t, e.Left(old))
		require.Equal(t, 1, r.count(fmt.Sprintf("over %x", old)))
		require.True(t, f.lives(old))
		select {
		case <-known.Done():
			require.Empty(t, f.has("/dir/owed"))
		default:
			t.Fatal("what was owed for the last session is forgotten or not done")
		}
		require.Equal(t, 1, e.Owing(), "what may yet appear is not forgotten")
		if tracked {
			attach.Store(true)
			pass(10 * time.Second)
			require.False(t, f.lives(old), "it was ended over a connection of its own")
		} else {
			pass(2*testTimeout + landing - 2*time.Second)
			require.Equal(t, 1, e.Owing())
			pass(2 * time.Second)
		}
		require.Zero(t, e.Owing())
		require.ErrorIs(t, unknown.Err(), zk.ErrSessionExpired)
	})
}

// A session of which the server says that it is over is so at once, and what was owed for it with it.
func TestAdoptedSessionExpires(t *testing.T) {
	inAdoptions(t, func(t *testing.T, tracked bool) {
		f := newFake(t)
		e, r, _ := adoptFake(t, f, tracked)
		old := e.Epoch().Session
		unknown := e.claim("/dir", "00000000-0000-4000-8000-000000000001", old)
		e.giveUp(unknown)
		f.expire(old)
		f.cut()
		pass(time.Second)
		require.Equal(t, 1, r.count(fmt.Sprintf("over %x", old)))
		require.True(t, e.Over(old))
		if !tracked {
			pass(2*testTimeout + landing) // two looks may have missed that the client had no session in between
		}
		require.Zero(t, e.Owing())
	})
}

// A reconnect that is over before anybody looks shows in a request that was not answered.
func TestAdoptedUnansweredRequestIsAReconnect(t *testing.T) {
	inAdoptions(t, func(t *testing.T, tracked bool) {
		f := newFake(t)
		e, r, _ := adoptFake(t, f, tracked)
		before := e.Epoch()
		f.setOnRequest(func(c *fakeConn, q fakeRequest) bool {
			if q.path == "/cut" {
				c.close()
				return true
			}
			return false
		})
		span, err := e.Do(t.Context(), func(c Conn) error { _, err := c.Sync("/cut"); return err })
		require.ErrorIs(t, err, zk.ErrConnectionClosed)
		require.Equal(t, before, span.Before)
		pass(100 * time.Millisecond)
		require.Greater(t, e.Epoch().Conn, before.Conn)
		require.Equal(t, before.Session, e.Epoch().Session)
		require.Positive(t, r.count("disconnected"))
		require.True(t, e.Ready())
	})
}

// A create that was looked for and not found, and lands later with no reconnect to be seen, is found and deleted nevertheless.
func TestAdoptedLateCreateIsSweptWithoutAReconnect(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		f.make("/dir")
		e, _, _ := adoptFake(t, f, false)
		const id = "00000000-0000-4000-8000-000000000001"
		unknown := e.claim("/dir", id, e.Epoch().Session)
		e.giveUp(unknown)
		pass(3 * time.Second)
		require.NotEmpty(t, f.requests(opSync), "it was looked for")
		f.make("/dir/_c_" + id + "-lock-0000000000")
		pass(2*testTimeout + time.Second)
		require.Empty(t, f.has("/dir/"))
		require.Zero(t, e.Owing())
		// And it costs less the longer nothing comes.
		e.giveUp(e.claim("/dir", "00000000-0000-4000-8000-000000000002", e.Epoch().Session))
		pass(10 * time.Second)
		n := len(f.requests(opGetChildren2))
		pass(60 * time.Second)
		require.InDelta(t, 15, len(f.requests(opGetChildren2))-n, 3)
	})
}

// A switchConn comes into another session while it answers a request.
type switchConn struct {
	Conn
	session atomic.Int64
}

func (c *switchConn) State() zk.State  { return zk.StateHasSession }
func (c *switchConn) SessionID() int64 { return c.session.Load() }
func (c *switchConn) Sync(string) (string, error) {
	c.session.Store(8)
	return "/", nil
}

// What the client was given in one session and executed in the next is known for that, and proves neither alive.
func TestAdoptedRequestAcrossTwoSessions(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &switchConn{}
		c.session.Store(7)
		e, r := adoptConn(t, c, nil)
		pass(time.Second)
		span, err := e.Do(t.Context(), func(c Conn) error { _, err := c.Sync("/"); return err })
		require.NoError(t, err)
		require.False(t, span.SameSession())
		require.EqualValues(t, 7, span.Before.Session)
		require.EqualValues(t, 8, span.After.Session)
		require.LessOrEqual(t, e.Left(7), time.Duration(0))
		require.LessOrEqual(t, e.Left(8), time.Duration(0))
		pass(time.Second)
		require.Equal(t, 1, r.count("over 7"))
	})
}

// A deafConn says that it has a session and answers no request, as a client that was closed while nobody answered.
type deafConn struct {
	Conn
	asked atomic.Int64
}

func (c *deafConn) State() zk.State  { return zk.StateHasSession }
func (c *deafConn) SessionID() int64 { return 7 }
func (c *deafConn) Delete(string, int32) error {
	c.asked.Add(1)
	return zk.ErrConnectionClosed
}
func (c *deafConn) Sync(string) (string, error) {
	c.asked.Add(1)
	return "", zk.ErrConnectionClosed
}

// Whoever tries until he has an answer does not keep a processor busy with it. When nothing has answered for so long that the session must be over, what
// goes on behind Close ends.
func TestAdoptedConnectionThatRefusesIsAskedSeldom(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &deafConn{}
		e, _ := adoptConn(t, c, nil)
		pass(time.Second)
		e.Remove("/dir/n", 7)
		pass(10 * time.Second)
		require.Less(t, c.asked.Load(), int64(100))
		require.Greater(t, c.asked.Load(), int64(10))
		err := closeWithin(e, time.Second)
		require.ErrorContains(t, err, "background")
		pass(2*testTimeout + landing + time.Second)
		require.Error(t, e.life.Err())
	})
}

// When the network never comes back, what goes on behind Close ends with the session.
func TestAdoptedCloseEndsWithTheSession(t *testing.T) {
	inAdoptions(t, func(t *testing.T, tracked bool) {
		f := newFake(t)
		f.make("/dir/n")
		e, r, _ := adoptFake(t, f, tracked)
		var down atomic.Bool
		f.setOnDial(func(string) error {
			if down.Load() {
				<-time.After(50 * time.Millisecond)
				return errors.New("no route")
			}
			return nil
		})
		session := e.Epoch().Session
		down.Store(true)
		f.cut()
		pass(100 * time.Millisecond)
		owed := e.Remove("/dir/n", session)
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorContains(t, e.Close(ctx), "1 of its znodes")
		require.Equal(t, time.Second, time.Since(began))
		told := len(r.told())
		pass(2*testTimeout + landing - 5*time.Second)
		require.Equal(t, 1, e.Owing())
		pass(10 * time.Second)
		require.Zero(t, e.Owing())
		require.ErrorIs(t, owed.Err(), ErrClosed)
		require.Len(t, r.told(), told, "nobody is told anything after Close")
		require.ErrorIs(t, e.life.Err(), context.Canceled)
		down.Store(false) // or the client would go on for ever, closed or not
		pass(time.Second)
	})
}

// Readings of a connection, and what they tell.
func TestObservedContact(t *testing.T) {
	var told []string
	c := newObserved(time.Second)
	c.attach(func(s signal) {
		told = append(told, fmt.Sprintf("%s %d.%d", map[signalKind]string{signalUp: "up", signalDown: "down", signalExpired: "expired"}[s.kind], s.epoch.Session, s.epoch.Conn))
	})
	for _, step := range []struct {
		do   func()
		want []string
	}{
		{func() { c.observe(0, false) }, nil},
		{func() { c.observe(1, false) }, nil},
		{func() { c.observe(1, true) }, []string{"up 1.2"}},
		{func() { c.observe(1, true) }, nil},
		{func() { c.observe(1, false) }, []string{"down 1.2"}},
		{func() { c.observe(1, true) }, []string{"up 1.3"}},
		{func() { c.interrupted(Epoch{1, 2}, nil) }, nil},
		{func() { c.interrupted(Epoch{1, 3}, nil) }, []string{"down 1.3"}},
		{func() { c.observe(1, true) }, []string{"up 1.4"}},
		{func() { c.observe(2, true) }, []string{"down 1.4", "up 2.5"}},
		{func() { c.observe(0, true) }, []string{"down 2.5", "expired 2.5"}},
		{func() { c.observe(0, false) }, nil},
		{func() { c.observe(3, true) }, []string{"up 3.6"}},
		{func() { c.expired(2) }, []string{"expired 2.0"}},
		{func() { c.expired(3) }, []string{"down 3.6", "expired 3.6"}},
		{func() { c.observe(3, true) }, nil},
		{func() { c.observe(4, true) }, []string{"up 4.7"}},
	} {
		told = nil
		step.do()
		require.Equal(t, step.want, told)
	}
	require.Zero(t, c.Left(3))
	began := now()
	c.proved(3, began)
	require.LessOrEqual(t, c.Left(4), time.Duration(0))
	c.proved(4, began)
	require.Positive(t, c.Left(4))
	c.observe(5, true)
	require.LessOrEqual(t, c.Left(5), time.Duration(0), "nothing was answered in it yet")
}
