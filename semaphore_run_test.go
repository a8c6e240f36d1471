package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A semRun is a cutRun of a semaphore.
type semRun struct {
	*cutRun
	limit  int
	count  string     // of a counted one
	sem    *Semaphore // of s
	forced bool       // the session is ended from outside: its leases are told when the notice arrives
	closed bool       // Session.Close may come in between
	later  bool       // the call may have returned before what it had sent was undone

	ours  []*Lease
	queue []<-chan lockResult // of others who wait
	last  *Lease              // that the call begins with
}

func (w cutWorld) newSemRun(t testing.TB, timeout time.Duration, c semCall) *semRun {
	r := &semRun{cutRun: w.newRun(t, timeout), limit: c.limit}
	switch {
	case c.parents:
		r.at(r.path + "/missing/too")
	default:
		mkdirs(t, r.admin, r.path+"/leases")
		mkdirs(t, r.admin, r.path+"/locks")
	}
	if c.counted {
		r.count = fmt.Sprintf("%s/count-%d", r.top, pathCount.Add(1))
		setCount(t, r.admin, r.count, int32(c.limit))
	}
	r.sem = r.of(r.s)
	c.prepare(r)
	r.begin()
	return r
}

func (r *semRun) of(s *Session) *Semaphore {
	if r.count != "" {
		return NewCountedSemaphore(s, r.path, r.count)
	}
	return NewSemaphore(s, r.path, r.limit)
}

func (r *semRun) take() context.Context { return within(r, 20*time.Second) }

// stands waits until leases holds exactly the znodes of these leases, and locks so many.
func (r *semRun) stands(queued int, ls ...*Lease) {
	r.Helper()
	var want []string
	for _, l := range ls {
		for _, p := range l.leaves() {
			want = append(want, strings.TrimPrefix(p.Node(), r.path+"/leases/"))
		}
	}
	slices.Sort(want)
	var leases, locks []string
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(2 * time.Millisecond) { // a poll with a deadline
		leases, locks = children(r, r.admin, r.path+"/leases"), children(r, r.admin, r.path+"/locks")
		slices.Sort(leases)
		if slices.Equal(leases, want) && len(locks) == queued {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("there are leases\n  %s\nand locks\n  %s\nand not leases\n  %s\nand %d locks; session %#x, owing %d, requests: %s", strings.Join(leases, "\n  "),
				strings.Join(locks, "\n  "), strings.Join(want, "\n  "), queued, r.s.ID(), r.s.engine.Owing(), ops(r.requests()))
		}
	}
}

// rivals lets another session hold permits.
func (r *semRun) rivals(n int) {
	r.Helper()
	l, err := r.of(r.rival).Acquire(r.take(), n)
	require.NoError(r, err)
	r.theirs = l
	r.stands(0, l)
}

// waits waits until the run's own call has read who is ahead, which is the last thing that it does before it waits; false if the call has ended.
func (r *semRun) waits(node string, got <-chan lockResult) bool {
	r.Helper()
	ended := false
	r.answered("it waits", zktest.OpGetData, node, func() bool {
		select {
		case g := <-got:
			require.True(r, r.closed && errors.Is(g.err, ErrClosed), "%v", g.err)
			ended = true
		default:
		}
		return ended
	})
	return !ended
}

// got takes n permits that were just granted, false if there are none, which only a Close excuses, or if they are lost already.
func (r *semRun) got(l *Lease, err error, n int) bool {
	r.Helper()
	if r.closed && errors.Is(err, ErrClosed) {
		return false
	}
	require.NoError(r, err, "%s", ops(r.requests()))
	require.Len(r, l.Parts(), n)
	r.ours = append(r.ours, l)
	for _, p := range l.Parts() {
		r.answered("the own znode is watched", zktest.OpGetData, p.Node(), func() bool { return r.loss && l.Err() != nil })
	}
	return r.alive(l)
}

// apart asks from another session for what is free, and for one more. What is granted beside our lease must go together with it.
func (r *semRun) apart(l *Lease) {
	r.Helper()
	m, free := r.of(r.rival), r.limit-len(l.Parts())
	more, err := m.TryAcquire(r.take(), free+1)
	switch {
	case err == nil:
		if r.forced { // it will be told
			select {
			case <-l.Done():
			case <-time.After(5 * time.Second):
			}
		}
		require.True(r, more.Err() != nil || l.Err() != nil, "more than there are: %s", ops(r.requests()))
		require.NoError(r, more.Release(r.take()))
	case r.count == "" && free+1 > r.limit:
		require.ErrorIs(r, err, ErrInvalid)
	default:
		require.ErrorIs(r, err, ErrHeld)
	}
	if free == 0 || r.loss {
		return
	}
	rest, err := m.TryAcquire(r.take(), free)
	require.NoError(r, err)
	require.NoError(r, l.Err())
	require.NoError(r, rest.Release(r.take()))
}

func (r *semRun) gives(l *Lease) {
	r.Helper()
	if l == nil {
		return
	}
	err := l.Release(context.Background())
	if r.closed && errors.Is(err, ErrClosed) {
		return
	}
	if r.loss && (errors.Is(err, ErrLost) || errors.Is(err, ErrNoConnection)) {
		return
	}
	require.NoError(r, err, "%s", ops(r.requests()))
	if !r.loss {
		require.NoError(r, l.Release(context.Background()), "once more")
		require.ErrorIs(r, l.Err(), ErrReleased)
	}
}

// ends is the end of every run: nothing is left, and another session can have all permits at once, and then the run's own.
func (r *semRun) ends() {
	r.Helper()
	for _, ch := range r.queue {
		l := mustLease(r, ch)
		require.NoError(r, l.Release(r.take()))
	}
	r.stands(0)
	all := r.of(r.fresh).TryAcquire
	if r.later {
		all = r.of(r.fresh).Acquire
	}
	l, err := all(r.take(), r.limit)
	require.NoError(r, err, "%s", ops(r.requests()))
	require.NoError(r, l.Release(r.take()))
	require.Empty(r, r.s.Leases())
	if r.closed {
		return
	}
	l, err = r.sem.Acquire(r.take(), r.limit) // it may have to make a session first
	require.NoError(r, err, "%s", ops(r.requests()))
	if err = l.Release(context.Background()); !r.loss {
		require.NoError(r, err)
	}
	r.stands(0)
	eventually(r, 5*time.Second, "nothing is remembered", func() bool {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		watched := r.s.engine.Watched()
		return len(r.s.holds) == 0 && (watched == 0 || watched == 1 && r.count != "") // a watch that was set stays until it fires
	})
}
