package core

import (
	"bytes"
	"sync"
	"sync/atomic"
	"time"
)

// A Contact is what the frames on the wire have shown of a client's contact with the ensemble. Several connections, one after another, feed it; after
// a rebuild, several clients. Its methods never block.
type Contact struct {
	mu      sync.Mutex
	epoch   Epoch // of the connection in use, or the last one
	conns   uint64
	up      bool
	passwd  []byte
	timeout time.Duration // negotiated on the connection in use
	clock   leaseClock
	glance  glance           // of Left
	dead    int64            // the session of epoch, once it is known to be over: no clock counts for it any more
	heard   instant          // send time of the last request that was answered at all
	taps    map[string]*tap  // creates whose reply is awaited, by the id in their name
	watched bool             // the client may have watches to set again on its next connection
	former  map[int64][]byte // passwords of sessions that were replaced without a word from the server
	closed  chan struct{}    // closed when a server answered closeSession
	notify  func(signal)
	wired   bool // wires feed it, constant; else what an adopted connection says of itself, see observe
	foreign bool // the client is somebody else's, constant
	taken   bool // an engine goes by it
}

// A signal tells the engine what a wire saw.
type signal struct {
	kind  signalKind
	epoch Epoch
	lane  *lane
	err   error
}

type signalKind int

const (
	signalUp      signalKind = iota // a connect reply with a session
	signalDown                      // the connection of that epoch is over
	signalExpired                   // a server answered that epoch.Session is over
	signalClosing                   // the client, somebody else's, is about to close its session
	signalClosed                    // and a server answered that
)

const idLen = 36 // of a UUID

// A tap waits for one create: when its frame is out, and under which zxid it was answered.
type tap struct {
	id    [idLen]byte
	zxid  int64 // under Contact.mu
	state atomic.Int32
	ended sync.WaitGroup // until state is another one than tapOpen
}

// The states of a tap.
const (
	tapOpen int32 = iota
	tapSent       // the frame was handed to the socket
	tapOver       // it was not, and will not be
)

// NewContact returns a Contact that nothing feeds yet.
func NewContact() *Contact {
	return &Contact{wired: true, taps: make(map[string]*tap), former: make(map[int64][]byte), closed: make(chan struct{}), notify: func(signal) {}}
}

// Epoch returns the epoch of the connection in use, or of the last one.
func (c *Contact) Epoch() Epoch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch
}

// Left returns how long the given session is still certain to live at the server; zero or less when nothing proves it.
func (c *Contact) Left(session int64) time.Duration {
	if session == 0 {
		return 0
	}
	if left, ok := c.glance.of(session); ok {
		return left
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if session != c.epoch.Session || session == c.dead {
		return 0
	}
	at := now()
	left := c.clock.left(at)
	c.glance.take(session, at, left)
	return left
}

// end notes that a session is over. Whoever asks for its clock from now on has none; whoever asked before can be told of the end.
func (c *Contact) end(session int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch.Session == session {
		c.dead = session
		c.glance.forget()
	}
}

// Over reports whether a session is known to have ended or to have been replaced.
func (c *Contact) Over(session int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return session != c.epoch.Session || session == c.dead
}

func (c *Contact) timing() (e Epoch, up bool, clock leaseClock, heard instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch, c.up, c.clock, c.heard
}

func (c *Contact) identity() (session int64, passwd []byte, timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch.Session, c.passwd, c.timeout
}

// takeFormer returns, once, the password of a session that was replaced, or of the last one when it was given up.
func (c *Contact) takeFormer(session int64) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.former[session]
	if session == c.epoch.Session {
		p = c.passwd
	}
	delete(c.former, session)
	return p
}

// end sets the state, unless it is set.
func (t *tap) end(state int32) {
	if t.state.CompareAndSwap(tapOpen, state) {
		t.ended.Done()
	}
}

