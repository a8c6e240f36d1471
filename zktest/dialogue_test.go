package zktest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// A dialogue is what some raw connections said to one server and were told, in words that do not depend on which server it was: zxids count from the
// beginning, sessions are numbered, times are left out.
type dialogue struct {
	t     testing.TB
	dial  func() (net.Conn, error)
	base  int64
	times map[int64]int64 // of what has a zxid since the beginning
	ids   []int64
	over  map[int64]bool // sessions that are closed
	lines []string
	conns []*rawConn
	late  bool // something may have ended before it was made use of

	anyOrder bool          // of the entries of an ACL
	patience time.Duration // with a server that does not answer, 10 s for 0
}

func (d *dialogue) say(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *dialogue) zxid(z int64) string {
	if z <= 0 {
		return fmt.Sprint(z)
	}
	return fmt.Sprintf("z%+d", z-d.base)
}

func (d *dialogue) session(id int64) string {
	if i := slices.Index(d.ids, id); i >= 0 {
		return fmt.Sprintf("s%d", i)
	}
	return fmt.Sprint(id)
}

type rawConn struct {
	d      *dialogue
	c      net.Conn
	name   string
	xid    int32
	id     int64
	passwd []byte
	last   []byte // what followed the header of the last reply
}

// open connects with a session, a new one for id 0.
func (d *dialogue) open(name string, id int64, passwd []byte, seen int64) *rawConn {
	return d.connect(name, 0, seen, 30000, id, passwd, false)
}

// connect connects with a first frame of these.
func (d *dialogue) connect(name string, args ...any) *rawConn {
	c, err := d.dial()
	if err != nil {
		d.t.Fatal(err)
	}
	r := &rawConn{d: d, c: c, name: name}
	d.conns = append(d.conns, r)
	var e encoder
	e.args(args)
	r.write(e.b)
	body, err := r.frame()
	if err != nil {
		d.say("%s: no connect reply", name)
		return r
	}
	got, _ := parseConnectReply(body)
	r.id, r.passwd = got.id, got.passwd
	if d.over == nil {
		d.over = make(map[int64]bool)
	}
	if got.id != 0 && !slices.Contains(d.ids, got.id) {
		d.ids = append(d.ids, got.id)
	}
	d.say("%s: session %s for %v, %d bytes", name, d.session(got.id), got.timeout, len(body))
	return r
}

func (r *rawConn) write(body []byte) { _, _ = r.c.Write(encodeFrame(body)) }

func (r *rawConn) frame() ([]byte, error) {
	patience := r.d.patience
	if patience == 0 {
		patience = 10 * time.Second
	}
	_ = r.c.SetReadDeadline(time.Now().Add(patience))
	var head [4]byte
	if _, err := io.ReadFull(r.c, head[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(r.c, body)
	return body, err
}

// join opens a new session.
func (d *dialogue) join(name string) *rawConn { return d.open(name, 0, make([]byte, 16), 0) }

// leave closes the session and opens another.
func (r *rawConn) leave() *rawConn {
	r.call(OpClose)
	r.ended()
	return r.d.join(r.name)
}

// drop ends the connection and comes back with the session, when the server has done with that connection. The real one may otherwise forget the next one
// of the session with it, and leaves that open when the session moves on.
func (r *rawConn) drop() *rawConn {
	if half, ok := r.c.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = r.c.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.Copy(io.Discard, r.c)
	}
	r.c.Close()
	return r.d.open(r.name, r.id, r.passwd, 0)
}

// move takes the session to another connection.
func (r *rawConn) move() *rawConn {
	to := r.d.open(r.name, r.id, r.passwd, 0)
	r.ended()
	return to
}

// intrude lets somebody ask for the session who does not know its password, and comes back.
func (r *rawConn) intrude() *rawConn {
	r.d.open(r.name, r.id, make([]byte, 16), 0).ended()
	r.ended()
	return r.d.open(r.name, r.id, r.passwd, 0)
}

// await is done when an event has come.
func (r *rawConn) await() {
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) { // between two looks
		mark := len(r.d.lines)
		r.call(OpPing)
		if strings.Contains(r.d.lines[mark], "event") {
			return
		}
		r.d.lines = r.d.lines[:mark]
	}
}

