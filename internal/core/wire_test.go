package core

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A script is a socket without a network: what was written is kept, what is read was put there before.
type script struct {
	noConn
	wrote   []byte
	onWrite func() error
	in      [][]byte
	closed  bool
}

func (s *script) Close() error {
	s.closed = true
	return nil
}

func (s *script) Write(b []byte) (int, error) {
	if s.onWrite != nil {
		if err := s.onWrite(); err != nil {
			return 0, err
		}
	}
	s.wrote = append(s.wrote, b...)
	return len(b), nil
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.in) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.in[0])
	if s.in[0] = s.in[0][n:]; len(s.in[0]) == 0 {
		s.in = s.in[1:]
	}
	return n, nil
}

func (s *script) SetReadDeadline(time.Time) error { return nil }

// A wireRig is a wire over a script.
type wireRig struct {
	t       testing.TB
	c       *Contact
	w       *wire
	s       *script
	session int64
}

func newWireRig(t testing.TB, c *Contact) *wireRig {
	r := &wireRig{t: t, c: c, s: &script{}}
	l := newLane(context.Background(), route{servers: newServerList(nil)}, c, func() time.Duration { return time.Minute })
	t.Cleanup(l.poison)
	r.w = newWire(r.s, l, time.Minute)
	l.wires[r.w] = struct{}{}
	return r
}

func (r *wireRig) write(frames ...[]byte) {
	r.t.Helper()
	b := bytes.Join(frames, nil)
	n, err := r.w.Write(b)
	require.NoError(r.t, err)
	require.Equal(r.t, len(b), n)
}

// read lets the wire read the frames, and checks that the client gets them.
func (r *wireRig) read(frames ...[]byte) {
	r.t.Helper()
	r.s.in = append(r.s.in, frames...)
	want := bytes.Join(frames, nil)
	got := make([]byte, len(want))
	_, err := io.ReadFull(r.w, got)
	require.NoError(r.t, err)
	require.Equal(r.t, want, got)
}

// handshake attaches to a session, 0 for a new one, and is given that one.
func (r *wireRig) handshake(asked, given int64, timeout time.Duration) {
	r.t.Helper()
	r.write(appendConnectRequest(nil, 0, 3000, asked, nil))
	r.read(connectReplyFrame(given, timeout, "0123456789abcdef"))
	r.session = given
}

// proven returns S of the lease clock, as the clock that goes on in suspension read it.
func (r *wireRig) proven() time.Duration {
	_, _, clock, _ := r.c.timing()
	return clock.s.awake
}

// A held rig is a wire in virtual time, after a handshake over a pipe, with somebody who reads it as the client does.
type heldRig struct {
	w      *wire
	server net.Conn
	got    chan []byte // frames that the client has
	err    chan error
}

func newHeldRig(t testing.TB, c *Contact, asked, given int64) *heldRig {
	theirs, ours := net.Pipe()
	l := newLane(context.Background(), route{servers: newServerList(nil)}, c, func() time.Duration { return time.Minute })
	h := &heldRig{w: newWire(theirs, l, time.Minute), server: ours, got: make(chan []byte, 100), err: make(chan error, 1)}
	l.wires[h.w] = struct{}{}
	t.Cleanup(func() { l.poison(); ours.Close() })
	go h.write(appendConnectRequest(nil, 0, 3000, asked, nil))
	_, err := io.ReadFull(ours, make([]byte, 48))
	require.NoError(t, err)
	go func() {
		for {
			head := make([]byte, 4)
			if _, err := io.ReadFull(h.w, head); err != nil {
				h.err <- err
				return
			}
			body := make([]byte, binary.BigEndian.Uint32(head))
			if _, err := io.ReadFull(h.w, body); err != nil {
				h.err <- err
				return
			}
			h.got <- append(head, body...)
		}
	}()
	_, err = ours.Write(connectReplyFrame(given, 3*time.Second, "0123456789abcdef"))
	require.NoError(t, err)
	pass(0)
	require.Len(t, h.got, 1, "the connect reply is never held")
	<-h.got
	return h
}

func (h *heldRig) write(frame []byte) { _, _ = h.w.Write(frame) }

// send is a request of the client that the server reads.
func (h *heldRig) send(t testing.TB, frame []byte) {
	t.Helper()
	go h.write(frame)
	got := make([]byte, len(frame))
	_, err := io.ReadFull(h.server, got)
	require.NoError(t, err)
	require.Equal(t, frame, got)
	pass(0)
}

