package zkrecipes

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// The kind K31: the end races with what is under way. TestLeaderCloseAtAnyRequest is its part for Session.Close.

// TestLeaderStopsAtAnyRequest ends the ctx of Run in the moment in which the i-th request of a participant's life is on its way, and does something to that
// request besides (B28, CURATOR-18: a create that is answered behind the end; B29, CURATOR-3: a list that is answered behind it). Run returns nil within a
// second, whether or not it is answered; no term begins afterwards, and nothing is left.
func TestLeaderStopsAtAnyRequest(t *testing.T) {
	t.Parallel()
	leaderStopsAtAnyRequest(t)
}

func TestAdoptedLeaderStopsAtAnyRequest(t *testing.T) {
	t.Parallel()
	underFaults(t, leaderStopsAtAnyRequest)
}

func leaderStopsAtAnyRequest(t testing.TB) {
	eachLeaderRequest(t, func(ss *sides, w cutWorld, c leaderCall, n, i int) {
		for _, how := range []string{"answered", "before", "after", "reply held", "hole"} {
			ss.add(fmt.Sprintf("%s, %s %d", c.name, how, i), func(t testing.TB) {
				r := w.newLeaderRun(t, patient, c)
				r.told = true
				gate := zktest.NewGate()
				defer gate.Open()
				do := map[string]zktest.Action{
					"answered": {}, "before": zktest.CutBefore(), "after": zktest.CutAfter(), "reply held": zktest.HoldReply(gate), "hole": zktest.BlackHoleAfter(),
				}[how]
				nth, struck := zktest.Nth(i, counts), make(chan struct{})
				r.p.OnRequest(zktest.Rule{Times: 1, Do: do, Match: func(f zktest.Frame) bool {
					if !nth(f) {
						return false
					}
					<-r.ready
					r.who.tell()
					close(struck)
					return true
				}})
				if how == "hole" {
					r.heals(0, r.breaks())
				}
				var wg sync.WaitGroup
				defer wg.Wait()
				terms, over := -1, make(chan struct{}) // how many had begun when Run had returned
				wg.Go(func() {
					select {
					case <-struck:
					case <-over:
						return
					}
					select {
					case <-r.who.ended:
						_, terms, _, _ = r.who.current()
					case <-time.After(time.Second):
						t.Errorf("it has not returned: %s", ops(r.requests()))
					}
					gate.Open()
				})
				c.run(r)
				close(over)
				wg.Wait()
				gate.Open() // it may have struck just now
				if _, now, _, _ := r.who.current(); terms >= 0 {
					require.Equal(t, terms, now, "a term began after Run had returned")
				}
				r.ends()
			})
		}
	})
}

// B30 (CURATOR-297 and 506), and B28 without a hold: a participant starts and stops at random moments, hundreds of times. Nothing is left, the parents that
// were there still are, and nobody else's znode is touched.
func TestParticipantsStartAndStopQuickly(t *testing.T) {
	t.Parallel()
	const lanes = 4
	ss := newSides(t, lanes)
	defer ss.wg.Wait()
	for lane := range lanes {
		kind := participantKinds[lane%len(participantKinds)]
		ss.add(fmt.Sprintf("lane %d, %s", lane, kind), func(t testing.TB) {
			c, top := admin(t), newPath(t)
			path := top + "/a/b"
			mkdirs(t, c, path)
			put(t, c, path+"/theirs", path+"/latch-0000000000x")
			before := children(t, c, path)
			s := dialShared(t, calm)
			for range rounds(t, 120) {
				one := partake(t, kind, s, path)
				select {
				case <-time.After(rand.N(4 * time.Millisecond)):
				case l := <-one.terms:
					if rand.N(2) == 0 {
						l.end()
					}
				}
				require.NoError(t, one.stop())
				require.False(t, one.isLeader())
			}
			eventually(t, 5*time.Second, "nothing is left", func() bool { return len(children(t, c, path)) == len(before) })
			require.ElementsMatch(t, before, children(t, c, path))
			eventually(t, 5*time.Second, "no watch", func() bool { return s.engine.Watched() == 0 })
			require.Empty(t, s.Leases())
			require.NoError(t, s.Close())
			for _, dir := range []string{top, top + "/a", path} {
				ok, _, err := c.Exists(dir)
				require.NoError(t, err)
				require.True(t, ok, dir)
			}
		})
	}
}
