package zktest

var multiScenarios = []scenario{
	{"where a multi fails", func(d *dialogue, a, b *rawConn) {
		b.call(OpCreate, "/m", []byte("x"), acls(acl(permAll, "ip", "127.0.0.1"), acl(permRead, "world", "anyone")), 0)
		b.call(OpCreate, "/m/full", []byte("x"), open, 0)
		b.call(OpCreate, "/m/full/x", []byte("x"), open, 0)
		b.call(OpCreate, "/m/eph", []byte("x"), open, 1)
		b.call(OpCreate, "/m/shut", []byte("x"), acl(0, "world", "anyone"), 0)
		good := []any{in(OpCreate, "/m/new", []byte("x"), open, 0), in(OpSetData, "/m", []byte("y"), -1), in(OpDelete, "/m/new", -1)}
		bad := []part{
			in(OpCreate, "/m/full", []byte("x"), open, 0), in(OpCreate, "/m/none/x", []byte("x"), open, 0), in(OpCreate, "/m/eph/x", []byte("x"), open, 0),
			in(OpCreate, "/m/bad/", []byte("x"), open, 0), in(OpCreate, "", []byte("x"), open, 0), in(OpCreate, "/m/acl", []byte("x"), []aclEntry(nil), 0),
			in(OpCreate, "/m/shut/x", []byte("x"), open, 0), in(OpCreate, "/m/flags", []byte("x"), open, 9), in(OpCreate, "/m/flags", []byte("x"), open, 5),
			in(OpCreate2, "/m/flags", []byte("x"), open, 6), in(OpCreateContainer, "/m/flags", []byte("x"), open, 5),
			in(OpCreateTTL, "/m/ttl", []byte("x"), open, 5, int64(0)), in(OpCreateTTL, "/m/ttl", []byte("x"), open, 6, int64(1<<40)),
			in(OpDelete, "/m/none", -1), in(OpDelete, "/m/full", -1), in(OpDelete, "/m/eph", 3), in(OpDelete, "/zookeeper", -1), in(OpDelete, "", -1),
			in(OpSetData, "/m/none", []byte("x"), -1), in(OpSetData, "/m", []byte("x"), 99), in(OpSetData, "/m/shut", []byte("x"), -1), in(OpSetData, "x", []byte("x"), -1),
			in(OpCheck, "/m/none", -1), in(OpCheck, "/m", 99), in(OpCheck, "/m/shut", -1), in(OpCheck, "/m/", -1),
			in(OpGetData, "/m", false), in(OpGetChildren, "/m", false), in(OpSetACL, "/m", open, -1), in(OpExists, "/m", false), in(Op(4711)), in(OpMulti),
			in(OpDeleteContainer, "/m/full/x"), in(OpCreate, null{}, []byte("x"), open, 0), in(OpDelete, null{}, -1), in(OpSetData, null{}, []byte("x"), -1),
		}
		for _, p := range bad {
			for at := range len(good) + 1 {
				var parts []any
				parts = append(append(append(parts, good[:at]...), p), good[at:]...)
				a.multi(parts...)
			}
			a.multi(p, p)
			a.multi(in(OpDelete, "/m/none", -1), p) // it is not come to
		}
		a.call(OpExists, "/m", false)
		a.call(OpGetChildren2, "/m", false)
		b.call(OpDelete, "/m/full/x", -1)
		for _, path := range []string{"/m/full", "/m/eph", "/m/shut", "/m"} {
			b.call(OpDelete, path, -1)
		}
	}},
	{"what a multi sees of itself", func(d *dialogue, a, b *rawConn) {
		a.call(OpCreate, "/m", []byte("x"), open, 0)
		x := []byte("x")
		for _, parts := range [][]any{
			{in(OpCreate, "/m/a", x, open, 0), in(OpCreate, "/m/a/b", x, open, 0), in(OpSetData, "/m/a/b", x, 0), in(OpCheck, "/m/a/b", 1)},
			{in(OpCheck, "/m/a/b", 0), in(OpDelete, "/m/a/b", -1)},
			{in(OpDelete, "/m/a", -1), in(OpDelete, "/m/a/b", -1)},
			{in(OpDelete, "/m/a/b", 1), in(OpDelete, "/m/a", 0), in(OpCreate, "/m/a", x, open, 0), in(OpCheck, "/m/a", 0)},
			{in(OpSetData, "/m/a", x, 0), in(OpSetData, "/m/a", x, 1), in(OpSetData, "/m/a", x, 2), in(OpCheck, "/m/a", 3)},
			{in(OpCreate, "/m/e", x, open, 1), in(OpCreate, "/m/e/x", x, open, 0)},
			{in(OpCreate, "/m/e", x, open, 1), in(OpDelete, "/m/e", -1), in(OpCreate, "/m/e", x, open, 0), in(OpCreate, "/m/e/x", x, open, 1)},
			{in(OpCreate, "/m/s", x, open, 2), in(OpCreate, "/m/s", x, open, 2), in(OpDelete, "/m/s0000000004", -1), in(OpCreate, "/m/s", x, open, 3)},
			{in(OpCreate, "/m/s", x, open, 2), in(OpCreate, "/m/s0000000008", x, open, 0), in(OpCreate, "/m/s", x, open, 2)},
			{in(OpCreate, "/m/s", x, open, 2), in(OpCreate, "/m/none/x", x, open, 2)},
			{in(OpCreate, "/m/s", x, open, 2)},
			{in(OpDelete, "/m/e/x", -1), in(OpDelete, "/m/e", -1), in(OpCreate, "/m/e", x, open, 0), in(OpCreate, "/m/e/n", x, open, 2)},
			{in(OpCreate, "/m/shut", x, acl(permRead, "world", "anyone"), 0), in(OpCreate, "/m/shut/x", x, open, 0)},
			{in(OpCreate, "/m/shut", x, acl(permCreate, "world", "anyone"), 0), in(OpCheck, "/m/shut", 0)},
			{in(OpCreate, "/m/box", x, open, 4), in(OpCreate, "/m/box/x", x, open, 0), in(OpDelete, "/m/box/x", -1), in(OpDelete, "/m/box", -1)},
			{in(OpCreateContainer, "/m/box", x, open, 0), in(OpCreateContainer, "/m/box2", x, open, 4), in(OpDelete, "/m/box2", -1)},
			{in(OpCreateTTL, "/m/ttl", x, open, 5, int64(100000)), in(OpCreateTTL, "/m/ttl", x, open, 6, int64(100000))},
			{in(OpCreateTTL, "/m/not", x, open, 0, int64(100000)), in(OpCreateTTL, "/m/not", x, open, 3, int64(-7)), in(OpCreateTTL, "/m/not2", x, open, 4, int64(5))},
			{in(OpCreate2, "/m/two", x, open, 0), in(OpCreate2, "/m/two", x, open, 2), in(OpCreate2, "/m/two3", x, open, 4)},
			{in(OpSetData, "/m", []byte{}, -1), in(OpSetData, "/m", []byte(nil), -1), in(OpCheck, "/m", -1)},
			{in(OpSetData, "/", []byte{}, -1), in(OpCheck, "/", -1)},
			{in(OpCheck, "/m", -1), in(OpCheck, "/m", 2)},
			{in(OpCheck, "/m", -2)},
			{},
		} {
			a.multi(parts...)
			a.call(OpGetChildren2, "/m", false)
		}
		a.call(OpMulti)                                                           // without an end
		a.call(OpMulti, in(OpDelete, "/m/two", -1))                               // nor here
		a.call(OpMulti, in(OpDelete, "/m/two", -1), verbatim("\xff\xff"))         // half of one
		a.call(OpMulti, in(OpCheck, "/m", -1), endOfMulti{}, verbatim("garbage")) // more than one
		a.call(OpMulti, endOfMulti{}, in(OpDelete, "/m/two", -1), endOfMulti{})
		a.call(OpExists, "/m/two", false)
	}},
	{"reads at once", func(d *dialogue, a, b *rawConn) {
		read := func(parts ...any) { a.call(OpMultiRead, append(parts, endOfMulti{})...) }
		a.call(OpCreate, "/m", []byte("x"), open, 0)
		a.call(OpCreate, "/m/x", []byte(nil), open, 1)
		a.call(OpCreate, "/m/shut", []byte("x"), acl(permAll&^permRead, "world", "anyone"), 0)
		read()
		read(in(OpGetData, "/m", false))
		read(in(OpGetChildren, "/m", false), in(OpGetData, "/m/x", false), in(OpGetData, "/m", true), in(OpGetChildren, "/m", true))
		read(in(OpGetData, "/none", false), in(OpGetData, "/m", false), in(OpGetChildren, "/none", false), in(OpGetData, "/m/shut", false), in(OpGetChildren, "/m/shut", false))
		read(in(OpGetData, "", false), in(OpGetData, "x", false), in(OpGetChildren, "", false))
		read(in(OpGetData, "/m", false), in(OpCheck, "/m", -1))
		read(in(OpCheck, "/m", -1))
		read(in(OpExists, "/m", false))
		read(in(OpGetData, null{}, false))
		a.call(OpMultiRead)
		a.call(OpMultiRead, in(OpGetData, "/m", false))
		b.call(OpSetData, "/m", []byte("y"), -1) // no watch
		b.call(OpDelete, "/m/shut", -1)
		a.call(OpPing)
		b.call(OpCheckWatches, "/m", 3)
	}},
}
