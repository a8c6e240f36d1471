package zktest_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// glance is how long a test looks for what must not happen.
const glance = 30 * time.Millisecond

// eventually polls a condition.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); !cond(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// rig is a proxy of which the test plays both the client and the server.
type rig struct {
	t testing.TB
	l *net.TCPListener
	p *zktest.Proxy
}

func newRig(t testing.TB) *rig {
	l := listen(t)
	return &rig{t: t, l: l, p: zktest.NewProxy(t, l.Addr().String())}
}

func listen(t testing.TB) *net.TCPListener {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

// end is one end of a connection through the proxy.
type end struct {
	t testing.TB
	*net.TCPConn
	r *bufio.Reader
}

func (r *rig) dial() *end {
	c, err := net.Dial("tcp4", r.p.Addr())
	require.NoError(r.t, err)
	return newEnd(r.t, c)
}

func (r *rig) accept() *end { return accept(r.t, r.l) }

func accept(t testing.TB, l *net.TCPListener) *end {
	require.NoError(t, l.SetDeadline(time.Now().Add(patience)))
	c, err := l.Accept()
	require.NoError(t, err)
	return newEnd(t, c)
}

func newEnd(t testing.TB, c net.Conn) *end {
	t.Cleanup(func() { c.Close() })
	return &end{t, c.(*net.TCPConn), bufio.NewReader(c)}
}

// open makes a connection without a handshake.
func (r *rig) open() (client, server *end) { return r.dial(), r.accept() }

// connect makes a connection and shakes hands.
func (r *rig) connect() (client, server *end) {
	c, s := r.open()
	c.send(connectFrame(0x1234))
	require.Equal(r.t, connectFrame(0x1234), s.frame())
	s.send(connectReply(0x1234, 4000))
	require.Equal(r.t, connectReply(0x1234, 4000), c.frame())
	return c, s
}

func (e *end) send(frames ...[]byte) {
	e.t.Helper()
	var all []byte
	for _, f := range frames {
		all = append(all, framed(f)...)
	}
	e.write(all)
}

func (e *end) write(b []byte) {
	e.t.Helper()
	_, err := e.Write(b)
	require.NoError(e.t, err)
}

// frame reads the next frame.
func (e *end) frame() []byte {
	e.t.Helper()
	b, err := e.read(patience)
	require.NoError(e.t, err)
	return b
}

func (e *end) read(within time.Duration) ([]byte, error) {
	if err := e.SetReadDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(e.r, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(e.r, b)
	return b, err
}

// drain reads until nothing comes for a while.
func (e *end) drain(silence time.Duration) []byte {
	e.t.Helper()
	var all []byte
	for buf := make([]byte, 1<<20); ; {
		require.NoError(e.t, e.SetReadDeadline(time.Now().Add(silence)))
		n, err := e.r.Read(buf)
		all = append(all, buf[:n]...)
		if err != nil {
			require.ErrorIs(e.t, err, os.ErrDeadlineExceeded)
			return all
		}
	}
}

func (e *end) expectReset() {
	e.t.Helper()
	b, err := e.read(patience)
	require.ErrorIs(e.t, err, syscall.ECONNRESET, "got % x", b)
}

func (e *end) expectEOF() {
	e.t.Helper()
	b, err := e.read(patience)
	require.Equal(e.t, io.EOF, err, "got % x", b)
}

// expectSilence checks that nothing comes, not even the end.
func (e *end) expectSilence() {
	e.t.Helper()
	b, err := e.read(glance)
	require.ErrorIs(e.t, err, os.ErrDeadlineExceeded, "got % x", b)
}

// ask sends a request, has the server answer it, and returns the reply.
func ask(c, s *end, xid int32, op zktest.Op, path string) []byte {
	c.t.Helper()
	c.send(request(xid, op, path))
	require.Equal(c.t, request(xid, op, path), s.frame())
	s.send(reply(xid, 0))
	return c.frame()
}

func framed(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

type builder struct{ b []byte }

func (b *builder) int32(v int32) *builder {
	b.b = binary.BigEndian.AppendUint32(b.b, uint32(v))
	return b
}

func (b *builder) int64(v int64) *builder {
	b.b = binary.BigEndian.AppendUint64(b.b, uint64(v))
	return b
}

func (b *builder) string(s string) *builder {
	b.int32(int32(len(s)))
	b.b = append(b.b, s...)
	return b
}

func request(xid int32, op zktest.Op, path string) []byte {
	return new(builder).int32(xid).int32(int32(op)).string(path).int32(0).b
}

func ping() []byte { return new(builder).int32(-2).int32(int32(zktest.OpPing)).b }

// reply is an answer with a body that tells it from others.
func reply(xid, code int32) []byte {
	return new(builder).int32(xid).int64(int64(xid) + 1000).int32(code).string(fmt.Sprint("reply ", xid)).b
}

func event(kind int32, path string) []byte {
	return new(builder).int32(-1).int64(-1).int32(0).int32(kind).int32(3).string(path).b
}

var password = strings.Repeat("p", 16)

func connectFrame(session int64) []byte {
	return append(new(builder).int32(0).int64(0).int32(4000).int64(session).string(password).b, 0)
}

func connectReply(session int64, timeout int32) []byte {
	return append(new(builder).int32(0).int32(timeout).int64(session).string(password).b, 0)
}

// failingTB is a TB that notes failures instead of failing, and runs clean-ups
// when told to.
type failingTB struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	fatal    bool
	cleanups []func()
}

func (f *failingTB) Helper() {}

func (f *failingTB) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures = append(f.failures, fmt.Sprintf(format, args...))
}

func (f *failingTB) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	f.fatal = true
	runtime.Goexit()
}

func (f *failingTB) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }

func (f *failingTB) said() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.failures, "\n")
}

func (f *failingTB) cleanup() {
	for len(f.cleanups) > 0 {
		last := len(f.cleanups) - 1
		c := f.cleanups[last]
		f.cleanups = f.cleanups[:last]
		c()
	}
}

// fatality runs a function that should end in Fatalf and returns what it said.
func fatality(t *testing.T, run func(zktest.TB)) string {
	t.Helper()
	tb := &failingTB{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(tb)
	}()
	<-done
	tb.cleanup()
	require.True(t, tb.fatal, "the test went on")
	return tb.said()
}

// refused tells whether connecting fails as to a closed port.
func refused(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// requests returns the records of the proxy but the connects.
func requests(p *zktest.Proxy) []zktest.Record {
	var rs []zktest.Record
	for _, r := range p.Requests() {
		if r.Op != zktest.OpConnect {
			rs = append(rs, r)
		}
	}
	return rs
}

// awaitFates waits until the requests, but the connects, have these fates.
func awaitFates(t testing.TB, p *zktest.Proxy, want ...zktest.Fate) {
	t.Helper()
	var got []zktest.Fate
	defer func() {
		if t.Failed() {
			t.Logf("fates are %v, not %v", got, want)
		}
	}()
	eventually(t, fmt.Sprint("fates ", want), func() bool {
		got = nil
		for _, r := range requests(p) {
			got = append(got, r.Fate)
		}
		return fmt.Sprint(got) == fmt.Sprint(want)
	})
}

func listenOn(t testing.TB, addr string) net.Listener {
	l, err := net.Listen("tcp4", addr)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func dialPlain(addr string) (net.Conn, error) { return net.DialTimeout("tcp4", addr, patience) }