func (h *heldRig) reply(t testing.TB, frame []byte) {
	t.Helper()
	_, err := h.server.Write(frame)
	require.NoError(t, err)
	pass(0)
}

func (h *heldRig) received() (frames [][]byte) {
	for {
		select {
		case f := <-h.got:
			frames = append(frames, f)
		default:
			return frames
		}
	}
}

// watchedContact is that of a client in session 7 that has set a watch.
func watchedContact(t testing.TB) *Contact {
	c := NewContact()
	r := newWireRig(t, c)
	r.handshake(0, 7, 3*time.Second)
	r.write(requestFrame(1, opGetData, append(appendString(nil, "/w"), 1)))
	return c
}

// The client reads its last zxid for setWatches while its receive loop writes it: nothing that writes it may reach it before.
func TestFramesAreHeldUntilSetWatchesIsOut(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHeldRig(t, watchedContact(t), 7, 7)
		event, reply := eventFrame(3, "/w"), replyFrame(2, 9, 0, nil)
		h.reply(t, event)
		h.send(t, requestFrame(2, opSync, appendString(nil, "/")))
		h.reply(t, reply)
		pass(watchHold - time.Millisecond)
		require.Empty(t, h.received())
		h.send(t, requestFrame(3, opSetWatches, make([]byte, 20)))
		require.Equal(t, [][]byte{event, reply}, h.received(), "at once, in order")
		second := eventFrame(2, "/w")
		h.reply(t, second)
		h.send(t, requestFrame(4, opSetWatches, make([]byte, 20)))
		require.Equal(t, [][]byte{second}, h.received(), "nothing is held for a second batch: it waits for the reply to the first")
	})
}

// A new session has no watches to set again, but the client looks for them only when it has begun to send and to receive: an answer that makes a first one
// waits until then.
func TestAnswerThatMakesTheFirstWatchIsHeld(t *testing.T) {
	watch := append(appendString(nil, "/w"), 1)
	virtual(t, func(t *testing.T) {
		h := newHeldRig(t, NewContact(), 0, 7)
		first, later := replyFrame(1, 9, 0, nil), replyFrame(2, 10, 0, nil)
		h.send(t, requestFrame(1, opGetData, watch))
		h.reply(t, first)
		require.Empty(t, h.received())
		pass(freshFor)
		require.Equal(t, [][]byte{first}, h.received())
		h.send(t, requestFrame(2, opGetData, watch))
		h.reply(t, later)
		require.Equal(t, [][]byte{later}, h.received(), "at once")
	})
}

// What the client could not send on the last connection goes out first on this one, a setWatches as well. That one says nothing of this connection's.
func TestSetWatchesOfTheLastConnectionEndsNoHold(t *testing.T) {
	seen := func(zxid byte) []byte { return append(make([]byte, 7), zxid) }
	for name, stale := range map[string][]byte{"made with another zxid": seen(9), "made with the same": seen(0)} {
		virtual(t, func(t *testing.T) {
			h := newHeldRig(t, watchedContact(t), 7, 7)
			if name == "made with the same" {
				h.w.lane.expectSetWatches(0) // the last connection's, which was not sent
			}
			event := eventFrame(3, "/w")
			h.reply(t, event)
			h.send(t, requestFrame(2, opSetWatches, stale))
			require.Empty(t, h.received(), name)
			h.send(t, requestFrame(3, opSetWatches, seen(0)))
			require.Equal(t, [][]byte{event}, h.received(), name)
		})
	}
}

// A setWatches that the client threw away is waited for in vain. It costs the rest of the hold, and only until the client has seen something new.
func TestSetWatchesThatNeverComesCostsOneHold(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHeldRig(t, watchedContact(t), 7, 7)
		h.w.lane.expectSetWatches(0) // the last connection's, which was thrown away
		event := eventFrame(3, "/w")
		h.reply(t, event)
		h.send(t, requestFrame(2, opSetWatches, make([]byte, 20)))
		require.Empty(t, h.received())
		pass(watchHold)
		require.Equal(t, [][]byte{event}, h.received())
		h.w.lane.expectSetWatches(1)
		require.True(t, h.w.lane.sawSetWatches(1))
	})
}

