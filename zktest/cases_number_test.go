package zktest

// numberScenarios are about what a server counts.
var numberScenarios = []scenario{
	{"numbers of children", func(d *dialogue, a, b *rawConn) {
		x := []byte("x")
		a.call(OpCreate, "/m", x, open, 0)
		for _, path := range []string{"/m/a", "/m/b", "/m/a", "/m/none/x", "/m/", "/m/b/c"} {
			a.call(OpCreate, path, x, open, 0)
			a.call(OpExists, "/m", false)
		}
		for range 2 {
			for flags := range 7 {
				a.call(OpCreate, "/m/n", x, open, flags)
				a.call(OpCreate2, "/m/", x, open, flags)
				a.call(OpCreateContainer, "/m/c", x, open, flags)
				a.call(OpCreateTTL, "/m/t", x, open, flags, int64(1000000))
			}
		}
		a.call(OpExists, "/m", false)
		a.call(OpGetChildren2, "/m", false)
		a.call(OpDelete, "/m/b/c", -1)
		for _, path := range []string{"/m/a", "/m/b", "/m/n"} {
			a.call(OpDelete, path, -1)
			a.call(OpExists, "/m", false)
			a.call(OpCreate, "/m/after", x, open, 2)
		}
	}},
	{"a number that is taken", func(d *dialogue, a, b *rawConn) {
		x := []byte("x")
		a.call(OpCreate, "/m", x, open, 0)
		a.call(OpCreate, "/m/n0000000001", x, open, 0)
		for range 3 {
			a.call(OpCreate, "/m/n", x, open, 2) // it stays at the one that is there
		}
		a.multi(in(OpCreate, "/m/n", x, open, 2))
		a.multi(in(OpCreate, "/m/other", x, open, 0), in(OpCreate, "/m/n", x, open, 2))
		a.call(OpCreate, "/m/n", x, open, 3)
		a.call(OpDelete, "/m/n0000000001", -1)
		a.call(OpCreate, "/m/n", x, open, 2)
		a.call(OpDelete, "/m/other", -1)
		a.call(OpExists, "/m", false)
		for _, path := range []string{"/m/s/", "/m/s/x/", "/m//", "/m/.", "/m/..", "/m/s.", "/m/s/.", "/m/\u0085", "/m/a\x00b", "/", "", "m", "/zookeeper/"} {
			a.call(OpCreate, path, x, open, 3) // with a number it may be a path
		}
		a.call(OpGetChildren2, "/m", false)
	}},
	{"versions count all the same", func(d *dialogue, a, b *rawConn) {
		x := []byte("x")
		a.call(OpCreate2, "/m", []byte(nil), open, 0)
		for _, data := range [][]byte{x, nil, {}, []byte("yy"), nil} {
			a.call(OpSetData, "/m", data, -1)
			a.call(OpGetData, "/m", false)
		}
		for _, version := range []int{4, 6, 5, 0, -2, -1, 1<<31 - 1, -1 << 31} {
			a.call(OpSetData, "/m", x, version)
			a.call(OpSetACL, "/m", open, version)
			a.mute(OpCheck, "/m", version)
			a.multi(in(OpCheck, "/m", version))
			a.call(OpDelete, "/m/x", version)
		}
		a.call(OpCreate2, "/m/x", x, open, 1)
		a.call(OpCreate2, "/m/x", x, open, 1)
		a.call(OpSetData, "/m/x", x, -1)
		a.call(OpSetACL, "/m/x", open, -1)
		a.call(OpExists, "/m/x", false)
		a.call(OpExists, "/m", false)
		a.call(OpDelete, "/m/x", 0)
		a.call(OpDelete, "/m/x", 1)
		a.call(OpExists, "/m", false)
		a.call(OpCreate2, "/m/x", x, open, 0) // all begins anew
		a.call(OpDelete, "/m/x", 0)
		a.call(OpDelete, "/m", -1)
		a.call(OpCreate2, "/m", x, open, 0)
		a.call(OpCreate2, "/m/s", x, open, 3)
		a.call(OpSetData, "/m/s0000000000", x, -1)
		a.call(OpSetData, "/", []byte("root"), -1)
		a.call(OpGetData, "/", false)
		a.call(OpGetData, "", false)
		a.call(OpSetData, "/", []byte{}, -1)
		a.call(OpSetData, "/zookeeper/quota", x, -1)
		a.call(OpSetData, "/zookeeper/quota", []byte{}, -1)
		a.call(OpGetData, "/zookeeper/quota", false)
	}},
}
