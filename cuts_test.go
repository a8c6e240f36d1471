package zkrecipes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A side is one of many small tests that run at once within a test. Subtests with t.Parallel are no more than there are processors, and these wait for
// the network nearly all the time. It has its own goroutine, so FailNow ends that one only, and shows its log when it fails.
type side struct {
	testing.TB
	name string

	mu       sync.Mutex
	lines    []string
	failed   bool
	cleanups []func()
}

func (s *side) Name() string { return s.TB.Name() + "/" + s.name }
func (s *side) Helper()      {}
func (s *side) Log(args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprint(args...))
}
func (s *side) Logf(format string, args ...any) { s.Log(fmt.Sprintf(format, args...)) }
func (s *side) Errorf(format string, args ...any) {
	s.mu.Lock()
	s.failed = true
	s.mu.Unlock()
	s.Logf(format, args...)
}
func (s *side) FailNow() {
	s.mu.Lock()
	s.failed = true
	s.mu.Unlock()
	runtime.Goexit()
}
func (s *side) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	s.FailNow()
}
func (s *side) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}
func (s *side) Cleanup(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, fn)
}

// side runs fn to its end, clean-ups included, and reports what failed.
func (s *side) run(fn func(t testing.TB)) {
	for _, step := range []func(){func() { fn(s) }, s.cleanUp} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			step()
		}()
		<-done
	}
	if s.Failed() {
		s.TB.Errorf("%s:\n%s", s.name, strings.Join(s.lines, "\n"))
	}
}

func (s *side) cleanUp() {
	for {
		s.mu.Lock()
		n := len(s.cleanups)
		if n == 0 {
			s.mu.Unlock()
			return
		}
		fn := s.cleanups[n-1]
		s.cleanups = s.cleanups[:n-1]
		s.mu.Unlock()
		fn()
	}
}

// sides collects small tests and runs them, so many at once.
type sides struct {
	t  testing.TB
	wg sync.WaitGroup
	at chan struct{}
}

func newSides(t testing.TB, atOnce int) *sides { return &sides{t: t, at: make(chan struct{}, atOnce)} }

func (ss *sides) add(name string, fn func(t testing.TB)) {
	ss.at <- struct{}{}
	ss.wg.Go(func() {
		defer func() { <-ss.at }()
		(&side{TB: ss.t, name: name}).run(fn)
	})
}

// A cutRun is one call, or a few, through a proxy that breaks the connection at chosen requests.
type cutRun struct {
	testing.TB
	cutWorld
	path  string
	fixed []string // children of path that are nobody's queue
	s     *Session
	p     *zktest.Proxy
	m     *Mutex // of s
	loss  bool   // a session may end: a lease that is lost is no fault
	begun int    // requests before those that count

	mine, theirs *Lease // that the call begins with
}

// A cutWorld is what the runs share, none of it behind a proxy.
type cutWorld struct {
	rival *Session // who else wants the lock
	fresh *Session // who comes afterwards
	admin *zk.Conn
	top   string
}

func newCutWorld(t testing.TB) cutWorld {
	return cutWorld{rival: dialShared(t, WithTimeout(10*time.Second)), fresh: dialShared(t, WithTimeout(10*time.Second)), admin: admin(t), top: newPath(t)}
}

func (w cutWorld) newRun(t testing.TB, timeout time.Duration, opts ...DialOption) *cutRun {
	s, p := dialProxy(t, append([]DialOption{WithTimeout(timeout)}, opts...)...)
	r := &cutRun{TB: t, cutWorld: w, s: s, p: p}
	r.at(fmt.Sprintf("%s/%d", w.top, pathCount.Add(1)))
	r.mkdirs()
	return r
}

// at sets the path.
func (r *cutRun) at(path string) { r.path, r.m = path, NewMutex(r.s, path) }