// wasSent waits until it is decided whether the frame was sent.
func (t *tap) wasSent() bool {
	t.ended.Wait()
	return t.state.Load() == tapSent
}

// tap registers a new tap for a create whose name carries id; untap returns what was seen.
func (c *Contact) tap(id string, t *tap) {
	copy(t.id[:], id)
	t.ended.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taps[id] = t
}

func (c *Contact) untap(id string) (zxid int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.taps[id]; t != nil {
		zxid = t.zxid
	}
	delete(c.taps, id)
	return zxid
}

// tapsIn appends the taps of the creates in a frame; mu is held.
func (c *Contact) tapsIn(found []*tap, frame []byte) []*tap {
	for _, t := range c.taps {
		if bytes.Contains(frame, t.id[:]) {
			found = append(found, t)
		}
	}
	return found
}

// connected takes a connect reply. hold is whether the client may have watches to set again. It reports false when the lane was shut: then the
// connection must not be used; its end may have been told already.
func (c *Contact) connected(w *wire, asked int64, sent instant, r connectReply) (hold, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.lane.isShut() {
		return false, false
	}
	if r.session == 0 {
		c.up = false
		if c.epoch.Session == asked {
			c.dead = asked
			c.glance.forget()
		}
		c.notify(signal{kind: signalExpired, epoch: Epoch{Session: asked}, lane: w.lane})
		return false, true
	}
	c.conns++
	if asked == 0 { // a new client, or one whose session has expired: it has no watches
		c.watched = false
	}
	if asked != 0 && asked == c.epoch.Session && r.session != asked {
		c.former[asked] = c.passwd
	}
	c.epoch = Epoch{r.session, c.conns}
	c.up = true
	c.passwd = r.passwd
	c.timeout = time.Duration(r.timeoutMs) * time.Millisecond
	c.clock = leaseClock{sent, c.timeout}
	c.glance.forget()
	c.heard = sent
	w.epoch = c.epoch
	c.notify(signal{kind: signalUp, epoch: c.epoch, lane: w.lane})
	return c.watched, true
}

// answered takes the reply to a request that was sent on w at that instant.
func (c *Contact) answered(w *wire, p pending, code int32, zxid int64, frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.epoch != c.epoch {
		return
	}
	if p.sent.after(c.heard) {
		c.heard = p.sent
	}
	if provesSession(p.op) && decidedByLeader(code) && p.sent.after(c.clock.s) {
		c.clock = leaseClock{p.sent, c.timeout}
		c.glance.forget()
	}
	if code == 0 && makesNode(p.op) && len(c.taps) > 0 {
		var room [1]*tap
		for _, t := range c.tapsIn(room[:0], frame) {
			t.zxid = zxid
		}
	}
	if code == 0 && p.op == opClose {
		select {
		case <-c.closed:
		default:
			close(c.closed)
			if c.foreign {
				c.notify(signal{kind: signalClosed, epoch: w.epoch, lane: w.lane})
			}
		}
	}
}

func (c *Contact) disconnected(w *wire, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.epoch == c.epoch {
		c.up = false
	}
	if w.epoch.Session != 0 {
		c.notify(signal{kind: signalDown, epoch: w.epoch, lane: w.lane, err: err})
	}
}

// writing notes what the client is about to send, and appends the taps to close when it is out.
func (c *Contact) writing(out []*tap, w *wire, op int32, frame []byte) []*tap {
	c.mu.Lock()
	defer c.mu.Unlock()
	if setsWatch(op) && frame[len(frame)-1] == 1 && w.epoch == c.epoch {
		c.watched = true
	}
	if makesNode(op) && len(c.taps) > 0 {
		out = c.tapsIn(out, frame)
	}
	if op == opClose && c.foreign && w.epoch == c.epoch {
		c.dead = w.epoch.Session // before the server knows
		c.glance.forget()
		c.notify(signal{kind: signalClosing, epoch: w.epoch, lane: w.lane})
	}
	return out
}
