package zktest

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A step is what one client of a walk does. It is data, so that a walk can be had again without some of its steps.
type step struct {
	who  int    // of the clients
	do   string // a method of rawConn
	op   Op
	args []any
}

// walkRoot is the znode of a walk in its own words; on the servers each run has one of its own.
const walkRoot = "/w"

var walks atomic.Int64

// walkClients are the clients of a walk; somebody who may do everything looks at what they have done.
var walkClients = []string{"a", "b", "c"}

const walkLooker = "o"

// A walker takes a walk on one server.
type walker struct {
	d       *dialogue
	root    string
	clients []*rawConn
	looker  *rawConn
}

// takeWalk returns what the clients are told on a walk, and what is there in its course and afterwards. It leaves nothing on the server.
func takeWalk(t testing.TB, addr, root string, steps []step) []string {
	w := &walker{d: &dialogue{t: t, dial: func() (net.Conn, error) { return net.Dial("tcp", addr) }, anyOrder: true}, root: root}
	for _, name := range walkClients {
		w.clients = append(w.clients, w.d.join(name))
	}
	w.looker = w.d.join(walkLooker)
	w.looker.call(OpAuth, 0, "digest", []byte(lookerIs))
	w.d.begin(w.looker)
	for i, s := range steps {
		w.take(s)
		if i%8 == 7 {
			w.look()
		}
	}
	w.look()
	for i := range w.clients {
		w.take(step{who: i, do: "leave"})
	}
	w.looker.clean(w.root)
	w.d.finish()
	for i, line := range w.d.lines {
		w.d.lines[i] = strings.ReplaceAll(line, w.root[1:], walkRoot[1:])
	}
	return w.d.lines
}

func (w *walker) take(s step) {
	d, mark := w.d, len(w.d.lines)
	r := w.clients[s.who]
	args := w.here(s.args)
	switch s.do {
	case "call":
		r.call(s.op, args...)
	case "mute":
		r.mute(s.op, args...)
	case "multi":
		r.multi(args...)
	case "burst":
		var parts []part
		for _, a := range args {
			parts = append(parts, a.(part))
		}
		r.burst(parts...)
	case "leave":
		w.clients[s.who] = r.leave()
	case "drop":
		w.clients[s.who] = r.drop()
	case "move":
		w.clients[s.who] = r.move()
	case "intrude":
		w.clients[s.who] = r.intrude()
	default:
		panic(s.do)
	}
	var pings []question
	for _, r := range w.clients { // the events are before the answers
		pings = append(pings, r.post(OpPing))
	}
	for i, r := range w.clients {
		r.reply(pings[i])
	}
	if s.do == "leave" { // in what order the ephemerals of a session go is a matter of hashing
		sortEvents(d.lines[mark:])
	}
}

// sortEvents sorts the events that come in a row.
func sortEvents(lines []string) {
	event := func(line string) bool { return strings.Contains(line, ": event ") }
	for len(lines) > 0 {
		n := slices.IndexFunc(lines, func(line string) bool { return !event(line) || line[:2] != lines[0][:2] })
		if n < 0 {
			n = len(lines)
		}
		slices.Sort(lines[:n])
		lines = lines[max(n, 1):]
	}
}

// here puts the walk's own znode into arguments.
func (w *walker) here(args []any) []any {
	at := func(path string) string {
		if rest, ok := strings.CutPrefix(path, walkRoot); ok {
			return w.root + rest
		}
		return path
	}
	args = slices.Clone(args)
	for i, a := range args {
		switch a := a.(type) {
		case string:
			args[i] = at(a)
		case []string:
			a = slices.Clone(a)
			for i := range a {
				a[i] = at(a[i])
			}
			args[i] = a
		case part:
			args[i] = part{a.op, w.here(a.args)}
		case since:
			args[i] = seen(w.d.base + int64(a))
		}
	}
	return args
}

// since is a zxid of the walk's own.
type since int64

// look takes down all that is there.
func (w *walker) look() {
	for level := []string{w.root}; len(level) > 0; {
		var qs []question
		for _, path := range level {
			qs = append(qs, w.looker.post(OpExists, path, false), w.looker.post(OpGetACL, path), w.looker.post(OpGetData, path, false),
				w.looker.post(OpGetChildren2, path, false))
		}
		above := level
		level = nil
		for i, q := range qs {
			if !w.looker.reply(q) {
				return
			}
			if q.op == OpGetChildren2 {
				d := decoder{w.looker.last}
				names := d.strings()
				slices.Sort(names)
				for _, name := range names {
					level = append(level, above[i/4]+"/"+name)
				}
			}
		}
	}
}

// A difference is where two servers differ first.
type difference struct {
	line         int
	theirs, ours string
	before       []string // what both have said before
}

