package core

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// watchHold is the longest that incoming frames wait for the client's setWatches; see wire. It passes in steps, each counted from when the last one was
// seen to be over: a process that did not run for a while has not had that time to send them.
const (
	watchHold = holdSteps * holdStep
	holdSteps = 10
	holdStep  = 10 * time.Millisecond
)

// Frames are taken from the socket with room for leastRead bytes; the list of a long queue takes more, and room beyond mostKept is given back behind it.
const (
	leastRead = 4 << 10
	mostKept  = 16 << 10
)

var errHandshake = errors.New("no answer to the session handshake")

// A wire is one connection as go-zookeeper uses it: it reads along, in frames, and feeds a Contact.
//
// It also cures a race of the client. go-zookeeper reads the last zxid it saw for its setWatches request while its receive loop may already write it,
// which -race reports, and which in theory hides a change made in between. So after a re-attach the wire keeps what comes in until the first
// setWatches frame of this connection went out. Replies to auth pass: the client waits for them before it sends anything else.
type wire struct {
	net.Conn
	lane *lane

	// The client writes from one goroutine at a time and reads from one; mu covers what both touch.
	mu        sync.Mutex
	sent      map[int32]pending
	pings     []instant
	asked     connectRequest
	askedAt   instant   // zero until it was written
	up        bool      // the connect reply was read
	opaque    bool      // what was written is not in frames: nothing is credited any more
	holdUntil time.Time // end of the hold's present step, zero when nothing is held
	holdLeft  int       // steps, this one included
	fresh     time.Time // until when the client may not have looked yet for watches to set again; zero when that is waited for by a hold
	deadline  time.Time // the client's own read deadline
	handshake time.Time // deadline of the handshake, zero when it is over

	epoch Epoch // set by Contact.connected, before any later frame is looked at

	acc  []byte   // bytes from the socket,
	used int      // those of a frame that was received, and is looked at until the next one is
	held [][]byte // whole frames that wait for setWatches
	out  []byte   // rest of the frame that the client is reading, in acc or held

	closeOnce sync.Once
}

type pending struct {
	op   int32
	sent instant
}

func newWire(c net.Conn, l *lane, handshake time.Duration) *wire {
	w := &wire{Conn: c, lane: l, sent: make(map[int32]pending)}
	if handshake > 0 { // else the client's request says
		w.handshake = time.Now().Add(handshake)
	}
	return w
}

// Write sends one or more whole frames, as go-zookeeper does. That it failed is kept from the client in two cases, in which it shall learn of it from its
// read, as of any other end of a connection. Told of it while it sends its credentials again, it waits for itself for ever. And told while it is closed, it
// may answer a request three times, as it queues it, as the write fails and as its loop ends, and has room for two answers: its loop waits for ever.
func (w *wire) Write(b []byte) (int, error) {
	var room [1]*tap
	taps, release, auth := w.noteWrite(room[:0], b)
	n, err := w.Conn.Write(b)
	for _, t := range taps {
		t.end(tapSent)
	}
	if release {
		w.endHold()
	}
	if err != nil && (auth || w.lane.closing.Load()) {
		w.down(err)
		w.Close()
		return len(b), nil
	}
	return n, err
}

func (w *wire) noteWrite(out []*tap, b []byte) (taps []*tap, release, auth bool) {
	taps = out
	at := now()
	for rest := b; len(rest) > 0; {
		n, ok := frameLen(rest)
		if !ok || n == 0 || n > len(rest) || n < 12 {
			w.mu.Lock()
			w.opaque = true
			w.mu.Unlock()
			return taps, release, auth
		}
		frame := rest[:n]
		rest = rest[n:]
		w.mu.Lock()
		if w.askedAt.isZero() {
			w.asked, _ = parseConnectRequest(frame)
			w.askedAt = at
			if w.handshake.IsZero() { // of a client that is somebody else's: this is the first to tell its timeout
				w.handshake = time.Now().Add(w.asked.timeout / 3)
			}
			w.mu.Unlock()
			continue
		}
		xid, op := int32(binary.BigEndian.Uint32(frame[4:])), int32(binary.BigEndian.Uint32(frame[8:]))
		if xid == xidPing {
			w.pings = append(w.pings, at)
		} else {
			w.sent[xid] = pending{op, at}
		}
		w.mu.Unlock()
		if setsWatch(op) && frame[len(frame)-1] == 1 {
			w.holdFresh()
		}
		if op == opSetWatches || op == opSetWatches2 {
			release = w.lane.sawSetWatches(setWatchesZxid(frame)) || release
		}
		auth = auth || op == opAuth
		taps = w.lane.contact.writing(taps, w, op, frame)
	}
	return taps, release, auth
}