// ended says whether the server closes the connection.
func (r *rawConn) ended() {
	if body, err := r.frame(); err != nil {
		r.d.say("%s: closed %t", r.name, err == io.EOF || !strings.Contains(err.Error(), "timeout"))
	} else {
		r.d.say("%s: not closed, % x", r.name, body)
	}
}

// call sends a request and takes down all that comes until its reply. Arguments are encoded by their types.
func (r *rawConn) call(op Op, args ...any) { r.reply(r.post(op, args...)) }

// A question is a request whose reply is due.
type question struct {
	xid  int32
	op   Op
	args []any
}

// post sends a request.
func (r *rawConn) post(op Op, args ...any) question {
	var e encoder
	r.xid++
	xid := r.xid
	if op == OpPing {
		xid = xidPing
	}
	e.int32(xid)
	e.int32(int32(op))
	e.args(args)
	r.write(e.b)
	return question{xid, op, args}
}

// reply takes down all that comes until the reply to a request; false when the connection has ended before.
func (r *rawConn) reply(q question) bool {
	for {
		body, err := r.frame()
		if err != nil {
			r.d.say("%s: %v %v: no reply", r.name, q.op, about(q.args))
			return false
		}
		switch f := parseReply(body); {
		case f.Op == OpEvent:
			r.d.say("%s: event %d %s", r.name, f.EventType, f.Path)
		case f.Xid != q.xid:
			r.d.say("%s: a reply to %d, not %d: %d", r.name, f.Xid, q.xid, f.Err)
		default:
			r.last = body[16:]
			if q.op == OpClose && f.Err == 0 {
				r.d.over[r.id] = true
			}
			r.d.say("%s: %v %v: %d %s%s", r.name, q.op, about(q.args), f.Err, r.d.zxid(f.Zxid), r.d.result(q.op, f.Err, body[16:]))
			return true
		}
	}
}

// mute sends a request that is not answered: the ping after it is.
func (r *rawConn) mute(op Op, args ...any) {
	r.post(op, args...)
	r.call(OpPing)
}

// burst sends requests at once.
func (r *rawConn) burst(parts ...part) {
	var qs []question
	for _, p := range parts {
		qs = append(qs, r.post(p.op, p.args...))
	}
	for _, q := range qs {
		if !r.reply(q) {
			return
		}
	}
}

func about(args []any) []any {
	args = slices.Clone(args)
	for i, a := range args {
		switch a := a.(type) {
		case []byte:
			args[i] = fmt.Sprintf("%d bytes", len(a))
		case verbatim:
			args[i] = fmt.Sprintf("%.20q", string(a))
		case string:
			if len(a) > 100 {
				args[i] = a[:100]
			}
		case seen:
			args[i] = "seen"
		}
	}
	return args
}

func (e *encoder) args(args []any) {
	for _, a := range args {
		switch a := a.(type) {
		case string:
			e.string(a)
		case []byte:
			e.bytes(a)
		case int:
			e.int32(int32(a))
		case int64:
			e.int64(a)
		case seen:
			e.int64(int64(a))
		case since: // of a server that is new
			e.int64(firstZxid + int64(a))
		case bool:
			e.bool(a)
		case []string:
			e.strings(a)
		case []aclEntry:
			e.acl(a)
		case part:
			e.int32(int32(a.op))
			e.bool(false)
			e.int32(-1)
			e.args(a.args)
		case verbatim:
			e.b = append(e.b, a...)
		case null:
			e.null()
		case endOfMulti:
			e.int32(-1)
			e.bool(true)
			e.int32(-1)
		default:
			panic(fmt.Sprintf("%T", a))
		}
	}
}

// A part is one operation of a multi.
type part struct {
	op   Op
	args []any
}

type endOfMulti struct{}

// verbatim is encoded as it is.
type verbatim string

// null is a string, a buffer or a list that is none.
type null struct{}

// seen is a zxid of the server's.
type seen int64

func in(op Op, args ...any) part { return part{op, args} }

func (r *rawConn) multi(parts ...any) { r.call(OpMulti, append(parts, endOfMulti{})...) }

func (d *dialogue) stat(dec *decoder) string {
	czxid, mzxid, ctime, mtime := dec.int64(), dec.int64(), dec.int64(), dec.int64()
	version, cversion, aversion, owner := dec.int32(), dec.int32(), dec.int32(), dec.int64()
	length, children, pzxid := dec.int32(), dec.int32(), dec.int64()
	return fmt.Sprintf(" c%s m%s p%s changed=%t made=%t version=%d cversion=%d aversion=%d owner=%s length=%d children=%d", d.when(czxid, ctime),
		d.when(mzxid, mtime), d.zxid(pzxid), mtime >= ctime, ctime > 0, version, cversion, aversion, d.session(owner), length, children)
}

