package zkrecipes

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// An rwRun is a cutRun of a read/write lock, with others of a healthy session in the queue who never may be granted beside it.
type rwRun struct {
	*cutRun
	lock *RWLock // of s
	// forced: the session is ended from outside. Its leases are told when the notice arrives, which may be after the next grant; in all other runs
	// nobody may be granted beside a lease whose Err is nil.
	forced bool
	closed bool // Session.Close may come in between

	w, r   *Lease // that the call begins with
	others []*other

	mu   sync.Mutex
	ours []*Lease
}

// An other is a waiter of a healthy session: when it is granted it looks at our leases, twice, and gives the lock back.
type other struct {
	node  string
	write bool
	done  chan struct{}

	mu    sync.Mutex
	lease *Lease
	err   error
}

func (w cutWorld) newRWRun(t testing.TB, timeout time.Duration) *rwRun {
	return rwOf(w.newRun(t, timeout))
}

func rwOf(c *cutRun) *rwRun { return &rwRun{cutRun: c, lock: NewRWLock(c.s, c.path)} }

// take bounds what may have to wait for a session.
func (r *rwRun) take() context.Context { return within(r, 20*time.Second) }

// queue puts somebody else at the tail. It returns when the znode stands there.
func (r *rwRun) queue(write bool) *other {
	r.Helper()
	before := children(r, r.admin, r.path)
	o := &other{write: write, done: make(chan struct{})}
	lock := Locker(NewRWLock(r.rival, r.path))
	if !write {
		lock = NewRWLock(r.rival, r.path).RLocker()
	}
	ctx := within(r, 30*time.Second)
	go func() {
		defer close(o.done)
		l, err := lock.Lock(ctx)
		o.set(l, err)
		if err != nil {
			return
		}
		r.apart(l, write)
		<-time.After(3 * time.Millisecond) // who is granted beside it may come a little later
		r.apart(l, write)
		o.set(l, l.Release(context.Background()))
	}()
	r.Cleanup(func() { <-o.done })
	eventually(r, 10*time.Second, "somebody else queues", func() bool {
		for _, name := range children(r, r.admin, r.path) {
			if !slices.Contains(before, name) {
				o.node = r.path + "/" + name
			}
		}
		return o.node != ""
	})
	r.others = append(r.others, o)
	return o
}

func (o *other) set(l *Lease, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lease, o.err = l, err
}

func (o *other) granted() *Lease {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lease
}

// comes waits until the other one was granted, with a greater token than every one before, and has left.
func (r *rwRun) comes(o *other) {
	r.Helper()
	limit := patient / 2
	if r.loss {
		limit = 10 * time.Second
	}
	select {
	case <-o.done:
	case <-time.After(limit):
		r.Fatalf("somebody else was not granted: %s; children: %v", ops(r.requests()), children(r, r.admin, r.path))
	}
	require.NoError(r, o.err)
}

// apart checks a lease of somebody else against ours. Ours is asked second: if it says nil then, it said so the moment before, when the other one was
// held already.
func (r *rwRun) apart(theirs *Lease, write bool) {
	r.mu.Lock()
	ours := slices.Clone(r.ours)
	r.mu.Unlock()
	for _, l := range ours {
		if !write && l.hold.key.shared || theirs.Err() != nil || l.Err() != nil {
			continue
		}
		if r.forced { // it will be told
			select {
			case <-l.Done():
				continue
			case <-time.After(5 * time.Second): // the clock alone takes less
			}
		}
		r.Errorf("%s was granted to somebody else beside our %s: %s", theirs.Node(), l.Node(), ops(r.requests()))
	}
}

// got takes a lease that was just granted, false if there is none, which only a Close excuses, or if it is lost already.
func (r *rwRun) got(l *Lease, err error) bool {
	r.Helper()
	if r.closed && errors.Is(err, ErrClosed) {
		return false
	}
	require.NoError(r, err, "%s", ops(r.requests()))
	r.mu.Lock()
	r.ours = append(r.ours, l)
	r.mu.Unlock()
	for _, o := range r.others {
		if theirs := o.granted(); theirs != nil {
			r.apart(theirs, o.write)
		}
	}
	return r.alive(l)
}

// stands waits until the session watches the znode of a lease that was just granted, and checks that the directory is in order.
func (r *rwRun) stands(l *Lease, before ...*Lease) {
	r.Helper()
	r.answered("the own znode is watched", zktest.OpGetData, l.Node(), func() bool { return r.loss && l.Err() != nil })
	r.holds(append(before, l)...)
}

// holds checks that the directory has the znodes of our leases, those of who waits, and no others; unless leases may be lost, for then the others go
// on.
func (r *rwRun) holds(ours ...*Lease) {
	r.Helper()
	if r.loss {
		return
	}
	var nodes []string
	for _, l := range ours {
		require.NoError(r, l.Err())
		nodes = append(nodes, l.Node())
	}
	for _, o := range r.others {
		if o.granted() == nil {
			nodes = append(nodes, o.node)
		}
	}
	slices.Sort(nodes)
	r.exactly(slices.Compact(nodes)...)
}

// probe asks from another session for both modes, without waiting. What is granted there must go together with our leases.
func (r *rwRun) probe() {
	r.Helper()
	lock, ctx := NewRWLock(r.rival, r.path), within(r, 10*time.Second)
	for _, write := range []bool{true, false} {
		try := lock.TryRLock
		if write {
			try = lock.TryLock
		}
		l, err := try(ctx)
		if err != nil {
			require.ErrorIs(r, err, ErrHeld)
			continue
		}
		r.apart(l, write)
		require.NoError(r, l.Release(ctx))
	}
}

// gives releases a lease, which may have been lost where that is no fault.
func (r *rwRun) gives(l *Lease) {
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

// ends is the end of every run: all others are granted, nothing is left, and who comes next is granted at once, writer and reader, of another session
// and of the run's own.
func (r *rwRun) ends() {
	r.Helper()
	for _, o := range r.others {
		r.comes(o)
	}
	r.exactly()
	locks := []*RWLock{NewRWLock(r.fresh, r.path)}
	if !r.closed {
		locks = append(locks, r.lock)
	}
	for _, lock := range locks {
		limit := patient / 2
		if lock == r.lock && r.loss {
			limit = 10 * time.Second // it may have to make a session first
		}
		for _, l := range []Locker{lock, lock.RLocker()} {
			lease, err := l.Lock(within(r, limit))
			require.NoError(r, err, "%s", ops(r.requests()))
			err = lease.Release(context.Background())
			if lock != r.lock || !r.loss {
				require.NoError(r, err)
			}
		}
	}
	r.exactly()
	if r.closed {
		return
	}
	require.Empty(r, r.s.Leases())
	eventually(r, 5*time.Second, "nothing is remembered", func() bool {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		return len(r.s.holds) == 0 && r.s.engine.Watched() == 0
	})
}