// Read hands the client one frame at a time.
func (w *wire) Read(p []byte) (int, error) {
	for len(w.out) == 0 {
		frame, err := w.next()
		if err != nil {
			w.down(err)
			return 0, err
		}
		w.out = frame
	}
	n := copy(p, w.out)
	w.out = w.out[n:]
	return n, nil
}

// next returns the next frame that the client may see.
func (w *wire) next() ([]byte, error) {
	for {
		if len(w.held) > 0 && !w.holding() {
			frame := w.held[0]
			w.held = w.held[1:]
			return frame, nil
		}
		frame, err := w.receive()
		if errors.Is(err, errHoldOver) {
			continue
		}
		if err != nil {
			return nil, err
		}
		op, err := w.noteRead(frame)
		if err != nil {
			return nil, err
		}
		if len(w.held) > 0 || w.holding() {
			if op == opAuth {
				w.extendHold()
				return frame, nil
			}
			if op != opConnectReply {
				w.held = append(w.held, slices.Clone(frame))
				continue
			}
		}
		return frame, nil
	}
}

// opConnectReply stands for the first frame from the server, which answers no numbered request.
const opConnectReply = -100

var errHoldOver = errors.New("hold over")

// receive reads one whole frame from the socket, which is there until the next call. A read that was only interrupted for the end of a hold keeps its bytes
// and returns errHoldOver.
func (w *wire) receive() ([]byte, error) {
	w.acc, w.used = append(w.acc[:0], w.acc[w.used:]...), 0
	if cap(w.acc) > mostKept && len(w.acc) < leastRead {
		w.acc = slices.Clone(w.acc)
	}
	for {
		n, ok := frameLen(w.acc)
		if !ok {
			return nil, fmt.Errorf("zkrecipes: frame of %d bytes from %s", binary.BigEndian.Uint32(w.acc), w.RemoteAddr())
		}
		if n > 0 && len(w.acc) >= n {
			w.used = n
			return w.acc[:n], nil
		}
		if need := max(n, leastRead); cap(w.acc) < need {
			w.acc = append(make([]byte, 0, need), w.acc...)
		}
		if !w.applyDeadline() {
			return nil, errHoldOver
		}
		got, err := w.Conn.Read(w.acc[len(w.acc):cap(w.acc)])
		w.acc = w.acc[:len(w.acc)+got]
		if got > 0 {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if err = w.expiredDeadline(); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

// noteRead looks at a frame before the client does.
func (w *wire) noteRead(frame []byte) (op int32, err error) {
	w.mu.Lock()
	if !w.up {
		r, ok := parseConnectReply(frame)
		if !ok || w.askedAt.isZero() {
			w.mu.Unlock()
			return 0, fmt.Errorf("zkrecipes: %s does not speak ZooKeeper's protocol", w.RemoteAddr())
		}
		w.up = true
		w.handshake = time.Time{}
		asked, at := w.asked, w.askedAt
		w.mu.Unlock()
		hold, ok := w.lane.contact.connected(w, asked.session, at, r)
		if !ok {
			return 0, net.ErrClosed
		}
		if hold {
			w.lane.expectSetWatches(asked.zxid)
		}
		w.mu.Lock()
		if hold {
			w.startHold()
		} else {
			w.fresh = time.Now().Add(freshFor)
		}
		w.mu.Unlock()
		return opConnectReply, nil
	}
	defer w.mu.Unlock()
	if len(frame) < 4+16 {
		return 0, fmt.Errorf("zkrecipes: reply of %d bytes from %s", len(frame), w.RemoteAddr())
	}
	xid, zxid, code := int32(binary.BigEndian.Uint32(frame[4:])), int64(binary.BigEndian.Uint64(frame[8:])), int32(binary.BigEndian.Uint32(frame[16:]))
	var p pending
	switch {
	case xid == xidEvent:
		return 0, nil
	case xid == xidPing:
		if len(w.pings) == 0 {
			return 0, nil
		}
		p = pending{opPing, w.pings[0]}
		w.pings = w.pings[1:]
	default:
		var ok bool
		if p, ok = w.sent[xid]; !ok {
			return 0, nil
		}
		delete(w.sent, xid)
	}
	if !w.opaque {
		w.lane.contact.answered(w, p, code, zxid, frame)
	}
	return p.op, nil
}

func (w *wire) holding() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stepHold()
	return !w.holdUntil.IsZero()
}

// startHold is called with mu held, and so is stepHold, which goes on to the hold's next step when the present one is over.
func (w *wire) startHold() {
	w.holdUntil, w.holdLeft = time.Now().Add(holdStep), holdSteps
}

// freshFor is how long a client that has no watches is given to find that out. If it did so behind the answer to a read that sets one, it would take that for
// a watch to be set again, and read its last zxid while that is written.
const freshFor = 2 * holdStep

// holdFresh keeps what comes in until then, since a watch is being set.
func (w *wire) holdFresh() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holdUntil.IsZero() && time.Now().Before(w.fresh) {
		w.holdUntil, w.holdLeft = w.fresh, 1
	}
}

func (w *wire) stepHold() {
	at := time.Now()
	if w.holdUntil.IsZero() || at.Before(w.holdUntil) {
		return
	}
	if w.holdLeft--; w.holdLeft > 0 {
		w.holdUntil = at.Add(holdStep)
	} else {
		w.holdUntil = time.Time{}
	}
}

// extendHold gives the client its time anew: it sends no setWatches before the last auth was answered.
func (w *wire) extendHold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.holdUntil.IsZero() {
		w.startHold()
	}
}

