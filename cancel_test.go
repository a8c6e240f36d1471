package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// TestNoOrphanWhenCancelledAtAnyRequest ends the ctx of a call in the moment in which its i-th request is on its way, and does something to that
// request besides. The call ends within a second, with a lease that is one or with an error that leaves nothing.
// Reports: CURATOR-62, vitessio/vitess #15756.
func TestNoOrphanWhenCancelledAtAnyRequest(t *testing.T) {
	noOrphanWhenCancelledAtAnyRequest(t)
}

func noOrphanWhenCancelledAtAnyRequest(t testing.TB) {
	w := newCutWorld(t)
	reason := errors.New("not wanted any more")
	ss := newSampledSides(t, 16)
	defer ss.wg.Wait()
	acquire := map[string]func(*Mutex, context.Context) (*Lease, error){"Lock": (*Mutex).Lock, "TryLock": (*Mutex).TryLock}
	for name, fn := range acquire {
		for _, where := range []string{"free", "held", "parents missing"} {
			for _, how := range []string{"answered", "before", "after", "reply held", "hole"} {
				for i := range 9 {
					ss.add(fmt.Sprintf("%s, %s, %s %d", name, where, how, i), func(t testing.TB) {
						r := w.newRun(t, 10*time.Second)
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

// TestWaiterThatEndsWithAnErrorLeavesNothing has the server refuse each request of a waiter in turn (or seem to). A waiter that went away and left its
// znode would block everybody once the znode is first.
// Reports: etcd-io/etcd #21128, CURATOR-15, CURATOR-16.
func TestWaiterThatEndsWithAnErrorLeavesNothing(t *testing.T) {
	waiterThatEndsWithAnErrorLeavesNothing(t)
}

func waiterThatEndsWithAnErrorLeavesNothing(t testing.TB) {
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
		subtest(t, c.name, func(t testing.TB) {
			r := w.newRun(t, 10*time.Second)
			r.strangers()
			theirs := r.rivalHolds()
			if c.wakes { // a write may leave a read behind, so that its end is no grant without a list
				require.NoError(r, theirs.Release(context.Background()))
				var err error
				theirs, err = NewRWLock(r.rival, r.path).Lock(within(r, 10*time.Second))
				require.NoError(r, err)
			}
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
