package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

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
	r.exactlyOr(func() bool { return false }, nodes...)
}

// exactlyOrLost is exactly for the znode of a lease; it waits no longer than that is held.
func (r *cutRun) exactlyOrLost(l *Lease) {
	r.Helper()
	if r.alive(l) {
		r.exactlyOr(func() bool { return !r.alive(l) }, l.Node())
	}
}

func (r *cutRun) exactlyOr(or func() bool, nodes ...string) {
	r.Helper()
	limit := 3 * time.Second
	if r.loss {
		limit = 10 * time.Second // a znode may go with a session only, after its timeout
	}
	want := slices.Clone(r.fixed)
	for _, n := range nodes {
		want = append(want, strings.TrimPrefix(n, r.path+"/"))
	}
	slices.Sort(want)
	var names []string
	for deadline := time.Now().Add(limit); ; time.Sleep(2 * time.Millisecond) { // a poll with a deadline
		names = children(r, r.admin, r.path)
		slices.Sort(names)
		if slices.Equal(names, want) || or() {
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
	r.exactlyOrLost(l)
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

// claims waits until a contender of the run's own claims the place of a lease.
func (r *cutRun) claims(l *Lease) {
	r.Helper()
	eventually(r, 10*time.Second, "it claims the place", func() bool {
		waits := r.s.cfg.noShortcuts && slices.ContainsFunc(r.requests(), func(q zktest.Record) bool {
			return q.Op == zktest.OpGetData && q.Path != l.Node() && q.Answered && q.Fate == zktest.FateForwarded
		})
		return waits || claimantOf(r.s, l.Node()) != "" || r.loss && l.Err() != nil
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