// mkdirs makes the directory, for good, with what is missing above it.
func (r *cutRun) mkdirs() {
	r.Helper()
	for i := 1; i <= len(r.path); i++ {
		if i == len(r.path) || r.path[i] == '/' {
			if _, err := r.admin.Create(r.path[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
				require.ErrorIs(r, err, zk.ErrNodeExists)
			}
		}
	}
}

// strangers puts znodes into the directory that look like protected ones and are not.
func (r *cutRun) strangers() {
	r.Helper()
	r.fixed = []string{"_c_x", "_c_0", "_c_00000000-0000-4000-8000-000000000000-x"}
	for _, name := range r.fixed {
		_, err := r.admin.Create(r.path+"/"+name, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(r, err)
	}
}

// counts tells which requests are the call's own: not the heartbeat of the session.
func counts(f zktest.Frame) bool {
	return zktest.AllRequests(f) && (f.Op != zktest.OpSync || f.Path != "/") && f.Op != zktest.OpClose
}

// requests returns those that count, since begin.
func (r *cutRun) requests() []zktest.Record {
	all := slices.DeleteFunc(r.p.Requests(), func(q zktest.Record) bool { return !counts(zktest.Frame{Op: q.Op, Path: q.Path}) })
	return all[r.begun:]
}

func (r *cutRun) begin() { r.begun = len(r.requests()) }

func ops(rs []zktest.Record) string {
	var b strings.Builder
	for i, q := range rs {
		if i > 0 {
			b.WriteString(" ")
		}
		b.WriteString(q.Op.String())
		if q.Err != 0 {
			fmt.Fprintf(&b, "(%d)", q.Err)
		}
		if q.Fate != zktest.FateForwarded {
			fmt.Fprintf(&b, "[%s]", q.Fate)
		}
	}
	return b.String()
}

// exactly waits until the directory holds these znodes and the fixed ones, and nothing else.
func (r *cutRun) exactly(nodes ...string) {
	r.Helper()
	want := slices.Clone(r.fixed)
	for _, n := range nodes {
		want = append(want, strings.TrimPrefix(n, r.path+"/"))
	}
	slices.Sort(want)
	var names []string
	for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(2 * time.Millisecond) { // a poll with a deadline
		names = children(r, r.admin, r.path)
		slices.Sort(names)
		if slices.Equal(names, want) {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("the directory holds\n  %s\nand not\n  %s\nsession %#x, owing %d, requests: %s", strings.Join(names, "\n  "), strings.Join(want, "\n  "),
				r.s.ID(), r.s.engine.Owing(), ops(r.requests()))
		}
	}
}

// rivalHolds lets the rival take the lock.
func (r *cutRun) rivalHolds() *Lease {
	r.Helper()
	l, err := NewMutex(r.rival, r.path).Lock(within(r, 10*time.Second))
	require.NoError(r, err)
	return l
}

// holding checks a lease that was just granted, and waits until the session watches its znode, which it does in the background.
func (r *cutRun) holding(l *Lease, err error) *Lease {
	r.Helper()
	require.NoError(r, err, "%s", ops(r.requests()))
	if r.alive(l) {
		r.answered("the own znode is watched", zktest.OpGetData, l.Node(), func() bool { return r.loss && l.Err() != nil })
	}
	if r.alive(l) {
		r.exactly(l.Node())
	}
	return l
}

func (r *cutRun) alive(l *Lease) bool {
	r.Helper()
	if err := l.Err(); err != nil {
		require.True(r, r.loss, "%v", err)
		require.ErrorIs(r, err, ErrLost)
		return false
	}
	return true
}

// answered waits for the reply to a request.
func (r *cutRun) answered(what string, op zktest.Op, path string, or func() bool) {
	r.Helper()
	eventually(r, 10*time.Second, what, func() bool { return or() || r.hasAnswer(op, path) })
}

func (r *cutRun) hasAnswer(op zktest.Op, path string) bool {
	return slices.ContainsFunc(r.requests(), func(q zktest.Record) bool {
		return q.Op == op && q.Path == path && q.Answered && q.Fate == zktest.FateForwarded
	})
}

// waits waits until the run's own contender has read both znodes on which it waits.
func (r *cutRun) waits(behind *Lease) {
	r.Helper()
	eventually(r, 10*time.Second, "it waits", func() bool {
		return r.hasAnswer(zktest.OpGetData, behind.Node()) && slices.ContainsFunc(r.requests(), func(q zktest.Record) bool {
			return q.Op == zktest.OpGetData && q.Path != behind.Node() && q.Answered && q.Fate == zktest.FateForwarded
		})
	})
}

func (r *cutRun) release(l *Lease) {
	r.Helper()
	err := l.Release(context.Background())
	if r.loss && (errors.Is(err, ErrLost) || errors.Is(err, ErrNoConnection)) {
		return
	}
	require.NoError(r, err, "%s", ops(r.requests()))
}

// settled is the end of every run: nothing is left, who comes is granted at once, and so is the session of the run itself.
func (r *cutRun) settled() {
	r.Helper()
	r.exactly()
	for _, m := range []*Mutex{NewMutex(r.fresh, r.path), r.m} {
		limit := 3 * time.Second
		if m == r.m && r.loss {
			limit = 10 * time.Second // it may have to make a session first
		}
		l, err := m.Lock(within(r, limit))
		require.NoError(r, err, "%s", ops(r.requests()))
		err = l.Release(context.Background())
		if m != r.m || !r.loss {
			require.NoError(r, err)
		}
	}
	r.exactly()
}

// A call is what is called, request by request, while the connection breaks.
type call struct {
	name    string
	prepare func(r *cutRun)
	run     func(r *cutRun)
	parents bool // it makes the directory
}

// calls are the calls of the recipe whose every request is hit.
func calls() []call {
	bg := context.Background()
	take := func(r *cutRun) context.Context { return within(r, 20*time.Second) }
	none := func(*cutRun) {}
	rivalHolds := func(r *cutRun) { r.theirs = r.rivalHolds() }
	weHold := func(r *cutRun) { r.mine = r.holding(r.m.Lock(take(r))) }
	in := func(fn func() (*Lease, error)) chan result {
		ch := make(chan result, 1)
		go func() {
			l, err := fn()
			ch <- result{lease: l, err: err}
		}()
		return ch
	}
	return []call{
		{"Lock, free", none, func(r *cutRun) {
			r.release(r.holding(r.m.Lock(take(r))))
		}, false},
		{"Lock, parents missing", func(r *cutRun) {
			r.at(r.path + "/missing/too")
		}, func(r *cutRun) {
			r.release(r.holding(r.m.Lock(take(r))))
		}, true},
		{"Lock, behind a holder", rivalHolds, func(r *cutRun) {
			got := in(func() (*Lease, error) { return r.m.Lock(take(r)) })
			r.waits(r.theirs)
			require.NoError(r, r.theirs.Release(bg))
			g := <-got
			r.release(r.holding(g.lease, g.err))
		}, false},
		{"Lock, cancelled while waiting", rivalHolds, func(r *cutRun) {
			ctx, cancel := context.WithCancel(take(r))
			defer cancel()
			got := in(func() (*Lease, error) { return r.m.Lock(ctx) })
			r.waits(r.theirs)
			cancel()
			g := <-got
			require.Nil(r, g.lease)
			require.ErrorIs(r, g.err, context.Canceled)
			require.ErrorIs(r, g.err, ErrHeld)
			r.exactly(r.theirs.Node())
			require.NoError(r, r.theirs.Release(bg))
		}, false},
		{"TryLock, free", none, func(r *cutRun) {
			r.release(r.holding(r.m.TryLock(take(r))))
		}, false},
		{"TryLock, held", rivalHolds, func(r *cutRun) {
			_, err := r.m.TryLock(take(r))
			require.ErrorIs(r, err, ErrHeld)
			r.exactly(r.theirs.Node())
			require.NoError(r, r.theirs.Release(bg))
		}, false},
		{"TryLock, loses a race", none, func(r *cutRun) {
			// The list that shows a free lock is on its way when the rival comes.
			gate := zktest.NewGate()
			defer gate.Open()
			r.p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpGetChildren2, r.path), Times: 1, Do: zktest.HoldReply(gate)})
			got := in(func() (*Lease, error) { return r.m.TryLock(take(r)) })
			<-gate.Reached()
			r.theirs = r.rivalHolds()
			gate.Open()
			g := <-got
			require.Nil(r, g.lease)
			require.ErrorIs(r, g.err, ErrHeld)
			r.exactly(r.theirs.Node())
			require.NoError(r, r.theirs.Release(bg))
		}, false},
		{"Release", weHold, func(r *cutRun) {
			r.release(r.mine)
			if !r.loss {
				r.exactly()
				require.NoError(r, r.mine.Release(bg))
			}
		}, false},
		{"Release, cancelled", weHold, func(r *cutRun) {
			ctx, cancel := context.WithCancel(bg)
			cancel()
			if err := r.mine.Release(ctx); err != nil && !errors.Is(err, ErrLost) {
				require.ErrorIs(r, err, context.Canceled)
			}
			r.release(r.mine)
			if !r.loss {
				r.exactly()
			}
		}, false},
		{"Lock and Release, entered again", none, func(r *cutRun) {
			l := r.holding(r.m.Lock(take(r)))
			if !r.alive(l) {
				return
			}
			again, err := NewMutex(r.s, r.path).Lock(l.Context())
			if r.alive(l) {
				require.NoError(r, err)
				require.Equal(r, l.Token(), again.Token())
				r.release(again)
			}
			if r.alive(l) {
				r.exactly(l.Node())
			}
			r.release(l)
		}, false},
		{"Do", none, func(r *cutRun) {
			err := Do(take(r), r.m, func(ctx context.Context) error {
				l, ok := LeaseFromContext(ctx)
				require.True(r, ok)
				r.holding(l, nil)
				return nil
			})
			if !r.loss {
				require.NoError(r, err)
			}
		}, false},
	}
}