// when is a zxid together with its time: one transaction has one time.
func (d *dialogue) when(zxid, at int64) string {
	if known, ok := d.times[zxid]; ok && known != at {
		return d.zxid(zxid) + " at another time"
	}
	if d.times != nil && zxid > d.base {
		d.times[zxid] = at
	}
	return d.zxid(zxid)
}

// result reads what follows the header of a reply.
func (d *dialogue) result(op Op, err int32, body []byte) string {
	dec := &decoder{body}
	var s string
	if err == 0 || op == OpMulti || op == OpMultiRead {
		s = d.body(op, dec)
	}
	return fmt.Sprintf("%s +%d", s, len(dec.b))
}

func (d *dialogue) body(op Op, dec *decoder) (s string) {
	switch op {
	case OpCreate, OpSync:
		s = " " + dec.string()
	case OpCreate2, OpCreateContainer, OpCreateTTL:
		s = " " + dec.string() + d.stat(dec)
	case OpExists, OpSetData, OpSetACL:
		s = d.stat(dec)
	case OpGetData:
		s = fmt.Sprintf(" %#v", dec.buffer()) + d.stat(dec)
	case OpGetAllChildren:
		s = fmt.Sprint(" ", dec.int32())
	case OpWhoAmI:
		var who []string // by hashing
		for n := dec.int32(); n > 0 && !dec.bad(); n-- {
			who = append(who, fmt.Sprintf("%s:%s", dec.string(), dec.string()))
		}
		slices.Sort(who)
		s = fmt.Sprintf(" %q", who)
	case OpGetChildren, OpGetChildren2, OpGetEphemerals:
		names := dec.strings()
		slices.Sort(names)
		s = fmt.Sprintf(" %q", names)
		if op == OpGetChildren2 {
			s += d.stat(dec)
		}
	case OpGetACL:
		acl := dec.acl()
		if d.anyOrder {
			slices.SortFunc(acl, func(a, b aclEntry) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		s = fmt.Sprintf(" %v", acl) + d.stat(dec)
	case OpMulti, OpMultiRead:
		for !dec.bad() && len(dec.b) > 0 {
			kind, done, code := dec.int32(), dec.bool(), dec.int32()
			s += fmt.Sprintf(" [%d %t %d", kind, done, code)
			switch {
			case done:
			case kind == -1:
				s += fmt.Sprint(" ", dec.int32())
			default:
				s += d.body(Op(kind), dec)
			}
			s += "]"
		}
	}
	return s
}

// begin takes what a connection sees now for the beginning.
func (d *dialogue) begin(r *rawConn) {
	r.post(OpPing)
	body, err := r.frame()
	if err != nil {
		d.t.Fatal(err)
	}
	d.base, d.times = parseReply(body).Zxid, make(map[int64]int64)
}

// finish closes all sessions, also those whose connection has ended: one that expired later would be a transaction among others'.
func (d *dialogue) finish() {
	for _, r := range d.conns {
		if r.id != 0 && !d.over[r.id] {
			r.end()
		}
		r.c.Close()
	}
	said := len(d.lines)
	for _, r := range d.conns {
		if r.id != 0 && !d.over[r.id] {
			back := d.open("", r.id, r.passwd, 0)
			if back.id != 0 {
				back.end()
			}
			back.c.Close()
			d.over[r.id] = true
		}
	}
	d.lines = d.lines[:said]
}

// end closes the session without a word about it.
func (r *rawConn) end() {
	said := len(r.d.lines)
	r.call(OpClose)
	_ = r.c.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.Copy(io.Discard, r.c)
	r.d.lines = r.d.lines[:said]
}

// clean deletes a znode and all below it, without a word.
func (r *rawConn) clean(path string) {
	said := len(r.d.lines)
	r.call(OpGetChildren2, path, false)
	d := decoder{r.last}
	for _, name := range d.strings() {
		r.clean(path + "/" + name)
	}
	r.call(OpDelete, path, -1)
	r.d.lines = r.d.lines[:said]
}