func compare(theirs, ours []string) *difference {
	for i := range max(len(theirs), len(ours)) {
		var a, b string
		if i < len(theirs) {
			a = theirs[i]
		}
		if i < len(ours) {
			b = ours[i]
		}
		if a != b {
			return &difference{i, a, b, theirs[max(0, i-3):i]}
		}
	}
	return nil
}

func (d *difference) String() string {
	return fmt.Sprintf("line %d, after\n      %s\n real %s\n here %s", d.line, strings.Join(d.before, "\n      "), d.theirs, d.ours)
}

// shrink takes steps out, and parts of steps, for as long as what is left fails.
func shrink(steps []step, fails func([]step) bool) []step {
	until := time.Now().Add(time.Minute)
	try := func(less []step) bool {
		if time.Now().Before(until) && fails(less) {
			steps = less
			return true
		}
		return false
	}
	for n := max(len(steps)/2, 1); ; n = max(n/2, 1) {
		less := false
		for i := 0; i < len(steps); {
			if try(slices.Concat(steps[:i], steps[min(i+n, len(steps)):])) {
				less = true
			} else {
				i += n
			}
		}
		for i, s := range steps {
			for p := 0; p < len(s.args) && (s.do == "multi" || s.do == "burst"); {
				part := s
				part.args = slices.Delete(slices.Clone(s.args), p, p+1)
				if try(slices.Concat(steps[:i], []step{part}, steps[i+1:])) {
					s, less = part, true
				} else {
					p++
				}
			}
		}
		if n == 1 && !less {
			return steps
		}
	}
}

// walkOn takes one walk on both servers. Where they differ it returns the shortest walk on which they do.
func walkOn(t testing.TB, theirs, ours string, steps []step) (short []step, diff *difference, answers int) {
	walk := func(steps []step) *difference {
		root := fmt.Sprint("/walk", walks.Add(1))
		want, got := takeWalk(t, theirs, root, steps), takeWalk(t, ours, root, steps)
		answers = len(want)
		return compare(want, got)
	}
	if diff = walk(steps); diff == nil {
		return nil, nil, answers
	}
	short = shrink(steps, func(steps []step) bool {
		d := walk(steps)
		if d != nil {
			diff = d
		}
		return d != nil
	})
	return short, diff, answers
}

// Walks of three clients, by chance, on a few paths: the server of this process answers all of it as the real one does, tells the same events, and has the
// same znodes afterwards. ZKRECIPES_TEST_SEED takes one walk again; ZKRECIPES_TORTURE says for how long.
//
// Left out is what the real server does by the clock (containers and times to live are for hours here), and what it does by hashing: in which order the
// ephemerals of a session go, and the identities of a connection in an ACL of "auth".
func TestRandomWalk(t *testing.T) {
	theirs := Start(t, SystemProperty("znode.container.checkIntervalMs", "3600000"))
	ours := newServerReaping(t, time.Hour)
	first, once := uint64(time.Now().UnixNano()), false
	if s := os.Getenv("ZKRECIPES_TEST_SEED"); s != "" {
		var err error
		first, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		once = true
	}
	long := 15 * time.Second
	if s := os.Getenv("ZKRECIPES_TORTURE"); s != "" {
		var err error
		long, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	seed, steps, answers := first, 0, 0
	for until := time.Now().Add(long); time.Now().Before(until); seed++ {
		walk := newWalk(seed)
		short, diff, n := walkOn(t, theirs.Addrs()[0], ours.Addr(), walk)
		if diff != nil {
			t.Fatalf("ZKRECIPES_TEST_SEED=%d: %d of %d steps:\n%s\n%v", seed, len(short), len(walk), goText(short), diff)
		}
		require.NoError(t, ours.sound())
		steps, answers = steps+len(walk), answers+n
		if once {
			break
		}
	}
	t.Logf("ZKRECIPES_TEST_SEED=%d and on: %d walks, %d steps, %d answers compared", first, seed-first, steps, answers)
}

// Two servers of which one is broken on purpose differ, and the walk is shrunk to the step that shows it.
func TestWalkIsShrunk(t *testing.T) {
	t.Parallel()
	good, bad := newServerReaping(t, time.Hour), newServerReaping(t, time.Hour)
	bad.faults = append(bad.faults, &fault{op: OpSetACL, err: codeNoAuth, left: 1 << 30}, &fault{op: OpMulti, err: codeNoAuth, left: 1 << 30})
	multi, acls := 0, 0
	for seed := uint64(0); seed < 20 && (multi == 0 || acls == 0); seed++ {
		short, diff, _ := walkOn(t, good.Addr(), bad.Addr(), newWalk(seed))
		if diff == nil {
			continue
		}
		require.Len(t, short, 1, goText(short))
		switch {
		case short[0].do == "multi":
			require.LessOrEqual(t, len(short[0].args), 1, goText(short))
			multi++
		case short[0].op == OpSetACL:
			acls++
		}
	}
	require.Positive(t, multi)
	require.Positive(t, acls)
}
