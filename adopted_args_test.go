package zkrecipes

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// Bad arguments come back at once; they do not use an option of TrackContact up.
func TestNewSessionRefusesBadArguments(t *testing.T) {
	sv := newService(t, zktest.Shared(t).Addrs(), testTimeout, nil)
	_, track := TrackContact(nil)
	_, other := TrackContact(nil)
	timeout := WithTimeout(testTimeout)
	for name, c := range map[string]struct {
		conn Conn
		opts []SessionOption
		says string
	}{
		"no connection":        {nil, []SessionOption{timeout}, "no connection"},
		"a nil connection":     {(*zk.Conn)(nil), []SessionOption{timeout}, "no connection"},
		"no timeout, no track": {sv.conn, nil, "TrackContact nor WithTimeout"},
		"negative timeout":     {sv.conn, []SessionOption{WithTimeout(-time.Second)}, "WithTimeout"},
		"two tracks":           {sv.conn, []SessionOption{track, other}, "2 times"},
		"one track twice":      {sv.conn, []SessionOption{track, track}, "2 times"},
		"bad namespace":        {sv.conn, []SessionOption{track, WithNamespace("a//b")}, "WithNamespace"},
		"no ACL":               {sv.conn, []SessionOption{track, WithACL()}, "WithACL"},
		"nil options only":     {sv.conn, []SessionOption{nil}, "TrackContact nor WithTimeout"},
	} {
		s, err := NewSession(c.conn, nil, c.opts...)
		require.Nil(t, s, name)
		require.ErrorIs(t, err, ErrInvalid, name)
		var e *Error
		require.ErrorAs(t, err, &e, name)
		require.Equal(t, "new session", e.Op)
		require.ErrorContains(t, err, c.says, name)
	}
	s, err := NewSession(sv.conn, nil, track, WithLogger(quiet(t)))
	require.NoError(t, err)
	_, err = NewSession(sv.conn, nil, track)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "another Session's")
	require.NoError(t, s.Close())
	_, err = NewSession(sv.conn, nil, track)
	require.ErrorIs(t, err, ErrInvalid, "also after the first one was closed")
	_, err = Dial(within(t, 5*time.Second), zktest.Shared(t).Addrs(), other)
	require.ErrorIs(t, err, ErrInvalid)
}

// NewSession waits for nothing; calls do, as long as their ctx lets them, and say why.
func TestNewSessionNeedsNoServer(t *testing.T) {
	t.Parallel()
	for _, w := range adoptions {
		dialer, opt := zk.Dialer(nil), WithTimeout(testTimeout)
		if w == tracked {
			dialer, opt = TrackContact(nil)
		}
		sv := newService(t, []string{"127.0.0.1:1"}, testTimeout, dialer)
		s, err := NewSession(sv.conn, nil, opt, WithLogger(quiet(t)))
		require.NoError(t, err)
		require.Zero(t, s.ID())
		require.Equal(t, StateSuspended, s.State())
		if w == tracked {
			eventually(t, 5*time.Second, "it is refused", func() bool {
				err := s.engine.DialError()
				return err != nil && strings.Contains(err.Error(), "refused")
			})
		}
		_, err = NewMutex(s, newPath(t)).TryLock(within(t, 200*time.Millisecond))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrNoConnection)
		require.ErrorContains(t, err, "the connection's state is State")
		if w == tracked {
			require.ErrorContains(t, err, "refused")
		}
		require.NoError(t, s.Close())
	}
}

// A Session whose connection was not made by its dialer never lets anything in, and says so.
func TestTrackOfAnotherConnection(t *testing.T) {
	t.Parallel()
	addrs := zktest.Shared(t).Addrs()
	dialer, track := TrackContact(nil)
	wrong := newService(t, addrs, testTimeout, nil)
	s, err := NewSession(wrong.conn, nil, track, WithLogger(quiet(t)))
	require.NoError(t, err)
	defer s.Close()
	m := NewMutex(s, newPath(t))
	wrong.hasSession(t)
	_, err = m.Lock(within(t, 300*time.Millisecond))
	require.ErrorIs(t, err, ErrNoConnection)
	require.ErrorContains(t, err, "knows nothing")
	right := newService(t, addrs, testTimeout, dialer)
	right.hasSession(t)
	_, err = m.Lock(within(t, 300*time.Millisecond))
	require.ErrorIs(t, err, ErrNoConnection)
	require.ErrorContains(t, err, "the connection is in session")
	require.NotZero(t, right.conn.SessionID())
}

// What wires have seen before there is a Session is not lost: it begins with how things stand.
func TestTrackBeforeNewSession(t *testing.T) {
	t.Parallel()
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	for name, before := range map[string]func(sv *service){
		"connected": func(*service) {},
		"reconnected": func(sv *service) {
			p.Cut()
			eventually(t, 5*time.Second, "it has noticed", func() bool { return len(sv.seen()) > 3 })
		},
		"expired": func(sv *service) { expireSession(t, p) },
		"down":    func(*service) { p.Refuse(true) },
	} {
		dialer, track := TrackContact(nil)
		sv := newService(t, []string{p.Addr()}, testTimeout, dialer)
		sv.hasSession(t)
		before(sv)
		s, err := NewSession(sv.conn, nil, track, WithLogger(quiet(t)))
		require.NoError(t, err, name)
		p.Refuse(false)
		l, err := NewMutex(s, newPath(t)).Lock(within(t, 5*time.Second))
		require.NoError(t, err, name)
		require.Equal(t, testTimeout, s.engine.Timeout())
		require.NoError(t, l.Release(context.Background()))
		_ = s.Close() // a create that met the end of the connection may be without an answer
		sv.closed()
	}
}

// A server that accepts a connection and does not answer is given up after a third of the timeout, the first time too. The client alone would wait for
// nearly seven times the timeout.
func TestTrackGivesUpASilentHandshake(t *testing.T) {
	t.Parallel()
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	p.BlackHole(zktest.Both)
	var dials []time.Time
	dialed := make(chan time.Time, 100)
	dialer, track := TrackContact(func(network, addr string, timeout time.Duration) (net.Conn, error) {
		dialed <- time.Now()
		return net.DialTimeout(network, addr, timeout)
	})
	sv := newService(t, []string{p.Addr()}, 3*time.Second, dialer)
	s, err := NewSession(sv.conn, nil, track, WithLogger(quiet(t)))
	require.NoError(t, err)
	defer s.Close()
	for range 2 {
		select {
		case at := <-dialed:
			dials = append(dials, at)
		case <-time.After(5 * time.Second):
			t.Fatal("it does not give up")
		}
	}
	gap := dials[1].Sub(dials[0])
	require.GreaterOrEqual(t, gap, time.Second)
	require.Less(t, gap, 2*time.Second)
	p.BlackHole(zktest.None)
	eventually(t, 10*time.Second, "a session", s.engine.Ready)
}
