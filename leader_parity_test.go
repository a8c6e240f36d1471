package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/znode"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// The tests of Curator's for its elections, as far as they are not others already; docs/parity.md has the table.

// testSessionErrorPolicy, and testErrorPolicies of both: a disconnect that the session survives is no loss, and the znode is the same; with
// WithLoseOnDisconnect it is one, told no later than the state, and the participant leads again when it is connected.
func TestLeaderPolicies(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{aLatch, aSelector} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, ", strict ", strict), func(t *testing.T) {
				t.Parallel()
				opts := []DialOption{calm}
				if strict {
					opts = append(opts, WithLoseOnDisconnect())
				}
				s, p := dialProxy(t, opts...)
				states := followStates(t, s)
				path, c := newPath(t), admin(t)
				one := partake(t, kind, s, path)
				l := one.leads(t)
				p.Refuse(true)
				eventually(t, 5*time.Second, "it is suspended", func() bool { return slices.Contains(states(), StateSuspended) })
				require.Equal(t, !strict, one.isLeader())
				p.Refuse(false)
				eventually(t, 5*time.Second, "it is connected", func() bool { return s.State() == StateConnected })
				if !strict {
					require.NoError(t, l.Err())
					require.Equal(t, []string{l.Node()[len(path)+1:]}, children(t, c, path))
				} else {
					require.ErrorIs(t, l.Err(), ErrLost)
					l = one.leads(t)
					eventually(t, 5*time.Second, "one znode", func() bool { return slices.Equal([]string{l.Node()[len(path)+1:]}, children(t, c, path)) })
				}
				require.NotContains(t, states(), StateLost)
				require.NoError(t, one.stop())
			})
		}
	}
}

// testNoServerAtStart and testProperCloseWithoutConnectionEstablished: Run and Await wait for a server that is not there yet; elected once, it stays so. A
// ctx that ends before there is one ends both, and nothing is made afterwards.
func TestLeaderWithoutAServer(t *testing.T) {
	t.Parallel()
	for _, w := range adoptions {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			c, path := admin(t), newPath(t)
			p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
			p.Refuse(true)
			dialer, opts := zk.Dialer(nil), []SessionOption{WithLogger(quiet(t)), calm}
			if w == tracked {
				d, track := TrackContact(nil)
				dialer, opts = d, append(opts, track)
			}
			sv := newService(t, []string{p.Addr()}, 10*time.Second, dialer)
			s, err := NewSession(sv.conn, nil, opts...)
			require.NoError(t, err)
			defer s.Close()
			ended := NewLeaderLatch(s, path)
			stop := goRun(t, ended.Run)
			_, err = ended.Await(within(t, 100*time.Millisecond))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, ErrNoConnection)
			require.NoError(t, stop())
			latch := NewLeaderLatch(s, path)
			stop = goRun(t, latch.Run)
			awaited := lockedIn(func() (*Lease, error) { return latch.Await(within(t, 30*time.Second)) })
			p.Refuse(false)
			lease := mustLease(t, awaited)
			names := children(t, c, path)
			require.Equal(t, []string{lease.Node()[len(path)+1:]}, names)
			require.NoError(t, lease.Err())
			_, terms, _, _ := latch.current()
			require.Equal(t, 1, terms)
			require.NoError(t, stop())
		})
	}
}

// testResetRace: a participant that is started anew while a create of its last Run is under way has one znode.
func TestRunAgainWhileACreateIsUnderWay(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{aLatch, aSelector} {
		c, path := admin(t), newPath(t)
		put(t, c, path)
		s, p := dialProxy(t, calm)
		gate := zktest.NewGate()
		p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, path+"/"), Times: 1, Do: zktest.HoldReply(gate)})
		first := partake(t, kind, s, path)
		next(t, gate.Reached())
		require.NoError(t, first.stop())
		again := partake(t, kind, s, path)
		gate.Open()
		l := again.leads(t)
		eventually(t, 5*time.Second, "one znode", func() bool { return slices.Equal(children(t, c, path), []string{l.Node()[len(path)+1:]}) })
		require.NoError(t, again.stop())
	}
}

