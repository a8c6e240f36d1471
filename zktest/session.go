package zktest

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
)

// ErrNoSession is returned by [Proxy.Expire] before any session was granted
// through the proxy.
var ErrNoSession = errors.New("zktest: no session was opened through this proxy yet")

// Session returns the session that the last connect reply granted, whether or
// not that reply reached the client. The id is 0 before the first one. A reply
// that refuses a session changes nothing.
func (p *Proxy) Session() (id int64, passwd []byte, timeout time.Duration) {
	s := p.journal.lastSession()
	return s.id, append([]byte(nil), s.passwd...), s.timeout
}

// Expire ends the session of [Proxy.Session] on the server, past the proxy: a
// second connection to the target attaches to it and closes it, then its
// ephemeral nodes are gone. The server drops the client's connection soon after
// and the client learns at its next connect that the session has expired. A
// client that connects meanwhile waits until then: it could push the second
// connection aside, and keep its session.
//
// A session that is gone already is no error. Without a session the error is
// [ErrNoSession].
func (p *Proxy) Expire(ctx context.Context) error {
	s := p.journal.lastSession()
	if s.id == 0 {
		return ErrNoSession
	}
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	gate := NewGate()
	defer gate.Open()
	defer p.OnRequest(Rule{Match: MatchOp(OpConnect), Do: HoldRequest(gate)})()
	err := closeSession(ctx, target, s)
	// Clients that had passed the proxy already may come in between, once each.
	for tries := 0; errors.Is(err, errNoReply) && ctx.Err() == nil && tries < 10; tries++ {
		err = closeSession(ctx, target, s)
	}
	if err != nil {
		return fmt.Errorf("zktest: expire session %#x at %s: %w", s.id, target, err)
	}
	return nil
}

var errNoReply = errors.New("no reply")

// probe opens a session and closes it.
func probe(ctx context.Context, addr string) error {
	return closeSession(ctx, addr, session{passwd: make([]byte, 16), timeout: 5 * time.Second})
}

// closeSession attaches to the session, a new one if its id is 0, and closes it.
func closeSession(ctx context.Context, addr string, s session) (err error) {
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
	}()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	r := bufio.NewReader(conn)

	if _, err := conn.Write(encodeFrame(connectRequest(s))); err != nil {
		return err
	}
	reply, err := readFrame(r)
	if err != nil {
		return fmt.Errorf("%w to the connect: %w", errNoReply, err)
	}
	granted, ok := parseConnectReply(reply[4:])
	if !ok {
		return errors.New("the reply to the connect makes no sense")
	}
	if granted.id == 0 {
		return nil // gone already
	}

	const xid = 1
	b := binary.BigEndian.AppendUint32(nil, xid)
	closing := int32(OpClose)
	b = binary.BigEndian.AppendUint32(b, uint32(closing))
	if _, err := conn.Write(encodeFrame(b)); err != nil {
		return err
	}
	for {
		reply, err := readFrame(r)
		if err != nil {
			return fmt.Errorf("%w to the close: %w", errNoReply, err)
		}
		switch f := parseReply(reply[4:]); {
		case f.Xid != xid || f.Op == OpEvent:
		case f.Err != 0:
			return fmt.Errorf("the close failed with code %d", f.Err)
		default:
			return nil
		}
	}
}
