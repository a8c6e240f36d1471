package zktest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

const walkSteps = 60

// Who is who on a walk: two users, and one that may do everything, so that whatever the others allow each other can be seen and removed.
const lookerIs = "looker:secret"

var walkUsers = []string{"u1:p", "u2:p"}

var lookerMay = acl(permAll, "digest", digest(lookerIs))

func acls(all ...[]aclEntry) []aclEntry { return slices.Concat(all...) }

// One name, or none where the path is to be wrong, now and then.
var (
	walkPaths = []string{"/w", "/w/a", "/w/b", "/w/a/x", "/w/a/y", "/w/b/x", "/w/a/x/1", "/w/a/s0000000000", "/w/a/s0000000001", "/w/s0000000000",
		"/w/s0000000001", "/w/b/s0000000002"}
	walkPrefixes = []string{"/w/s", "/w/a/s", "/w/b/s", "/w/a/x/"}
	walkBad      = []string{"", "w", "/w/", "/w//x", "/w/none/x", "/w/a/.", "/w/\x00", "/w/\u0085"}
	walkACLs     = [][]aclEntry{open, acls(lookerMay, acl(permRead, "world", "anyone")), acls(lookerMay, acl(permAll, "digest", digest(walkUsers[0]))),
		acls(lookerMay, acl(permAll&^permDelete, "world", "anyone")), acls(lookerMay, acl(permCreate|permDelete, "world", "anyone")),
		acls(lookerMay, acl(permAll, "auth", "")), acls(lookerMay, acl(permWrite, "digest", digest(walkUsers[1])), acl(permRead, "auth", "")),
		acls(lookerMay, acl(permAll, "ip", "127.0.0.1")), acls(lookerMay, acl(permAll, "ip", "10.0.0.0/8")), acls(lookerMay, acl(permAdmin, "ip", "127.0.0.0/8"))}
	walkBadACLs = [][]aclEntry{nil, acl(permAll, "nobody", "x"), acl(permAll, "digest", "x"), acl(permAll, "world", "all"), acl(permAll, "ip", "1.2.3")}
)

// A guide makes the steps of a walk. It does not know what they will do, but has an idea of what is there, so that not all of it is refused.
type guide struct {
	*rand.Rand
	done  int
	there map[string]bool

	watched []string
}

func newWalk(seed uint64) (steps []step) {
	g := &guide{Rand: rand.New(rand.NewPCG(seed, 0)), there: map[string]bool{walkRoot: true}}
	steps = append(steps, step{0, "call", OpCreate, []any{walkRoot, []byte("x"), open, 0}})
	for ; g.done < walkSteps; g.done++ {
		steps = append(steps, g.step())
	}
	return steps
}

func one[T any](g *guide, all []T) T { return all[g.IntN(len(all))] }

// in is a chance.
func (g *guide) in(n int) bool { return g.IntN(n) == 0 }

func (g *guide) path() string {
	return g.such(func(path string) bool { return g.there[path] })
}

// such is mostly a path that fits.
func (g *guide) such(fits func(path string) bool) string {
	if g.in(40) {
		return one(g, walkBad)
	}
	if g.in(5) {
		return one(g, walkPaths)
	}
	var some []string
	for _, path := range walkPaths {
		if fits(path) {
			some = append(some, path)
		}
	}
	if len(some) == 0 {
		return one(g, walkPaths)
	}
	return one(g, some)
}

// fresh is a path for a create.
func (g *guide) fresh() string {
	return g.such(func(path string) bool {
		parent, _ := splitPath(path)
		return !g.there[path] && (g.there[parent] || path == walkRoot)
	})
}

// leaf is a path for a delete.
func (g *guide) leaf() string {
	path := g.such(func(path string) bool {
		return g.there[path] && !slices.ContainsFunc(walkPaths, func(below string) bool { return g.there[below] && strings.HasPrefix(below, path+"/") })
	})
	delete(g.there, path)
	return path
}

func (g *guide) paths() []string {
	all := []string{}
	for range g.IntN(4) {
		all = append(all, g.path())
	}
	g.watched = append(g.watched, all...)
	return all
}

func (g *guide) data() []byte { return one(g, [][]byte{[]byte("x"), []byte("yy"), {}, nil}) }

