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

// A gatherRun is a cutRun of one member of a double barrier among others.
type gatherRun struct {
	*cutRun
	ours   *DoubleBarrier // of s
	peers  []*DoubleBarrier
	ctx    context.Context // of our calls
	closed bool            // Session.Close may come in between
}

// A gatherCall is what is going on when the member enters.
type gatherCall struct {
	name    string
	members int
	before  func(r *gatherRun) (entered []<-chan error) // what the peers do before,
	after   func(r *gatherRun) (entered []<-chan error) // and when the member waits
}

func (r *gatherRun) enters(b *DoubleBarrier) <-chan error {
	return goCall(func() error { return b.Enter(within(r, 20*time.Second)) })
}

func gatherCalls() []gatherCall {
	all := func(r *gatherRun) (calls []<-chan error) {
		for _, b := range r.peers {
			calls = append(calls, r.enters(b))
		}
		return calls
	}
	none := func(*gatherRun) []<-chan error { return nil }
	return []gatherCall{
		{"it opens", 3, func(r *gatherRun) []<-chan error {
			calls := all(r)
			assembled(r, r.admin, r.path, len(calls))
			return calls
		}, none},
		{"it waits", 3, none, all},
		{"it comes late", 2, func(r *gatherRun) []<-chan error { enterAll(r, r.peers...); return nil }, none},
		{"it finds a dead round", 3, func(r *gatherRun) []<-chan error {
			put(r, r.admin, r.path+"/"+readyName)
			_, err := r.admin.Set(r.path+"/"+readyName, []byte("00000000-0000-4000-8000-000000000000"), -1)
			require.NoError(r, err)
			return nil
		}, all},
	}
}

func (w cutWorld) newGatherRun(t testing.TB, timeout time.Duration, c gatherCall) *gatherRun {
	r := &gatherRun{cutRun: w.newRun(t, timeout), ctx: within(t, 20*time.Second)}
	r.ours = NewDoubleBarrier(r.s, r.path, c.members)
	for _, s := range []*Session{r.rival, r.fresh} {
		r.peers = append(r.peers, NewDoubleBarrier(s, r.path, c.members))
	}
	return r
}

// round is one round: the member enters and leaves among its peers, who do as they would without what befalls it. Another one takes its place when it
// may not get inside, or is lost.
func (r *gatherRun) round(c gatherCall) {
	peers := c.before(r)
	entered := goCall(func() error { return r.ours.Enter(r.ctx) })
	if c.name == "it waits" || c.name == "it finds a dead round" {
		eventually(r, 15*time.Second, "it waits", func() bool { return len(entered) > 0 || len(membersAt(r, r.admin, r.path)) > 0 })
	}
	peers = append(peers, c.after(r)...)
	var err error
	inside := append([]*DoubleBarrier{}, r.peers...)
	substitute := NewDoubleBarrier(r.rival, r.path, c.members)
	select {
	case err = <-entered:
	case <-time.After(20 * time.Second):
		r.Fatalf("it has not entered: %s; children: %v", ops(r.requests()), children(r, r.admin, r.path))
	}
	in := err == nil
	if !in {
		r.allowed(err)
		inside = append(inside, substitute)
		require.NoError(r, next(r, r.enters(substitute)))
	}
	for _, p := range peers {
		require.NoError(r, next(r, p))
	}
	var left []<-chan error
	for _, b := range inside {
		left = append(left, goCall(func() error { return b.Leave(within(r, 20*time.Second)) }))
	}
	if in {
		if err := r.ours.Leave(r.ctx); !errors.Is(err, ErrLost) || !r.loss {
			r.allowed(err)
		}
	}
	for _, l := range left {
		require.NoError(r, next(r, l), "%s", ops(r.requests()))
	}
}

// allowed checks the error of a call of the member's.
func (r *gatherRun) allowed(err error) {
	switch {
	case err == nil, r.closed && errors.Is(err, ErrClosed):
	case r.ctx.Err() != nil:
		require.ErrorIs(r, err, r.ctx.Err())
	default:
		require.NoError(r, err, "%s", ops(r.requests()))
	}
}

// ends has one more round of others, after which nothing is left.
func (r *gatherRun) ends(c gatherCall) {
	var bs []*DoubleBarrier
	for range max(c.members, 2) {
		bs = append(bs, NewDoubleBarrier(r.fresh, r.path, c.members))
	}
	eventually(r, 15*time.Second, "its znodes have gone", func() bool { return len(membersAt(r, r.admin, r.path)) == 0 })
	enterAll(r, bs...)
	leaveAll(r, bs...)
	r.exactly()
}

