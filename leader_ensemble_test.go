package zkrecipes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// Elections on three servers of which one dies or falls silent: one leads, and whoever led is told before the next one does.
func TestLeaderOnThreeServers(t *testing.T) {
	t.Parallel()
	ens := zktest.Start(t, zktest.Servers(3), zktest.TickTime(ensembleTick), zktest.SyncLimit(ensembleSyncLimit))
	e := &ensembleTest{ens: ens, look: adminAt(t, ens.Addrs())}
	t.Run("the leader's server is killed", e.serverOfALeaderKilled)
	t.Run("the server that leads is killed", e.leadingServerKilled)
	t.Run("the server that leads is paused", e.leadingServerPaused)
	t.Run("a follower is isolated", e.followerIsolated)
	t.Run("one client after the other", e.clientsGoOneByOne)
}

// A succession is a participant that leads and one that follows, who is in touch with a server that stays.
type succession struct {
	first, second *partaker
	path          string
	l             term
	told          chan error // what the lease of the first said, without being asked, at each grant of the second
}

// succeed makes one of each kind, whose leaders know these servers only.
func (e *ensembleTest) succeed(t testing.TB, timeout time.Duration, servers []string, next *zktest.Member) (all []*succession) {
	t.Helper()
	for _, kind := range []string{aLatch, aSelector} {
		s := &succession{path: newPath(t), told: make(chan error, 10)}
		trace := &Trace{AcquireDone: func(_ context.Context, _, _ string, _ *Lease, err error) {
			if err == nil {
				s.told <- s.l.Context().Err()
			}
		}}
		s.first = partake(t, kind, dial(t, servers, WithTimeout(timeout)), s.path)
		s.l = s.first.leads(t)
		s.second = partake(t, kind, dial(t, []string{next.Addr()}, calm, WithTrace(trace)), s.path)
		eventually(t, 10*time.Second, "both take part", func() bool { return len(children(t, e.look, s.path)) == 2 })
		all = append(all, s)
	}
	return all
}

// passes waits until the second leads, before which the first has to be told.
func (s *succession) passes(t testing.TB) {
	t.Helper()
	s.second.leads(t)
	require.Error(t, <-s.told, "the next one leads, and the leader has not been told")
	require.ErrorIs(t, s.l.Err(), ErrLost)
	require.False(t, s.first.isLeader())
}

// stays checks that one leads for a while, whichever it is, and that the other was told if that has changed.
func (s *succession) stays(t testing.TB, d time.Duration) {
	t.Helper()
	both := []*partaker{s.first, s.second}
	for end := time.Now().Add(d); time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		alone(t, both)
		select {
		case told := <-s.told:
			require.Error(t, told, "the next one leads, and the leader has not been told")
		default:
		}
	}
	eventually(t, 20*time.Second, "one leads", func() bool { return len(leadersOf(both)) == 1 })
}

// ends lets both lead once more, and stops them.
func (s *succession) ends(t testing.TB, look Conn) {
	t.Helper()
	both := []*partaker{s.first, s.second}
	for range 2 {
		// Who has just given up may not be back yet: the one that leads, giving up as well, could be back before it.
		var l *Lease
		eventually(t, 30*time.Second, "one leads, and the other one stands behind it", func() bool {
			_, err := look.Sync(s.path)
			names, _, listed := look.Children(s.path)
			l = leaderOf(both)
			return err == nil && listed == nil && len(names) == 2 && l != nil
		})
		other := both[0]
		if other.spec.s == l.hold.s {
			other = both[1]
		}
		session := other.spec.s.ID()
		l.give(callHook)
		eventually(t, 10*time.Second, "the other one leads", func() bool {
			if now := leadersOf(both); len(now) == 1 && now[0].hold.s == l.hold.s && other.spec.s.ID() != session {
				now[0].give(callHook) // the other one had lost its place with its session, on a server that has just come back
			}
			return other.isLeader()
		})
	}
	for _, p := range both {
		require.NoError(t, p.stop())
	}
	eventually(t, 10*time.Second, "nothing is left", func() bool { return len(children(t, look, s.path)) == 0 })
}

