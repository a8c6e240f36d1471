package zkrecipes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// The kind K09: what a participant makes of reconnects in the same session, and of events and answers that come late. A znode and its place are kept, an
// event of a state that is over does nothing, and the writes of a reconnect are bounded.

// B61 (CURATOR-504 and 644): thirty participants reconnect at once, again and again. Each keeps its znode and its place: nothing is written at all.
func TestReconnectsOfManyCandidatesWriteNothing(t *testing.T) {
	t.Parallel()
	const many = 30
	c := admin(t)
	for _, kind := range []string{aLatch, aSelector} {
		p, path := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0]), newPath(t)
		put(t, c, path)
		var all []*partaker
		for i := range many {
			all = append(all, partake(t, kind, dial(t, []string{p.Addr()}, calm), path))
			waitingFor(t, path, i+1)
		}
		l := all[0].leads(t)
		queue := children(t, c, path)
		before := p.Counts().Requests
		for range 3 {
			connects := p.Counts().Requests[zktest.OpConnect]
			p.Cut()
			eventually(t, 10*time.Second, "all are back", func() bool {
				return p.Counts().Requests[zktest.OpConnect] >= connects+many && !slices.ContainsFunc(all, func(p *partaker) bool { return !p.spec.s.engine.Ready() })
			})
		}
		require.NoError(t, l.Err())
		for i, one := range all {
			require.Equal(t, i == 0, one.isLeader())
		}
		after := p.Counts().Requests
		for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpDelete, zktest.OpSetData, zktest.OpMulti} {
			require.Equal(t, before[op], after[op], op)
		}
		require.ElementsMatch(t, queue, children(t, c, path))
		l.end()
		all[1].leads(t)
		for _, one := range all {
			require.NoError(t, one.stop())
		}
	}
}

// B60 (CURATOR-620) and B32 (CURATOR-202): the connection of a leader that gives up and comes again drops twice within moments, and the answers to its
// deletes come late. Whoever leads has a znode of its present session, there are no more znodes than participants, and somebody leads within a second.
func TestTwoQuickReconnectsOfALeader(t *testing.T) {
	t.Parallel()
	ss := newSides(t, 8)
	defer ss.wg.Wait()
	for lane := range 8 {
		kind := []string{aLatch, aSelector}[lane%2]
		var opts []DialOption
		if lane%4 >= 2 {
			opts = append(opts, WithLoseOnDisconnect()) // every reconnect ends the term, as with Curator's policy
		}
		ss.add(fmt.Sprintf("lane %d, %s", lane, kind), func(t testing.TB) {
			c, path := admin(t), newPath(t)
			s, p := dialProxy(t, append(opts, calm)...)
			standby := partake(t, kind, dialShared(t, calm), path)
			standby.leads(t).end()
			one := partake(t, kind, s, path)
			both := []*partaker{one, standby}
			for range rounds(t, 12) {
				gate := zktest.NewGate()
				remove := p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpDelete, path+"/"), Times: 1, Do: zktest.HoldReply(gate)})
				if one.isLeader() {
					l, _, _, _ := one.current()
					if l != nil && rand.N(2) == 0 {
						l.give(callHook)
					}
				}
				if l, _, _, _ := standby.current(); l != nil {
					l.give(callHook)
				}
				p.Flap(2, rand.N(30*time.Millisecond))
				<-time.After(rand.N(30 * time.Millisecond))
				gate.Open()
				remove()
				settles(t, c, path, both, 5*time.Second)
			}
			require.NoError(t, one.stop())
			require.NoError(t, standby.stop())
			eventually(t, 5*time.Second, "nothing is left", func() bool { return len(children(t, c, path)) == 0 })
		})
	}
}

// settles waits until exactly one leads, by a znode of its own session that is the first, and there are as many znodes as participants.
func settles(t testing.TB, c Conn, path string, all []*partaker, limit time.Duration) {
	t.Helper()
	alone(t, all)
	eventually(t, limit, "one leads, by a znode, and all have one", func() bool {
		alone(t, all)
		names := children(t, c, path)
		leading := leadersOf(all)
		return len(names) == len(all) && len(leading) == 1 && slices.Contains(names, leading[0].Node()[len(path)+1:]) &&
			leading[0].hold.stake.session == leading[0].hold.s.ID()
	})
}

