package core

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"sync"
	"testing"
	"time"
)

// A fake is a server that speaks just enough of the protocol for what a real one cannot be made to do, and for virtual time. What is right is decided
// by the tests against the real one.
type fake struct {
	wg sync.WaitGroup

	mu sync.Mutex
	fakeHooks
	closed   bool
	conns    []*fakeConn
	log      []fakeRequest
	dials    []fakeDial
	sessions map[int64]string // passwords
	nodes    map[string]int64 // owners
	last     int64            // session id
	zxid     int64
	seq      int
}

// The hooks run on the goroutine of the connection, without a lock. One that returns true has answered, or left the request unanswered.
type fakeHooks struct {
	onConnect func(c *fakeConn, r fakeConnect) bool
	onRequest func(c *fakeConn, r fakeRequest) bool
	onDial    func(addr string) error
	onAccept  func(c *fakeConn)
	timeout   time.Duration // granted, whatever is asked for; 0 grants what is asked for
}

func (f *fake) set(change func(*fakeHooks)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.fakeHooks)
}

func (f *fake) setOnConnect(fn func(*fakeConn, fakeConnect) bool) {
	f.set(func(h *fakeHooks) { h.onConnect = fn })
}

func (f *fake) setOnRequest(fn func(*fakeConn, fakeRequest) bool) {
	f.set(func(h *fakeHooks) { h.onRequest = fn })
}
func (f *fake) setOnDial(fn func(string) error) { f.set(func(h *fakeHooks) { h.onDial = fn }) }
func (f *fake) setOnAccept(fn func(*fakeConn))  { f.set(func(h *fakeHooks) { h.onAccept = fn }) }
func (f *fake) setTimeout(d time.Duration)      { f.set(func(h *fakeHooks) { h.timeout = d }) }

func (f *fake) hooks() fakeHooks {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fakeHooks
}

type fakeDial struct {
	addr string
	at   time.Time
}

type fakeConnect struct {
	conn          int
	zxid, session int64
	timeout       time.Duration
	passwd        string
}

type fakeRequest struct {
	conn, op, xid int
	path          string
	body          []byte // behind the header
	at            time.Time
}

type fakeConn struct {
	f       *fake
	n       int // counted from 0
	addr    string
	conn    net.Conn
	r       *bufio.Reader
	session int64
	done    chan struct{}
	once    sync.Once
	writing sync.Mutex
}

func newFake(t testing.TB) *fake {
	f := &fake{sessions: make(map[int64]string), nodes: map[string]int64{"/": 0}}
	t.Cleanup(f.close)
	return f
}

func (f *fake) close() {
	f.mu.Lock()
	f.closed = true
	conns := f.conns
	f.mu.Unlock()
	for _, c := range conns {
		c.close()
	}
	f.wg.Wait()
}

// Dial is the zk.Dialer of the clients.
func (f *fake) Dial(_, addr string, _ time.Duration) (net.Conn, error) {
	f.mu.Lock()
	f.dials = append(f.dials, fakeDial{addr, time.Now()})
	f.mu.Unlock()
	if h := f.hooks(); h.onDial != nil {
		if err := h.onDial(addr); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errors.New("the fake server is closed")
	}
	theirs, ours := net.Pipe()
	c := &fakeConn{f: f, n: len(f.conns), addr: addr, conn: ours, r: bufio.NewReader(ours), done: make(chan struct{})}
	f.conns = append(f.conns, c)
	f.wg.Go(c.serve)
	return theirs, nil
}

func (f *fake) dialed() []fakeDial {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]fakeDial(nil), f.dials...)
}

// requests returns those of the given kinds that came so far.
func (f *fake) requests(ops ...int) (found []fakeRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.log {
		for _, op := range ops {
			if r.op == op {
				found = append(found, r)
			}
		}
	}
	return found
}

// open returns the connections that are open.
func (f *fake) open() (open []*fakeConn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		select {
		case <-c.done:
		default:
			open = append(open, c)
		}
	}
	return open
}

// cut ends all connections.
func (f *fake) cut() {
	for _, c := range f.open() {
		c.close()
	}
}

func (f *fake) lives(session int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.sessions[session]
	return ok
}

// has returns the znodes whose path begins with prefix.
func (f *fake) has(prefix string) (paths []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p := range f.nodes {
		if strings.HasPrefix(p, prefix) {
			paths = append(paths, p)
		}
	}
	return paths
}

func (f *fake) make(paths ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range paths {
		f.nodes[p] = 0
	}
}

// expire ends a session with its znodes.
func (f *fake) expire(session int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sessions, session)
	for p, owner := range f.nodes {
		if owner == session && session != 0 {
			delete(f.nodes, p)
		}
	}
}

func (f *fake) newSession() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	id := 0x1000 + f.last
	f.sessions[id] = fmt.Sprintf("password of %04x", id)[:16]
	return id
}

func (c *fakeConn) close() {
	c.once.Do(func() {
		close(c.done)
		c.conn.Close()
	})
}

func (c *fakeConn) serve() {
	defer c.close()
	if h := c.f.hooks(); h.onAccept != nil {
		h.onAccept(c)
	}
	frame, err := readFrame(c.r)
	if err != nil || len(frame) < 44 {
		return
	}
	r := fakeConnect{
		conn:    c.n,
		zxid:    int64(binary.BigEndian.Uint64(frame[8:])),
		timeout: time.Duration(binary.BigEndian.Uint32(frame[16:])) * time.Millisecond,
		session: int64(binary.BigEndian.Uint64(frame[20:])),
		passwd:  string(frame[32:]),
	}
	if h := c.f.hooks(); h.onConnect == nil || !h.onConnect(c, r) {
		c.f.mu.Lock()
		passwd, known := c.f.sessions[r.session]
		c.f.mu.Unlock()
		switch {
		case r.session == 0:
			c.welcome(c.f.newSession(), r.timeout)
		case known && passwd == r.passwd[:16]:
			c.welcome(r.session, r.timeout)
		default:
			c.welcome(0, 0)
			return
		}
	}
	for {
		frame, err := readFrame(c.r)
		if err != nil || len(frame) < 12 {
			return
		}
		if !c.answer(frame) {
			return
		}
	}
}

