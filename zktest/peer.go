package zktest

import (
	"net"
	"sync"
	"time"
)

// A peer is one connection of a Server. What it is sent goes through an unbounded queue, so that a client that does not read keeps nobody else waiting.
type peer struct {
	s        *Server
	c        net.Conn
	from     *machine    // nil for TCP
	session  *memSession // under Server.mu
	auth     []identity  // under Server.mu
	old      bool        // a client that says nothing of servers that only read
	watching map[watchRef]struct{}
	done     chan struct{} // closed when it is over
	doneOnce sync.Once

	mu    sync.Mutex
	queue []outFrame
	more  chan struct{} // has a token when the queue may have something
	last  bool          // nothing comes after what is in the queue
}

// An outFrame is a reply or an event on its way.
type outFrame struct {
	op    Op
	path  string
	bytes []byte
	due   time.Time // not before
	gate  *Gate     // not before it opens
	lose  bool      // the connection ends in its place
}

func newPeer(s *Server, c net.Conn, from *machine) *peer {
	p := &peer{s: s, c: c, from: from, watching: make(map[watchRef]struct{}), done: make(chan struct{}), more: make(chan struct{}, 1)}
	if host, _, err := net.SplitHostPort(c.RemoteAddr().String()); err == nil {
		p.auth = append(p.auth, identity{"ip", host})
	} else {
		p.auth = append(p.auth, identity{"ip", "127.0.0.1"})
	}
	return p
}

// hangUp ends the connection; it does not wait.
func (p *peer) hangUp() {
	p.doneOnce.Do(func() { close(p.done) })
	p.c.Close()
}

// over reports whether the connection has ended.
func (p *peer) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// read takes requests until the connection ends.
func (p *peer) read() {
	defer p.gone()
	for first := true; ; first = false {
		frame, err := readFrameUpTo(p.c, p.s.maxFrame)
		if err != nil {
			return
		}
		body := frame[4:]
		if !p.s.passes(p, body, first) {
			return
		}
		if !p.s.take(p, body, first) {
			return
		}
	}
}

// gone takes what the connection had out of the server. The server knows it until write has ended, which may wait for a client that does not read, or for
// a gate: Close has to end that too.
func (p *peer) gone() {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches.forget(p)
	if p.session != nil && p.session.peer == p {
		p.session.peer = nil
	}
	p.mu.Lock()
	last := p.last
	p.mu.Unlock()
	if !last { // else what is in the queue goes out first
		p.hangUp()
	}
}

func (p *peer) send(f outFrame) {
	p.mu.Lock()
	if !p.last {
		p.queue = append(p.queue, f)
	}
	p.mu.Unlock()
	p.wake()
}

// lastFrame ends the connection behind what is in the queue; Server.mu is held.
func (p *peer) lastFrame() {
	p.s.watches.forget(p)
	p.mu.Lock()
	p.last = true
	p.mu.Unlock()
	p.wake()
}

func (p *peer) wake() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// write sends what is in the queue.
func (p *peer) write() {
	defer func() {
		p.hangUp()
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		delete(p.s.peers, p)
	}()
	for {
		p.mu.Lock()
		var f outFrame
		some := len(p.queue) > 0
		if some {
			f = p.queue[0]
			p.queue = p.queue[1:]
		}
		last := p.last
		p.mu.Unlock()
		if !some {
			if last {
				return
			}
			select {
			case <-p.more:
				continue
			case <-p.done:
				return
			}
		}
		if !p.wait(f) || f.lose {
			return
		}
		if _, err := p.c.Write(f.bytes); err != nil {
			return
		}
	}
}

// wait waits until a frame may go out; false when the connection ended first.
func (p *peer) wait(f outFrame) bool {
	if d := time.Until(f.due); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-p.done:
			return false
		}
	}
	if f.gate != nil && !f.gate.pass(p.done) {
		return false
	}
	for {
		healed := p.s.cutOff(p)
		if healed == nil {
			return true
		}
		select {
		case <-healed:
		case <-p.done:
			return false
		}
	}
}

// event sends a watch event; Server.mu is held.
func (p *peer) event(kind eventType, path string) {
	e := replyHeader(xidEvent, -1, codeOK)
	e.int32(int32(kind))
	e.int32(3) // connected, the only state that a server tells
	e.string(path)
	p.s.reply(p, OpEvent, path, e.b)
}