// What makes the client wait for the frames before it sends setWatches would hold both up for ever.
func TestRepliesToAuthAreNotHeld(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHeldRig(t, watchedContact(t), 7, 7)
		event := eventFrame(3, "/w")
		h.reply(t, event)
		for i := range 5 { // more of them than fit into the longest hold
			pass(watchHold * 3 / 4)
			h.send(t, requestFrame(10+i, opAuth, nil))
			auth := replyFrame(10+i, 0, 0, nil)
			h.reply(t, auth)
			require.Equal(t, [][]byte{auth}, h.received())
		}
		pass(watchHold * 3 / 4)
		h.send(t, requestFrame(20, opSetWatches, nil))
		require.Equal(t, [][]byte{event}, h.received())
	})
}

// A client that has no watch any more sends no setWatches.
func TestHoldEndsByItself(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHeldRig(t, watchedContact(t), 7, 7)
		event := eventFrame(3, "/w")
		h.reply(t, event)
		pass(watchHold - time.Millisecond)
		require.Empty(t, h.received())
		pass(2 * time.Millisecond)
		require.Equal(t, [][]byte{event}, h.received())
		second := eventFrame(2, "/w")
		h.reply(t, second)
		require.Equal(t, [][]byte{second}, h.received())
	})
	virtual(t, func(t *testing.T) { // with nothing to deliver when it ends
		h := newHeldRig(t, watchedContact(t), 7, 7)
		pass(2 * watchHold)
		event := eventFrame(3, "/w")
		h.reply(t, event)
		require.Equal(t, [][]byte{event}, h.received())
	})
}

func TestNothingIsHeldWithoutAWatch(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := NewContact()
		r := newWireRig(t, c)
		r.handshake(0, 7, 3*time.Second)
		r.write(requestFrame(1, opGetData, append(appendString(nil, "/w"), 0)))
		h := newHeldRig(t, c, 7, 7)
		event := eventFrame(3, "/w")
		h.reply(t, event)
		require.Equal(t, [][]byte{event}, h.received())
	})
	virtual(t, func(t *testing.T) { // an expired session takes the watches with it
		c := watchedContact(t)
		r := newWireRig(t, c)
		r.handshake(7, 0, 0)
		h := newHeldRig(t, c, 0, 8)
		event := eventFrame(3, "/w")
		h.reply(t, event)
		require.Equal(t, [][]byte{event}, h.received())
	})
}

// The client keeps its watches, and sets them again, in a session that it was given in place of its own without a word.
func TestFramesAreHeldInAReplacedSession(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHeldRig(t, watchedContact(t), 7, 8)
		event := eventFrame(3, "/w")
		h.reply(t, event)
		require.Empty(t, h.received())
		h.send(t, requestFrame(3, opSetWatches, nil))
		require.Equal(t, [][]byte{event}, h.received())
	})
}

// The client's own read deadline, and the handshake's, hold on top of the wire's.
func TestDeadlinesOfTheClientHold(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHeldRig(t, watchedContact(t), 7, 7)
		require.NoError(t, h.w.SetReadDeadline(time.Now().Add(watchHold/2)))
		h.reply(t, eventFrame(3, "/w")) // held; the client's deadline comes first
		pass(watchHold / 2)
		require.ErrorIs(t, <-h.err, os.ErrDeadlineExceeded)
		require.Empty(t, h.received())
	})
	virtual(t, func(t *testing.T) {
		theirs, ours := net.Pipe()
		defer ours.Close()
		l := newLane(context.Background(), route{servers: newServerList(nil)}, NewContact(), nil)
		w := newWire(theirs, l, time.Second)
		require.NoError(t, w.SetDeadline(time.Now().Add(time.Hour)))
		began := time.Now()
		_, err := w.Read(make([]byte, 4))
		require.ErrorIs(t, err, errHandshake)
		require.Equal(t, time.Second, time.Since(began))
		require.NoError(t, w.Close())
		l.cancel()
	})
}

