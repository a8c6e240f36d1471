package zkrecipes

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A semCall is what is called, request by request, while something breaks.
type semCall struct {
	name    string
	limit   int
	counted bool
	parents bool // it makes the directories
	prepare func(r *semRun)
	run     func(r *semRun)
}

func semCalls() []semCall {
	none := func(*semRun) {}
	granted := func(r *semRun, l *Lease, err error, n int) {
		if r.got(l, err, n) {
			if !r.loss {
				r.stands(0, l)
			}
			r.apart(l)
		}
		r.gives(l)
	}
	acquire := func(n int) func(r *semRun) {
		return func(r *semRun) {
			l, err := r.sem.Acquire(r.take(), n)
			granted(r, l, err, n)
		}
	}
	try := func(n int) func(r *semRun) {
		return func(r *semRun) {
			l, err := r.sem.TryAcquire(r.take(), n)
			granted(r, l, err, n)
		}
	}
	holder := func(n int) func(r *semRun) { return func(r *semRun) { r.rivals(n) } }
	// behind waits until something lets it in.
	behind := func(n int, let func(r *semRun)) func(r *semRun) {
		return func(r *semRun) {
			got := lockedIn(func() (*Lease, error) { return r.sem.Acquire(r.take(), n) })
			if !r.waits(r.theirs.leaves()[len(r.theirs.leaves())-1].Node(), got) {
				r.gives(r.theirs)
				return
			}
			if !r.loss {
				require.Empty(r, got)
			}
			let(r)
			g := <-got
			if r.got(g.lease, g.err, n) {
				if r.theirs.Err() == nil {
					if !r.loss {
						r.stands(0, r.theirs, g.lease)
					}
				} else {
					r.apart(g.lease)
				}
			}
			r.gives(g.lease)
			r.gives(r.theirs)
		}
	}
	leave := func(r *semRun) { require.NoError(r, r.theirs.Release(r.take())) }
	held := func(n int) func(r *semRun) {
		return func(r *semRun) {
			_, err := r.sem.TryAcquire(r.take(), n)
			if !r.closed || !errors.Is(err, ErrClosed) {
				require.ErrorIs(r, err, ErrHeld)
			}
			r.stands(0, r.theirs)
			r.gives(r.theirs)
		}
	}
	hold := func(n int) func(r *semRun) {
		return func(r *semRun) {
			l, err := r.sem.Acquire(r.take(), n)
			require.True(r, r.got(l, err, n))
			r.stands(0, l)
			r.last = l
		}
	}
	release := func(r *semRun) {
		r.gives(r.last)
		if !r.loss {
			r.stands(0)
		}
	}
	return []semCall{
		{"Acquire(1), free", 5, false, false, none, acquire(1)},
		{"Acquire(3), free", 5, false, false, none, acquire(3)},
		{"Acquire(1), counted", 2, true, false, none, acquire(1)},
		{"Acquire(3), parents missing", 3, false, true, none, acquire(3)},
		{"Acquire(1), parents missing", 1, false, true, none, acquire(1)},
		{"Acquire(1), behind a holder", 1, false, false, holder(1), behind(1, leave)},
		{"Acquire(3), behind a holder", 3, false, false, holder(1), behind(3, leave)},
		{"Acquire(1), the number is raised", 1, true, false, holder(1), behind(1, func(r *semRun) {
			r.limit = 2
			setCount(r, r.admin, r.count, 2)
		})},
		{"Acquire(1), second in the queue", 1, false, false, func(r *semRun) {
			r.rivals(1)
			r.queue = append(r.queue, goLock(context.Background(), r.of(r.fresh).Locker(1)))
			eventually(r, 5*time.Second, "somebody waits", func() bool { return len(children(r, r.admin, r.path+"/leases")) == 2 })
		}, func(r *semRun) {
			first := r.path + "/locks/" + children(r, r.admin, r.path+"/locks")[0]
			got := lockedIn(func() (*Lease, error) { return r.sem.Acquire(r.take(), 1) })
			waits := r.waits(first, got)
			leave(r)
			between := mustLease(r, r.queue[0])
			r.queue = nil
			waits = waits && r.waits(between.Node(), got)
			require.NoError(r, between.Err())
			require.NoError(r, between.Release(r.take()))
			if !waits {
				return
			}
			g := <-got
			granted(r, g.lease, g.err, 1)
		}},
		{"Acquire(1), cancelled while waiting", 1, false, false, holder(1), func(r *semRun) {
			ctx, cancel := context.WithCancel(r.take())
			defer cancel()
			got := lockedIn(func() (*Lease, error) { return r.sem.Acquire(ctx, 1) })
			if r.waits(r.theirs.Node(), got) {
				cancel()
				g := <-got
				require.Nil(r, g.lease)
				if !r.closed || !errors.Is(g.err, ErrClosed) {
					require.ErrorIs(r, g.err, context.Canceled)
					require.True(r, r.loss || errors.Is(g.err, ErrHeld), "%v", g.err) // in another session nobody may be ahead yet
				}
			}
			r.stands(0, r.theirs)
			r.gives(r.theirs)
		}},
		{"TryAcquire(1), free", 1, false, false, none, try(1)},
		{"TryAcquire(3), free", 5, false, false, none, try(3)},
		{"TryAcquire(1), held", 1, false, false, holder(1), held(1)},
		{"TryAcquire(1), held, counted", 1, true, false, holder(1), held(1)},
		{"TryAcquire(1), loses a race", 1, false, false, none, func(r *semRun) {
			// The list that shows free permits is on its way when the rival comes.
			theirs := make(chan lockResult, 1)
			rival := sync.OnceFunc(func() {
				l, err := r.of(r.rival).Acquire(r.take(), 1)
				theirs <- lockResult{l, err}
			})
			r.p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpGetChildren2, r.path+"/leases"), Times: 1, Do: zktest.RewriteReply(func(f zktest.Frame) []byte {
				rival()
				return f.Bytes
			})})
			l, err := r.sem.TryAcquire(r.take(), 1)
			if err == nil { // it lost that answer and has asked again, before the rival came
				r.gives(l)
				l, err = nil, ErrHeld
			}
			require.Nil(r, l)
			rival() // the rule may not have struck, or have gone with a reply that was lost
			g := <-theirs
			require.NoError(r, g.err)
			if r.closed && errors.Is(err, ErrClosed) {
				r.gives(g.lease)
				return
			}
			require.ErrorIs(r, err, ErrHeld)
			r.theirs = g.lease
			r.stands(0, r.theirs)
			r.gives(r.theirs)
		}},
		{"Release of one", 1, false, false, hold(1), release},
		{"Release of three", 3, false, false, hold(3), release},
	}
}