// A fault hits the i-th request of a call.
type fault struct {
	at  int
	how string
}

var hows = map[string]func() zktest.Action{"before": zktest.CutBefore, "after": zktest.CutAfter, "hole": zktest.BlackHoleAfter}

func (f fault) String() string { return fmt.Sprintf("%s %d", f.how, f.at) }

// breaks sets the faults up and returns how many of them have struck.
func (r *cutRun) breaks(faults ...fault) func() int {
	for _, f := range faults {
		r.p.OnRequest(zktest.Rule{Match: zktest.Nth(f.at, counts), Times: 1, Do: hows[f.how]()})
	}
	return func() int {
		n := 0
		for _, q := range r.requests() {
			switch q.Fate {
			case zktest.FateCutBefore, zktest.FateCutAfter, zktest.FateReplyLost:
				n++
			}
		}
		return n
	}
}

// heals ends a black hole so long after it has begun, and any other one until the end of the run: a request is marked as lost just before its hole
// begins, and one may have been let go of before a rule was removed.
func (r *cutRun) heals(d time.Duration, struck func() int) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	r.Cleanup(func() { close(stop); <-stopped })
	go func() {
		defer close(stopped)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		var since time.Time
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if since.IsZero() && struck() > 0 {
				since = time.Now()
			}
			if !since.IsZero() && time.Since(since) >= d {
				r.p.BlackHole(zktest.None)
			}
		}
	}()
}

