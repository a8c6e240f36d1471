package zkrecipes

import (
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
)

// NewSession makes a Session on a connection that its caller has and goes on having: who closes it, gives it credentials and reads its events. It touches
// no network and does not wait for a session: calls of the recipes do, until their ctx ends.
//
// How the Session learns what happens to the connection decides how good its lease clock is. Best is a dialer of TrackContact's. Without it WithTimeout
// is required, with the timeout that the connection has negotiated:
//
//	session, err := zkrecipes.NewSession(conn, nil, zkrecipes.WithTimeout(negotiated))
//
// Then the Session looks at conn's state and session id some times a second, and proves the ZooKeeper session alive by requests of its own. conn must pass
// every request on to the server and answer none by itself.
//
// events is the channel that zk.Connect returned if nobody else reads it, else nil. It is a hint only: what it tells is seen a little later without it. A
// service that reads it itself passes nil, and is not disturbed.
//
// Several Sessions may use one connection; a lock separates them from one another as it does those of different processes.
//
// A connection that its owner closes while the Session is in use ends leases and calls. Close the Session first: see Session.Close.
//
// Errors are *Error and match ErrInvalid.
func NewSession(conn Conn, events <-chan zk.Event, opts ...SessionOption) (*Session, error) {
	var cfg sessionConfig
	for _, o := range opts {
		if o != nil {
			o.applySession(&cfg)
		}
	}
	fail := func(err error) (*Session, error) { return nil, &Error{Op: "new session", Err: err} }
	if c, ok := conn.(*zk.Conn); conn == nil || ok && c == nil {
		return fail(invalid("no connection"))
	}
	var track *core.Track
	switch {
	case len(cfg.tracks) > 1:
		return fail(invalid("TrackContact given %d times: a connection has one dialer", len(cfg.tracks)))
	case len(cfg.tracks) == 1:
		track = cfg.tracks[0]
	case cfg.timeout == 0:
		return fail(invalid("neither TrackContact nor WithTimeout: the session timeout that the connection has negotiated must be known"))
	}
	s, err := newSession(cfg)
	if err != nil {
		return fail(err)
	}
	if track != nil && !track.Take() { // last: one that fails does not use it up
		return fail(invalid("this option of TrackContact is another Session's: each connection needs a dialer and an option of its own"))
	}
	s.adopted = true
	s.engine = core.NewAdopted(s.begin(), conn, events, track)
	if err := s.engine.Start(); err != nil {
		_ = s.Close()
		return fail(err)
	}
	return s, nil
}

// TrackContact gives an adopted connection the exact lease clock of Dial. Pass the dialer to zk.WithDialer and the option to NewSession:
//
//	dialer, track := zkrecipes.TrackContact(nil)
//	conn, events, err := zk.Connect(servers, timeout, zk.WithDialer(dialer))
//	...
//	session, err := zkrecipes.NewSession(conn, nil, track)
//
// d makes the connections, also encrypted ones; nil is a plain dialer. The dialer reads along with what the client sends and receives, from the first
// connection on. It also mends faults of the client that a dialer can mend: a handshake that is not answered is given up after a third of the session
// timeout, sockets that the client forgot are closed, and re-authentication cannot wedge.
//
// One dialer serves one zk.Connect, and one option one Session; a second NewSession with it returns ErrInvalid. A Session whose connection was made by
// another dialer never has a session, and the errors of its calls say why.
func TrackContact(d zk.Dialer) (zk.Dialer, SessionOption) {
	t := core.NewTrack(d)
	return t.Dial, sessionOption(func(c *sessionConfig) { c.tracks = append(c.tracks, t) })
}
