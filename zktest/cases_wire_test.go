package zktest

import "bytes"

// whole are requests that are answered; cut short they are not.
var whole = []part{
	in(OpCreate, "/m/c", []byte("data"), open, 0), in(OpCreate2, "/m/c", []byte("data"), open, 1), in(OpCreateContainer, "/m/c", []byte("data"), open, 4),
	in(OpCreateTTL, "/m/c", []byte("data"), open, 5, int64(100000)), in(OpDelete, "/m/x", 9), in(OpSetData, "/m/x", []byte("data"), -1), in(OpExists, "/m/x", false),
	in(OpGetData, "/m/x", false), in(OpGetChildren, "/m", false), in(OpGetChildren2, "/m", false), in(OpGetACL, "/m/x"), in(OpSetACL, "/m/x", open, -1), in(OpSync, "/m/x"),
	in(OpMulti, in(OpCheck, "/m/x", -1), in(OpSetData, "/m/x", []byte("y"), -1), endOfMulti{}), in(OpMultiRead, in(OpGetData, "/m/x", false), endOfMulti{}),
	in(OpSetWatches, int64(0), []string{"/m/x"}, []string{"/m/x"}, []string{"/m/x"}), in(OpAddWatch, "/m/x", 0), in(OpCheckWatches, "/m/x", 3), in(OpRemoveWatches, "/m/x", 3),
	in(OpGetEphemerals, "/m"), in(OpGetAllChildren, "/m"), in(OpReconfig, "a", "b", "c", int64(-1)), in(OpSASL, []byte("token")),
}