// staysHealed ends every black hole from now on.
func (r *cutRun) staysHealed() {
	r.p.BlackHole(zktest.None)
	r.heals(0, func() int { return 1 })
}

// TestNoOrphanWhateverIsCut breaks the connection at each request of each call, and at two of them, before the server sees it and after it was answered.
// Whatever happens, the call ends as it would have, and leaves the directory to those who hold or wait.
func TestNoOrphanWhateverIsCut(t *testing.T) {
	w := newCutWorld(t)
	const (
		atOnce  = 32
		further = 4 // requests of a recovery that the second fault may hit
	)
	ss := newSides(t, atOnce)
	defer ss.wg.Wait()
	for _, c := range calls() {
		for _, strange := range []bool{false, true} {
			if strange && c.parents {
				continue
			}
			name := c.name
			if strange {
				name += ", strangers"
			}
			start := func(t testing.TB) *cutRun {
				r := w.newRun(t, testTimeout)
				if strange {
					r.strangers()
				}
				c.prepare(r)
				r.begin()
				return r
			}
			n := 0 // how many requests it makes when nothing is cut
			(&side{TB: t, name: name}).run(func(tb testing.TB) {
				r := start(tb)
				c.run(r)
				clean := r.requests()
				n = len(clean)
				t.Logf("%-44s %2d requests: %s", name, n, ops(clean))
				r.settled()
			})
			for _, faults := range faultSets(n, further) {
				ss.add(fmt.Sprint(name, " ", faults), func(t testing.TB) {
					r := start(t)
					struck := r.breaks(faults...)
					c.run(r)
					if len(faults) == 1 {
						require.Equal(r, 1, struck(), "the fault did not strike: %s", ops(r.requests()))
					}
					r.settled()
				})
			}
		}
	}
}

// faultSets are all single cuts of n requests, and all pairs; the second of a pair may be one of so many further requests of the recovery.
func faultSets(n, further int) (sets [][]fault) {
	kinds := []string{"before", "after"}
	for i := range n {
		for _, first := range kinds {
			sets = append(sets, []fault{{i, first}})
			for j := i + 1; j < n+further; j++ {
				for _, second := range kinds {
					sets = append(sets, []fault{{i, first}, {j, second}})
				}
			}
		}
	}
	return sets
}

// TestNoOrphanAfterABlackHole swallows the answer to each request of each call and all that follows. The connection is healed at once, with which it is
// reset; or when the clock has ended the lease but not the server the session; or when the session is over.
func TestNoOrphanAfterABlackHole(t *testing.T) {
	w := newCutWorld(t)
	ss := newSides(t, 32)
	defer ss.wg.Wait()
	for _, c := range calls() {
		for _, hole := range []struct {
			timeout, until time.Duration
			loss           bool
		}{{testTimeout, 0, false}, {3 * time.Second, 2300 * time.Millisecond, true}, {time.Second, 1500 * time.Millisecond, true}} {
			for i := range 9 { // no call makes more requests
				ss.add(fmt.Sprintf("%s, hole of %v after %d", c.name, hole.until, i), func(t testing.TB) {
					r := w.newRun(t, hole.timeout)
					c.prepare(r)
					r.begin()
					r.loss = hole.loss
					r.heals(hole.until, r.breaks(fault{i, "hole"}))
					c.run(r)
					r.settled()
				})
			}
		}
	}
}

