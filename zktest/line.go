package zktest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// line is one direction of a link. One goroutine reads frames from src into the
// queue, always, so that a sender never notices what happens behind; another
// takes them out when they are due and forwards them to dst, in order.
type line struct {
	l        *link
	dir      Direction
	src, dst *net.TCPConn

	mu    sync.Mutex
	queue []parcel
	bytes int           // in the queue
	full  chan struct{} // has a token when the queue got something
	room  chan struct{} // has a token when the queue got shorter

	// write is held for the decision that a frame may pass and the write that
	// follows it, so that who changes the decision can wait for the write.
	write sync.Mutex

	first bool // the next frame is the first; of the forwarding goroutine
}

// parcel is a frame on its way, or the end of the stream.
type parcel struct {
	due   time.Time
	raw   []byte // with the length; not a whole frame when whole is false
	whole bool
	end   bool
	err   error // of the end: nil for an orderly one
}

// maxQueued bounds what a stalled line keeps. A sender that has more than that
// to say is stalled by TCP itself.
const maxQueued = 16 << 20

func newLine(l *link, dir Direction, src, dst *net.TCPConn) *line {
	return &line{
		l: l, dir: dir, src: src, dst: dst, first: true,
		full: make(chan struct{}, 1),
		room: make(chan struct{}, 1),
	}
}

// read fills the queue until the stream ends.
func (ln *line) read() {
	r := bufio.NewReaderSize(ln.src, 16<<10)
	for {
		raw, err := readFrame(r)
		due := time.Now().Add(ln.l.p.currentDelay())
		if err == nil {
			if !ln.push(parcel{due: due, raw: raw, whole: true}) {
				return
			}
			continue
		}
		if errors.Is(err, errNotAFrame) {
			ln.l.p.fail("%s, connection %d: %v", ln.dir, ln.l.id, err)
		} else if len(raw) > 0 {
			ln.push(parcel{due: due, raw: raw})
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		ln.push(parcel{due: due, end: true, err: err})
		return
	}
}

// push queues a parcel; false when the link was closed.
func (ln *line) push(p parcel) bool {
	for {
		ln.mu.Lock()
		if ln.bytes < maxQueued {
			ln.queue = append(ln.queue, p)
			ln.bytes += len(p.raw)
			ln.mu.Unlock()
			token(ln.full)
			return true
		}
		ln.mu.Unlock()
		select {
		case <-ln.room:
		case <-ln.l.done:
			return false
		}
	}
}

// pop takes the next parcel when it is due; false when the link was closed.
func (ln *line) pop() (parcel, bool) {
	for {
		ln.mu.Lock()
		if len(ln.queue) > 0 {
			p := ln.queue[0]
			ln.queue[0] = parcel{}
			ln.queue = ln.queue[1:]
			ln.bytes -= len(p.raw)
			ln.mu.Unlock()
			token(ln.room)
			return p, ln.sleep(time.Until(p.due))
		}
		ln.mu.Unlock()
		select {
		case <-ln.full:
		case <-ln.l.done:
			return parcel{}, false
		}
	}
}

func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep waits; false when the link was closed.
func (ln *line) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ln.l.done:
		return false
	}
}

// forward empties the queue until the stream ends or the link is closed.
func (ln *line) forward() {
	for {
		p, ok := ln.pop()
		if !ok {
			return
		}
		switch {
		case p.end:
			ln.finish(p.err)
			return
		case !p.whole:
			ok = ln.send(p.raw, nil) != sentNot
		case ln.dir == ToServer:
			ok = ln.forwardRequest(p.raw)
		default:
			ok = ln.forwardReply(p.raw)
		}
		if !ok {
			return
		}
	}
}

// verdict is what a line may do with the next bytes.
type verdict uint8

const (
	mayPass  verdict = iota
	mustWait         // until the proxy changes
	mustDrop         // into the black hole; the link is marked as lossy
	mustQuit         // the link is closed, or to be closed as lossy
)

func (ln *line) verdict() (verdict, <-chan struct{}) {
	p := ln.l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case ln.l.closed:
		return mustQuit, nil
	case p.hole&ln.dir != 0:
		ln.l.lost |= ln.dir
		return mustDrop, nil
	case ln.l.lost&ln.dir != 0:
		return mustQuit, nil
	case p.stall&ln.dir != 0:
		return mustWait, p.changed
	}
	return mayPass, nil
}

// ready waits out a stall. It returns mayPass, mustDrop or mustQuit.
func (ln *line) ready() verdict {
	for {
		v, changed := ln.verdict()
		if v != mustWait {
			return v
		}
		ln.await(changed)
	}
}

func (ln *line) await(changed <-chan struct{}) {
	select {
	case <-changed:
	case <-ln.l.done:
	}
}

// sent is what became of bytes to be sent.
type sent uint8

const (
	sentAll  sent = iota
	sentHole      // swallowed, in part at least
	sentNot       // the link is closed or its peer is gone
)

// send writes to dst as soon and as far as the faults allow. before runs just
// before the first byte goes out.
func (ln *line) send(raw []byte, before func()) sent {
	total := len(raw)
	for begun := false; ; {
		ln.write.Lock()
		v, changed := ln.verdict()
		if v == mayPass {
			if !begun {
				begun = true
				if before != nil {
					before()
				}
				ln.l.p.journal.forwarded(ln.dir, total)
			}
			n, err := ln.dst.Write(raw)
			raw = raw[n:]
			ln.write.Unlock()
			switch {
			case err == nil:
				return sentAll
			case errors.Is(err, os.ErrDeadlineExceeded):
				continue // interrupted: look at the faults again
			}
			// The peer is gone. What it sent before that is still on the
			// other line, and so is the news of its end: let that go first.
			ln.l.end(ln.dir)
			return sentNot
		}
		ln.write.Unlock()
		switch v {
		case mustWait:
			ln.await(changed)
		case mustDrop:
			return sentHole
		case mustQuit:
			ln.l.close(true)
			return sentNot
		}
	}
}

// interrupt makes sure that no write decided earlier is under way: one that
// waits for the peer to read is broken off and decided anew.
func (ln *line) interrupt() {
	_ = ln.dst.SetWriteDeadline(time.Unix(1, 0))
	ln.write.Lock()
	_ = ln.dst.SetWriteDeadline(time.Time{})
	ln.write.Unlock()
}

// finish passes the end of the stream on as it came: an orderly end closes that
// direction, another one resets the link.
func (ln *line) finish(err error) {
	for {
		ln.write.Lock() // the end is subject to faults as a write is
		v, changed := ln.verdict()
		switch {
		case v == mustQuit, v == mayPass && err != nil:
			ln.l.close(true)
		case v == mayPass:
			_ = ln.dst.CloseWrite()
			ln.l.end(ln.dir)
		}
		ln.write.Unlock()
		if v != mustWait {
			return // after mustDrop the link ends when the hole is healed
		}
		ln.await(changed)
	}
}
