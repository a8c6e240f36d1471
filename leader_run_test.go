package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// The kinds of participants: a latch, a selector whose terms end when lead returns, and one whose terms end by Resign.
const (
	aLatch     = "latch"
	aSelector  = "selector"
	aResigning = "resigning selector"
)

var participantKinds = []string{aLatch, aSelector, aResigning}

// A partaker is a participant of an election whose terms a test ends.
type partaker struct {
	*candidate
	terms chan term     // as they begin
	ended chan struct{} // closed when Run has returned
	tell  func()        // ends the ctx of Run
	stop  func() error  // and returns what Run did
}

// A term is one leadership.
type term struct {
	*Lease
	end func() // gives it up, and waits for nothing
}

// partake makes a participant of some kind that takes part until the test ends.
func partake(t testing.TB, kind string, s *Session, path string, opts ...LeaderOption) *partaker {
	p := &partaker{terms: make(chan term, 1000), ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	p.tell = cancel
	var run func(ctx context.Context) error
	if kind == aLatch {
		l := NewLeaderLatch(s, path, opts...)
		p.candidate = &l.candidate
		run = func(ctx context.Context) error {
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				for {
					lease, err := l.Await(ctx)
					if errors.Is(err, errNotRunning) && !hasBegun(l) && ctx.Err() == nil {
						continue // on a machine that stood still for longer than startGrace
					}
					if err != nil {
						return
					}
					p.terms <- term{lease, func() { lease.give(callHook) }}
					<-lease.Done()
				}
			})
			return l.Run(ctx)
		}
	} else {
		e := NewLeaderSelector(s, path, opts...)
		p.candidate = &e.candidate
		run = func(ctx context.Context) error {
			return e.Run(ctx, func(ctx context.Context) error {
				lease, _ := LeaseFromContext(ctx)
				over := make(chan struct{})
				end := sync.OnceFunc(func() { close(over) })
				if kind == aResigning {
					end = e.Resign
				}
				p.terms <- term{lease, end}
				select {
				case <-ctx.Done():
				case <-over:
				}
				return nil
			})
		}
	}
	p.stop = goRun(t, func(end context.Context) error {
		defer close(p.ended)
		defer context.AfterFunc(end, cancel)()
		defer cancel()
		return run(ctx)
	})
	return p
}

// leads waits for the next term that is not over already.
func (p *partaker) leads(t testing.TB) term {
	t.Helper()
	for deadline := time.After(20 * time.Second); ; {
		select {
		case l := <-p.terms:
			if l.Err() == nil {
				return l
			}
		case <-deadline:
			t.Fatal("no term within 20 s")
		}
	}
}

// queue acquires leadership as a participant of that kind does, on a Session, as one Lease.
func queue(kind string, s *Session, path string) func(ctx context.Context, try bool) (*Lease, error) {
	c := &NewLeaderSelector(s, path).candidate
	if kind == aLatch {
		c = &NewLeaderLatch(s, path).candidate
	}
	return func(ctx context.Context, try bool) (*Lease, error) { return c.spec.acquire(ctx, "lead", try) }
}

// A leaderRun is a cutRun of a participant.
type leaderRun struct {
	*cutRun
	kind   string
	who    *partaker
	forced bool          // the session is ended from outside: its leases are told when the notice arrives
	closed bool          // Session.Close may come in between
	told   bool          // and so may the end of ctx
	ready  chan struct{} // closed when there is a participant
	had    []term
}

func (w cutWorld) newLeaderRun(t testing.TB, timeout time.Duration, c leaderCall) *leaderRun {
	r := &leaderRun{cutRun: w.newRun(t, timeout), kind: c.kind, ready: make(chan struct{})}
	if c.parents {
		r.at(r.path + "/missing/too")
	}
	if c.behind {
		l, err := queue(r.kind, r.rival, r.path)(r.take(), false)
		require.NoError(r, err)
		r.theirs = l
	}
	r.begin()
	return r
}

func (r *leaderRun) take() context.Context { return within(r, 20*time.Second) }

func (r *leaderRun) partake() {
	r.who = partake(r.TB, r.kind, r.s, r.path)
	close(r.ready)
}

// waits waits until the participant has read whom it waits for, which is the last thing that it does before it waits; false if a Close came in between.
func (r *leaderRun) waits() bool {
	r.Helper()
	r.answered("it waits", zktest.OpGetData, r.theirs.Node(), r.over)
	return !r.over()
}

// over reports whether Run has returned, which only a Close or the end of ctx excuses.
func (r *leaderRun) over() bool {
	select {
	case <-r.who.ended:
		require.True(r, r.closed || r.told, "Run has returned: %v", r.who.stop())
		return true
	default:
		return false
	}
}