func (g *guide) acl() []aclEntry {
	switch {
	case g.in(50):
		return one(g, walkBadACLs)
	case g.in(6):
		return one(g, walkACLs)
	}
	return open
}

func (g *guide) version() int {
	if !g.in(3) {
		return -1
	}
	return g.IntN(3) - g.IntN(2)
}

// since is a moment of the walk, about.
func (g *guide) since() since { return since(g.IntN(g.done + 2)) }

func (g *guide) step() step {
	s := step{who: g.IntN(len(walkClients)), do: "call"}
	switch n := g.IntN(100); {
	case n < 50:
		s.op, s.args = g.request()
	case n < 60:
		s.do, s.op, s.args = "multi", OpMulti, g.multi()
	case n < 65:
		s.do = "burst"
		for range 2 + g.IntN(3) {
			op, args := g.request()
			if g.in(4) {
				op, args = OpMulti, append(g.multi(), endOfMulti{})
			}
			if op == OpSASL { // its answer overtakes others
				continue
			}
			s.args = append(s.args, part{op, args})
			if lags(part{op, args}) {
				break
			}
		}
	case n < 83:
		s.op, s.args = g.watch()
	case n < 86:
		s.op, s.args = OpAuth, []any{0, "digest", []byte(one(g, walkUsers))}
	case n < 89:
		s.do = "leave"
	case n < 93:
		s.do = "drop"
	case n < 96:
		s.do = "move"
	case n < 98:
		s.do = "intrude"
	default:
		s.do, s.op, s.args = "mute", OpCheck, []any{g.path(), g.version()}
	}
	return s
}

// lags tells of a request after which the server may prepare the next ones by what is there no more: they see the old ACL until a setACL is done, and what
// a multi had changed that breaks off in its midst, as one does at a time to live that is in its flags only. It is the last of a burst.
func lags(p part) bool {
	switch p.op {
	case OpSetACL:
		return true
	case OpMulti:
		return slices.ContainsFunc(p.args, func(a any) bool {
			part, ok := a.(part)
			return ok && part.op != OpDelete && part.op != OpSetData && part.op != OpCheck && part.op != OpCreateTTL && part.args[3].(int) >= 5
		})
	}
	return false
}

// request is one that a burst may have as well: it leaves the connection.
func (g *guide) request() (Op, []any) {
	switch n := g.IntN(100); {
	case n < 35:
		return g.create()
	case n < 47:
		return OpDelete, []any{g.leaf(), g.version()}
	case n < 60:
		return OpSetData, []any{g.path(), g.data(), g.version()}
	case n < 68:
		return OpGetData, []any{g.path(), g.in(2)}
	case n < 76:
		return OpExists, []any{g.path(), g.in(2)}
	case n < 80:
		return OpGetChildren, []any{g.path(), g.in(2)}
	case n < 87:
		return OpGetChildren2, []any{g.path(), g.in(2)}
	case n < 91:
		return OpGetACL, []any{g.path()}
	case n < 98:
		return OpSetACL, []any{g.path(), g.acl(), g.version()}
	case n < 99:
		return OpGetChildren, []any{"/", true}
	}
	return g.rare()
}

func (g *guide) rare() (Op, []any) {
	switch g.IntN(7) {
	case 0:
		return OpSync, []any{g.path()}
	case 1:
		return OpGetEphemerals, []any{g.path()}
	case 2:
		return OpGetAllChildren, []any{g.path()}
	case 3:
		return OpSASL, []any{[]byte("x")} // one that is null ends the connection
	case 4:
		return OpReconfig, []any{"", "", "", int64(-1)}
	case 5:
		return OpDeleteContainer, []any{g.path()}
	}
	args := []any{}
	for range g.IntN(4) {
		args = append(args, in(one(g, []Op{OpGetData, OpGetChildren}), g.path(), g.in(2)))
	}
	return OpMultiRead, append(args, endOfMulti{})
}

func (g *guide) create() (Op, []any) {
	op, args := g.anyCreate()
	if flags := args[3].(int); args[0] == walkRoot && flags > 1 { // the numbers of the root are not the walk's own
		args[0] = walkPrefixes[0]
	} else if flags == 0 || flags > 3 { // what can have children
		g.there[args[0].(string)] = true
	}
	return op, args
}

