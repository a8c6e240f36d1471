package zktest

// everything that can be asked about /m and a child of it.
func everything(r *rawConn) {
	r.call(OpExists, "/m", false)
	r.call(OpGetData, "/m", false)
	r.call(OpGetChildren, "/m", false)
	r.call(OpGetChildren2, "/m", false)
	r.call(OpGetACL, "/m")
	r.call(OpGetAllChildren, "/m")
	r.call(OpMultiRead, in(OpGetData, "/m", false), in(OpGetChildren, "/m", false), endOfMulti{})
	r.call(OpSync, "/m")
	r.call(OpSetData, "/m", []byte("y"), -1)
	r.call(OpCreate, "/m/x", []byte("x"), open, 0)
	r.call(OpCreate2, "/m/n", []byte("x"), open, 3)
	r.call(OpCreateContainer, "/m/box", []byte("x"), open, 4)
	r.call(OpCreateTTL, "/m/ttl", []byte("x"), open, 5, int64(1000000))
	r.call(OpCheck, "/m", 99)
	r.multi(in(OpCheck, "/m", -1))
	r.multi(in(OpSetData, "/m", []byte("z"), -1))
	r.multi(in(OpCreate, "/m/y", []byte("x"), open, 0))
	r.call(OpDelete, "/m/x", -1)
	r.multi(in(OpDelete, "/m/child", -1))
	r.call(OpSetACL, "/m", acl(permAll, "nobody", "x"), -1)
	r.call(OpSetACL, "/m", open, 99)
}

