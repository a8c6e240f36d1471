package interop

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// update writes what is expected anew, from a real server: what zktest's says never becomes the measure.
var update = flag.Bool("update", false, "write testdata/*.txt from what a real ZooKeeper says")

// atOnce is how many steps run at once, each with clients of its own: nearly all of them wait.
const atOnce = 3

// A scripted is one step of a script of other clients' own recipes on one server. Each of its three clients has a proxy of its own.
type scripted struct {
	t       testing.TB
	peer    *Peer
	proxies []*zktest.Proxy
	undo    map[string]func() // what ends a fault that was asked for

	mu     sync.Mutex
	events []string // that the server sent
}

// newScripted opens the clients of a step, and returns what closes them.
func newScripted(t testing.TB, kind Kind, addr string) (s *scripted, end func() error, err error) {
	process := Shared(t, kind)
	s = &scripted{t: t, undo: make(map[string]func())}
	s.peer = &Peer{p: process, name: fmt.Sprintf("%s-%d", kind, peerCount.Add(1)), events: make(chan string, 16)}
	process.mu.Lock()
	process.peers[s.peer.name] = s.peer
	process.mu.Unlock()
	open := []string{"open", strconv.FormatInt(sessionTimeout.Milliseconds(), 10)}
	for range 3 {
		p := zktest.NewProxy(t, addr)
		p.OnRequest(zktest.Rule{Match: s.hear})
		s.proxies = append(s.proxies, p)
		open = append(open, p.Addr())
	}
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case what := <-s.peer.events:
				s.do(what)
			case <-over:
				return
			}
		}
	})
	_, err = s.peer.call(t.Context(), open...)
	return s, func() error {
		err := s.peer.Close(context.Background())
		close(over)
		wg.Wait()
		for _, p := range s.proxies {
			p.Close()
		}
		return err
	}, err
}

// hear takes down the events, and matches nothing.
func (s *scripted) hear(f zktest.Frame) bool {
	if f.Op == zktest.OpEvent {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, fmt.Sprintf("%d %s", f.EventType, f.Path))
	}
	return false
}

// heard are the events below a path, without their order: which one of two watches a client sets first again, after a cut, is up to it.
func (s *scripted) heard(path string) (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		all = append(all, strings.ReplaceAll(e, path+"/", ""))
	}
	slices.Sort(all)
	return all
}

// do does what the script asks for.
func (s *scripted) do(what string) {
	what, client, _ := strings.Cut(what, " ")
	n, err := strconv.Atoi(client)
	if err == nil {
		switch p := s.proxies[n]; what {
		case "expire":
			err = p.Expire(s.t.Context())
		case "refuse": // from now on; the port stays open, or somebody else might take it
			s.undo["accept"+client] = p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpConnect), Do: zktest.CutBefore()})
			p.Cut()
		case "drop":
			p.Cut()
		case "accept", "calm":
			s.undo[what+client]()
		default:
			var frames int
			if _, err = fmt.Sscanf(what, "cut-%d", &frames); err == nil {
				s.undo["calm"+client] = cutOften(s.proxies, frames)
			}
		}
	}
	if err == nil {
		_, err = s.peer.call(s.t.Context(), "told")
	}
	if err != nil {
		s.t.Errorf("%v", err)
	}
}