func (g *guide) anyCreate() (Op, []any) {
	path, flags, op := g.fresh(), max(0, g.IntN(4)-2), OpCreate
	if g.in(3) {
		path, flags = one(g, walkPrefixes), 2+g.IntN(2)
	}
	if g.in(2) {
		op = OpCreate2
	}
	args := []any{path, g.data(), g.acl()}
	switch {
	case g.in(10):
		op, flags = OpCreateContainer, one(g, []int{4, 4, 4, 0, 1, 2, 3, 5})
	case g.in(10):
		return OpCreateTTL, append(args, one(g, []int{5, 6, 5, 6, 4}), one(g, []int64{3600000, 7200000, 3600000, 0, 1 << 40}))
	case g.in(20):
		flags = one(g, []int{4, 5, 6, 7, -1})
	}
	return op, append(args, flags)
}

func (g *guide) multi() (parts []any) {
	for range 1 + g.IntN(4) {
		var p part
		switch n := g.IntN(10); {
		case n < 5:
			p.op, p.args = g.create()
		case n < 7:
			p = in(OpDelete, g.leaf(), g.version())
		case n < 9:
			p = in(OpSetData, g.path(), g.data(), g.version())
		default:
			p = in(OpCheck, g.path(), g.version())
		}
		parts = append(parts, p)
	}
	return parts
}

func (g *guide) watch() (Op, []any) {
	path, known := g.path(), "/w"
	if g.in(12) {
		path = "/"
	}
	if len(g.watched) > 0 {
		known = one(g, g.watched)
	}
	switch n := g.IntN(18); {
	case n < 3:
		return OpRemoveWatches, []any{known, 1 + g.IntN(3)}
	case n < 6:
		return OpCheckWatches, []any{known, 1 + g.IntN(3)}
	case n < 8:
		return OpSetWatches, []any{g.since(), g.paths(), g.paths(), g.paths()}
	case n < 10:
		return OpSetWatches2, []any{g.since(), g.paths(), g.paths(), g.paths(), g.paths(), g.paths()}
	}
	g.watched = append(g.watched, path)
	switch n := g.IntN(8); {
	case n < 4:
		return OpAddWatch, []any{path, g.IntN(2)}
	case n < 6 && path != "/": // its Stat is not the walk's own
		return OpGetData, []any{path, true}
	}
	return OpGetChildren, []any{path, true}
}

// goText prints steps as a scenario of the table has them.
func goText(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		name := walkClients[s.who]
		switch args := goArgs(s.args); s.do {
		case "call", "mute":
			fmt.Fprintf(&b, "\t%s.%s(%s)\n", name, s.do, strings.Join(append([]string{goOp(s.op)}, args...), ", "))
		case "multi", "burst":
			fmt.Fprintf(&b, "\t%s.%s(%s)\n", name, s.do, strings.Join(args, ", "))
		default:
			fmt.Fprintf(&b, "\t%s = %s.%s()\n", name, name, s.do)
		}
	}
	return b.String()
}

func goOp(op Op) string {
	switch op {
	case OpSASL:
		return "OpSASL"
	case OpGetAllChildren:
		return "OpGetAllChildren"
	}
	name := op.String()
	return "Op" + strings.ToUpper(name[:1]) + name[1:]
}

func goArgs(args []any) (all []string) {
	for _, a := range args {
		text := fmt.Sprintf("%#v", a)
		switch a := a.(type) {
		case []byte:
			text = fmt.Sprintf("[]byte(%q)", a)
			if a == nil {
				text = "[]byte(nil)"
			}
		case int64:
			text = fmt.Sprintf("int64(%d)", a)
		case since:
			text = fmt.Sprintf("seen(d.base+%d)", a)
		case []aclEntry:
			text = "open"
			if !slices.Equal(a, open) {
				var each []string
				for _, e := range a {
					each = append(each, fmt.Sprintf("acl(%d, %q, %q)", e.perms, e.scheme, e.id))
				}
				text = "acls(" + strings.Join(each, ", ") + ")"
			}
		case part:
			text = "in(" + strings.Join(append([]string{goOp(a.op)}, goArgs(a.args)...), ", ") + ")"
		case endOfMulti:
			text = "endOfMulti{}"
		}
		all = append(all, text)
	}
	return all
}
