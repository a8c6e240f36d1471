package zkrecipes

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A way is how a test comes to its Sessions.
type way int

const (
	dialed   way = iota // Dial
	tracked             // NewSession on a connection with TrackContact
	observed            // NewSession on one without
)

func (w way) String() string { return []string{"dialed", "tracked", "observed"}[w] }

// adoptions are the ways of NewSession.
var adoptions = []way{tracked, observed}

// A via is a test in which dial and its kind open Sessions in another way than by Dial.
type via struct {
	testing.TB
	way way
}

// wayOf finds out in which way a test opens Sessions.
func wayOf(t testing.TB) way {
	for {
		switch v := t.(type) {
		case via:
			return v.way
		case *side:
			t = v.TB
		case *cutRun:
			t = v.TB
		default:
			return dialed
		}
	}
}

// forAdoptions runs a test in the ways of NewSession.
func forAdoptions(t *testing.T, fn func(t testing.TB)) {
	for _, w := range adoptions {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			fn(via{t, w})
		})
	}
}

// A service has a connection of its own, whose events it reads itself.
type service struct {
	conn   *zk.Conn
	closed func() // closes the connection and waits until its events have ended
	ended  chan struct{}

	mu     sync.Mutex
	events []zk.Event
}

// newService connects. A single server would make the client sleep a second at each reconnect, so it is told of it three times.
func newService(t testing.TB, addrs []string, timeout time.Duration, dialer zk.Dialer) *service {
	t.Helper()
	return newServiceWith(t, addrs, timeout, dialer, nil)
}

func newServiceWith(t testing.TB, addrs []string, timeout time.Duration, dialer zk.Dialer, called zk.EventCallback) *service {
	t.Helper()
	if dialer == nil {
		dialer = net.DialTimeout
	}
	if len(addrs) == 1 {
		addrs = []string{addrs[0], addrs[0], addrs[0]}
	}
	sv := &service{ended: make(chan struct{})}
	conn, events, err := zk.Connect(addrs, timeout, zk.WithDialer(dialer), zk.WithLogInfo(false), zk.WithLogger(discard{}), zk.WithEventCallback(called))
	require.NoError(t, err)
	sv.conn = conn
	go func() {
		defer close(sv.ended)
		for ev := range events {
			sv.mu.Lock()
			sv.events = append(sv.events, ev)
			sv.mu.Unlock()
		}
	}()
	sv.closed = sync.OnceFunc(func() {
		conn.Close()
		<-sv.ended
	})
	t.Cleanup(sv.closed)
	return sv
}

// seen returns the events so far.
func (sv *service) seen() []zk.Event {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	return slices.Clone(sv.events)
}

// hasSession waits until the connection has one.
func (sv *service) hasSession(t testing.TB) {
	t.Helper()
	eventually(t, 15*time.Second, "the service has a session", func() bool { return sv.conn.State() == zk.StateHasSession })
}

// adopt opens a connection of the test's way, and a Session on it that is closed before it is.
func adopt(t testing.TB, addrs []string, opts ...DialOption) (*Session, *service) {
	t.Helper()
	cfg := dialConfig{sessionConfig: sessionConfig{timeout: testTimeout, logger: quiet(t)}}
	sopts := []SessionOption{WithLogger(cfg.logger)}
	for _, o := range opts {
		o.applyDial(&cfg)
		if so, ok := o.(SessionOption); ok {
			sopts = append(sopts, so)
		}
	}
	dialer := cfg.dialer
	if wayOf(t) == tracked {
		var track SessionOption
		dialer, track = TrackContact(cfg.dialer)
		sopts = append(sopts, track)
	} else {
		sopts = append(sopts, WithTimeout(cfg.timeout)) // the servers of these tests grant what they are asked for
	}
	sv := newService(t, addrs, cfg.timeout, dialer)
	s, err := NewSession(sv.conn, nil, sopts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	if cfg.strict {
		sv.hasSession(t)
	}
	eventually(t, 15*time.Second, "the Session has a session", s.engine.Ready)
	return s, sv
}

// The simplest use, with what a user may look at.
func TestAdoptedSession(t *testing.T) {
	forAdoptions(t, func(t testing.TB) {
		s, sv := adopt(t, zktest.Shared(t).Addrs(), calm)
		require.Equal(t, sv.conn.SessionID(), s.ID())
		path := newPath(t)
		l, err := NewMutex(s, path).Lock(within(t, 5*time.Second))
		require.NoError(t, err)
		_, stat, err := sv.conn.Get(l.Node())
		require.NoError(t, err)
		require.Equal(t, Token(stat.Czxid), l.Token())
		require.Equal(t, s.ID(), stat.EphemeralOwner)
		eventually(t, 5*time.Second, "connected", func() bool { return s.State() == StateConnected })
		ok, _, err := s.Conn().Exists(l.Node())
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, l.Release(within(t, 5*time.Second)))
		held, err := NewMutex(s, path).Lock(within(t, 5*time.Second))
		require.NoError(t, err)
		require.Greater(t, held.Token(), l.Token())
		begun := time.Now()
		require.NoError(t, s.Close())
		require.Less(t, time.Since(begun), 2*time.Second)
		require.ErrorIs(t, held.Err(), ErrLost)
		require.Equal(t, StateClosed, s.State())
		require.Empty(t, children(t, sv.conn, path))
		require.Equal(t, zk.StateHasSession, sv.conn.State())
		_, err = NewMutex(s, path).Lock(within(t, 5*time.Second))
		require.ErrorIs(t, err, ErrClosed)
	})
}