// leadersOf returns the leases of those who believe that they lead.
func leadersOf(all []*partaker) (leading []*Lease) {
	for _, p := range all {
		if l, _, _, _ := p.current(); l != nil {
			leading = append(leading, l)
		}
	}
	return slices.DeleteFunc(leading, func(l *Lease) bool { return l.Err() != nil }) // two asked one after the other are two only if both still lead
}

// leaderOf returns the lease of who leads alone, or nil.
func leaderOf(all []*partaker) *Lease {
	if leading := leadersOf(all); len(leading) == 1 {
		return leading[0]
	}
	return nil
}

func alone(t testing.TB, all []*partaker) {
	t.Helper()
	if leading := leadersOf(all); len(leading) > 1 {
		t.Fatalf("%d lead at once: %s and %s", len(leading), leading[0].Node(), leading[1].Node())
	}
}

// B59 (CURATOR-653) and B63 (accumulo #6197): the notice that the predecessor has gone is held, with all behind it, while both reconnect, at twenty points of
// that. The event of a state that is over makes nobody leader and ends no term; one leads, by its own znode.
func TestNoticeOfThePredecessorComesLate(t *testing.T) {
	t.Parallel()
	ss := newSides(t, 8)
	defer ss.wg.Wait()
	for point := range 20 {
		if point%5 != 0 && rounds(t, 4) == 1 {
			continue
		}
		kind := []string{aLatch, aSelector}[point%2]
		ss.add(fmt.Sprintf("%s, point %d", kind, point), func(t testing.TB) {
			c, path := admin(t), newPath(t)
			s, p := dialProxy(t, calm)
			s2, p2 := dialProxy(t, calm)
			leader := partake(t, kind, s2, path)
			l := leader.leads(t)
			waiter := partake(t, kind, s, path)
			waitingFor(t, path, 2)
			watches(t, p, l.Node())
			gate := zktest.NewGate()
			defer gate.Open()
			p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpEvent, l.Node()), Times: 1, Do: zktest.HoldReply(gate)})
			l.end() // and comes again, behind the waiter
			next(t, gate.Reached())
			for i, do := range []func(){p2.Cut, p.Cut, func() { p.Flap(2, time.Millisecond) }, gate.Open, p2.Cut} {
				if i >= point%5 {
					do()
				}
				if point >= 10 {
					<-time.After(time.Duration(point-9) * time.Millisecond)
				}
				alone(t, []*partaker{leader, waiter})
			}
			gate.Open()
			led := waiter.leads(t)
			settles(t, c, path, []*partaker{leader, waiter}, 5*time.Second)
			require.NoError(t, led.Err(), "no late event ends the term")
			require.Equal(t, 1, p.Counts().Requests[zktest.OpCreate], "it kept its place")
			require.NoError(t, leader.stop())
			require.NoError(t, waiter.stop())
		})
	}
}

// watches waits until a client has read a znode, and set the watch on it.
func watches(t testing.TB, p *zktest.Proxy, node string) {
	t.Helper()
	eventually(t, 5*time.Second, "it watches", func() bool {
		return slices.ContainsFunc(p.Requests(), func(q zktest.Record) bool { return q.Op == zktest.OpGetData && q.Path == node && q.Answered })
	})
}

