package zkrecipes

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// An rwCall is what is called, request by request, while something breaks.
type rwCall struct {
	name    string
	prepare func(r *rwRun)
	run     func(r *rwRun)
	alike   bool // to a call of a Mutex, request by request
}

// write lets the run hold the write lease, the one of a Mutex if so asked.
func (r *rwRun) write(mutex bool) {
	r.Helper()
	lock := Locker(r.lock)
	if mutex {
		lock = r.m
	}
	var err error
	r.w, err = lock.Lock(r.take())
	require.True(r, r.got(r.w, err))
	r.stands(r.w)
}

// nest lets the run read under its write lease.
func (r *rwRun) nest() bool {
	r.Helper()
	l, err := r.lock.RLock(readUnder(r.take(), r.w))
	if !r.got(l, err) {
		r.gives(l)
		return false
	}
	r.r = l
	if r.alive(r.w) {
		require.Equal(r, r.w.Token(), l.Token())
	}
	return true
}

// readUnder is a ctx with the limit of one and the lease of the other.
func readUnder(ctx context.Context, l *Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, l)
}

// lockedIn runs a call on a goroutine of its own.
func lockedIn(fn func() (*Lease, error)) <-chan lockResult {
	ch := make(chan lockResult, 1)
	go func() {
		l, err := fn()
		ch <- lockResult{l, err}
	}()
	return ch
}