// TestNoOrphanWhenCancelledAtAnyRequest ends the ctx of a call in the moment in which its i-th request is on its way, and does something to that
// request besides. The call ends within a second, with a lease that is one or with an error that leaves nothing.
func TestNoOrphanWhenCancelledAtAnyRequest(t *testing.T) {
	w := newCutWorld(t)
	reason := errors.New("not wanted any more")
	ss := newSides(t, 16)
	defer ss.wg.Wait()
	acquire := map[string]func(*Mutex, context.Context) (*Lease, error){"Lock": (*Mutex).Lock, "TryLock": (*Mutex).TryLock}
	for name, fn := range acquire {
		for _, where := range []string{"free", "held", "parents missing"} {
			for _, how := range []string{"answered", "before", "after", "reply held", "hole"} {
				for i := range 9 {
					ss.add(fmt.Sprintf("%s, %s, %s %d", name, where, how, i), func(t testing.TB) {
						r := w.newRun(t, testTimeout)
						var theirs *Lease
						var live []string
						switch where {
						case "held":
							theirs = r.rivalHolds()
							live = []string{theirs.Node()}
						case "parents missing":
							r.at(r.path + "/missing/too")
						}
						ctx, cancel := context.WithCancelCause(within(r, 20*time.Second))
						defer cancel(nil)
						gate := zktest.NewGate()
						defer gate.Open()
						do := map[string]zktest.Action{
							"answered": {}, "before": zktest.CutBefore(), "after": zktest.CutAfter(), "reply held": zktest.HoldReply(gate), "hole": zktest.BlackHoleAfter(),
						}[how]
						nth, struck := zktest.Nth(i, counts), make(chan struct{})
						r.begin()
						r.p.OnRequest(zktest.Rule{Times: 1, Do: do, Match: func(f zktest.Frame) bool {
							if !nth(f) {
								return false
							}
							cancel(reason)
							close(struck)
							return true
						}})
						if how == "hole" {
							r.heals(0, r.breaks())
						}
						got := make(chan result, 1)
						go func() {
							l, err := fn(r.m, ctx)
							got <- result{lease: l, err: err}
						}()
						if where == "held" && name == "Lock" {
							select { // it waits, having made all the requests that it makes
							case <-struck:
							case <-answeredSoon(r, zktest.OpGetData, theirs.Node()):
								cancel(reason)
							}
						}
						var g result
						select {
						case g = <-got:
						case <-struck:
							select {
							case g = <-got:
							case <-time.After(time.Second):
								r.Fatalf("it has not returned: %s", ops(r.requests()))
							}
						}
						gate.Open()
						switch {
						case g.err == nil:
							r.exactly(append(live, g.lease.Node())...)
							r.release(g.lease)
						case errors.Is(g.err, context.Canceled):
							require.ErrorIs(r, g.err, reason)
						default:
							require.True(r, errors.Is(g.err, ErrHeld) && where == "held" && name == "TryLock", "%v", g.err)
						}
						r.exactly(live...)
						if theirs != nil {
							require.NoError(r, theirs.Release(context.Background()))
						}
						r.settled()
					})
				}
			}
		}
	}
}