// testLostConnection and testServerDying, testKillServerThenCloseShouldElectNewLeader, and B15 (CURATOR-696, druid #16411): the server is away for longer than
// the sessions live, and comes back with their znodes. Nobody leads while it is away; then exactly one does, by a znode of its present session, and when
// that one goes another.
func TestLeaderOverAStoppedServer(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	server := newTestServer(t, tortureTick)
	var elections [2][]*partaker
	paths := [2]string{newPath(t), newPath(t)}
	for range 10 {
		s := dial(t, []string{server.addr}, WithTimeout(timeout))
		for i, kind := range []string{aLatch, aSelector} {
			elections[i] = append(elections[i], partake(t, kind, s, paths[i]))
		}
	}
	look := adminAt(t, []string{server.addr})
	var before []*Lease
	for i, all := range elections {
		var l *Lease
		eventually(t, 10*time.Second, "one leads, and all take part", func() bool {
			l = leaderOf(all)
			return l != nil && len(children(t, look, paths[i])) == 10
		})
		before = append(before, l)
	}
	require.NoError(t, server.stop())
	for i, all := range elections {
		<-before[i].Done()
		require.ErrorIs(t, before[i].Err(), ErrLost)
		eventually(t, 10*time.Second, "nobody leads", func() bool { return len(leadersOf(all)) == 0 }) // another one may have come in just before
	}
	<-time.After(timeout)
	require.NoError(t, server.start())
	began := time.Now()
	for ; time.Since(began) < 2*timeout; <-time.After(5 * time.Millisecond) {
		for _, all := range elections {
			alone(t, all)
		}
	}
	look = adminAt(t, []string{server.addr})
	for i, all := range elections {
		settles(t, look, paths[i], all, 5*time.Second)
		var l *Lease
		gone := -1
		eventually(t, 10*time.Second, "one leads", func() bool {
			l = leaderOf(all)
			gone = slices.IndexFunc(all, func(p *partaker) bool { now, _, _, _ := p.current(); return l != nil && now == l })
			return gone >= 0
		})
		require.Greater(t, l.Token(), before[i].Token())
		require.NoError(t, all[gone].stop())
		settles(t, look, paths[i], slices.Delete(slices.Clone(all), gone, gone+1), 5*time.Second)
	}
}

// testCorrectWatching and testClosing: a participant that goes makes nobody leader but the one behind it, if it led.
func TestParticipantsGoInAnyOrder(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{aLatch, aSelector} {
		for _, order := range permutations(4) {
			path := newPath(t)
			s := dialShared(t, calm)
			var all []*partaker
			for i := range order {
				all = append(all, partake(t, kind, s, path))
				waitingFor(t, path, i+1)
			}
			left := slices.Clone(all)
			for _, goes := range order {
				eventually(t, 5*time.Second, "the first leads", left[0].isLeader)
				for _, p := range left[1:] {
					require.False(t, p.isLeader())
				}
				led := leadersOf(left)[0]
				require.NoError(t, all[goes].stop())
				if all[goes] != left[0] {
					require.NoError(t, led.Err())
				}
				left = slices.DeleteFunc(left, func(p *partaker) bool { return p == all[goes] })
			}
		}
	}
}

