package zkrecipes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// What becomes of three servers, one thing after the other, while readers and writers share a lock and others take part in an election: the leader is killed, the
// leader and a follower stand still, for less time and for more than sessions live, one with the one that leads attached to it; they are restarted one by one, and all
// together with their data kept; and a znode of the lock is deleted by hand. What is asserted of the lock is what TestReadersAndWritersUnderFaults asserts; of the
// election, that no two believe at one moment that they lead, and that after each fault somebody does and everybody is granted.
//
// Two of the sessions know one server only: they are attached to the one that stands still, however long. In the end all servers lose their data, so that
// they know less than their clients, whom they refuse; these come back with new sessions, and make the directories again.
//
// Reports: Netflix/curator #216, CURATOR-73, CURATOR-104, CURATOR-54, CURATOR-444, python-zk/kazoo #170, CURATOR-724.
func TestThreeServersUnderFaults(t *testing.T) {
	t.Parallel()
	const tick, syncLimit = 200 * time.Millisecond, 8
	e := &onThree{ens: zktest.Start(t, zktest.Servers(3), zktest.TickTime(tick), zktest.SyncLimit(syncLimit)), rnd: newRand(testSeed(t)), struck: map[string]int{}}
	e.scene = scene{TB: t, path: newPath(t), book: newBook(t), hold: 100 * time.Millisecond, step: 2 * time.Millisecond, pause: 10 * time.Millisecond}
	for i := range 6 {
		addrs := e.ens.Addrs()
		if i < 2 {
			addrs = addrs[i : i+1]
		}
		s := dial(t, addrs, WithTimeout(testTimeout))
		rw := NewRWLock(s, e.path)
		for j, a := range []*actor{
			{lock: rw.RLocker()},
			[]*actor{{lock: rw, writes: true}, {lock: rw, reads: rw, writes: true}, {lock: NewMutex(s, e.path), writes: true}}[i%3],
		} {
			a.name, a.s, a.faulty, a.rnd = fmt.Sprintf("%d.%d", i, j), s, true, rand.New(rand.NewPCG(1, uint64(2*i+j)))
			e.actors = append(e.actors, a)
		}
		e.latches = append(e.latches, NewLeaderLatch(s, e.path+"-election"))
	}
	ctx, stop := context.WithCancel(context.Background())
	var running, acting sync.WaitGroup
	defer func() { stop(); running.Wait(); acting.Wait() }()
	for _, l := range e.latches {
		running.Go(func() {
			if err := l.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	running.Go(func() { e.oneLeads(ctx) })
	act, rest := context.WithCancel(ctx)
	for _, a := range e.actors {
		acting.Go(func() { e.act(act, a) })
	}

	kinds := []strike{
		{"leader killed", func(*faults, zktest.Direction) { e.restart((*zktest.Member).Kill, e.leader()) }},
		{"leader stands still", func(*faults, zktest.Direction) { e.still(e.leader(), syncLimit*tick*7/10) }},
		{"follower stands still", func(*faults, zktest.Direction) { e.still(e.follower(), time.Second) }},
		{"one stands still for long", func(*faults, zktest.Direction) { e.still(e.ens.Server(e.attachedLeads()), testTimeout*3/2) }},
		{"one by one", func(*faults, zktest.Direction) {
			for _, m := range e.ens.Servers() {
				e.restart((*zktest.Member).Stop, m)
			}
		}},
		{"all together", func(*faults, zktest.Direction) { e.restart((*zktest.Member).Kill, e.ens.Servers()...) }},
		{"a znode deleted by hand", func(*faults, zktest.Direction) { e.deleteOne() }},
	}
	began := time.Now()
	e.getsOn("at first")
	for i := 0; i < len(kinds) || time.Since(began) < tortureTime(t); i++ {
		k := kinds[i%len(kinds)]
		k.do(nil, zktest.None)
		e.struck[k.name]++
		e.getsOn(k.name)
	}
	rest()
	acting.Wait()
	for _, a := range e.actors {
		require.False(t, slices.ContainsFunc(a.s.Leases(), func(l *Lease) bool { return l.Path() == e.path }), "%s", a.name)
	}
	require.Empty(t, e.book.wrong)
	require.Equal(t, e.book.taken, e.book.value)
	var granted, lost int64
	for _, a := range e.actors {
		granted, lost = granted+a.granted.Load(), lost+a.lost.Load()
	}
	t.Logf("%d leases, %d lost, %d accesses refused in %v; faults: %v", granted, lost, e.book.refused, time.Since(began).Round(time.Second), e.struck)

	s := e.actors[len(e.actors)-1].s
	held, err := NewMutex(s, e.path).Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	for _, m := range e.ens.Servers() {
		require.NoError(t, m.Kill())
		require.NoError(t, m.Wipe())
	}
	<-held.Done()
	require.ErrorIs(t, held.Err(), ErrLost)
	for _, m := range e.ens.Servers() {
		require.NoError(t, m.Start())
	}
	require.NoError(t, e.ens.WaitReady(within(t, 60*time.Second)))
	again, err := NewMutex(s, e.path).Lock(within(t, 60*time.Second))
	require.NoError(t, err)
	require.NoError(t, again.Release(within(t, 10*time.Second)))
	eventually(t, 60*time.Second, "all take part again, and one leads", func() bool { return e.leads() == 1 && e.candidates() == len(e.latches) })
	stop()
	running.Wait()
	require.Empty(t, e.book.wrong)
}

// onThree is a scene and an election on three servers.
type onThree struct {
	scene
	ens     *zktest.Ensemble
	latches []*LeaderLatch
	rnd     *rand.Rand
	struck  map[string]int
}

func (e *onThree) leads() (n int) {
	for _, l := range e.latches {
		if l.IsLeader() {
			n++
		}
	}
	return n
}

// oneLeads looks all the time whether two lead: one that says so before and after another one does leads beside it.
func (e *onThree) oneLeads(ctx context.Context) {
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		for i, a := range e.latches {
			for j, b := range e.latches {
				if i != j && a.IsLeader() && b.IsLeader() && a.IsLeader() {
					e.book.note("participants %d and %d both lead", i, j)
				}
			}
		}
	}
}

// candidates is how many znodes the election has.
func (e *onThree) candidates() int {
	names, _, err := e.actors[4].s.Conn().Children(e.path + "-election")
	if err != nil {
		return 0
	}
	return len(names)
}

func (e *onThree) leader() (leader *zktest.Member) {
	eventually(e, 30*time.Second, "a leader", func() bool { leader = e.ens.Leader(); return leader != nil })
	return leader
}

func (e *onThree) follower() (follower *zktest.Member) {
	eventually(e, 30*time.Second, "two followers", func() bool {
		all := e.ens.Followers()
		if len(all) == 2 {
			follower = all[e.rnd.IntN(2)]
		}
		return follower != nil
	})
	return follower
}

// attachedLeads passes leadership on until one has it that knows one server only, and returns that server.
func (e *onThree) attachedLeads() (server int) {
	eventually(e, 60*time.Second, "one that is attached leads", func() bool {
		for i, l := range e.latches {
			if !l.IsLeader() {
				continue
			}
			if i < 2 {
				server = i
				return true
			}
			if lease, err := l.Await(within(e, 5*time.Second)); err == nil {
				_ = lease.Release(within(e, 5*time.Second))
			}
		}
		return false
	})
	return server
}

// restart ends servers in a way and starts them again, and waits until they serve.
func (e *onThree) restart(end func(*zktest.Member) error, all ...*zktest.Member) {
	for _, m := range all {
		require.NoError(e, end(m))
	}
	for _, m := range all {
		require.NoError(e, m.Start())
	}
	require.NoError(e, e.ens.WaitReady(within(e, 60*time.Second)))
}

// still stops a server where it stands for so long.
func (e *onThree) still(m *zktest.Member, d time.Duration) {
	require.NoError(e, m.Pause())
	<-time.After(d)
	require.NoError(e, m.Resume())
	require.NoError(e, e.ens.WaitReady(within(e, 60*time.Second)))
}

// deleteOne deletes the first znode of the lock. Its holder is told when the notice comes, which may be after the next grant.
func (e *onThree) deleteOne() {
	look := adminAt(e, e.ens.Addrs())
	eventually(e, 20*time.Second, "one deleted", func() bool {
		names, _, err := look.Children(e.path)
		if err != nil || len(names) == 0 {
			return false
		}
		slices.Sort(names)
		node := e.path + "/" + names[0]
		_, stat, err := look.Get(node)
		if err != nil {
			return false
		}
		e.book.ends(stat.EphemeralOwner)
		return look.Delete(node, -1) == nil
	})
}

// getsOn waits until each actor was granted once more, and somebody leads.
func (e *onThree) getsOn(what string) {
	before := make([]int64, len(e.actors))
	for i, a := range e.actors {
		before[i] = a.granted.Load()
	}
	eventually(e, 40*time.Second, what+": everybody is granted, and one leads", func() bool {
		for i, a := range e.actors {
			if a.granted.Load() == before[i] {
				return false
			}
		}
		return e.leads() == 1
	})
}