// rwCalls are the calls of a read/write lock whose every request is hit.
func rwCalls() []rwCall {
	none := func(*rwRun) {}
	acquire := func(lock func(r *rwRun) (*Lease, error)) func(r *rwRun) {
		return func(r *rwRun) {
			l, err := lock(r)
			if r.got(l, err) {
				r.stands(l)
				again, err := lock(r.as(l))
				if r.got(again, err) && r.alive(l) {
					require.Equal(r, l.Token(), again.Token())
				}
				r.probe()
				r.gives(again)
				r.holds(l)
			}
			r.gives(l)
		}
	}
	// behind takes the lock when somebody who held it has gone.
	behind := func(theirs func(*RWLock) Locker, ours func(*RWLock) Locker) rwCall {
		return rwCall{
			prepare: func(r *rwRun) {
				var err error
				r.theirs, err = theirs(NewRWLock(r.rival, r.path)).Lock(r.take())
				require.NoError(r, err)
			},
			run: func(r *rwRun) {
				got := lockedIn(func() (*Lease, error) { return ours(r.lock).Lock(r.take()) })
				if !r.waitsOrEnds(r.theirs, got) {
					require.NoError(r, r.theirs.Release(context.Background()))
					return
				}
				require.NoError(r, r.theirs.Release(context.Background()))
				g := <-got
				if r.got(g.lease, g.err) {
					require.Greater(r, g.lease.Token(), r.theirs.Token())
					r.stands(g.lease)
					r.probe()
				}
				r.gives(g.lease)
			},
		}
	}
	write, read := func(l *RWLock) Locker { return l }, (*RWLock).RLocker
	named := func(name string, alike bool, c rwCall) rwCall { c.name, c.alike = name, alike; return c }
	// both holds write and read, with a writer and a reader of another session behind.
	both := func(mutex bool) func(r *rwRun) {
		return func(r *rwRun) {
			r.write(mutex)
			require.True(r, r.nest())
			if !mutex {
				r.stands(r.r, r.w)
			}
			r.queue(true)
			r.queue(false)
		}
	}
	// last releases the last lease: the others come, in their order.
	last := func(r *rwRun, l *Lease) {
		if !r.loss {
			require.Nil(r, r.others[0].granted())
			require.Nil(r, r.others[1].granted())
		}
		r.gives(l)
		for _, o := range r.others {
			r.comes(o)
			require.Greater(r, o.lease.Token(), l.Token())
		}
		require.Greater(r, r.others[1].lease.Token(), r.others[0].lease.Token())
	}
	downgrade := func(r *rwRun) {
		r.gives(r.w)
		if r.alive(r.r) {
			r.holds(r.r)
			r.probe()
		}
		last(r, r.r)
	}
	readFirst := func(r *rwRun) {
		r.gives(r.r)
		if r.alive(r.w) {
			r.holds(r.w)
			r.probe()
		}
		last(r, r.w)
	}
	return []rwCall{
		{"RLock, free", none, acquire(func(r *rwRun) (*Lease, error) { return r.lock.RLock(r.ctx()) }), false},
		{"TryRLock, free", none, acquire(func(r *rwRun) (*Lease, error) { return r.lock.TryRLock(r.ctx()) }), true},
		{"Lock, free", none, acquire(func(r *rwRun) (*Lease, error) { return r.lock.Lock(r.ctx()) }), true},
		named("RLock, behind a writer", false, behind(write, read)),
		named("Lock, behind a reader", true, behind(read, write)),
		{"Lock, handed over", func(r *rwRun) { r.write(false) }, func(r *rwRun) {
			got := lockedIn(func() (*Lease, error) { return r.lock.Lock(r.take()) })
			eventually(r, 10*time.Second, "it waits, or ends", func() bool {
				return claimantOf(r.s, r.w.Node()) != "" || len(got) > 0 || r.w.Err() != nil || r.s.cfg.noShortcuts && len(children(r, r.admin, r.path)) == 2
			})
			if !r.loss { // else it may be granted, and gone, before it is seen
				r.queue(true)
				require.Nil(r, r.others[0].granted())
			}
			r.gives(r.w)
			g := <-got
			if r.got(g.lease, g.err) {
				require.Greater(r, g.lease.Token(), r.w.Token())
				r.stands(g.lease)
				r.probe()
			}
			r.gives(g.lease)
			for _, o := range r.others {
				r.comes(o)
			}
		}, false},
		{"RLock, nested", func(r *rwRun) { r.write(false); r.queue(true) }, func(r *rwRun) {
			if r.nest() {
				r.stands(r.r, r.w)
				r.probe()
			}
			r.gives(r.r)
			r.gives(r.w)
		}, false},
		{"Release of the write lease, the read goes on", both(false), downgrade, false},
		{"Release of the read lease, then the write", both(false), readFirst, false},
		{"RLock, nested, races the last Release", func(r *rwRun) { r.write(false); r.queue(true) }, func(r *rwRun) {
			got := lockedIn(func() (*Lease, error) { return r.lock.RLock(readUnder(r.take(), r.w)) })
			r.gives(r.w)
			g := <-got
			ok := r.got(g.lease, g.err)
			if ok && g.lease.Token() == r.w.Token() && !r.loss {
				r.holds(g.lease)
				require.Nil(r, r.others[0].granted(), "it reads in the writer's place")
			}
			if ok {
				r.probe()
			}
			r.gives(g.lease)
		}, false},
		{"RLock under a Mutex, the read goes on", both(true), func(r *rwRun) {
			require.Equal(r, r.w.Node(), r.r.Node())
			downgrade(r)
		}, false},
		{"RLock under a Mutex, released first", both(true), readFirst, false},
	}
}

// as is the run with the ctx of a lease, to enter it again.
func (r *rwRun) as(l *Lease) *rwRun {
	c := *r.cutRun
	return &rwRun{cutRun: &c, lock: r.lock, w: l}
}

func (r *rwRun) ctx() context.Context {
	if r.w != nil {
		return readUnder(r.take(), r.w)
	}
	return r.take()
}

// waitsOrEnds waits until the run's own contender waits behind somebody, false if the call has ended before.
func (r *rwRun) waitsOrEnds(behind *Lease, got <-chan lockResult) (waits bool) {
	r.Helper()
	ended := false
	r.answered("it waits", zktest.OpGetData, behind.Node(), func() bool {
		select {
		case g := <-got:
			require.True(r, r.closed && errors.Is(g.err, ErrClosed), "%v", g.err)
			ended = true
		default:
		}
		return ended
	})
	return !ended && slices.ContainsFunc(r.requests(), func(q zktest.Record) bool { return q.Op == zktest.OpGetData })
}
