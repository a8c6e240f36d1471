package interop

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes"
)

// One directory with a znode of every lock there is, made by its own library, and with children that are no lock's. Curator's mutex and its
// read/write lock do not see each other, and neither sees kazoo's, so not everybody here waits for whom it ought to; what is asked for is the order,
// the modes and the holders by the rules that this library and the wider ones of the others follow.
func TestInspectOfEverybody(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	first := f.join("zk mutex")
	f.await(first)
	c := plain(t)
	for _, name := range []string{
		"readme", "!", "lock", "lock-", "lock-1", "lock-abc", "__READ__", "__WRIT__x", "_c_x", "_c_00000000-0000-0000-0000-000000000000-x",
		"x__lock__0000000000", "foo-lock-0000000000", "qn-0000000001", "ready",
	} {
		_, err := c.Create(f.path+"/"+name, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err, name)
	}
	w := f.join("ours write")
	mutex := f.join("curator mutex")
	for _, who := range []string{
		"curator read", "kazoo read", "ours read", "curator write", "curator read", "kazoo write", "kazoo mutex", "ours mutex", "ours write",
	} {
		f.join(who)
	}
	f.compare([]*member{first})
	f.leave(first)
	f.await(w)
	f.compare([]*member{w})
	r := f.nest(w)
	f.compare([]*member{w, r})
	ps := inspect(t, f.s, f.path)
	require.Equal(t, w.lease(f).Owner(), ps[0].Owner)
	require.Equal(t, w.lease(f).Token(), ps[0].Token)
	require.Equal(t, r.lease(f).Owner(), ps[1].Owner)
	f.leave(w)
	f.compare([]*member{r})
	f.leave(r)
	f.compare([]*member{mutex})
	require.NoError(t, mutex.client.Close(t.Context())) // Curator counts some of those children as before it, and would wait for ever
	f.members = f.members[1:]
	f.compare(f.members[:3])
}

// Curator's leader latches: the first one leads.
func TestInspectOfLatches(t *testing.T) {
	t.Parallel()
	ctx, path, s := within(t, 30*time.Second), newPath(t), dial(t)
	leader, other := open(t, Curator), open(t, Curator)
	node, err := leader.Lock(ctx, Latch, path)
	require.NoError(t, err)
	later := make(chan error, 1)
	go func() {
		_, err := other.Lock(ctx, Latch, path)
		later <- err
	}()
	waiter := participant(t, s, path, other.Session(), 1)
	require.False(t, waiter.Holding)
	require.Equal(t, zkrecipes.Owner(other.name), waiter.Owner)
	ps := inspect(t, s, path)
	require.Len(t, ps, 2)
	require.Equal(t, node, ps[0].Node)
	require.Equal(t, leader.Session(), ps[0].Session)
	require.Equal(t, zkrecipes.Owner(leader.name), ps[0].Owner)
	require.Equal(t, zkrecipes.ModeExclusive, ps[0].Mode)
	require.True(t, ps[0].Holding)
	require.NoError(t, leader.Release(ctx, Latch, path))
	require.NoError(t, <-later)
	ps = inspect(t, s, path)
	require.Len(t, ps, 1)
	require.Equal(t, waiter.Node, ps[0].Node)
	require.True(t, ps[0].Holding)
}

// Curator's semaphore: two permits are held. The first who waits has a znode among the permits and one in the queue, and is one participant all the
// same; the second has one in the queue.
func TestInspectOfSemaphore(t *testing.T) {
	t.Parallel()
	ctx, path, s := within(t, 30*time.Second), newPath(t), dial(t)
	var peers []*Peer
	var nodes []string
	for range 2 {
		p := open(t, Curator)
		node, err := p.Lock(ctx, Semaphore, path)
		require.NoError(t, err)
		peers, nodes = append(peers, p), append(nodes, node)
	}
	later := make(chan error, 2)
	for i := range 2 {
		p := open(t, Curator)
		peers = append(peers, p)
		go func() {
			_, err := p.Lock(ctx, Semaphore, path)
			later <- err
		}()
		waiter := participant(t, s, path, p.Session(), 2+i)
		require.False(t, waiter.Holding)
	}
	check := func(holders, waiters []*Peer) {
		t.Helper()
		ps := inspect(t, s, path)
		require.Len(t, ps, len(holders)+len(waiters))
		for i, p := range append(holders, waiters...) {
			require.Equal(t, p.Session(), ps[i].Session, "%d", i)
			require.Equal(t, i < len(holders), ps[i].Holding, "%d", i)
			require.Equal(t, i, ps[i].Position)
		}
		for _, p := range ps.Holders() {
			require.Equal(t, zkrecipes.ModeShared, p.Mode)
		}
	}
	eventually(t, "the first waiter has made its second znode", func() bool {
		names, _, err := s.Conn().Children(path + "/leases")
		require.NoError(t, err)
		return len(names) == 3
	})
	check(peers[:2:2], peers[2:])
	require.Equal(t, nodes[0], inspect(t, s, path)[0].Node)
	require.NoError(t, peers[0].Release(ctx, Semaphore, path))
	require.NoError(t, <-later)
	eventually(t, "the second waiter has made its second znode", func() bool {
		names, _, err := s.Conn().Children(path + "/leases")
		require.NoError(t, err)
		return len(names) == 3
	})
	check(peers[1:3:3], peers[3:])
	require.NoError(t, peers[1].Release(ctx, Semaphore, path))
	require.NoError(t, <-later)
	check(peers[2:], nil)
}
