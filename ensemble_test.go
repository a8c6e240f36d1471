package zkrecipes

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

const (
	ensembleTick      = 300 * time.Millisecond
	ensembleSyncLimit = 10
)

// On three servers an answer does not prove what it proves on one. A follower answers pings and reads by itself, and what it has heard of a session it
// tells the leader, who decides on expiry, only later. So here the clock is put to the two tests that one which trusts every answer fails.
func TestLossBeforeRegrantOnThreeServers(t *testing.T) {
	t.Parallel()
	lossBeforeRegrantOnThreeServers(t)
}

func lossBeforeRegrantOnThreeServers(t testing.TB) {
	ens := zktest.Start(t, zktest.Servers(3), zktest.TickTime(ensembleTick), zktest.SyncLimit(ensembleSyncLimit))
	e := &ensembleTest{ens: ens, look: adminAt(t, ens.Addrs())}
	subtest(t, "follower killed right after an answer", e.followerKilled)
	subtest(t, "leader paused", e.leaderPaused)
}

type ensembleTest struct {
	ens  *zktest.Ensemble
	look *zk.Conn
}

// ready waits for the ensemble and returns its leader and two followers.
func (e *ensembleTest) ready(t testing.TB) (leader, follower, other *zktest.Member) {
	t.Helper()
	require.NoError(t, e.ens.WaitReady(within(t, 60*time.Second)))
	eventually(t, 30*time.Second, "a leader and two followers", func() bool {
		leader = e.ens.Leader()
		followers := e.ens.Followers()
		if leader == nil || len(followers) != 2 {
			return false
		}
		i := rand.IntN(2)
		follower, other = followers[i], followers[1-i]
		return true
	})
	return leader, follower, other
}

// atFollower is a holder whose only server is one follower, behind a proxy.
type atFollower struct {
	*handover
	s       *Session
	p       *zktest.Proxy
	timeout time.Duration
}

// holders returns one for each timeout. Every other one reads all the time: a follower answers that by itself too.
func (e *ensembleTest) holders(t testing.TB, follower *zktest.Member, next *Session, timeouts ...time.Duration) (hs []atFollower) {
	t.Helper()
	for i, timeout := range timeouts {
		p := zktest.NewProxy(t, follower.Addr())
		s := dial(t, []string{p.Addr()}, WithTimeout(timeout))
		require.Equal(t, timeout, s.engine.Timeout(), "negotiated")
		hs = append(hs, atFollower{newHandover(t, e.look, s, next), s, p, timeout})
		if i%2 == 1 {
			keepReading(t, s)
		}
	}
	return hs
}

// keepReading reads through a session until the test ends, more often than a heartbeat is due.
func keepReading(t testing.TB, s *Session) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-stopped })
	go func() {
		defer close(stopped)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			_, _, _ = s.Conn().Exists("/")
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
}

// A follower dies right after it has answered a holder, before it has told the leader that it heard of it, and the holder hears nothing. In turns the
// answer is to a sync and to a write. The holders beside the one that was answered are in any phase.
func (e *ensembleTest) followerKilled(t testing.TB) {
	var all, triggers margins
	for kill := range rounds(t, 4) {
		leader, follower, _ := e.ready(t)
		(&side{TB: t, name: fmt.Sprintf("kill %d", kill)}).run(func(t testing.TB) {
			next := dial(t, []string{leader.Addr()}, WithTimeout(10*time.Second))
			hs := e.holders(t, follower, next, 3*time.Second, 3*time.Second, 2400*time.Millisecond, 3*time.Second, 2400*time.Millisecond)
			trigger := hs[0]
			<-time.After(rand.N(trigger.timeout / 3))
			conn, answers := trigger.s.Conn(), 0
			eventually(t, 10*time.Second, "an answer that has just come", func() bool {
				answers++
				if kill%2 == 0 {
					_, err := conn.Sync("/")
					require.NoError(t, err)
				} else {
					_, err := conn.Create(fmt.Sprintf("%s/written%d", trigger.lease.Path(), answers), nil, 0, zk.WorldACL(zk.PermAll))
					require.NoError(t, err)
				}
				return trigger.s.engine.Left(trigger.s.ID()) > trigger.timeout*2/3-50*time.Millisecond
			})
			t.Cleanup(func() {
				if !follower.Running() {
					require.NoError(t, follower.Start())
				}
			})
			killed := make(chan error, 1)
			go func() { killed <- follower.Kill() }()
			var wg sync.WaitGroup
			for _, h := range hs {
				wg.Go(func() { h.p.BlackHole(zktest.Both) })
			}
			wg.Wait()
			require.NoError(t, <-killed)
			for i, h := range hs {
				m := h.margin(t)
				all.add(m)
				if i == 0 {
					triggers.add(m)
				}
				h.p.BlackHole(zktest.None)
			}
		})
	}
	t.Logf("all: %v", &all)
	t.Logf("those just answered: %v", &triggers)
}

// The leader pauses, for less time than it takes the followers to give it up. It cannot hear of the sessions that its followers serve meanwhile, and
// when it goes on it ends those whose time is over before it reads what came in.
func (e *ensembleTest) leaderPaused(t testing.TB) {
	pause := ensembleTick * ensembleSyncLimit * 7 / 10
	byTicks := map[int]*margins{3: {}, 5: {}, 8: {}}
	for i := range rounds(t, 4) {
		leader, follower, other := e.ready(t)
		(&side{TB: t, name: fmt.Sprintf("pause %d", i)}).run(func(t testing.TB) {
			next := dial(t, []string{other.Addr()}, WithTimeout(10*time.Second))
			hs := e.holders(t, follower, next, 3*ensembleTick, 5*ensembleTick, 8*ensembleTick, 3*ensembleTick, 5*ensembleTick, 8*ensembleTick)
			<-time.After(rand.N(500 * time.Millisecond))
			t.Cleanup(func() { require.NoError(t, leader.Resume()) }) // once more, for a round that ends early
			require.NoError(t, leader.Pause())
			<-time.After(pause)
			require.NoError(t, leader.Resume())
			for _, h := range hs {
				byTicks[int(h.timeout/ensembleTick)].add(h.margin(t))
			}
		})
	}
	for ticks, m := range byTicks {
		t.Logf("T of %d ticks: %v", ticks, m)
	}
}