// answeredSoon returns a channel that is closed when such a request was answered.
func answeredSoon(r *cutRun, op zktest.Op, path string) <-chan struct{} {
	done, stop, stopped := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r.Cleanup(func() { close(stop); <-stopped })
	go func() {
		defer close(stopped)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			if r.hasAnswer(op, path) {
				close(done)
				return
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	return done
}

// TestWaiterThatEndsWithAnErrorLeavesNothing has the server refuse each request of a waiter in turn (or seem to). A waiter that went away and left its
// znode would block everybody once the znode is first.
func TestWaiterThatEndsWithAnErrorLeavesNothing(t *testing.T) {
	const systemError, marshalling, noAuth = -1, -5, -102
	w := newCutWorld(t)
	first := func(op zktest.Op, path func(theirs *Lease, dir string) string) func(*Lease, string) func(zktest.Frame) bool {
		return func(theirs *Lease, dir string) func(zktest.Frame) bool {
			return func(f zktest.Frame) bool { return f.Op == op && f.Path == path(theirs, dir) }
		}
	}
	ahead := first(zktest.OpGetData, func(theirs *Lease, _ string) string { return theirs.Node() })
	own := func(theirs *Lease, dir string) func(zktest.Frame) bool {
		return func(f zktest.Frame) bool {
			return f.Op == zktest.OpGetData && strings.HasPrefix(f.Path, dir+"/") && f.Path != theirs.Node()
		}
	}
	create := func(_ *Lease, dir string) func(zktest.Frame) bool { return zktest.MatchPath(zktest.OpCreate, dir+"/") }
	// The list that counts is the one after the wake-up: the one behind the create is a hint.
	list := first(zktest.OpGetChildren2, func(_ *Lease, dir string) string { return dir })
	for _, c := range []struct {
		name  string
		match func(*Lease, string) func(zktest.Frame) bool
		code  int32
		is    error
		says  string
		wakes bool
	}{
		{"read of the predecessor, no auth", ahead, noAuth, zk.ErrNoAuth, "", false},
		{"read of the predecessor, marshalling error", ahead, marshalling, nil, "could not read the request", false},
		{"read of the predecessor, system error", ahead, systemError, nil, "system error", false},
		{"read of the own znode, no auth", own, noAuth, zk.ErrNoAuth, "", false},
		{"list, no auth", list, noAuth, zk.ErrNoAuth, "", true},
		{"create, system error, although it was made", create, systemError, nil, "system error", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := w.newRun(t, testTimeout)
			r.strangers()
			theirs := r.rivalHolds()
			live := []string{theirs.Node()}
			refuse := func() {
				r.p.OnRequest(zktest.Rule{Match: c.match(theirs, r.path), Times: 1, Do: zktest.ReplyError(c.code)})
			}
			if !c.wakes {
				refuse()
			}
			got := make(chan error, 1)
			go func() {
				_, err := r.m.Lock(within(r, 20*time.Second))
				got <- err
			}()
			if c.wakes {
				r.waits(theirs)
				refuse()
				require.NoError(r, theirs.Release(context.Background()))
				live = nil
			}
			err := <-got
			require.Error(r, err)
			if c.is != nil {
				require.ErrorIs(r, err, c.is)
			}
			require.ErrorContains(r, err, c.says)
			require.ErrorContains(r, err, r.path)
			r.exactly(live...)
			require.NoError(r, theirs.Release(context.Background()))
			r.settled()
		})
	}
}

// emptyList makes the reply to a getChildren2 one of a directory without children, as a server gives that has not yet applied their creation.
func emptyList(f zktest.Frame) []byte {
	const header, stat = 16, 68
	b := slices.Clone(f.Bytes[:header])
	b = append(b, 0, 0, 0, 0)
	return append(b, f.Bytes[len(f.Bytes)-stat:]...)
}

// TestRetriedCreateLeavesOneZnode loses the reply to the create, once or more, with a recovery that finds the znode or, on a server that lags, does not.
// Whatever was made, one znode remains, it is the lease's, and the call does not wait behind its own.
func TestRetriedCreateLeavesOneZnode(t *testing.T) {
	w := newCutWorld(t)
	for _, c := range []struct{ lost, hidden, made int }{
		{1, 0, 1},
		{1, 1, 2},
		{2, 1, 2}, // the second is found
		{2, 2, 3},
	} {
		t.Run(fmt.Sprintf("%d replies lost, %d not found", c.lost, c.hidden), func(t *testing.T) {
			r := w.newRun(t, testTimeout)
			r.strangers()
			create := zktest.MatchPath(zktest.OpCreate, r.path+"/")
			r.p.OnRequest(zktest.Rule{Match: create, Times: c.lost, Do: zktest.CutAfter()})
			var creates, hidden int
			synced := false
			r.p.OnRequest(zktest.Rule{Do: zktest.RewriteReply(emptyList), Match: func(f zktest.Frame) bool {
				switch {
				case create(f):
					creates++
					synced = false
				case f.Op == zktest.OpSync && f.Path == r.path:
					synced = true
				case f.Op == zktest.OpGetChildren2 && synced && creates <= c.hidden:
					hidden++ // every list of this recovery, whoever asks
					return true
				}
				return false
			}})
			l, err := r.m.Lock(within(r, 10*time.Second))
			require.NoError(r, err, "%s", ops(r.requests()))
			r.exactly(l.Node())
			r.release(l)
			n := 0
			for _, q := range r.requests() {
				if q.Op == zktest.OpCreate {
					n++
				}
				if q.Op == zktest.OpGetData && q.Err == 0 { // one that has gone since the list was read is no matter
					require.Equal(r, l.Node(), q.Path, "it waited behind its own: %s", ops(r.requests()))
				}
			}
			require.Equal(r, c.made, n, "%s", ops(r.requests()))
			r.settled()
		})
	}
}

// TestCreateThatIsNeverAnsweredEnds cuts the connection under every create: an endless loop would cost the session its connection for ever.
func TestCreateThatIsNeverAnsweredEnds(t *testing.T) {
	r := newCutWorld(t).newRun(t, testTimeout)
	remove := r.p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, r.path+"/"), Do: zktest.CutBefore()})
	_, err := r.m.Lock(within(t, 10*time.Second))
	require.ErrorContains(t, err, "times running")
	remove()
	r.settled()
}

// A stuckConn keeps the client's writes until it is closed.
type stuckConn struct {
	net.Conn
	stick  atomic.Bool
	stuck  chan struct{} // closed when a write is kept
	once   sync.Once
	closed chan struct{}
}