// B62 (CURATOR-645): the predecessor of a candidate goes between its list and its watch, again and again, as each comes again behind. "It is gone" means look
// again, and never costs the own place: each candidate makes one znode per term.
func TestPredecessorGoesBeforeItIsWatched(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{aLatch, aSelector} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			path, c := newPath(t), admin(t)
			var all []*partaker
			var proxies []*zktest.Proxy
			put(t, c, path)
			for i := range 3 {
				s, p := dialProxy(t, calm)
				proxies = append(proxies, p)
				all = append(all, partake(t, kind, s, path))
				waitingFor(t, path, i+1)
			}
			leader := 0
			for round := range 6 {
				l := all[leader].leads(t)
				following := (leader + 1) % 3
				// Whoever follows asks once more for its predecessor, and is held until that has gone.
				gate := zktest.NewGate()
				p := proxies[following]
				remove := p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpGetData, l.Node()), Times: 1, Do: zktest.HoldRequest(gate)})
				p.Cut() // it looks again
				next(t, gate.Reached())
				l.end()
				eventually(t, 5*time.Second, "the predecessor has gone", func() bool { return !slices.Contains(children(t, c, path), l.Node()[len(path)+1:]) })
				gate.Open()
				remove()
				eventually(t, 10*time.Second, "it leads", all[following].isLeader)
				alone(t, all)
				leader = following
				for i, p := range proxies {
					made := 1 + (round+3-i)/3 // and one for each term that it gave up
					require.LessOrEqual(t, p.Counts().Requests[zktest.OpCreate], made, "participant %d", i)
				}
			}
			for _, p := range all {
				require.NoError(t, p.stop())
			}
		})
	}
}

// B17 (helix #641): the session ends eight times in quick succession, and lead takes its time to notice. In the end there is one znode, of the present
// session, and lead runs once.
func TestEightExpiriesWhileLeadIsSlow(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t, calm)
	path, c := newPath(t), admin(t)
	var running, most, called atomic.Int64
	e := NewLeaderSelector(s, path)
	stop := goRun(t, func(ctx context.Context) error {
		return e.Run(ctx, func(ctx context.Context) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			called.Add(1)
			<-ctx.Done()
			<-time.After(200 * time.Millisecond)
			return nil
		})
	})
	for range 8 {
		eventually(t, 10*time.Second, "a session", s.engine.Ready)
		expireSession(t, p)
		<-time.After(rand.N(100 * time.Millisecond))
	}
	eventually(t, 10*time.Second, "it leads, once, by a znode of its session", func() bool {
		return e.IsLeader() && running.Load() == 1 && nodeOf(t, c, path, s.ID()) != "" && len(children(t, c, path)) == 1
	})
	require.EqualValues(t, 1, most.Load())
	require.LessOrEqual(t, called.Load(), int64(9))
	require.NoError(t, stop())
	require.Zero(t, running.Load())
}

// B64 (pulsar #14736): 200 participants, or fewer where go test is for a first answer, lose their session, or their connection. Each writes what it has to, once, and then nothing.
func TestVirtualManyParticipantsComeToRest(t *testing.T) {
	besideWaiters(t)
	virtual(t, func(t *testing.T, server *zktest.Server) {
		many := 200
		if quick() {
			many = 80
		}
		s, _ := dialVirtual(t, server)
		var all []*partaker
		for i := range many {
			all = append(all, partake(t, []string{aLatch, aSelector}[i%2], s, fmt.Sprint("/v/", i)))
		}
		lead := func() {
			for _, p := range all {
				p.leads(t)
			}
		}
		lead()
		writes := func() int {
			r := server.Counts().Requests
			return r[zktest.OpCreate] + r[zktest.OpCreateContainer] + r[zktest.OpDelete] + r[zktest.OpMulti] + r[zktest.OpSetData]
		}
		for _, break_ := range []func() bool{
			func() bool { return server.Expire(s.ID()) },
			func() bool { server.Stop(); time.Sleep(5 * time.Minute); return server.Start() == nil },
		} {
			before := writes()
			require.True(t, break_())
			lead()
			time.Sleep(time.Minute)
			synctest.Wait()
			require.LessOrEqual(t, writes()-before, 3*many)
			before = writes()
			time.Sleep(time.Hour)
			require.Equal(t, before, writes(), "at rest")
			for _, p := range all {
				require.True(t, p.isLeader())
			}
		}
		for _, p := range all {
			require.NoError(t, p.stop())
		}
	})
}