// A failed write of a credential is not told as such, nor is any while the client is closed, see wire.Write; any other is.
func TestWriteErrors(t *testing.T) {
	broken := errors.New("broken pipe")
	for _, tt := range []struct {
		op      int
		closing bool
		want    error
	}{
		{opAuth, false, nil},
		{opSync, false, broken}, {opCreate, false, broken}, {opSetWatches, false, broken},
		{opSync, true, nil}, {opCreate, true, nil}, {opSetWatches, true, nil},
	} {
		r := newWireRig(t, NewContact())
		r.handshake(0, 7, time.Second)
		r.s.onWrite = func() error { return broken }
		r.w.lane.closing.Store(tt.closing)
		var down error
		r.c.notify = func(s signal) { down = s.err }
		frame := requestFrame(1, tt.op, nil)
		n, err := r.w.Write(frame)
		require.ErrorIs(t, err, tt.want)
		if tt.want == nil {
			require.Equal(t, len(frame), n)
			require.Equal(t, broken, down)
			require.True(t, r.s.closed)
			_, err = r.w.Read(make([]byte, 4))
			require.Error(t, err)
		}
	}
}

// A lane that was shut while a connect reply was on its way takes no session: its socket is closed, and nobody would tell of its end any more.
func TestShutLaneTakesNoSession(t *testing.T) {
	for name, shut := range map[string]func(*lane){"poisoned": (*lane).poison, "held": (*lane).hold} {
		t.Run(name, func(t *testing.T) {
			r := newWireRig(t, NewContact())
			r.write(appendConnectRequest(nil, 0, 3000, 7, nil))
			shut(r.w.lane)
			r.s.in = [][]byte{connectReplyFrame(7, time.Second, "0123456789abcdef")}
			_, err := r.w.Read(make([]byte, 100))
			require.ErrorIs(t, err, net.ErrClosed)
			require.Equal(t, Epoch{}, r.c.Epoch())
			_, up, _, _ := r.c.timing()
			require.False(t, up)
		})
	}
	r := newWireRig(t, NewContact())
	r.w.lane.hold()
	r.w.lane.release()
	r.handshake(0, 7, time.Second)
}

// splitter is a socket that gives its bytes in pieces of the given sizes.
type splitter struct {
	noConn
	data  []byte
	sizes []byte
	mu    sync.Mutex
	wrote []byte
}

func (s *splitter) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	n := len(s.data)
	if len(s.sizes) > 0 {
		n = int(s.sizes[0]) + 1
		s.sizes = append(s.sizes[1:], s.sizes[0])
	}
	n = copy(p, s.data[:min(n, len(s.data))])
	s.data = s.data[n:]
	return n, nil
}

func (s *splitter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrote = append(s.wrote, b...)
	return len(b), nil
}

func (s *splitter) SetReadDeadline(time.Time) error { return nil }

// readable returns how much of a stream from a server a client may see: whole frames, until one that makes no sense.
func readable(stream []byte) (n int) {
	for first := true; ; first = false {
		l, ok := frameLen(stream[n:])
		least := 4 + 16
		if first {
			least = 24
		}
		if !ok || l == 0 || n+l > len(stream) || l < least {
			return n
		}
		n += l
	}
}

func FuzzWireReads(f *testing.F) {
	hello := connectReplyFrame(7, time.Second, "0123456789abcdef")
	f.Add(hello, []byte{0})
	f.Add(append(append(append([]byte(nil), hello...), replyFrame(1, 5, 0, []byte("/path"))...), eventFrame(1, "/x")...), []byte{0, 3, 100})
	f.Add(append(append([]byte(nil), hello...), 0, 0, 0, 3, 1, 2, 3), []byte{1})
	f.Add(append(append([]byte(nil), hello...), 0xff, 0xff, 0xff, 0xff), []byte{})
	f.Add(append(append([]byte(nil), hello...), replyFrame(xidPing, 0, 0, nil)...), []byte{2})
	f.Add([]byte{0, 0, 0, 4, 1, 2, 3, 4}, []byte{0})
	f.Add(connectReplyFrame(0, 0, ""), []byte{9})
	f.Fuzz(func(t *testing.T, stream, sizes []byte) {
		for rest := stream; len(rest) >= 4; { // a length is a promise of memory; keep it small here
			n, ok := frameLen(rest)
			if ok && n > 1<<20 {
				return
			}
			if !ok || n > len(rest) {
				break
			}
			rest = rest[n:]
		}
		conn := &splitter{data: append([]byte(nil), stream...), sizes: append([]byte(nil), sizes...)}
		l := newLane(context.Background(), route{servers: newServerList(nil)}, NewContact(), nil)
		defer l.cancel()
		w := newWire(conn, l, time.Minute)
		_, err := w.Write(appendConnectRequest(nil, 0, 1000, 7, nil))
		require.NoError(t, err)
		for xid, op := range []int{opCreate, opSync, opGetData, opAuth, opMulti, opClose} {
			_, err := w.Write(requestFrame(xid, op, appendString(nil, "/path")))
			require.NoError(t, err)
		}
		_, err = w.Write(requestFrame(xidPing, opPing, nil))
		require.NoError(t, err)
		got, err := io.ReadAll(w)
		want := readable(stream)
		require.True(t, bytes.Equal(stream[:want], got), "want %d bytes, got %d: %v", want, len(got), err)
	})
}