// testWaiting and testBasicAlt: many goroutines and sessions wait with time-outs, and all lead in the end, ten times.
func TestAwaitByManyGoroutines(t *testing.T) {
	t.Parallel()
	const waiting = 5
	path := newPath(t)
	var sessions []*Session
	for range waiting {
		sessions = append(sessions, dialShared(t, calm))
	}
	for range 10 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		leading := 0
		for _, s := range sessions {
			wg.Go(func() {
				latch := NewLeaderLatch(s, path)
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() { done <- latch.Run(ctx) }()
				began := time.Now()
				short, end := context.WithTimeout(ctx, 100*time.Microsecond)
				defer end()
				_, err := latch.Await(short)
				late := errors.Is(err, errNotRunning) && time.Since(began) >= startGrace // on a machine that stood still
				if err != nil && !errors.Is(err, context.DeadlineExceeded) && !late {
					t.Error(err)
				}
				begins(t, latch)
				var awaiting sync.WaitGroup
				for range 3 { // all of them get the same lease
					awaiting.Go(func() {
						if _, err := latch.Await(within(t, 20*time.Second)); err != nil {
							t.Error(err)
						}
					})
				}
				awaiting.Wait()
				mu.Lock()
				if leading++; leading != 1 || !latch.IsLeader() {
					t.Errorf("%d lead", leading)
				}
				leading--
				mu.Unlock()
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

// testAclErrorWithLeader (CURATOR-365): a participant that may not create says so, at once.
func TestLeaderACLs(t *testing.T) {
	t.Parallel()
	c, path := admin(t), newPath(t)
	put(t, c, path)
	_, err := c.SetACL(path, zk.WorldACL(zk.PermRead), -1)
	require.NoError(t, err)
	s := dialShared(t, calm)
	latch := NewLeaderLatch(s, path)
	done := make(chan error, 1)
	go func() { done <- latch.Run(context.Background()) }()
	_, err = latch.Await(within(t, 10*time.Second))
	require.ErrorIs(t, err, zk.ErrNoAuth, "why there will be no leadership")
	require.ErrorIs(t, err, ErrInvalid)
	err = next(t, done)
	require.ErrorIs(t, err, zk.ErrNoAuth)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, path, e.Path)
	selector := NewLeaderSelector(s, path+"/below")
	require.ErrorIs(t, selector.Run(context.Background(), func(context.Context) error { t.Error("led"); return nil }), zk.ErrNoAuth)
	ps, err := latch.Participants(within(t, 5*time.Second))
	require.NoError(t, err)
	require.Empty(t, ps)
}

// testLeaderNodeDeleteOnInterrupt: leadership is given up, by Resign or for good, while no server can be reached. No znode of it is left afterwards.
func TestLeaderGivesUpWithoutAServer(t *testing.T) {
	t.Parallel()
	for _, kind := range participantKinds {
		for _, forGood := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, ", for good ", forGood), func(t *testing.T) {
				t.Parallel()
				c, path := admin(t), newPath(t)
				s, p := dialProxy(t, calm)
				one := partake(t, kind, s, path)
				l := one.leads(t)
				waiter := partake(t, kind, dialShared(t, calm), path)
				waitingFor(t, path, 2)
				p.Refuse(true)
				left := 2
				if forGood {
					require.NoError(t, one.stop())
					left = 1
				} else {
					l.end()
				}
				require.False(t, forGood && one.isLeader())
				p.Refuse(false)
				led := waiter.leads(t)
				waitingFor(t, path, left)
				require.NotContains(t, children(t, c, path), l.Node()[len(path)+1:])
				require.NoError(t, led.Err())
			})
		}
	}
}

// testRotatingLeadership: five selectors that come again at the tail lead in turn, each once a round.
func TestLeadershipRotates(t *testing.T) {
	t.Parallel()
	const many, turns = 5, 4
	for _, kind := range participantKinds {
		path, c := newPath(t), admin(t)
		var all []*partaker
		for i := range many {
			all = append(all, partake(t, kind, dialShared(t, calm), path))
			waitingFor(t, path, i+1)
		}
		var last Token
		for range turns {
			for _, p := range all {
				l := p.leads(t)
				require.Greater(t, l.Token(), last)
				last = l.Token()
				alone(t, all)
				l.end()
				_, own := znode.Split(l.Node())
				eventually(t, 10*time.Second, "it has come again", func() bool {
					names := children(t, c, path)
					return len(names) == many && !slices.Contains(names, own)
				})
			}
		}
		for _, p := range all {
			require.NoError(t, p.stop())
			_, terms, _, _ := p.current()
			require.LessOrEqual(t, terms, turns+1)
		}
	}
}

// TestLeaderSelectorParticipants, testId and testBasic: ten ids, one leader, and the same list for all, in the order of the queue.
func TestLeaderParticipants(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{aLatch, aSelector} {
		path := newPath(t)
		var all []*partaker
		var ids []Owner
		for i := range 10 {
			id := Owner(fmt.Sprintf("foo bar é %d", i))
			ids = append(ids, id)
			all = append(all, partake(t, kind, dialShared(t, calm), path, WithOwner(id)))
			waitingFor(t, path, i+1)
		}
		all[0].leads(t)
		want, err := all[0].spec.participants(within(t, 5*time.Second))
		require.NoError(t, err)
		for _, p := range all {
			ps, err := p.spec.participants(within(t, 5*time.Second))
			require.NoError(t, err)
			require.Equal(t, want, ps)
			require.Len(t, ps.Holders(), 1)
			leader, err := p.leader(within(t, 5*time.Second))
			require.NoError(t, err)
			require.Equal(t, ps[0], leader)
			for i, one := range ps {
				require.Equal(t, ids[i], one.Owner)
				require.Equal(t, i == 0, one.Holding)
				require.Equal(t, all[i].spec.s.ID(), one.Session)
			}
		}
	}
}
