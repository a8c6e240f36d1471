package zktest

import (
	"net"
	"sync"
)

// link is one client connection and its connection to the server.
type link struct {
	p      *Proxy
	id     int
	target string
	client *net.TCPConn
	done   chan struct{} // closed when the link is closed
	once   sync.Once

	// Guarded by the mutex of the proxy.
	server *net.TCPConn // nil until connected
	lines  [2]*line     // to server, to client; nil until connected
	closed bool
	lost   Direction // in which directions a black hole took something
	ended  Direction // in which directions the stream has come to its end

	mu      sync.Mutex
	waiting map[int32][]*request // forwarded and not answered, by xid
}

// request is what has to be known of a request when its reply comes.
type request struct {
	op     Op
	xid    int32
	path   string
	n      int
	action Action
	record *Record
}

func newLink(p *Proxy, id int, client *net.TCPConn, target string) *link {
	return &link{
		p: p, id: id, target: target, client: client,
		done:    make(chan struct{}),
		waiting: map[int32][]*request{},
	}
}

// run connects to the server and moves frames until the link is closed.
func (l *link) run() {
	defer l.close(true)
	if !l.connect() {
		return
	}
	var wg sync.WaitGroup
	for _, ln := range l.lines {
		wg.Go(ln.read)
		wg.Go(ln.forward)
	}
	wg.Wait()
	// When a black hole swallowed both ends nobody is left to forward, but the
	// sockets must not tell. Healing it closes the link.
	l.p.mu.Lock()
	lost := l.lost
	l.p.mu.Unlock()
	if lost != None {
		<-l.done
	}
}

func (l *link) connect() bool {
	var d net.Dialer
	conn, err := d.DialContext(l.p.ctx, "tcp", l.target)
	if err != nil {
		// The reset with which the client would learn of it is a message from
		// the server's side: a black hole and a stall hold that back too.
		l.p.hold(l, ToClient)
		return false
	}
	server := conn.(*net.TCPConn)
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.closed {
		reset(server)
		return false
	}
	l.server = server
	l.lines[0] = newLine(l, ToServer, l.client, server)
	l.lines[1] = newLine(l, ToClient, server, l.client)
	return true
}

// hold waits until nothing keeps direction d back, or the link is closed.
func (p *Proxy) hold(l *link, d Direction) {
	for {
		p.mu.Lock()
		held, changed := (p.hole|p.stall)&d != 0, p.changed
		p.mu.Unlock()
		if !held {
			return
		}
		select {
		case <-changed:
		case <-l.done:
			return
		}
	}
}

// close ends the link on both sides, with a reset or, when both streams have
// come to their end, without. When it returns the sockets are closed, whoever
// was first.
func (l *link) close(rst bool) {
	l.once.Do(func() {
		l.p.mu.Lock()
		l.closed = true
		server := l.server
		l.p.mu.Unlock()
		close(l.done)
		for _, c := range []*net.TCPConn{l.client, server} {
			switch {
			case c == nil:
			case rst:
				reset(c)
			default:
				_ = c.Close()
			}
		}
		l.p.mu.Lock()
		delete(l.p.links, l)
		l.p.mu.Unlock()
	})
}

// reset closes a connection so that the peer sees "connection reset by peer".
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// end notes that a stream has come to its end, and closes the link when both
// have.
func (l *link) end(d Direction) {
	l.p.mu.Lock()
	l.ended |= d
	all := l.ended == Both
	l.p.mu.Unlock()
	if all {
		l.close(false)
	}
}

// expect remembers a request before it is forwarded, so that its reply cannot
// come first.
func (l *link) expect(r *request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[r.xid] = append(l.waiting[r.xid], r)
}

// answered finds the request that a reply is for. Requests with the same xid,
// as pings are, are answered in order.
func (l *link) answered(xid int32) *request {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.waiting[xid]
	if len(q) == 0 {
		return nil
	}
	if len(q) == 1 {
		delete(l.waiting, xid)
	} else {
		l.waiting[xid] = q[1:]
	}
	return q[0]
}