// Curator's TestLeaderLatchCluster.testInCluster and TestLeaderSelectorCluster.testRestart: a leader that knows no other server is told, and the next one
// leads; one that does goes on, in the same session.
func (e *ensembleTest) serverOfALeaderKilled(t *testing.T) {
	leader, follower, _ := e.ready(t)
	stuck := e.succeed(t, 3*time.Second, []string{follower.Addr()}, leader)
	moving := e.succeed(t, 20*time.Second, e.ens.Addrs(), leader)
	require.NoError(t, follower.Kill())
	for _, s := range stuck {
		s.passes(t)
	}
	for _, s := range moving {
		s.stays(t, time.Second)
		require.NoError(t, s.l.Err())
	}
	require.NoError(t, follower.Start())
	require.NoError(t, e.ens.WaitReady(within(t, 60*time.Second)))
	for _, s := range append(stuck, moving...) {
		s.ends(t, e.look)
	}
}

// An election among the servers comes in between. Curator's testLostRestart, and B71 (kazoo PR #170).
func (e *ensembleTest) leadingServerKilled(t *testing.T) {
	leader, follower, other := e.ready(t)
	all := append(e.succeed(t, 20*time.Second, e.ens.Addrs(), other), e.succeed(t, 3*time.Second, []string{follower.Addr()}, other)...)
	require.NoError(t, leader.Kill())
	for i, s := range all {
		s.stays(t, time.Second)
		if i < 2 {
			require.NoError(t, s.l.Err(), "with so long a timeout")
		}
	}
	require.NoError(t, leader.Start())
	require.NoError(t, e.ens.WaitReady(within(t, 60*time.Second)))
	for _, s := range all {
		s.ends(t, e.look)
	}
}

// For a time too short for an election. When it goes on it ends the sessions that it has not heard of, though their followers have.
func (e *ensembleTest) leadingServerPaused(t *testing.T) {
	for range rounds(t, 2) {
		leader, follower, other := e.ready(t)
		var all []*succession
		for _, ticks := range []time.Duration{3, 5, 8} {
			all = append(all, e.succeed(t, ticks*ensembleTick, []string{follower.Addr()}, other)...)
		}
		<-time.After(rand.N(500 * time.Millisecond))
		t.Cleanup(func() { require.NoError(t, leader.Resume()) })
		require.NoError(t, leader.Pause())
		<-time.After(ensembleTick * ensembleSyncLimit * 7 / 10)
		require.NoError(t, leader.Resume())
		for _, s := range all {
			s.stays(t, 300*time.Millisecond)
		}
		for _, s := range all {
			s.ends(t, e.look)
		}
	}
}

// B58 (CURATOR-444) and B43: a follower falls silent to its clients and to the other servers. Its leaders are told before the next ones lead, and take part
// again when it is back.
func (e *ensembleTest) followerIsolated(t *testing.T) {
	leader, follower, _ := e.ready(t)
	all := e.succeed(t, 3*time.Second, []string{follower.Addr()}, leader)
	<-time.After(rand.N(500 * time.Millisecond))
	t.Cleanup(func() { require.NoError(t, follower.Resume()) })
	require.NoError(t, follower.Pause())
	for _, s := range all {
		s.passes(t)
	}
	require.NoError(t, follower.Resume())
	for _, s := range all {
		s.stays(t, 500*time.Millisecond)
		s.ends(t, e.look)
	}
}

// B66 (CURATOR-73, 104 and 54): two clients with three elections each. The server that leads goes, and then the client that leads: the other client leads all
// three.
func (e *ensembleTest) clientsGoOneByOne(t *testing.T) {
	const elections = 3
	for range rounds(t, 2) {
		leader, _, _ := e.ready(t)
		var clients [2]*Session
		var all [elections][]*partaker
		for i := range clients {
			clients[i] = dial(t, e.ens.Addrs(), WithTimeout(6*time.Second))
		}
		top := newPath(t)
		for n := range elections {
			for i, s := range clients {
				p := partake(t, []string{aLatch, aSelector, aResigning}[n], s, fmt.Sprint(top, "/", n))
				all[n] = append(all[n], p)
				if i == 0 {
					p.leads(t)
				}
			}
		}
		require.NoError(t, leader.Kill())
		for _, both := range all {
			eventually(t, 20*time.Second, "one leads", func() bool {
				alone(t, both)
				return len(leadersOf(both)) == 1
			})
		}
		_ = clients[0].Close() // in the middle of an election it can only let its session end
		for _, both := range all {
			eventually(t, 15*time.Second, "the other client leads", both[1].isLeader)
			require.False(t, both[0].isLeader())
			next(t, both[0].ended)
			require.ErrorIs(t, both[0].stop(), ErrClosed)
			require.NoError(t, both[1].stop())
		}
		require.NoError(t, leader.Start())
	}
	require.NoError(t, e.ens.WaitReady(within(t, 60*time.Second)))
}