// eachGatherRequest calls fn for each request of each call.
func eachGatherRequest(t testing.TB, fn func(ss *sides, w cutWorld, c gatherCall, i int)) {
	w := newCutWorld(t)
	ss := newSampledSides(t, 32)
	defer ss.wg.Wait()
	for _, c := range gatherCalls() {
		n := 0
		(&side{TB: t, name: c.name}).run(func(tb testing.TB) {
			r := w.newGatherRun(tb, patient, c)
			r.round(c)
			n = len(r.requests())
			t.Logf("%-22s %2d requests: %s", c.name, n, ops(r.requests()))
			r.ends(c)
		})
		for i := range n {
			fn(ss, w, c, i)
		}
	}
}

// The connection breaks at each request of Enter and Leave, and at this one and the next: before the server sees it, after it was answered, or in a black hole. The
// member enters and leaves all the same, with the others, and nothing is left.
func TestDoubleBarrierWhateverIsCut(t *testing.T) {
	t.Parallel()
	doubleBarrierWhateverIsCut(t)
}

func doubleBarrierWhateverIsCut(t testing.TB) {
	eachGatherRequest(t, func(ss *sides, w cutWorld, c gatherCall, i int) {
		for _, faults := range [][]fault{
			{{i, "before"}}, {{i, "after"}}, {{i, "before"}, {i + 1, "before"}}, {{i, "after"}, {i + 1, "after"}}, {{i, "after"}, {i + 1, "before"}},
			{{i, "before"}, {i + 1, "after"}}, {{i, "hole"}},
		} {
			ss.add(fmt.Sprint(c.name, " ", faults), func(t testing.TB) {
				r := w.newGatherRun(t, patient, c)
				r.heals(0, r.breaks(faults...))
				r.round(c)
				r.staysHealed()
				r.ends(c)
			})
		}
	})
}

// The session ends at each request of Enter and Leave: on its way, or when it was answered.
func TestDoubleBarrierSessionEndsAtAnyRequest(t *testing.T) {
	t.Parallel()
	doubleBarrierSessionEndsAtAnyRequest(t)
}

func doubleBarrierSessionEndsAtAnyRequest(t testing.TB) {
	eachGatherRequest(t, func(ss *sides, w cutWorld, c gatherCall, i int) {
		for _, answered := range []bool{false, true} {
			ss.add(fmt.Sprintf("%s, at %d, answered=%v", c.name, i, answered), func(t testing.TB) {
				r := w.newGatherRun(t, 4*time.Second, c)
				r.loss = true
				r.sessionEndsAt(i, answered)
				r.round(c)
				r.ends(c)
			})
		}
	})
}

// The Session is closed, or the ctx of the call ends, when a request is on its way. The call ends with it, nothing is left, and another member gets on in its place.
func TestDoubleBarrierEndsAtAnyRequest(t *testing.T) {
	t.Parallel()
	doubleBarrierEndsAtAnyRequest(t)
}

func doubleBarrierEndsAtAnyRequest(t testing.TB) {
	eachGatherRequest(t, func(ss *sides, w cutWorld, c gatherCall, i int) {
		for _, closes := range []bool{false, true} {
			ss.add(fmt.Sprintf("%s, at %d, closes=%v", c.name, i, closes), func(t testing.TB) {
				r := w.newGatherRun(t, 30*time.Second, c) // too long for the server to clean up
				ctx, cancel := context.WithCancel(r.ctx)
				defer cancel()
				r.ctx = ctx
				closed := make(chan error, 1)
				end := cancel
				if closes {
					r.loss, r.closed = true, true
					end = sync.OnceFunc(func() { go func() { closed <- r.s.Close() }() })
				}
				r.p.OnRequest(zktest.Rule{Match: zktest.Nth(i, counts), Times: 1, Do: zktest.Call(func(zktest.Frame) { end() })})
				r.round(c)
				if closes {
					end()
					require.NoError(t, next(t, closed))
				}
				r.ends(c)
			})
		}
	})
}

// The same in the ways of NewSession.
func TestAdoptedDoubleBarrierWhateverIsCut(t *testing.T) {
	t.Parallel()
	underFaults(t, doubleBarrierWhateverIsCut)
}

func TestAdoptedDoubleBarrierSessionEndsAtAnyRequest(t *testing.T) {
	t.Parallel()
	underFaults(t, doubleBarrierSessionEndsAtAnyRequest)
}

func TestAdoptedDoubleBarrierEndsAtAnyRequest(t *testing.T) {
	t.Parallel()
	underFaults(t, doubleBarrierEndsAtAnyRequest)
}
