package zkrecipes

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// TestCloseWithACreateInFlightLeavesNothing closes the Session when the server has made the znode and the client does not know yet.
// Reports: CURATOR-18.
func TestCloseWithACreateInFlightLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newCutWorld(t).newRun(t, 10*time.Second)
	r.strangers()
	gate := zktest.NewGate()
	r.p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpCreate), Times: 1, Do: zktest.HoldReply(gate)})
	got := make(chan error, 1)
	go func() {
		_, err := r.m.Lock(context.Background())
		got <- err
	}()
	next(t, gate.Reached())
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
// Reports: CURATOR-3, CURATOR-297, CURATOR-506.
func TestCloseAtAnyTimeLeavesNothing(t *testing.T) {
	w := newCutWorld(t)
	ss := newSampledSides(t, 16)
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