// Whatever is written goes out as it is, and replies to what was not understood prove nothing.
func FuzzWireWrites(f *testing.F) {
	f.Add(requestFrame(1, opSync, appendString(nil, "/")), []byte{0})
	f.Add(append(requestFrame(1, opSync, appendString(nil, "/")), requestFrame(xidPing, opPing, nil)...), []byte{20})
	f.Add([]byte{0, 0, 0, 0}, []byte{})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 8}, []byte{})
	f.Add(requestFrame(1, opGetData, nil), []byte{3})
	f.Fuzz(func(t *testing.T, stream, sizes []byte) {
		conn := &splitter{}
		c := NewContact()
		c.tap("/", new(tap))
		l := newLane(context.Background(), route{servers: newServerList(nil)}, c, nil)
		defer l.cancel()
		w := newWire(conn, l, time.Minute)
		var out []byte
		for rest := stream; len(rest) > 0; {
			n := len(rest)
			if len(sizes) > 0 {
				n = min(n, int(sizes[0])+1)
				sizes = sizes[1:]
			}
			written, err := w.Write(rest[:n])
			require.NoError(t, err)
			require.Equal(t, n, written)
			out = append(out, rest[:n]...)
			rest = rest[n:]
		}
		require.True(t, bytes.Equal(out, conn.wrote))
		conn.data = connectReplyFrame(7, time.Second, "0123456789abcdef")
		_, _ = io.ReadAll(w)
	})
}

func FuzzFrameLen(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0})
	f.Add([]byte{0, 0, 0, 9, 1})
	f.Add([]byte{0x10, 0, 0, 1})
	f.Add([]byte{0x80, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		n, ok := frameLen(b)
		switch {
		case len(b) < 4:
			require.Zero(t, n)
			require.True(t, ok)
		case int64(int32(binary.BigEndian.Uint32(b))) < 0, binary.BigEndian.Uint32(b) > maxFrame:
			require.False(t, ok)
		default:
			require.True(t, ok)
			require.Equal(t, int(binary.BigEndian.Uint32(b))+4, n)
		}
	})
}

func FuzzParseConnectReply(f *testing.F) {
	f.Add(connectReplyFrame(7, time.Second, "0123456789abcdef"))
	f.Add(connectReplyFrame(-1, time.Hour, ""))
	f.Add([]byte{0, 0, 0, 0})
	f.Add(append(connectReplyFrame(7, time.Second, "x")[:20], 0x7f, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := append([]byte(nil), b...)
		r, ok := parseConnectReply(b)
		require.Equal(t, len(b) >= 24, ok)
		if !ok {
			return
		}
		require.LessOrEqual(t, len(r.passwd), len(b)-24)
		again, ok := parseConnectReply(connectReplyFrame(r.session, time.Duration(r.timeoutMs)*time.Millisecond, string(r.passwd)))
		require.True(t, ok)
		require.Equal(t, r, again)
		for i := range r.passwd { // it is a copy: the frame's memory is used again
			r.passwd[i]++
		}
		require.True(t, bytes.Equal(before, b))
		_, _ = parseConnectRequest(b)
	})
}

func TestConnectRequestIsReadAsItIsWritten(t *testing.T) {
	for _, session := range []int64{0, 7, -1, 1 << 62} {
		r, ok := parseConnectRequest(appendConnectRequest(nil, 5, 3000, session, nil))
		require.True(t, ok)
		require.Equal(t, session, r.session)
	}
	_, ok := parseConnectRequest(make([]byte, 27))
	require.False(t, ok)
	require.Equal(t, requestFrame(9, opClose, nil), appendCloseRequest(nil, 9))
}