// cutOften lets the connections be cut once in so many frames, on this side of the server and on the other. That is by count and not by the clock, so
// that a slow machine gets no further cuts while it reconnects.
func cutOften(proxies []*zktest.Proxy, frames int) (end func()) {
	every := func(n int, match func(zktest.Frame) bool) func(zktest.Frame) bool {
		seen := 0
		return func(f zktest.Frame) bool {
			if match(f) {
				seen++
			}
			return match(f) && seen%n == 0
		}
	}
	var ends []func()
	for _, p := range proxies {
		ends = append(ends,
			p.OnRequest(zktest.Rule{Match: every(frames, zktest.AllRequests), Do: zktest.CutAfter()}),
			p.OnRequest(zktest.Rule{Match: every(frames*8/5, zktest.AllRequests), Do: zktest.CutBefore()}),
			p.OnRequest(zktest.Rule{Match: every(frames/3, zktest.MatchOp(zktest.OpEvent)), Do: zktest.CutBefore()}),
		)
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// A step is what one step of a script saw, and what is left of it in the end.
type step struct {
	name, saw    string
	events, left []string
}

func (st *step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", st.name)
	for _, line := range strings.Split(st.saw, "; ") {
		fmt.Fprintf(&b, "\tsaw %s\n", line)
	}
	for _, line := range st.events {
		fmt.Fprintf(&b, "\tevent %s\n", line)
	}
	for _, line := range st.left {
		fmt.Fprintf(&b, "\tleft %s\n", line)
	}
	b.WriteString("\n")
	return b.String()
}

// run lets a step run, with clients of its own, so that nothing of the steps before is left in them.
func (st *step) run(t testing.TB, kind Kind, addr, path string, answers *answers) (err error) {
	began := time.Now()
	s, end, err := newScripted(t, kind, addr)
	defer func() {
		err = errors.Join(err, end())
		s.answers(answers) // now that no more can come
	}()
	if err != nil {
		return err
	}
	if st.saw, err = s.peer.call(t.Context(), "run", st.name, path); err != nil {
		return err
	}
	s.settle()
	if strings.HasPrefix(st.name, "watches") { // the others race; a client does not pass on to a watcher what it has not asked for, or no longer
		st.events = s.heard(path)
	}
	t.Logf("%s took %v, %d connections", st.name, time.Since(began).Round(time.Millisecond), s.connections())
	return nil
}

// runScript lets those steps of a script run that the filter takes, a few at a time, and returns what there is to say of them.
func runScript(t testing.TB, kind Kind, addr string, details bool, filter func(string) bool) []*step {
	t.Helper()
	c, root := clientOf(t, addr), newPath(t)
	require.NoError(t, createAll(c, root))
	var steps []*step
	queue := make(chan *step, 100)
	names, err := Shared(t, kind).call(t.Context(), "-", "steps")
	require.NoError(t, err)
	for _, name := range strings.Fields(names) {
		if filter(name) {
			_, err := c.Create(root+"/"+name, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			steps = append(steps, &step{name: name})
			queue <- steps[len(steps)-1]
		}
	}
	close(queue)
	all := answers{found: make(map[zktest.Op]map[int32]bool)}
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for st := range queue {
				if err := st.run(t, kind, addr, root+"/"+st.name, &all); err != nil {
					t.Errorf("%s: %v", st.name, err)
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for _, st := range steps {
		st.left = left(t, c, root+"/"+st.name, details)
	}
	if details {
		steps = append(steps, all.step())
	}
	return steps
}

// answers are the kinds of requests that the clients of a script sent, each with the errors that came back. In one step it can depend on who was first
// which there are; in all steps together it does not.
type answers struct {
	mu    sync.Mutex
	found map[zktest.Op]map[int32]bool
}

// settle waits until all requests are answered and, as it seems, no more come: what the clients send in the background would fail when they close.
func (s *scripted) settle() {
	sent, quiet := 0, 0
	eventually(s.t, "all requests are answered, and no more come", func() bool {
		now := 0
		for _, p := range s.proxies {
			requests := p.Requests()
			now += len(requests)
			for _, r := range requests {
				if last := requests[len(requests)-1].Conn; r.Conn == last && !r.Answered { // a connection that has ended answers no more
					quiet = 0
				}
			}
		}
		if now != sent {
			quiet = 0
		}
		sent = now
		quiet++
		return quiet > 10
	})
}

// answers adds those of the step.
func (s *scripted) answers(all *answers) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, p := range s.proxies {
		for _, r := range p.Requests() {
			// Of a watch that somebody takes back the client does not know whether the server has it yet.
			if r.Answered && zktest.AllRequests(zktest.Frame{Op: r.Op}) && r.Op != zktest.OpCheckWatches && r.Op != zktest.OpClose {
				if all.found[r.Op] == nil {
					all.found[r.Op] = make(map[int32]bool)
				}
				all.found[r.Op][r.Err] = true
			}
		}
	}
}

func (a *answers) step() *step {
	st := &step{name: "answers"}
	var lines []string
	for op, errs := range a.found {
		lines = append(lines, fmt.Sprintf("%v %v", op, slices.Sorted(maps.Keys(errs))))
	}
	slices.Sort(lines)
	st.saw = strings.Join(lines, "; ")
	return st
}

var random = regexp.MustCompile(`[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}`)

// left are the znodes below a path, with all of their Stat that is not a moment or an id.
func left(t testing.TB, c *zk.Conn, root string, versions bool) (lines []string) {
	var walk func(path string)
	walk = func(path string) {
		data, stat, err := c.Get(path)
		if errors.Is(err, zk.ErrNoAuth) {
			lines = append(lines, strings.TrimPrefix(path, root+"/")+" not to be read")
			return
		}
		require.NoError(t, err)
		acl, _, err := c.GetACL(path)
		require.NoError(t, err)
		kind := "persistent"
		if stat.EphemeralOwner != 0 {
			kind = "ephemeral"
		}
		if len(data) > 40 {
			data = fmt.Appendf(nil, "%d bytes", len(data))
		}
		if path != root {
			line := fmt.Sprintf("%s %s %q", strings.TrimPrefix(path, root+"/"), kind, data)
			if versions {
				line += fmt.Sprintf(" v%d cv%d av%d", stat.Version, stat.Cversion, stat.Aversion)
			}
			if !slices.Equal(acl, zk.WorldACL(zk.PermAll)) {
				line += fmt.Sprintf(" acl %v", acl)
			}
			lines = append(lines, random.ReplaceAllString(line, "uuid"))
		}
		names, _, err := c.Children(path)
		require.NoError(t, err)
		slices.Sort(names)
		for _, name := range names {
			walk(path + "/" + name)
		}
	}
	walk(root)
	return lines
}

func clientOf(t testing.TB, addr string) *zk.Conn {
	t.Helper()
	c, events, err := zk.Connect([]string{addr}, sessionTimeout, zk.WithLogInfo(false))
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		for range events {
		}
	})
	return c
}

func createAll(c *zk.Conn, path string) error {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if _, err := c.Create(path[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// onItsOwn runs the steps on the server of this process and, where one was asked for, on a real one, and compares what they say with what is expected,
// which a real one said.
func onItsOwn(t *testing.T, kind Kind, expected string, details bool, filter func(string) bool) {
	if *update && !testrun.Real() {
		t.Fatal("-update needs a real ZooKeeper: ZKTEST_REAL=local or docker")
	}
	Shared(t, kind) // starts it, before the steps run against the clock
	file := "testdata/" + expected
	check := func(t *testing.T, addr string) {
		steps := runScript(t, kind, addr, details, filter)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all := strings.SplitAfter(string(text), "\n\n")
		for _, st := range steps {
			i := slices.IndexFunc(all, func(s string) bool { return strings.HasPrefix(s, st.name+"\n") })
			if assert.GreaterOrEqual(t, i, 0, "%s has no step %s", file, st.name) {
				assert.Equal(t, all[i], st.String())
			}
		}
	}
	if testrun.Real() {
		t.Run("real", func(t *testing.T) {
			addr := zktest.Start(t).Addrs()[0] // of its own: one that it was given need not know of znodes with a time to live
			if *update {
				var b strings.Builder
				for _, st := range runScript(t, kind, addr, details, filter) {
					b.WriteString(st.String())
				}
				require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
				return
			}
			t.Parallel()
			check(t, addr)
		})
	}
	t.Run("in the process", func(t *testing.T) {
		t.Parallel()
		check(t, zktest.NewServer(t).Addr())
	})
}

func isCut(step string) bool { return strings.HasPrefix(step, "cut-") }

// Curator's recipes among themselves do the same on zktest's server as on a real one.
func TestCuratorOnItsOwn(t *testing.T) {
	t.Parallel()
	onItsOwn(t, CuratorRecipes, "curator.txt", true, func(step string) bool { return !isCut(step) })
}

// They come to the same end while their connections are cut now and then.
func TestCuratorOnItsOwnWithCuts(t *testing.T) {
	t.Parallel()
	onItsOwn(t, CuratorRecipes, "curator-cuts.txt", false, isCut)
}

// kazoo's recipes among themselves do the same on zktest's server as on a real one.
func TestKazooOnItsOwn(t *testing.T) {
	t.Parallel()
	onItsOwn(t, KazooRecipes, "kazoo.txt", true, func(step string) bool { return !isCut(step) })
}

// They come to the same end while their connections are cut now and then.
func TestKazooOnItsOwnWithCuts(t *testing.T) {
	t.Parallel()
	onItsOwn(t, KazooRecipes, "kazoo-cuts.txt", false, isCut)
}

// connections counts those that the clients made.
func (s *scripted) connections() (n int) {
	for _, p := range s.proxies {
		n += p.Counts().Requests[zktest.OpConnect]
	}
	return n
}