var wireScenarios = []scenario{
	{"requests cut short", func(d *dialogue, a, b *rawConn) {
		a.call(OpCreate, "/m", []byte("x"), open, 0)
		a.call(OpCreate, "/m/x", []byte("x"), open, 0)
		for _, p := range whole {
			var e encoder
			e.args(p.args)
			for n := range e.b {
				if p.op != OpSASL { // which ends the connection
					a.call(p.op, verbatim(e.b[:n]))
				}
			}
			a.call(p.op, verbatim(e.b))
			a.call(p.op, verbatim(string(e.b)+"garbage"))
			a.call(OpDelete, "/m/c", -1)
		}
		a.call(OpDelete, "/m/x", -1)
		a.call(OpDelete, "/m", -1)
		a.call(OpSASL, verbatim("\x00\x00\x00\x09short"))
		a.ended()
	}},
	{"nulls and lengths that are wrong", func(d *dialogue, a, b *rawConn) {
		a.call(OpCreate, "/m", []byte("x"), open, 0)
		for _, length := range []any{null{}, verbatim("\xff\xff\xff\xfe"), verbatim("\x80\x00\x00\x00"), verbatim("\x7f\xff\xff\xff"), verbatim("\x00\x20\x00\x00")} {
			a.call(OpCreate, length, []byte("x"), open, 0)
			a.call(OpCreate, "/m/x", length, open, 0)
			a.call(OpGetData, "/m/x", false)
			a.call(OpSetData, "/m/x", length, -1)
			a.call(OpDelete, "/m/x", -1)
			a.call(OpCreate, "/m/x", []byte("x"), length, 0)
			a.call(OpCreateTTL, length, []byte("x"), open, 5, int64(100000))
			a.call(OpSetData, length, []byte("x"), -1)
			a.call(OpDelete, length, -1)
			a.call(OpCheck, length, -1)
			a.call(OpExists, length, true)
			a.call(OpGetData, length, true)
			a.call(OpGetChildren, length, true)
			a.call(OpGetChildren2, length, true)
			a.call(OpGetACL, length)
			a.call(OpSetACL, length, open, -1)
			a.call(OpSetACL, "/m", length, 77)
			a.call(OpSync, length)
			a.call(OpMulti, in(OpDelete, length, -1), endOfMulti{})
			a.call(OpMultiRead, in(OpGetData, length, false), endOfMulti{})
			a.call(OpCheckWatches, length, 3)
			if length != (null{}) { // the server takes a watch of nothing, and cannot end the connection any more
				a.call(OpAddWatch, length, 0)
			}
			a.call(OpRemoveWatches, length, 3)
			a.call(OpGetEphemerals, length)
			a.call(OpGetAllChildren, length)
			a.call(OpReconfig, length, length, length, int64(0))
			a.call(OpSetWatches, int64(0), length, []string{}, []string{})
			a.call(OpSetWatches, int64(0), []string{}, []string{}, length)
			a.call(OpSetWatches2, int64(0), []string{}, []string{}, []string{}, []string{}, length)
		}
		for _, path := range []string{"/m/\xff", "/m/\xc3", "/m/\xc0\x80", "/m/\xed\xa0\x80", "/m/\xf0\x9f\x98\x80", "/m/\xf4\x90\x80\x80", "\xffx"} { // no text, or not Java's
			a.call(OpExists, path, false)
			a.call(OpCreate, path, []byte("x"), open, 0)
			a.call(OpDelete, path, -1)
		}
		a.call(OpDelete, "/m", -1)
	}},
	{"what operations there are", func(d *dialogue, a, b *rawConn) {
		b.call(OpCreate, "/m", []byte("x"), open, 0)
		for op := Op(-16); op < 110; op++ {
			if op == OpAuth || op == OpClose || op == opCreateSession {
				continue
			}
			for _, payload := range []string{"", "\x00\x00\x75\x30\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"} {
				d.say("%v", op)
				r := d.join("r")
				r.post(op, verbatim(payload))
				body, err := r.frame()
				if err != nil {
					d.say("no reply")
				} else {
					f := parseReply(body)
					d.say("%d: %d %s, %d bytes", f.Xid, f.Err, d.zxid(f.Zxid), len(body))
					if f.Err == int32(codeUnimplemented) {
						r.ended()
					}
				}
				r = r.drop()
				r.call(OpClose)
			}
		}
		for range 2 { // what a server asks itself for is a handshake
			c := d.join("c")
			c.call(opCreateSession)
			c.call(opCreateSession, verbatim("\x00\x00\x75"))
			c.post(opCreateSession, 30000)
			body, err := c.frame()
			got, ok := parseConnectReply(body)
			d.say("%s %t %v %d %v", d.session(got.id), string(got.passwd) == string(c.passwd), got.timeout, len(body), ok && err == nil)
			c.call(OpCreate, "/m/c", []byte("x"), open, 1)
			c.leave()
		}
		for _, op := range []Op{1 << 30, -1 << 31, 1<<31 - 1, 200, -100, -101} {
			a.call(op)
			a.ended()
			a = a.drop()
		}
		b.call(OpDelete, "/m", -1)
	}},
	{"a check by itself", func(d *dialogue, a, b *rawConn) {
		a.call(OpCreate, "/m", []byte("x"), open, 0)
		a.mute(OpCheck, "/m", -1) // no answer
		a.mute(OpCheck, "/m", 0)
		a.mute(OpCheck, "/m", 1)
		a.mute(OpCheck, "/none", -1)
		a.mute(OpCheck, "none", -1)
		for range 3 {
			a.burst(in(OpCheck, "/m", 7), in(OpSetData, "/m", []byte("x"), -1))
			a.mute(OpCheck, "/m", -1)
		}
		a.call(OpExists, "/m", false)
		a.call(OpDelete, "/m", -1)
	}},
	{"frames that are none", func(d *dialogue, a, b *rawConn) {
		for _, frame := range []string{"", "\x00", "\x00\x00\x00\x01", "\x00\x00\x00\x01\x00\x00\x00"} { // less than a header
			r := d.join("r")
			r.write([]byte(frame))
			r.ended()
		}
		for _, head := range []string{"\xff\xff\xff\xff", "\x80\x00\x00\x00", "\x7f\xff\xff\xff", "\x00\x10\x00\x00", "GET "} {
			r := d.join("r")
			_, _ = r.c.Write([]byte(head))
			r.ended()
		}
		for _, xid := range []int32{0, -2, -4, -8, -1 << 31, 1<<31 - 1, 5, 5} { // whatever the number, it comes back
			var e encoder
			e.int32(xid)
			e.int32(int32(OpExists))
			e.args([]any{"/none", false})
			a.write(e.b)
			a.reply(question{xid, OpExists, nil})
		}
		for _, xid := range []int32{0, 7, -2} { // but for a ping
			var e encoder
			e.int32(xid)
			e.int32(int32(OpPing))
			a.write(e.b)
			a.reply(question{xidPing, OpPing, nil})
		}
		a.call(OpPing, verbatim("garbage"))
	}},
	{"as large as may be", func(d *dialogue, a, b *rawConn) {
		a.call(OpCreate, "/m", []byte("x"), open, 0)
		for _, most := range []int{0xfffff - 8 - 4 - 2 - 4 - 4, 0xfffff - 8 - 4 - 2 - 4 - 5} {
			a.call(OpSetData, "/m", bytes.Repeat([]byte("x"), most), -1)
		}
		a.call(OpGetData, "/m/x", false)
		a.call(OpMulti, in(OpSetData, "/m", bytes.Repeat([]byte("x"), 400000), -1), in(OpSetData, "/m", bytes.Repeat([]byte("y"), 600000), -1), endOfMulti{})
		a.call(OpExists, "/m", false)
		a.call(OpSetData, "/m", bytes.Repeat([]byte("x"), 0xfffff-8-4-2-4-4+1), -1)
		a.ended()
		a = a.drop()
		a.call(OpCreate, "/m/"+string(bytes.Repeat([]byte("p"), 100000)), []byte("x"), open, 1)
		for range 12 { // a list is as long as it is
			a.call(OpCreate, "/m/"+string(bytes.Repeat([]byte("p"), 100000)), []byte("x"), open, 3)
		}
		a.post(OpGetChildren, "/m", false)
		body, err := a.frame()
		d.say("%d bytes, %v", len(body), err)
		b.call(OpSetData, "/m", []byte("x"), -1)
		a.call(OpClose)
		b.call(OpDelete, "/m", -1)
	}},
}
