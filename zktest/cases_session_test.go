package zktest

import (
	"bytes"
	"time"
)

// shortly opens a session that ends soon: in the shortest time that a server grants, which is 400 ms. soon says whether what has to be done before is.
func (d *dialogue) shortly(name string) (s *rawConn, soon func()) {
	soon = d.within(300 * time.Millisecond)
	return d.connect(name, 0, int64(0), 1, int64(0), make([]byte, 16), false), soon
}

// within returns what notes that the dialogue is late if more time has passed.
func (d *dialogue) within(limit time.Duration) (soon func()) {
	began := time.Now()
	return func() { d.late = d.late || time.Since(began) > limit }
}

var sessionScenarios = []scenario{
	{"what a first frame may ask", func(d *dialogue, a, b *rawConn) {
		fresh := make([]byte, 16)
		for _, timeout := range []int{0, -1, 1, 399, 400, 401, 1000, 59999, 60000, 60001, 1<<31 - 1, -1 << 31} {
			soon := d.within(300 * time.Millisecond)
			d.connect("t", 0, int64(0), timeout, int64(0), fresh, false).end() // one that expired meanwhile would be a transaction among others'
			soon()
		}
		for _, args := range [][]any{
			{0, int64(0), 5000, int64(0), fresh}, // an old client
			{0, int64(0), 5000, int64(0), fresh, true}, {0, int64(0), 5000, int64(0), fresh, false, verbatim("garbage")}, {7, int64(0), 5000, int64(0), fresh, false},
			{-1, int64(-5), 5000, int64(0), fresh, false}, {0, int64(0), 5000, int64(0), []byte(nil), false}, {0, int64(0), 5000, int64(0), []byte("x"), false},
			{0, int64(0), 5000, int64(0), make([]byte, 100), false}, {0, seen(d.base), 5000, int64(0), fresh, false},
		} {
			r := d.connect("f", args...)
			r.call(OpPing)
			r.call(OpCreate, "/m", []byte("x"), open, 1)
			r.leave()
		}
		whole := encoder{}
		whole.args([]any{0, int64(0), 5000, int64(0), fresh, false})
		for n := range len(whole.b) - 1 {
			d.connect("cut", verbatim(whole.b[:n]))
		}
		for _, args := range [][]any{
			{0, int64(1 << 62), 5000, int64(0), fresh, false}, {0, int64(0), 5000, int64(0), verbatim("\x7f\xff\xff\xff"), false}, {0, int64(0), 5000, int64(0), verbatim("\xff\xff\xff\xfe"), false},
			{0, int64(0), 5000, int64(1), fresh, false}, {0, int64(0), 5000, int64(-1), []byte(nil), false}, {0, int64(0), 5000, a.id, []byte(nil), false},
		} {
			d.connect("no", args...).ended()
		}
		a.ended()
	}},
	{"back with a session", func(d *dialogue, a, b *rawConn) {
		a.call(OpCreate, "/m", []byte("x"), open, 1)
		for _, timeout := range []int{4000, 30000} {
			r := d.connect("a", 0, int64(0), timeout, a.id, a.passwd, false)
			a.ended()
			r.call(OpExists, "/m", false)
			a = r
		}
		for _, passwd := range [][]byte{nil, {}, a.passwd[:15], append(bytes.Clone(a.passwd), 0), make([]byte, 16), b.passwd} {
			d.open("not a", a.id, passwd, 0).ended()
			a.ended()
			b.call(OpExists, "/m", false)
			a = d.open("a", a.id, a.passwd, 0)
			a.call(OpExists, "/m", false)
		}
		d.open("with b's", a.id, b.passwd, 0).ended()
		a.ended()
		a = d.open("ahead", a.id, a.passwd, d.base+1<<40) // has not taken it
		a.ended()
		a.d.say("%s", d.session(a.id))
		b.call(OpExists, "/m", false)
	}},
	{"a session is closed", func(d *dialogue, a, b *rawConn) {
		b.call(OpCreate, "/m", []byte("x"), open, 0)
		b.call(OpAddWatch, "/m", 1)
		a.call(OpCreate, "/m/e", []byte("x"), open, 1)
		a.call(OpSetData, "/m/e", []byte("y"), -1)
		b.call(OpGetData, "/m/e", true)
		b.call(OpGetChildren, "/m", true)
		a.call(OpExists, "/m/e", true)
		a.call(OpGetChildren2, "/m", true)
		a.call(OpGetEphemerals, "/")
		a.call(OpClose, verbatim("garbage"))
		a.ended()
		b.call(OpPing)
		b.call(OpGetChildren2, "/m", false)
		d.open("late", a.id, a.passwd, 0).ended()
		b.call(OpDelete, "/m/e", -1)
		c := d.join("c")
		c.call(OpCreate, "/m/e2", []byte("x"), open, 1)
		b.call(OpDelete, "/m/e2", -1)
		b.call(OpCreate, "/m/e2", []byte("x"), open, 0)
		c = c.leave()
		b.call(OpExists, "/m/e2", false) // it is not the closed one's any more
		c.call(OpCreate, "/m/e3", []byte("x"), open, 1)
		c.call(OpSetACL, "/m", acl(permRead|permAdmin, "world", "anyone"), -1)
		c = c.leave() // whatever the ACL says
		b.call(OpGetChildren2, "/m", false)
		b.call(OpSetACL, "/m", open, -1)
		b.call(OpDelete, "/m/e2", -1)
		b.call(OpDelete, "/m", -1)
		c.burst(in(OpCreate, "/m", []byte("x"), open, 1), in(OpExists, "/m", true), in(OpClose))
		c.ended()
	}},
	{"a session expires", func(d *dialogue, a, b *rawConn) {
		b.call(OpCreate, "/m", []byte("x"), open, 0)
		b.call(OpAddWatch, "/m", 1)
		for _, watch := range []func(*rawConn){
			func(r *rawConn) { r.call(OpExists, "/m/e", true) }, func(r *rawConn) { r.call(OpGetData, "/m/e", true) }, func(r *rawConn) { r.call(OpGetChildren, "/m", true) },
			func(r *rawConn) { r.call(OpGetChildren, "/m/e", true) },
		} {
			s, soon := d.shortly("s")
			s.call(OpCreate, "/m/e", []byte("x"), open, 1)
			watch(a) // a watch of its own might be told, and might not: its connection is ended
			b.call(OpPing)
			soon()
			b.await()
			a.call(OpPing)
			s.ended()
			a.call(OpGetChildren2, "/m", false)
			d.open("late", s.id, s.passwd, 0).ended()
		}
		s, soon := d.shortly("s")
		s.call(OpCreate, "/m/e", []byte("x"), open, 1)
		b.call(OpPing)
		soon()
		s.c.Close() // nor does it matter whether there is a connection
		b.await()
		d.open("late", s.id, s.passwd, 0).ended()
		s, soon = d.shortly("s")
		s.call(OpCreate, "/m/e", []byte("x"), open, 1)
		b.call(OpPing)
		s = d.open("longer", s.id, s.passwd, 0) // with 30 s from now on
		soon()
		c, soon := d.shortly("c")
		c.call(OpCreate, "/m/c", []byte("x"), open, 1)
		b.call(OpPing)
		soon()
		b.await() // c's
		s.call(OpExists, "/m/e", false)
		s.call(OpClose)
		b.call(OpPing)
		b.call(OpDelete, "/m", -1)
	}},
	{"whose an ephemeral is", func(d *dialogue, a, b *rawConn) {
		a.call(OpCreate, "/m", []byte("x"), open, 0)
		for _, prefix := range []any{"", " ", "/", " / ", "/m", "/m/", "/m/e1", "/none", "m", null{}} {
			a.call(OpGetEphemerals, prefix)
		}
		for i, op := range []Op{OpCreate, OpCreate2, OpCreate, OpCreate2, OpCreateContainer} {
			a.call(op, "/m/e"+string(rune('0'+i)), []byte("x"), open, []int{1, 1, 3, 3, 1}[i])
			b.call(op, "/m/f"+string(rune('0'+i)), []byte("x"), open, []int{1, 1, 3, 3, 1}[i])
		}
		for _, prefix := range []any{"", " ", "/", " / ", "/m", "/m/", "/m/e1", "/m/f", " /m", null{}} {
			a.call(OpGetEphemerals, prefix)
			b.call(OpGetEphemerals, prefix)
		}
		for _, path := range []any{"", "/", "/m", "/m/", "/m/e0", "/zookeeper", "/none", "x", null{}} {
			a.call(OpGetAllChildren, path)
		}
		a.call(OpDelete, "/m/f0", -1)
		a.call(OpDelete, "/m/e0", -1)
		b = b.move()
		a = a.drop()
		b.call(OpGetEphemerals, "/")
		a.call(OpGetEphemerals, "/")
		a = a.leave()
		a.call(OpGetEphemerals, "/")
		b.call(OpGetChildren2, "/m", false)
		b = b.leave()
		b.call(OpGetChildren2, "/m", false)
		b.call(OpDelete, "/m/e4", -1)
		b.call(OpDelete, "/m/f4", -1)
		b.call(OpDelete, "/m", -1)
	}},
	{"what goes by itself", func(d *dialogue, a, b *rawConn) {
		a.call(OpCreate, "/m", []byte("x"), open, 0)
		a.call(OpCreateContainer, "/m/unused", []byte("x"), open, 4)
		a.call(OpCreateContainer, "/m/box", []byte("x"), open, 4)
		a.call(OpCreateContainer, "/m/box/in", []byte("x"), open, 4)
		a.call(OpCreate, "/m/box/in/x", []byte("x"), open, 1)
		a.call(OpExists, "/m/box/in", false)
		a.call(OpCreate, "/m/box/keep", []byte("x"), open, 0) // until the box is watched
		b.call(OpExists, "/m/box/in", true)
		a.call(OpDelete, "/m/box/in/x", -1)
		b.await()
		b.call(OpExists, "/m/box", true)
		a.call(OpDelete, "/m/box/keep", -1)
		b.await()
		a.call(OpGetChildren2, "/m", false)
		a.multi(in(OpCreateTTL, "/m/kept", []byte("x"), open, 5, int64(1)), in(OpCreate, "/m/kept/x", []byte("x"), open, 0)) // alone it might be gone already
		a.call(OpCreateTTL, "/m/long", []byte("x"), open, 5, int64(100000))
		soon := d.within(1900 * time.Millisecond)
		a.call(OpCreateTTL, "/m/short", []byte("x"), open, 6, int64(2000))
		b.call(OpExists, "/m/short0000000004", true)
		soon()
		b.await()
		a.call(OpGetChildren2, "/m", false)
		b.call(OpExists, "/m/kept", true)
		a.call(OpDelete, "/m/kept/x", -1)
		b.await()
		a.call(OpCreateContainer, "/m/shut", []byte("x"), acl(permCreate|permDelete, "world", "anyone"), 4)
		a.call(OpCreate, "/m/shut/x", []byte("x"), open, 0)
		b.call(OpGetChildren, "/m", true)
		a.call(OpDelete, "/m/shut/x", -1)
		b.await() // whatever the ACL says
		a.call(OpGetChildren2, "/m", false)
		a.call(OpDelete, "/m/unused", -1)
		a.call(OpDelete, "/m/long", -1)
		a.call(OpDelete, "/m", -1)
	}},
	{"events and answers in their order", func(d *dialogue, a, b *rawConn) {
		a.call(OpAddWatch, "/m", 1)
		x := []byte("x")
		a.burst(in(OpCreate, "/m", x, open, 0), in(OpGetChildren, "/m", true), in(OpCreate, "/m/x", x, open, 1), in(OpExists, "/m/x", true), in(OpSetData, "/m/x", x, -1),
			in(OpPing), in(OpSetData, "/m/x", x, 0), in(OpGetData, "/m/x", true), in(OpMulti, in(OpSetData, "/m", x, -1), in(OpDelete, "/m/x", -1), endOfMulti{}),
			in(OpExists, "/m/x", true), in(OpSync, "/m"), in(OpGetChildren2, "/m", true))
		b.burst(in(OpCreate, "/m/x", x, open, 0), in(OpSetData, "/m/x", x, 0), in(OpSetData, "/m/x", x, 1), in(OpDelete, "/m/x", 2), in(OpDelete, "/m", -1), in(OpExists, "/m", false))
		a.call(OpPing)
		for range 3 {
			b.burst(in(OpCreate, "/m", x, open, 0), in(OpCreate2, "/m/s", x, open, 2), in(OpCreate2, "/m/s", x, open, 3), in(OpMulti, in(OpCreate, "/m/s", x, open, 2),
				in(OpCreate, "/m/s", x, open, 2), endOfMulti{}), in(OpCreate2, "/m/s", x, open, 2), in(OpMulti, in(OpCreate, "/m/s", x, open, 2), in(OpDelete, "/none", -1), endOfMulti{}),
				in(OpCreate2, "/m/s", x, open, 2), in(OpDelete, "/m", -1), in(OpGetChildren2, "/m", false))
			a.call(OpPing)
			for _, n := range "012345" {
				b.call(OpDelete, "/m/s000000000"+string(n), -1)
			}
			b.call(OpDelete, "/m", -1)
		}
		a.call(OpPing)
	}},
}
