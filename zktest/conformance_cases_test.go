package zktest

import (
	"bytes"
	"slices"
)

var open = []aclEntry{{permAll, "world", "anyone"}}

func acl(perms int32, scheme, id string) []aclEntry { return []aclEntry{{perms, scheme, id}} }

// A scenario has two sessions; what it makes it deletes, or it uses names of its own.
type scenario struct {
	name string
	run  func(d *dialogue, a, b *rawConn)
}

// The scenarios of TestConformance.
var scenarios = slices.Concat(firstScenarios, watchScenarios, multiScenarios, aclScenarios, sessionScenarios, wireScenarios, numberScenarios)

var firstScenarios = []scenario{
	{"what is there at first", func(d *dialogue, a, b *rawConn) {
		for _, path := range []string{"/zookeeper", "/zookeeper/quota", "/none", "", "x", "/zookeeper/", "/a\x00b"} {
			a.call(OpExists, path, false)
			a.call(OpGetData, path, false)
			a.call(OpGetACL, path)
			a.call(OpGetChildren2, path, false)
			a.call(OpGetChildren, path, false)
			a.call(OpSync, path)
		}
		a.call(OpExists, "/zookeeper/config", false)
		a.call(OpGetACL, "/zookeeper/config")
		a.call(OpSetData, "/zookeeper/config", []byte("x"), -1)
		a.call(OpSetACL, "/zookeeper/config", open, -1)
		for _, path := range []string{"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"} {
			a.call(OpDelete, path, -1)
			a.call(OpCreate, path, []byte(nil), open, 0)
		}
	}},
	{"create", func(d *dialogue, a, b *rawConn) {
		a.call(OpCreate, "/c", []byte("data"), open, 0)
		a.call(OpCreate, "/c", []byte("data"), open, 0)
		a.call(OpCreate2, "/c/two", []byte{}, open, 0)
		a.call(OpCreate2, "/c/null", []byte(nil), open, 0)
		a.call(OpGetData, "/c/null", false)
		a.call(OpGetData, "/c/two", false)
		for _, flags := range []int{1, 2, 3, 4, 5, 6, 7, -1, 99} {
			a.call(OpCreate, "/c/f", []byte("x"), open, flags)
			a.call(OpCreate2, "/c/g", []byte("x"), open, flags)
		}
		for _, path := range []string{"", "x", "/", "/c/", "/c//x", "//x", "/c/./x", "/c/..", "/c/.", "/c/a\x00b", "/c/\x01", "/c/\u0085", "/c/\ue000",
			"/c/\ufff0", "/c/ü", "/none/x", "/c/...", "/c/\U0001f600"} {
			a.call(OpCreate, path, []byte("x"), open, 0)
		}
		a.call(OpCreate, "/c/", []byte("x"), open, 2)
		a.call(OpCreate, "/c/f/x", []byte("x"), open, 0)
		a.call(OpCreate, "/c/f/y", []byte("x"), open, 2)
		a.call(OpGetChildren2, "/c", false)
		a.call(OpExists, "/c/f", false)
	}},
	{"create with more words", func(d *dialogue, a, b *rawConn) {
		a.call(OpCreate, "/m", []byte("x"), open, 0)
		for i, flags := range []int{0, 4, 1, 2, 3, 5} {
			a.call(OpCreateContainer, "/m/c"+string(rune('0'+i)), []byte("x"), open, flags)
		}
		for i, ttl := range []int64{7200000, 3600000, 0, -1, 1<<40 - 1, 1 << 40, 1 << 41, -1 << 40} {
			for _, flags := range []int{5, 6} {
				a.call(OpCreateTTL, "/m/t"+string(rune('0'+i)), []byte("x"), open, flags, ttl)
			}
		}
		a.call(OpCreateTTL, "/m/u", []byte("x"), open, 0, int64(10))
		a.call(OpCreateTTL, "/m/u", []byte("x"), open, 9, int64(10))
		a.call(OpExists, "/m/t1", false)
		a.call(OpCreate, "/m/t1/child", []byte("x"), open, 0)
		a.call(OpCreate, "/m/cut", []byte("x"))
		a.call(OpGetData)
		a.call(OpCreate2, "/m/last", []byte("x"), open, 0)
	}},
	{"versions", func(d *dialogue, a, b *rawConn) {
		a.call(OpCreate, "/v", []byte("1"), open, 0)
		a.call(OpSetData, "/v", []byte("22"), 0)
		a.call(OpSetData, "/v", []byte("22"), 0)
		a.call(OpSetData, "/v", []byte(nil), -1)
		a.call(OpSetData, "/v", []byte("x"), -2)
		a.call(OpSetData, "/none", []byte("x"), -1)
		a.call(OpSetData, "none", []byte("x"), -1)
		a.call(OpSetData, "", []byte("x"), -1)
		a.call(OpSetData, "/v/", []byte("x"), -1)
		a.call(OpSetData, "/", []byte("x"), -1)
		a.call(OpSetData, "/", []byte(""), -1)
		a.call(OpGetData, "/v", false)
		a.call(OpCreate, "/v/x", []byte("1"), open, 0)
		a.call(OpDelete, "/v", 7)
		a.call(OpDelete, "/v", 2)
		a.call(OpDelete, "/v", -1)
		a.call(OpDelete, "/none", -1)
		a.call(OpDelete, "/none/x", -1)
		a.call(OpDelete, "none", -1)
		a.call(OpDelete, "", -1)
		a.call(OpDelete, "/v/", -1)
		a.call(OpDelete, "/v/x", -1)
		a.call(OpExists, "/v", false)
		a.call(OpDelete, "/v", 2)
		a.call(OpExists, "/v", false)
	}},
	{"permissions", func(d *dialogue, a, b *rawConn) {
		for _, refused := range [][]aclEntry{nil, acl(31, "world", "all"), acl(31, "auth", ""), acl(31, "digest", "x"), acl(31, "digest", "u:"),
			acl(31, "ip", "x"), acl(31, "ip", "127.0.0.1/33"), acl(31, "ip", "1.2.3"), acl(31, "ip", "::1"), acl(31, "nobody", "x"), acl(31, "sasl", "x")} {
			a.call(OpCreate, "/p-refused", []byte("x"), refused, 0)
		}
		for i, taken := range [][]aclEntry{acl(31, "digest", ":x"), acl(31, "digest", "a:b:"), acl(31, "ip", "127.0.0.0/8"), acl(31, "ip", "127.0.0.1"),
			acl(0, "world", "anyone"), append(acl(1, "world", "anyone"), open...), append(acl(31, "ip", "10.0.0.1"), acl(31, "ip", "10.0.0.1")...),
			acl(1, "ip", "10.0.0.0/0"), acl(-1, "world", "anyone"), acl(64, "world", "anyone")} {
			path := "/p" + string(rune('0'+i))
			a.call(OpCreate, path, []byte("x"), taken, 0)
			a.call(OpGetACL, path)
			a.call(OpGetData, path, false)
			a.call(OpExists, path, false)
			a.call(OpSetData, path, []byte("y"), -1)
			a.call(OpCreate, path+"/x", []byte("x"), open, 2)
			a.call(OpGetChildren, path, false)
			a.call(OpSetACL, path, open, 0)
			a.call(OpSetACL, path, open, 0)
			a.call(OpGetACL, path)
		}
		a.call(OpAuth, 0, "digest", []byte("me:secret"))
		a.call(OpAuth, 0, "digest", []byte("me:secret"))
		a.call(OpAuth, 0, "ip", []byte(""))
		a.call(OpCreate, "/p-mine", []byte("x"), acl(31, "auth", ""), 0)
		a.call(OpGetACL, "/p-mine")
		b.call(OpGetACL, "/p-mine")
		b.call(OpGetData, "/p-mine", false)
		b.call(OpSetData, "/p-mine", []byte("x"), -1)
		b.call(OpDelete, "/p-mine", 9)
		b.call(OpCreate, "/p-mine/x", []byte("x"), open, 0)
		b.call(OpSetACL, "/p-mine", open, -1)
		b.multi(in(OpCheck, "/p-mine", 0))
		a.call(OpSetACL, "/p-mine", append(acl(31, "auth", ""), acl(permRead, "world", "anyone")...), 0)
		b.call(OpGetACL, "/p-mine")
		b.call(OpAuth, 0, "nobody", []byte("me:secret"))
		b.ended()
		c := d.open("c", 0, make([]byte, 16), 0)
		c.call(OpAuth, 0, "world", []byte("anyone"))
		c.ended()
	}},
	{"multi", func(d *dialogue, a, b *rawConn) {
		a.multi()
		a.multi(in(OpCreate, "/x", []byte("x"), open, 0), in(OpCheck, "/x", 0), in(OpDelete, "/x", 0))
		a.multi(in(OpCreate, "/x", []byte("x"), open, 0))
		a.multi(in(OpSetData, "/x", []byte("y"), 0))
		a.multi(in(OpCreate2, "/x/2", []byte("x"), open, 0))
		a.multi(in(OpCreate, "/x/c", []byte("x"), open, 4))
		a.multi(in(OpCreateContainer, "/x/d", []byte("x"), open, 4))
		a.multi(in(OpCreateContainer, "/x/d0", []byte("x"), open, 0))
		a.multi(in(OpCreateTTL, "/x/t", []byte("x"), open, 5, int64(3600000)))
		a.multi(in(OpCreate, "/x/t2", []byte("x"), open, 5))
		a.multi(in(OpCreate, "/x/bad", []byte("x"), open, 77))
		a.multi(in(OpCheck, "/x", 7), in(OpDelete, "/x", -1))
		a.multi(in(OpSetData, "/x", []byte("z"), -1), in(OpCreate, "/x/s", []byte("x"), open, 3), in(OpDelete, "/none", -1), in(OpDelete, "/none", -1))
		a.call(OpGetData, "/x", false)
		a.call(OpGetChildren2, "/x", false)
		a.multi(in(OpGetData, "/x", false))
		a.multi(in(OpCreate, "/x/s", []byte("x"), open, 2))
		a.multi(in(OpSetData, "/x", []byte("1"), 1), in(OpSetData, "/x", []byte("2"), 1))
		a.multi(in(OpDelete, "/x/2", -1), in(OpCreate, "/x/2", []byte("again"), open, 1), in(OpDelete, "/x/2", -1))
		a.call(OpCreate2, "/x/after", []byte("x"), open, 2)
		a.call(OpExists, "/x", false)
		a.call(OpMulti, in(OpCheck, "/x", 0))
		a.call(OpCheck, "/x", 9)
		a.call(OpExists, "/x", false)
	}},
	{"watches", func(d *dialogue, a, b *rawConn) {
		a.call(OpExists, "/w", true)
		a.call(OpGetData, "/w", true)
		a.call(OpGetChildren, "/w", true)
		a.call(OpGetChildren, "/", true)
		b.call(OpCreate, "/w", []byte("x"), open, 0)
		a.call(OpPing)
		b.call(OpSetData, "/w", []byte("x"), -1)
		a.call(OpPing)
		a.call(OpGetData, "/w", true)
		a.call(OpExists, "/w", true)
		a.call(OpGetChildren2, "/w", true)
		a.call(OpSetData, "/w", []byte("x"), -1)
		a.call(OpSetData, "/w", []byte("x"), -1)
		a.call(OpSetACL, "/w", open, -1)
		a.call(OpGetData, "/w", true)
		b.call(OpCreate, "/w/x", []byte("x"), open, 0)
		b.call(OpDelete, "/w/x", -1)
		a.call(OpPing)
		a.call(OpGetChildren2, "/w", true)
		a.call(OpGetChildren2, "/", true)
		b.call(OpDelete, "/w", -1)
		a.call(OpGetChildren, "/none", false)
		a.call(OpExists, "/w", true)
		b.multi(in(OpCreate, "/w", []byte("x"), open, 0), in(OpDelete, "/w", -1), in(OpCheck, "/w", -1))
		a.call(OpPing)
		b.multi(in(OpCreate, "/w", []byte("x"), open, 0), in(OpCreate, "/w/x", []byte("x"), open, 0), in(OpDelete, "/w/x", -1), in(OpDelete, "/w", -1))
		a.call(OpPing)
	}},
	{"watches that stay", func(d *dialogue, a, b *rawConn) {
		b.call(OpCreate, "/l", []byte("x"), open, 0)
		a.call(OpAddWatch, "/l", 0)
		a.call(OpAddWatch, "/l/r", 1)
		a.call(OpAddWatch, "/l", 7)
		b.call(OpCreate, "/l/r", []byte("x"), open, 0)
		b.call(OpSetData, "/l", []byte("x"), -1)
		b.call(OpCreate, "/l/r/x", []byte("x"), open, 0)
		b.call(OpSetData, "/l/r/x", []byte("x"), -1)
		a.call(OpPing)
		a.call(OpCheckWatches, "/l", 3)
		a.call(OpRemoveWatches, "/l/r", 3)
		a.call(OpRemoveWatches, "/l/r", 3)
		b.call(OpDelete, "/l/r/x", -1)
		b.call(OpDelete, "/l/r", -1)
		b.call(OpDelete, "/l", -1)
		b.call(OpCreate, "/l", []byte("x"), open, 0)
		a.call(OpPing)
		for kind := range 5 {
			b.call(OpCheckWatches, "/l", kind)
		}
		b.call(OpGetChildren, "/l", true)
		for kind := range 5 {
			b.call(OpCheckWatches, "/l", kind)
		}
		b.call(OpRemoveWatches, "/l", 1)
		b.call(OpExists, "/l", true)
		b.call(OpCheckWatches, "/l", 1)
		b.call(OpCheckWatches, "/l", 2)
		b.call(OpRemoveWatches, "/l", 1)
		b.call(OpRemoveWatches, "/l", 2)
		b.call(OpRemoveWatches, "/l", 2)
		b.call(OpRemoveWatches, "/l", 9)
	}},
	{"watches set again", func(d *dialogue, a, b *rawConn) {
		b.call(OpCreate, "/s", []byte("x"), open, 0)
		b.call(OpCreate, "/s/same", []byte("x"), open, 0)
		b.call(OpCreate, "/s/set", []byte("x"), open, 0)
		b.call(OpCreate, "/s/kids", []byte("x"), open, 0)
		then := d.base + 4
		a.c.Close()
		b.call(OpSetData, "/s/set", []byte("x"), -1)
		b.call(OpCreate, "/s/kids/x", []byte("x"), open, 0)
		b.call(OpCreate, "/s/new", []byte("x"), open, 0)
		a2 := d.open("a2", a.id, a.passwd, then)
		a2.call(OpSetWatches, seen(then), []string{"/s/same", "/s/set", "/s/gone", "/s/kids"}, []string{"/s/new", "/s/not"}, []string{"/s/same", "/s/kids", "/s/gone", "/s/set"})
		b.call(OpSetData, "/s/same", []byte("x"), -1)
		b.call(OpCreate, "/s/same/x", []byte("x"), open, 0)
		b.call(OpCreate, "/s/not", []byte("x"), open, 0)
		b.call(OpSetData, "/s/kids", []byte("x"), -1)
		b.call(OpSetData, "/s/set", []byte("x"), -1)
		a2.call(OpSetWatches2, seen(then+100), []string{}, []string{}, []string{}, []string{"/s/set"}, []string{"/s/kids"})
		b.call(OpSetData, "/s/set", []byte("x"), -1)
		b.call(OpDelete, "/s/kids/x", -1)
		a2.call(OpPing)
	}},
	{"ephemerals", func(d *dialogue, a, b *rawConn) {
		a.call(OpCreate2, "/e", []byte("x"), open, 1)
		a.call(OpExists, "/e", true)
		b.call(OpExists, "/e", true)
		b.call(OpSetData, "/e", []byte("y"), 0)
		b.call(OpExists, "/e", true)
		b.call(OpGetChildren, "/", true)
		a.call(OpExists, "/e", true)
		a.call(OpClose)
		a.ended()
		b.call(OpPing)
		b.call(OpExists, "/e", false)
		d.open("late", a.id, a.passwd, 0)
	}},
	{"sessions", func(d *dialogue, a, b *rawConn) {
		a.call(OpCreate, "/k", []byte("x"), open, 1)
		d.open("foreign", 4711, make([]byte, 16), 0).ended()
		d.open("wrong", a.id, make([]byte, 16), 0).ended()
		a.ended()
		b.call(OpExists, "/k", false)
		a2 := d.open("again", a.id, a.passwd, d.base)
		a2.call(OpSetData, "/k", []byte("x"), 0)
		a3 := d.open("over", a.id, a.passwd, d.base)
		a2.ended()
		a3.call(OpExists, "/k", false)
		d.open("ahead", 0, make([]byte, 16), d.base+1<<40).ended()
		a3.call(OpCreate, "/k/large", bytes.Repeat([]byte("x"), 1<<20-1-8-4-8-4-8-4-8-len("world")-len("anyone")-4), open, 0)
		a3.call(OpSetData, "/k", bytes.Repeat([]byte("x"), 1<<20-1-8-4-2-4-4), -1)
		a3.call(OpSetData, "/k", bytes.Repeat([]byte("x"), 1<<20-8-4-2-4-4), -1)
		a3.ended()
	}},
	{"what it does not know", func(d *dialogue, a, b *rawConn) {
		a.call(Op(4711))
		a.ended()
	}},
	{"containers", func(d *dialogue, a, b *rawConn) {
		a.call(OpCreateContainer, "/box", []byte("x"), open, 4)
		a.call(OpCreateContainer, "/new", []byte("x"), open, 4)
		a.call(OpCreate2, "/box/n-", []byte("x"), open, 3)
		a.call(OpExists, "/box", false)
		a.call(OpGetChildren2, "/box", true)
		b.call(OpExists, "/box", true)
		a.call(OpDelete, "/box/n-0000000000", -1)
		b.await()
		b.call(OpExists, "/box", false)
		b.call(OpExists, "/new", false)
		b.call(OpDelete, "/new", -1)
	}},
}
