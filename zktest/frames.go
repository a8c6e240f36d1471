package zktest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// maxFrame is above anything a server takes or sends with any sane
// jute.maxbuffer. A length beyond it means that this is not the protocol.
const maxFrame = 64 << 20

var errNotAFrame = errors.New("zktest: not a frame of the ZooKeeper protocol")

// Frame is one request, reply or event as a [Rule] sees it.
type Frame struct {
	Op   Op
	Xid  int32
	Path string // of the request, also in the reply to it; of a multi its first; of an event

	// Bytes is the whole frame without the length in front. It may be kept but
	// must not be written to.
	Bytes []byte

	Err       int32 // of a reply: ZooKeeper's code, 0 for success
	Zxid      int64 // of a reply
	EventType int32 // of an event: 1 created, 2 deleted, 3 data, 4 children

	// N counts, from 0, the frames that the rule's Match has accepted, since
	// the rule was made or [Proxy.ResetCounters]. It is known to the Action
	// only; Match sees 0.
	N int

	epoch int // of the counters, for Nth
}

// readFrame reads one frame, its length included. At the end of the stream it
// returns io.EOF and whatever there is of an unfinished frame.
//
// The length is not believed until the bytes are there, so that four bytes
// cannot make it allocate 64 MiB.
func readFrame(r io.Reader) ([]byte, error) { return readFrameUpTo(r, maxFrame) }

func readFrameUpTo(r io.Reader, limit int64) ([]byte, error) {
	var head [4]byte
	n, err := io.ReadFull(r, head[:])
	if err != nil {
		return head[:n], endOf(err)
	}
	size := int64(int32(binary.BigEndian.Uint32(head[:])))
	if size < 0 || size > limit {
		return head[:], fmt.Errorf("%w: it begins with % x, a length of %d", errNotAFrame, head, size)
	}
	const trusted = 64 << 10
	frame := make([]byte, 4+min(size, trusted))
	copy(frame, head[:])
	for got := 4; ; {
		n, err := io.ReadFull(r, frame[got:])
		got += n
		if err != nil {
			return frame[:got], endOf(err)
		}
		missing := int(4+size) - got
		if missing == 0 {
			return frame, nil
		}
		frame = append(frame, make([]byte, min(missing, got))...)
	}
}

// endOf makes the end of the stream within a frame an end like any other.
func endOf(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

// encodeFrame puts the length in front.
func encodeFrame(body []byte) []byte {
	b := make([]byte, 4, 4+len(body))
	binary.BigEndian.PutUint32(b, uint32(len(body)))
	return append(b, body...)
}

// parseRequest reads what a rule may ask of a frame from the client. first
// tells that it is the first one of its connection.
func parseRequest(body []byte, first bool) Frame {
	f := Frame{Bytes: body}
	if first {
		f.Op = OpConnect
		return f
	}
	d := decoder{body}
	xid, op := d.int32(), d.int32()
	if d.bad() {
		return f
	}
	f.Xid, f.Op = xid, Op(op)
	switch {
	case f.Op.startsWithPath():
		f.Path = d.string()
	case f.Op == OpMulti || f.Op == OpMultiRead:
		kind := d.int32()
		d.skip(5) // the end mark and the error of the first part's header
		if Op(kind).startsWithPath() {
			f.Path = d.string()
		}
	}
	return f
}

// parseReply reads the header of a frame from the server, and the rest of an
// event. The Op of a reply is not in it.
func parseReply(body []byte) Frame {
	f := Frame{Bytes: body}
	d := decoder{body}
	xid, zxid, code := d.int32(), d.int64(), d.int32()
	if d.bad() {
		return f
	}
	f.Xid, f.Zxid, f.Err = xid, zxid, code
	if xid == xidEvent {
		f.Op = OpEvent
		f.EventType = d.int32()
		d.skip(4) // state
		f.Path = d.string()
	}
	return f
}

const (
	xidEvent = -1
	xidPing  = -2
)

// session is what a connect reply grants. An id of 0 is a refusal: the session
// asked for is gone.
type session struct {
	id      int64
	passwd  []byte
	timeout time.Duration
}

func parseConnectReply(body []byte) (session, bool) {
	d := decoder{body}
	d.skip(4) // protocol version
	timeout, id, passwd := d.int32(), d.int64(), d.bytes()
	if d.bad() {
		return session{}, false
	}
	return session{id, append([]byte(nil), passwd...), time.Duration(timeout) * time.Millisecond}, true
}

// connectRequest is the body of a client's first frame.
func connectRequest(s session) []byte {
	b := binary.BigEndian.AppendUint32(nil, 0) // protocol version
	b = binary.BigEndian.AppendUint64(b, 0)    // last zxid seen
	b = binary.BigEndian.AppendUint32(b, uint32(s.timeout/time.Millisecond))
	b = binary.BigEndian.AppendUint64(b, uint64(s.id))
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.passwd)))
	b = append(b, s.passwd...)
	return append(b, 0) // not read-only
}

// decoder reads the encoding of the protocol. What is not there reads as zero
// and makes it bad.
type decoder struct{ b []byte }

func (d *decoder) bad() bool { return d.b == nil }

func (d *decoder) take(n int) []byte {
	if d.b == nil || n < 0 || n > len(d.b) {
		d.b = nil
		return nil
	}
	t := d.b[:n]
	d.b = d.b[n:]
	return t
}

func (d *decoder) skip(n int) { d.take(n) }

func (d *decoder) int32() int32 {
	if t := d.take(4); t != nil {
		return int32(binary.BigEndian.Uint32(t))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if t := d.take(8); t != nil {
		return int64(binary.BigEndian.Uint64(t))
	}
	return 0
}

// bytes reads a length and as many bytes; a length of -1 is a null buffer.
func (d *decoder) bytes() []byte {
	n := d.int32()
	if n <= 0 {
		return nil
	}
	return d.take(int(n))
}

func (d *decoder) string() string { return string(d.bytes()) }