func (c *stuckConn) Write(b []byte) (int, error) {
	if c.stick.Load() {
		c.once.Do(func() { close(c.stuck) })
		<-c.closed
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

func (c *stuckConn) Close() error {
	err := c.Conn.Close()
	if err == nil {
		close(c.closed)
	}
	return err
}

// TestCreateQueuedAcrossAnExpiryLeavesNothing has the client keep a create in its queue while the session ends. go-zookeeper then executes it in the next
// session, where nobody would look for it.
func TestCreateQueuedAcrossAnExpiryLeavesNothing(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		t.Run(fmt.Sprintf("cancelled=%v", cancelled), func(t *testing.T) {
			w := newCutWorld(t)
			var conns []*stuckConn
			var mu sync.Mutex
			s, p := dialProxy(t, WithTimeout(10*time.Second), WithDialer(func(network, addr string, timeout time.Duration) (net.Conn, error) {
				c, err := net.DialTimeout(network, addr, timeout)
				if err != nil {
					return nil, err
				}
				mu.Lock()
				defer mu.Unlock()
				conns = append(conns, &stuckConn{Conn: c, stuck: make(chan struct{}), closed: make(chan struct{})})
				return conns[len(conns)-1], nil
			}))
			r := &cutRun{TB: t, cutWorld: w, s: s, p: p}
			r.at(w.top)
			r.mkdirs()
			old := s.ID()
			r.begin()
			mu.Lock()
			conn := conns[len(conns)-1]
			mu.Unlock()
			conn.stick.Store(true)
			go func() { _, _, _ = s.Conn().Exists("/") }()
			<-conn.stuck // the client writes nothing more, and does not know
			ctx, cancel := context.WithCancel(within(t, 20*time.Second))
			defer cancel()
			got := make(chan result, 1)
			go func() {
				l, err := r.m.Lock(ctx)
				got <- result{lease: l, err: err}
			}()
			eventually(t, 5*time.Second, "a create waits in the client", func() bool {
				stacks := make([]byte, 1<<20)
				stacks = stacks[:runtime.Stack(stacks, true)]
				return bytes.Contains(stacks, []byte("zk.(*Conn).Create("))
			})
			if cancelled {
				cancel()
				g := <-got
				require.ErrorIs(t, g.err, context.Canceled)
			}
			require.NoError(t, p.Expire(within(t, 5*time.Second)))
			require.NoError(t, conn.Close())
			eventually(t, 5*time.Second, "a new session", func() bool { return s.ID() != old && s.State() == StateConnected })
			if !cancelled {
				g := <-got
				require.NoError(t, g.err)
				require.NoError(t, g.lease.Err())
				_, stat, err := w.admin.Get(g.lease.Node())
				require.NoError(t, err)
				require.Equal(t, s.ID(), stat.EphemeralOwner)
				r.exactly(g.lease.Node())
				r.release(g.lease)
			}
			eventually(t, 5*time.Second, "the queued create was executed and undone", func() bool { return strings.Contains(ops(r.requests()), "delete") })
			r.settled()
		})
	}
}

// TestCloseWithACreateInFlightLeavesNothing closes the Session when the server has made the znode and the client does not know yet.
func TestCloseWithACreateInFlightLeavesNothing(t *testing.T) {
	r := newCutWorld(t).newRun(t, 10*time.Second)
	r.strangers()
	gate := zktest.NewGate()
	r.p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpCreate), Times: 1, Do: zktest.HoldReply(gate)})
	got := make(chan error, 1)
	go func() {
		_, err := r.m.Lock(context.Background())
		got <- err
	}()
	<-gate.Reached()
	require.NoError(t, r.s.Close())
	gate.Open()
	require.ErrorIs(t, <-got, ErrClosed)
	r.exactly()
	_, err := r.m.Lock(context.Background())
	require.ErrorIs(t, err, ErrClosed)
	l, err := NewMutex(r.fresh, r.path).Lock(within(t, 3*time.Second))
	require.NoError(t, err)
	r.release(l)
}

// TestCloseAtAnyTimeLeavesNothing closes 200 Sessions that are taking a lock, at once or when one of the requests is on its way. When Close has returned
// nothing more is sent, and nothing is left: their timeout is too long for the server to have cleaned up.
func TestCloseAtAnyTimeLeavesNothing(t *testing.T) {
	w := newCutWorld(t)
	ss := newSides(t, 16)
	defer ss.wg.Wait()
	for i := range 200 {
		at := i%6 - 1 // -1: at once
		held := i%4 == 3
		ss.add(fmt.Sprintf("%d: at request %d, held=%v", i, at, held), func(t testing.TB) {
			r := w.newRun(t, 30*time.Second)
			var live []string
			if held {
				theirs := r.rivalHolds()
				t.Cleanup(func() { _ = theirs.Release(context.Background()) })
				live = append(live, theirs.Node())
			}
			now := make(chan struct{})
			if at < 0 {
				close(now)
			} else {
				nth := zktest.Nth(at, counts)
				r.p.OnRequest(zktest.Rule{Match: func(f zktest.Frame) bool {
					if nth(f) {
						close(now)
					}
					return false
				}})
			}
			got := make(chan result, 1)
			go func() {
				l, err := r.m.Lock(context.Background())
				got <- result{lease: l, err: err}
			}()
			var g result
			select {
			case <-now:
			case g = <-got: // it makes no more requests
				got <- g
			case <-answeredSoon(r, zktest.OpGetData, strings.Join(live, "")):
			}
			require.NoError(t, r.s.Close())
			sent := len(r.p.Requests())
			names := children(t, r.admin, r.path)
			require.Len(t, names, len(live), "%v", names)
			g = <-got
			if g.err != nil {
				require.ErrorIs(t, g.err, ErrClosed)
			} else {
				require.ErrorIs(t, g.lease.Err(), ErrLost)
				require.ErrorIs(t, g.lease.Release(context.Background()), ErrLost)
			}
			require.Empty(t, r.s.Leases())
			require.Len(t, r.p.Requests(), sent, "something was sent after Close")
			r.exactly(live...)
		})
	}
}