// welcome answers the connect request.
func (c *fakeConn) welcome(session int64, timeout time.Duration) {
	if h := c.f.hooks(); h.timeout != 0 {
		timeout = h.timeout
	}
	c.f.mu.Lock()
	passwd := c.f.sessions[session]
	c.f.mu.Unlock()
	if passwd == "" {
		passwd = strings.Repeat("\x00", 16)
	}
	c.session = session
	c.send(connectReplyFrame(session, timeout, passwd))
}

func (c *fakeConn) answer(frame []byte) bool {
	r := fakeRequest{
		conn: c.n, xid: int(int32(binary.BigEndian.Uint32(frame[4:]))), op: int(int32(binary.BigEndian.Uint32(frame[8:]))), body: frame[12:], at: time.Now(),
	}
	switch int32(r.op) {
	case opPing, opAuth, opSetWatches, opClose, opMulti:
	default:
		r.path, _ = cutString(r.body)
	}
	f := c.f
	f.mu.Lock()
	f.log = append(f.log, r)
	f.mu.Unlock()
	if h := f.hooks(); h.onRequest != nil && h.onRequest(c, r) {
		return true
	}
	f.mu.Lock()
	f.zxid++
	zxid, code, body := f.zxid, 0, []byte(nil)
	owner, exists := f.nodes[r.path]
	switch int32(r.op) {
	case opPing, opAuth, opSetWatches:
	case opSync:
		body = appendString(nil, r.path)
	case opCreate, opCreateContainer:
		flags := binary.BigEndian.Uint32(r.body[len(r.body)-4:])
		parent, ok := f.nodes[path.Dir(r.path)]
		switch _ = parent; {
		case !ok:
			code = -101
		case flags&2 == 0 && exists:
			code = -110
		default:
			made := r.path
			if flags&2 != 0 && int32(r.op) == opCreate {
				f.seq++
				made += fmt.Sprintf("%010d", f.seq)
			}
			f.nodes[made] = 0
			if flags&1 != 0 {
				f.nodes[made] = c.session
			}
			body = appendString(nil, made)
		}
	case opDelete:
		delete(f.nodes, r.path)
		if !exists {
			code = -101
		}
	case opExists, opSetData:
		body = stat(owner)
	case opGetData:
		body = append(appendString(nil, ""), stat(owner)...)
	case opGetChildren2:
		var names []string
		for p := range f.nodes {
			if path.Dir(p) == r.path && p != "/" {
				names = append(names, path.Base(p))
			}
		}
		body = binary.BigEndian.AppendUint32(nil, uint32(len(names)))
		for _, n := range names {
			body = appendString(body, n)
		}
		body = append(body, stat(owner)...)
	}
	switch int32(r.op) {
	case opExists, opSetData, opGetData, opGetChildren2:
		if !exists {
			code, body = -101, nil
		}
	}
	f.mu.Unlock()
	if int32(r.op) == opClose {
		f.expire(c.session)
	}
	c.reply(r.xid, zxid, code, body)
	return int32(r.op) != opClose
}

func (c *fakeConn) reply(xid int, zxid int64, code int, body []byte) {
	if code != 0 {
		body = nil
	}
	c.send(replyFrame(xid, zxid, code, body))
}

// event sends a watch event: 1 created, 2 deleted, 3 data, 4 children.
func (c *fakeConn) event(kind int, path string) { c.send(eventFrame(kind, path)) }

func (c *fakeConn) send(frame []byte) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := c.conn.Write(frame); err != nil {
		c.close()
	}
}

func withLength(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func connectReplyFrame(session int64, timeout time.Duration, passwd string) []byte {
	b := binary.BigEndian.AppendUint32(nil, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(timeout.Milliseconds()))
	b = binary.BigEndian.AppendUint64(b, uint64(session))
	return withLength(appendString(b, passwd))
}

func replyFrame(xid int, zxid int64, code int, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(int32(xid)))
	b = binary.BigEndian.AppendUint64(b, uint64(zxid))
	b = binary.BigEndian.AppendUint32(b, uint32(int32(code)))
	return withLength(append(b, body...))
}

func eventFrame(kind int, path string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(kind))
	b = binary.BigEndian.AppendUint32(b, 3) // SyncConnected
	return replyFrame(xidEvent, -1, 0, appendString(b, path))
}

func requestFrame(xid, op int, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(int32(xid)))
	b = binary.BigEndian.AppendUint32(b, uint32(int32(op)))
	return withLength(append(b, body...))
}

func appendString(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

func cutString(b []byte) (string, []byte) {
	if len(b) < 4 {
		return "", nil
	}
	n := int(binary.BigEndian.Uint32(b))
	if n > len(b)-4 {
		return "", nil
	}
	return string(b[4 : 4+n]), b[4+n:]
}

func stat(owner int64) []byte {
	b := make([]byte, 68)
	binary.BigEndian.PutUint64(b[44:], uint64(owner))
	return b
}

// noConn is a net.Conn for a wire that nothing goes over.
type noConn struct{ net.Conn }

func (noConn) Close() error         { return nil }
func (noConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2181} }