// leads waits for the next term that lasts, and checks it: nobody else leads, or this one is told; false if a Close came in between.
func (r *leaderRun) leads() (term, bool) {
	r.Helper()
	for deadline := time.After(20 * time.Second); ; {
		select {
		case l := <-r.who.terms:
			if r.lasts(l) {
				return l, true
			}
		case <-r.who.ended:
			r.over()
			return term{}, false
		case <-deadline:
			r.Fatalf("no term: %s", ops(r.requests()))
		}
	}
}

func (r *leaderRun) lasts(l term) bool {
	r.Helper()
	r.had = append(r.had, l)
	if r.theirs != nil {
		require.Error(r, r.theirs.Err(), "two lead")
	}
	if len(r.had) > 1 {
		require.Error(r, r.had[len(r.had)-2].Err(), "two terms of one participant")
		require.Greater(r, l.Token(), r.had[len(r.had)-2].Token())
	}
	r.answered("the own znode is watched", zktest.OpGetData, l.Node(), func() bool { return (r.loss || r.told) && l.Err() != nil })
	if r.told && l.Err() == ErrReleased {
		return false
	}
	if l.Err() != nil {
		require.True(r, r.loss, "%v", l.Err())
		require.ErrorIs(r, l.Err(), ErrLost)
		return false
	}
	other, err := queue(r.kind, r.rival, r.path)(r.take(), true)
	if err == nil && r.told && l.Err() == ErrReleased {
		require.NoError(r, other.Release(r.take()))
		return false
	}
	if err == nil {
		if r.forced { // it will be told
			select {
			case <-l.Done():
			case <-time.After(5 * time.Second):
			}
		}
		lost := l.Err()
		require.NoError(r, other.Err())
		require.ErrorIs(r, lost, ErrLost, "two lead: %s", ops(r.requests()))
		require.NoError(r, other.Release(r.take()))
		return false
	}
	require.ErrorIs(r, err, ErrHeld)
	if !r.loss && !r.told {
		require.NoError(r, l.Err())
		require.True(r, r.who.isLeader())
		r.exactly(l.Node())
	}
	return true
}

// rivalLeaves lets the participant in.
func (r *leaderRun) rivalLeaves() {
	r.Helper()
	require.NoError(r, r.theirs.Release(r.take()))
}

// stops ends the participant: it leads no more, and Run has nothing to say.
func (r *leaderRun) stops() {
	r.Helper()
	err := r.who.stop()
	if !r.closed || !errors.Is(err, ErrClosed) {
		require.NoError(r, err, "%s", ops(r.requests()))
	}
	require.False(r, r.who.isLeader())
	switch {
	case r.loss, r.told:
	case r.theirs != nil && r.theirs.Err() == nil:
		r.exactly(r.theirs.Node())
	default:
		r.exactly()
	}
}

// ends is the end of every run: nothing is left, nothing is remembered, and who comes next leads at once, of another session and of the run's own.
func (r *leaderRun) ends() {
	r.Helper()
	for _, l := range r.had {
		require.Error(r, l.Err())
	}
	if r.theirs != nil {
		require.NoError(r, r.theirs.Release(r.take()))
	}
	r.exactly()
	sessions := []*Session{r.fresh}
	if !r.closed {
		sessions = append(sessions, r.s)
	}
	for _, s := range sessions {
		l, err := queue(r.kind, s, r.path)(r.take(), false)
		require.NoError(r, err, "%s", ops(r.requests()))
		if err = l.Release(context.Background()); s == r.fresh || !r.loss {
			require.NoError(r, err)
		}
	}
	r.exactly()
	require.Empty(r, r.s.Leases())
	if r.closed {
		return
	}
	eventually(r, 5*time.Second, "nothing is remembered", func() bool {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		return len(r.s.holds) == 0 && r.s.engine.Watched() == 0
	})
}

// A leaderCall is what a participant goes through, request by request, while something breaks.
type leaderCall struct {
	name    string
	kind    string
	parents bool // it makes the directories
	behind  bool // it comes behind a rival who leads
	run     func(r *leaderRun)
}

func leaderCalls() (all []leaderCall) {
	stays := func(r *leaderRun) {
		r.partake()
		r.leads()
		r.stops()
	}
	for _, kind := range participantKinds {
		call := func(name string, parents, behind bool, run func(r *leaderRun)) {
			all = append(all, leaderCall{fmt.Sprintf("%s, %s", kind, name), kind, parents, behind, run})
		}
		call("leads again", false, false, func(r *leaderRun) {
			r.partake()
			if l, ok := r.leads(); ok {
				l.end()
				r.leads()
			}
			r.stops()
		})
		if kind == aResigning {
			continue
		}
		call("leads", false, false, stays)
		call("parents missing", true, false, stays)
		call("behind another", false, true, func(r *leaderRun) {
			r.partake()
			if r.waits() {
				r.rivalLeaves()
				r.leads()
			}
			r.stops()
		})
		call("ends while it waits", false, true, func(r *leaderRun) {
			r.partake()
			r.waits()
			require.Empty(r, r.who.terms)
			r.stops()
			require.NoError(r, r.theirs.Err())
		})
	}
	return all
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
