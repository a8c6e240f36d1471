package zktest

// The ways to set a watch on /m, and to have two.
var waysToWatch = []struct {
	name string
	set  func(r *rawConn)
}{
	{"exists", func(r *rawConn) { r.call(OpExists, "/m", true) }},
	{"getData", func(r *rawConn) { r.call(OpGetData, "/m", true) }},
	{"getChildren", func(r *rawConn) { r.call(OpGetChildren, "/m", true) }},
	{"getChildren2", func(r *rawConn) { r.call(OpGetChildren2, "/m", true) }},
	{"persistent", func(r *rawConn) { r.call(OpAddWatch, "/m", 0) }},
	{"recursive", func(r *rawConn) { r.call(OpAddWatch, "/m", 1) }},
	{"recursive above", func(r *rawConn) { r.call(OpAddWatch, "/", 1) }},
	{"children above", func(r *rawConn) { r.call(OpGetChildren, "/", true) }},
}

// changes are all that can happen to /m, which is there or not, and below it.
func changes(a, b *rawConn) {
	told := func() { a.call(OpPing) }
	b.call(OpCreate, "/m", []byte("x"), open, 0)
	told()
	b.call(OpCreate, "/m", []byte("x"), open, 0) // is there
	b.call(OpSetData, "/m", []byte("y"), 7)      // not that version
	b.call(OpSetACL, "/m", open, 7)
	b.call(OpSetACL, "/m", open, -1)
	told()
	b.call(OpSetData, "/m", []byte("y"), -1)
	told()
	b.call(OpSetData, "/m", []byte("y"), -1)
	told()
	b.call(OpCreate, "/m/c", []byte("x"), open, 0)
	told()
	b.call(OpSetData, "/m/c", []byte("y"), -1)
	told()
	b.call(OpDelete, "/m", -1) // has a child
	b.call(OpCreate, "/m/c/d", []byte("x"), open, 1)
	told()
	b.call(OpDelete, "/m/c/d", -1)
	told()
	b.call(OpDelete, "/m/c", -1)
	told()
	b.multi(in(OpCreate, "/m/e", []byte("x"), open, 0), in(OpSetData, "/m", []byte("z"), -1), in(OpDelete, "/m/none", -1))
	told()
	b.multi(in(OpCreate, "/m/e", []byte("x"), open, 0), in(OpSetData, "/m", []byte("z"), -1), in(OpDelete, "/m/e", -1), in(OpCheck, "/m", -1))
	told()
	b.call(OpDelete, "/m", -1)
	told()
	b.call(OpCreate, "/m", []byte("x"), open, 0)
	told()
	b.call(OpDelete, "/m", -1)
	told()
}

// watchesLeft asks what is watched, and takes it away.
func watchesLeft(a, b *rawConn) {
	for kind := 1; kind <= 3; kind++ {
		for _, path := range []string{"/m", "/m/c", "/"} {
			a.call(OpCheckWatches, path, kind)
			b.call(OpCheckWatches, path, kind)
		}
	}
	for _, path := range []string{"/m", "/"} {
		for kind := 1; kind <= 3; kind++ {
			b.call(OpRemoveWatches, path, kind)
			a.call(OpRemoveWatches, path, kind)
		}
	}
}