// TestReleaseWhileDisconnectedIsFinished releases without a server, with a ctx that is over. The error says so; the znode goes as soon as there is a
// session; a second Release waits for that; and the same Mutex locks again.
func TestReleaseWhileDisconnectedIsFinished(t *testing.T) {
	r := newCutWorld(t).newRun(t, 10*time.Second)
	l, err := r.m.Lock(within(t, 5*time.Second))
	l = r.holding(l, err)
	r.p.Refuse(true)
	eventually(t, 5*time.Second, "the session notices", func() bool { return r.s.State() == StateSuspended })
	reason := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(reason)
	for range 2 {
		err = l.Release(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, reason)
		require.ErrorIs(t, err, ErrNoConnection)
		require.NotErrorIs(t, err, ErrLost)
		require.ErrorIs(t, l.Err(), ErrReleased)
	}
	r.exactly(l.Node())
	r.p.Refuse(false)
	require.NoError(t, l.Release(within(t, 5*time.Second)))
	r.exactly()
	require.NoError(t, l.Release(ctx))
	r.settled()
}

// TestLateReleaseNeverRemovesAnothersZnode makes somebody else's znode under the very name of a lease's that is over. Nothing that the old holder does
// afterwards may touch it, nor anything that was under way.
func TestLateReleaseNeverRemovesAnothersZnode(t *testing.T) {
	bg := context.Background()
	w := newCutWorld(t)
	ss := newSides(t, 5)
	defer ss.wg.Wait()
	put := func(r *cutRun, l *Lease) {
		r.Helper()
		_, err := r.admin.Create(l.Node(), []byte("theirs"), 0, zk.WorldACL(zk.PermAll))
		require.NoError(r, err)
	}
	over := func(r *cutRun, l *Lease, old int64) {
		r.Helper()
		// The session has a new epoch in which it could do harm, twice.
		eventually(r, 10*time.Second, "a session", func() bool { return r.s.ID() != old && r.s.State() == StateConnected })
		other, err := NewMutex(r.s, r.path+"-other").Lock(within(r, 5*time.Second))
		require.NoError(r, err)
		require.NoError(r, other.Release(bg))
		_ = l.Release(bg)
		id := r.s.ID()
		r.p.Cut()
		_, err = r.s.Conn().Sync("/")
		for err != nil {
			_, err = r.s.Conn().Sync("/")
		}
		require.Equal(r, id, r.s.ID())
		r.exactly(l.Node())
		data, _, err := r.admin.Get(l.Node())
		require.NoError(r, err)
		require.Equal(r, "theirs", string(data))
		for _, q := range r.requests() {
			// In the session that is over the server answers no request any more.
			require.False(r, q.Op == zktest.OpDelete && q.Path == l.Node() && q.Answered, "%s", ops(r.requests()))
		}
	}
	ss.add("session expired", func(t testing.TB) {
		r := w.newRun(t, testTimeout)
		l := r.holding(r.m.Lock(within(t, 5*time.Second)))
		old := r.s.ID()
		r.begin()
		// The client may re-attach in the middle of it, and take the connection with the close along.
		eventually(t, 5*time.Second, "the session is closed", func() bool { return r.p.Expire(within(t, 5*time.Second)) == nil })
		put(r, l)
		eventually(t, 5*time.Second, "the lease ends", func() bool { return l.Err() != nil })
		err := l.Release(bg)
		var lost *LostError
		require.ErrorAs(t, err, &lost)
		over(r, l, old)
	})
	ss.add("session expired while nobody could tell", func(t testing.TB) {
		r := w.newRun(t, time.Second)
		l := r.holding(r.m.Lock(within(t, 5*time.Second)))
		old := r.s.ID()
		r.begin()
		r.p.BlackHole(zktest.Both)
		<-l.Done()
		require.ErrorIs(t, l.Release(bg), ErrLost)
		eventually(t, 10*time.Second, "the server expires it", func() bool { return len(children(t, r.admin, r.path)) == 0 })
		put(r, l)
		r.p.BlackHole(zktest.None)
		over(r, l, old)
	})
	ss.add("released while nobody could tell", func(t testing.TB) {
		r := w.newRun(t, time.Second)
		l := r.holding(r.m.Lock(within(t, 5*time.Second)))
		old := r.s.ID()
		r.begin()
		r.p.Refuse(true)
		require.Error(t, l.Release(within(t, 10*time.Millisecond)))
		eventually(t, 10*time.Second, "the server expires it", func() bool { return len(children(t, r.admin, r.path)) == 0 })
		put(r, l)
		r.p.Refuse(false)
		over(r, l, old)
	})
	ss.add("deleted by hand", func(t testing.TB) {
		r := w.newRun(t, testTimeout)
		l := r.holding(r.m.Lock(within(t, 5*time.Second)))
		require.NoError(t, r.admin.Delete(l.Node(), -1))
		<-l.Done()
		put(r, l)
		r.begin()
		require.ErrorIs(t, l.Release(bg), ErrLost)
		over(r, l, 0)
	})
	ss.add("released before", func(t testing.TB) {
		r := w.newRun(t, testTimeout)
		l := r.holding(r.m.Lock(within(t, 5*time.Second)))
		r.release(l)
		put(r, l)
		r.begin()
		require.NoError(t, l.Release(bg))
		over(r, l, 0)
		require.NoError(t, l.Release(bg))
	})
}