func (w *wire) endHold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.holdUntil.IsZero() {
		w.holdUntil = time.Time{}
		// Wakes a Read that waits on the socket; it sets the right deadline before it waits again.
		_ = w.Conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// SetReadDeadline keeps the client's deadline; the socket's is the earliest of those that apply.
func (w *wire) SetReadDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline = t
	return nil
}

// SetDeadline sets both deadlines.
func (w *wire) SetDeadline(t time.Time) error {
	_ = w.SetReadDeadline(t)
	return w.SetWriteDeadline(t)
}

// applyDeadline sets the socket's deadline. It reports false, in one step with that, when there is something to deliver instead of a read: a hold that
// ends later interrupts the read.
func (w *wire) applyDeadline() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.held) > 0 && w.holdUntil.IsZero() {
		return false
	}
	d := w.deadline
	for _, other := range []time.Time{w.handshake, w.holdUntil} {
		if !other.IsZero() && (d.IsZero() || other.Before(d)) {
			d = other
		}
	}
	_ = w.Conn.SetReadDeadline(d)
	return true
}

// expiredDeadline tells why a read timed out: nil for nothing that counts.
func (w *wire) expiredDeadline() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Now()
	switch {
	case !w.handshake.IsZero() && !at.Before(w.handshake):
		return errHandshake
	case !w.deadline.IsZero() && !at.Before(w.deadline):
		return os.ErrDeadlineExceeded
	}
	if w.stepHold(); w.holdUntil.IsZero() && len(w.held) > 0 {
		return errHoldOver
	}
	return nil
}

// Close closes the socket and tells the Contact, once.
func (w *wire) Close() error {
	err := w.Conn.Close()
	w.down(net.ErrClosed)
	return err
}

func (w *wire) down(err error) {
	w.closeOnce.Do(func() {
		w.lane.remove(w, err)
		w.mu.Lock()
		up := w.up
		w.mu.Unlock()
		if up {
			w.lane.contact.disconnected(w, err)
		}
	})
}