var watchScenarios = []scenario{
	{"who is told of what", func(d *dialogue, a, b *rawConn) {
		for _, way := range waysToWatch {
			d.say("%s, of one that is not there", way.name)
			way.set(a)
			changes(a, b)
			watchesLeft(a, b)
			d.say("%s, of one that is there", way.name)
			b.call(OpCreate, "/m", []byte("x"), open, 0)
			way.set(a)
			b.call(OpCreate, "/m/k", []byte("x"), open, 0)
			a.call(OpPing)
			b.call(OpSetData, "/m", []byte("y"), -1)
			a.call(OpPing)
			b.call(OpDelete, "/m/k", -1)
			a.call(OpPing)
			b.call(OpDelete, "/m", -1)
			a.call(OpPing)
			watchesLeft(a, b)
		}
	}},
	{"two watches of one znode", func(d *dialogue, a, b *rawConn) {
		for _, first := range waysToWatch {
			for _, second := range waysToWatch {
				d.say("%s, then %s", first.name, second.name)
				b.call(OpCreate, "/m", []byte("x"), open, 0)
				first.set(a)
				second.set(a)
				for range 2 {
					b.call(OpSetData, "/m", []byte("y"), -1)
					b.call(OpCreate, "/m/c", []byte("x"), open, 0)
					b.call(OpDelete, "/m/c", -1)
					a.call(OpPing)
				}
				b.call(OpDelete, "/m", -1)
				a.call(OpPing)
				a.call(OpRemoveWatches, "/m", 3)
				a.call(OpRemoveWatches, "/", 3)
			}
		}
	}},
	{"watches taken away", func(d *dialogue, a, b *rawConn) {
		for _, way := range waysToWatch {
			for kind := 1; kind <= 3; kind++ {
				d.say("%s without %d", way.name, kind)
				b.call(OpCreate, "/m", []byte("x"), open, 0)
				way.set(a)
				way.set(b) // whose is his own
				a.call(OpRemoveWatches, "/m", kind)
				a.call(OpCheckWatches, "/m", kind)
				b.call(OpSetData, "/m", []byte("y"), -1)
				b.call(OpCreate, "/m/c", []byte("x"), open, 0)
				b.call(OpDelete, "/m/c", -1)
				b.call(OpDelete, "/m", -1)
				a.call(OpPing)
				for _, r := range []*rawConn{a, b} {
					r.call(OpRemoveWatches, "/m", 3)
					r.call(OpRemoveWatches, "/", 3)
				}
			}
		}
	}},
	{"watches of paths that are none", func(d *dialogue, a, b *rawConn) {
		for _, path := range []string{"", "x", "x/y", "/x/", "//", "/a\x00b", "/\u0085"} {
			for _, recursive := range []int{0, 1} {
				for kind := range 5 {
					a.call(OpCheckWatches, path, kind)
				}
				a.call(OpAddWatch, path, recursive)
				for kind := range 5 {
					a.call(OpCheckWatches, path, kind)
				}
				for kind := range 5 {
					a.call(OpRemoveWatches, path, kind)
				}
			}
		}
		for mode := -1; mode < 4; mode++ {
			a.call(OpAddWatch, "/m", mode)
		}
		a.call(OpRemoveWatches, "/m", 3)
	}},
	{"watches of what may not be read", func(d *dialogue, a, b *rawConn) {
		a.call(OpAuth, 0, "digest", []byte("me:secret"))
		for _, perms := range []int32{permRead, permAll &^ permRead, permAdmin} {
			mine := acls(acl(permAll, "digest", digest("me:secret")), acl(perms, "world", "anyone"))
			for _, way := range waysToWatch {
				d.say("%s, %d", way.name, perms)
				way.set(b)
				a.call(OpCreate, "/m", []byte("x"), mine, 0)
				way.set(b)
				a.call(OpSetData, "/m", []byte("y"), -1)
				a.call(OpCreate, "/m/c", []byte("x"), open, 0)
				b.call(OpPing)
				a.call(OpSetData, "/m/c", []byte("y"), -1)
				a.call(OpDelete, "/m/c", -1)
				b.call(OpPing)
				a.call(OpSetACL, "/m", open, -1)
				a.call(OpSetData, "/m", []byte("y"), -1)
				b.call(OpPing)
				a.call(OpSetACL, "/m", mine, -1)
				a.call(OpDelete, "/m", -1)
				b.call(OpPing)
				b.call(OpRemoveWatches, "/m", 3)
				b.call(OpRemoveWatches, "/", 3)
			}
		}
		a.call(OpCreate, "/m", []byte("x"), acl(permAll, "digest", digest("me:secret")), 0)
		then := d.base
		b.call(OpSetWatches2, seen(then), []string{"/m"}, []string{"/m"}, []string{"/m"}, []string{"/m"}, []string{"/m"})
		a.call(OpSetData, "/m", []byte("y"), -1)
		b.call(OpPing)
		b.call(OpAuth, 0, "digest", []byte("me:secret"))
		a.call(OpSetData, "/m", []byte("y"), -1)
		b.call(OpPing)
		a.call(OpDelete, "/m", -1)
	}},
	{"watches go with their connection", func(d *dialogue, a, b *rawConn) {
		b.call(OpCreate, "/m", []byte("x"), open, 0)
		for _, way := range waysToWatch {
			for _, next := range []func(*rawConn) *rawConn{(*rawConn).move, (*rawConn).drop, (*rawConn).intrude, (*rawConn).leave} {
				way.set(a)
				a = next(a)
				b.call(OpCheckWatches, "/m", 3)
				b.call(OpSetData, "/m", []byte("y"), -1)
				b.call(OpCreate, "/m/c", []byte("x"), open, 0)
				a.call(OpPing)
				b.call(OpDelete, "/m/c", -1)
				a.call(OpPing)
			}
		}
		b.call(OpDelete, "/m", -1)
	}},
	{"what was missed", func(d *dialogue, a, b *rawConn) {
		for _, path := range []string{"/m", "/m/same", "/m/set", "/m/kid", "/m/gone", "/m/again"} {
			b.call(OpCreate, path, []byte("x"), open, 0) // z+1 to z+6
		}
		b.call(OpSetData, "/m/set", []byte("y"), -1)
		b.call(OpCreate, "/m/kid/k", []byte("x"), open, 0)
		b.call(OpDelete, "/m/gone", -1)
		b.call(OpDelete, "/m/again", -1)
		b.call(OpCreate, "/m/again", []byte("x"), open, 0)
		b.call(OpCreate, "/m/new", []byte("x"), open, 0)
		b.call(OpCreate, "/m/short", []byte("x"), open, 0)
		b.call(OpDelete, "/m/short", -1) // z+14
		b.call(OpSetACL, "/m/same", open, -1)
		all := []string{"/m", "/m/same", "/m/set", "/m/kid", "/m/kid/k", "/m/gone", "/m/again", "/m/new", "/m/short", "/m/never"}
		none := []string{}
		for since := range int64(17) {
			at := seen(d.base + since)
			d.say("since %d", since)
			a.call(OpSetWatches, at, all, none, none)
			a.call(OpSetWatches, at, none, all, none)
			a.call(OpSetWatches, at, none, none, all)
			a.call(OpSetWatches2, at, none, none, none, all, none)
			a.call(OpSetWatches2, at, none, none, none, none, all)
			a.call(OpSetWatches2, at, all, all, all, none, none)
			for _, path := range all {
				a.call(OpCheckWatches, path, 1)
				a.call(OpCheckWatches, path, 2)
			}
			a = a.drop()
		}
		a.call(OpSetWatches, seen(-1), all, all, all)
		a.call(OpSetWatches, seen(1<<62), all, all, all)
		a.call(OpSetWatches, seen(1<<62), []string{"", "x", "/x/"}, []string{"", "x"}, []string{"", "y", "/a\x00b"})
		b.call(OpCreate, "/m/never", []byte("x"), open, 0)
		a.call(OpPing)
		for _, path := range []string{"/m/never", "/m/new", "/m/again", "/m/kid/k", "/m/kid", "/m/set", "/m/same", "/m"} {
			b.call(OpDelete, path, -1)
			a.call(OpPing)
		}
	}},
	{"set again in every way", func(d *dialogue, a, b *rawConn) {
		none, m := []string{}, []string{"/m"}
		lists := [][]any{{m, none, none, none, none}, {none, m, none, none, none}, {none, none, m, none, none}, {none, none, none, m, none}, {none, none, none, none, m},
			{m, m, m, m, none}, {none, none, none, m, m}, {m, none, m, none, m}}
		for _, there := range []bool{false, true} {
			for _, list := range lists {
				if there {
					b.call(OpCreate, "/m", []byte("x"), open, 0)
				}
				a.call(OpSetWatches2, append([]any{seen(1 << 62)}, list...)...)
				changes(a, b)
				watchesLeft(a, b)
			}
		}
	}},
}