var aclScenarios = []scenario{
	{"what each permission is for", func(d *dialogue, a, b *rawConn) {
		a.call(OpAuth, 0, "digest", []byte("me:secret"))
		for perms := range int32(permAll + 1) {
			a.call(OpCreate, "/m", []byte("x"), acls(acl(permAll, "digest", digest("me:secret")), acl(perms, "world", "anyone")), 0)
			a.call(OpCreate, "/m/child", []byte("x"), open, 0)
			everything(b)
			d.say("and cleaned up")
			a.call(OpSetACL, "/m", open, -1)
			for _, path := range []string{"/m/x", "/m/y", "/m/child", "/m/n0000000002", "/m/n0000000001", "/m/box", "/m/ttl", "/m"} {
				a.call(OpDelete, path, -1)
			}
		}
	}},
	{"who somebody is", func(d *dialogue, a, b *rawConn) {
		for i, credential := range []string{"", ":", "u", "u:", ":p", "u:p", "u:p:q", "ü:ß", "u:p"} {
			d.say("%q", credential)
			a.call(OpAuth, i, "digest", []byte(credential))
			a.call(OpCreate, "/m", []byte("x"), acl(permAll, "digest", digest(credential)), 0)
			b.call(OpGetData, "/m", false)
			a.call(OpGetData, "/m", false)
			a.call(OpDelete, "/m", -1)
			a.call(OpCreate, "/m", []byte("x"), acl(permAll, "auth", "whatever"), 0)
			a.call(OpGetACL, "/m")
			b.call(OpGetACL, "/m")
			b.call(OpWhoAmI)
			a.call(OpWhoAmI)
			b.call(OpDelete, "/m", -1)
			a = a.drop() // and is nobody
		}
		for _, scheme := range []string{"", "world", "auth", "sasl", "x509", "super", "DIGEST", "ip", "nobody"} {
			a.call(OpAuth, 0, scheme, []byte("anyone"))
			a.call(OpWhoAmI)
			a = a.drop()
		}
		a.call(OpAuth, 0, "digest", []byte(nil))
		a.ended()
		a = a.drop()
		a.call(OpAuth, 0, "ip", []byte(nil))
		a.call(OpAuth, 0, "digest", []byte("u:p"), verbatim("garbage"))
		a.call(OpAuth, 0, "digest", []byte("u:p"))
		a.call(OpWhoAmI)
		a.call(OpAuth, 0, "digest", verbatim("\x00\x00\x00\x09short"))
		a.ended()
	}},
	{"lists that are taken, and that are not", func(d *dialogue, a, b *rawConn) {
		ids := map[string][]string{
			"world": {"anyone", "", "all", "anyone "},
			"auth":  {"", "x"},
			"ip": {"127.0.0.1", "127.0.0.01", "127.0.0.+1", "127.0.0.-1", "127.0.0.256", "127.0.0", "127.0.0.1.1", "127.0.0.", ".0.0.1", "127.0.0.1/", "127.0.0.1/0",
				"127.0.0.1/32", "127.0.0.1/33", "127.0.0.1/-1", "127.0.0.1/+8", "127.0.0.1/8/8", "127.0.0.1/x", "126.0.0.1/7", "128.0.0.1/1", "127.1.0.1/16", "::1", "",
				"127.0.0.99999999999", " 127.0.0.1"},
			"digest": {"", ":", "u", "u:", ":p", "u:p", "u:p:q", "u:p:", "u::", "u::p", ":u:p"},
			"sasl":   {"x"}, "x509": {"x"}, "super": {""}, "": {"", "x"}, "World": {"anyone"},
		}
		for _, scheme := range []string{"world", "auth", "ip", "digest", "sasl", "x509", "super", "", "World"} {
			for _, id := range ids[scheme] {
				d.say("%s %q", scheme, id)
				a.call(OpCreate, "/m", []byte("x"), acl(permAll, scheme, id), 0)
				a.call(OpGetACL, "/m")
				a.call(OpSetACL, "/m", acl(permAll, scheme, id), -1)
				a.call(OpDelete, "/m", -1)
				a.call(OpCreate, "/m", []byte("x"), open, 0)
				a.call(OpSetACL, "/m", acl(permAll, scheme, id), -1)
				a.call(OpSetData, "/m", []byte("x"), -1)
				a.call(OpDelete, "/m", -1)
			}
		}
	}},
	{"lists of several", func(d *dialogue, a, b *rawConn) {
		a.call(OpAuth, 0, "digest", []byte("me:secret"))
		me := digest("me:secret")
		for _, list := range [][]aclEntry{
			acls(open, open), acls(open, acl(permRead, "world", "anyone")), acls(acl(permRead, "world", "anyone"), open),
			acls(acl(permAll, "auth", ""), acl(permAll, "auth", "x")), acls(acl(permAll, "auth", ""), acl(permAll, "digest", me)),
			acls(open, acl(permAll, "nobody", "x")), acls(acl(permAll, "digest", "x:y"), acl(permAll, "digest", "x:y"), acl(permRead, "digest", "x:y")),
			acls(acl(permRead, "digest", me), acl(permWrite, "digest", me), acl(permAdmin, "auth", "")), acls(acl(0, "world", "anyone"), acl(permAll, "auth", "")),
			acls(acl(permAdmin, "world", "anyone"), acl(permRead, "digest", "a:b:c:")), acls(acl(permRead, "world", "anyone"), acl(permAll, "digest", me)),
			acls(acl(1<<31-1, "world", "anyone")), acls(acl(-1<<31, "world", "anyone"), acl(permAll, "auth", "")),
		} {
			a.call(OpCreate, "/m", []byte("x"), list, 0)
			a.call(OpGetACL, "/m")
			b.call(OpGetACL, "/m")
			b.call(OpGetData, "/m", false)
			b.call(OpSetData, "/m", []byte("x"), -1)
			b.call(OpSetACL, "/m", list, -1)
			a.call(OpSetACL, "/m", list, -1)
			a.call(OpGetACL, "/m")
			a.call(OpDelete, "/m", -1)
		}
		for _, list := range []any{null{}, verbatim("\x00\x00\x00\x00"), verbatim("\xff\xff\xff\xfe"), verbatim("\x00\x00\x00\x01"),
			verbatim("\x00\x00\x00\x01\x00\x00\x00\x1f\xff\xff\xff\xff\x00\x00\x00\x01x"), verbatim("\x00\x00\x00\x01\x00\x00\x00\x1f\x00\x00\x00\x05world\xff\xff\xff\xff"),
			verbatim("\x00\x00\x00\x01\x00\x00\x00\x1f\x00\x00\x00\x04auth\xff\xff\xff\xff"), verbatim("\x7f\xff\xff\xff")} {
			a.call(OpCreate, "/m", []byte("x"), list, 0)
			a.call(OpDelete, "/m", -1)
			a.call(OpSetACL, "/", list, 99)
		}
	}},
	{"an ACL changes", func(d *dialogue, a, b *rawConn) {
		a.call(OpCreate, "/m", []byte("x"), open, 1)
		for i := range 4 {
			a.call(OpSetACL, "/m", open, i)
			a.call(OpSetACL, "/m", open, i)
			a.call(OpSetACL, "/m", open, -2)
		}
		for _, path := range []string{"", "x", "/", "/m/", "/none", "/zookeeper", "/zookeeper/quota"} {
			a.call(OpSetACL, path, open, 99)
			a.call(OpGetACL, path)
		}
		a.call(OpExists, "/m", false)
		b.call(OpSetACL, "/m", acl(0, "world", "anyone"), -1)
		for _, r := range []*rawConn{a, b} {
			everything(r)
		}
		b.call(OpDelete, "/m", -1) // that is its parent's to say
	}},
}
