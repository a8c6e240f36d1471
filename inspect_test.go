package zkrecipes

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// Znodes of every client on one path, made by hand in the forms that they have: who competes, in which order, and who holds.
func TestInspectEveryKindOfZnode(t *testing.T) {
	t.Parallel()
	s, c := dialShared(t, calm), admin(t)
	const hex = "0123456789abcdef0123456789abcdef"
	const uuid = "01234567-89ab-cdef-0123-456789abcdef"
	all := []struct {
		name string
		mode Mode
	}{
		{"_c_" + uuid + "-__READ__", ModeShared}, // Curator's read/write lock
		{hex + "__rlock__", ModeShared},          // kazoo's ReadLock
		{"__READ__", ModeShared},
		{"_c_" + uuid + "-__WRIT__", ModeExclusive},
		{"_c_" + uuid + "-lock-", ModeExclusive}, // Curator's mutex
		{"_c_" + hex + "-lock-", ModeExclusive},  // zk.Lock
		{"lock-", ModeExclusive},
		{"_c_" + hex + "-__READ__", ModeShared},
		{hex + "__lock__", ModeExclusive}, // kazoo's Lock and WriteLock
		{"__rlock__", ModeShared},
	}
	path := newPath(t)
	mkdirs(t, c, path)
	for _, foreign := range []string{"readme", "lock-x", "_c_" + uuid, "__READ__", "leases-of-old"} {
		put(t, c, path+"/"+foreign)
	}
	// Beside the locks, and ranked alone.
	make2 := func(name, data string) string {
		node, err := c.Create(path+"/"+name, []byte(data), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		return node
	}
	latch1 := make2("_c_"+uuid+"-latch-", "id-1")
	var nodes []string
	for i, n := range all {
		nodes = append(nodes, make2(n.name, fmt.Sprintf("who-%d", i)))
	}
	latch2 := make2("_c_"+hex+"-latch-", "id-2")
	lease1, lease2 := make2("_c_"+uuid+"-lease-", ""), make2("lease-", "x")

	ps, err := Inspect(within(t, 10*time.Second), s, path)
	require.NoError(t, err)
	require.Len(t, ps, len(all)+4)
	for i, n := range all {
		p := ps[i]
		require.Equal(t, nodes[i], p.Node)
		require.Equal(t, n.mode, p.Mode, p.Node)
		require.Equal(t, i, p.Position)
		require.Equal(t, Owner(fmt.Sprintf("who-%d", i)), p.Owner)
		require.Equal(t, i < 3, p.Holding, "the readers before the first writer: %s", p.Node)
		require.Equal(t, c.SessionID(), p.Session)
		require.NotZero(t, p.Token)
		require.WithinDuration(t, time.Now(), p.Since, time.Minute)
	}
	rest := ps[len(all):]
	require.Equal(t, []string{latch1, latch2, lease1, lease2}, []string{rest[0].Node, rest[1].Node, rest[2].Node, rest[3].Node})
	require.True(t, rest[0].Holding)
	require.False(t, rest[1].Holding)
	require.Equal(t, 1, rest[1].Position)
	require.True(t, rest[2].Holding && rest[3].Holding)
	require.Len(t, ps.Holders(), 6)

	// A lock of ours on the same path counts the locks alone.
	ours, err := NewRWLock(s, path).Participants(within(t, 10*time.Second))
	require.NoError(t, err)
	require.Equal(t, ps[:len(all)], ours)
}

func TestInspectOurs(t *testing.T) {
	t.Parallel()
	s, other := dialShared(t, WithNamespace("/ns")), dialShared(t, calm)
	ctx := within(t, 20*time.Second)
	path := newPath(t)
	w, err := NewRWLock(s, path, WithOwner("writer")).Lock(ctx)
	require.NoError(t, err)
	r, err := NewRWLock(s, path).RLock(w.Context())
	require.NoError(t, err)
	waiter := goLock(ctx, NewMutex(other, "/ns"+path, WithData([]byte("data"))))
	waitingFor(t, "/ns"+path, 3)
	for _, look := range []struct {
		s    *Session
		path string
	}{{s, path}, {other, "/ns" + path}} {
		ps, err := Inspect(ctx, look.s, look.path)
		require.NoError(t, err)
		require.Len(t, ps, 3)
		require.Equal(t, []string{w.Node(), r.Node()}, []string{ps[0].Node, ps[1].Node})
		require.True(t, ps[0].Holding && ps[1].Holding && !ps[2].Holding)
		require.Equal(t, []Mode{ModeExclusive, ModeShared, ModeExclusive}, []Mode{ps[0].Mode, ps[1].Mode, ps[2].Mode})
		require.Equal(t, []Owner{"writer", "writer", "data"}, []Owner{ps[0].Owner, ps[1].Owner, ps[2].Owner})
		require.Equal(t, w.Token(), ps[0].Token)
		require.Greater(t, ps[1].Token, r.Token(), "its znode's, which is not the lease's")
	}
	require.NoError(t, w.Release(ctx))
	ps, err := Inspect(ctx, s, path)
	require.NoError(t, err)
	require.Len(t, ps, 2)
	require.True(t, ps[0].Holding)
	require.False(t, ps[1].Holding)
	require.NoError(t, r.Release(ctx))
	require.NoError(t, mustLease(t, waiter).Release(ctx))
}

// A semaphore of Curator's: two permits held, a third process first in its line with a lease znode that counts for nothing yet, a fourth behind it.
func TestInspectSemaphore(t *testing.T) {
	t.Parallel()
	s := dialShared(t, calm)
	path := newPath(t)
	clients := []*zk.Conn{admin(t), admin(t), admin(t), admin(t)}
	mkdirs(t, clients[0], path+"/leases")
	mkdirs(t, clients[0], path+"/locks")
	create := func(c *zk.Conn, dir, name string) string {
		node, err := c.Create(path+"/"+dir+"/_c_01234567-89ab-cdef-0123-456789abcdef-"+name, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		return node
	}
	one, two := create(clients[0], "leases", "lease-"), create(clients[1], "leases", "lease-")
	create(clients[2], "locks", "lock-")
	last := create(clients[3], "locks", "lock-")
	three := create(clients[2], "leases", "lease-")
	ps, err := Inspect(within(t, 10*time.Second), s, path)
	require.NoError(t, err)
	require.Len(t, ps, 4)
	for i, node := range []string{one, two, three, last} {
		require.Equal(t, node, ps[i].Node)
		require.Equal(t, i, ps[i].Position)
		require.Equal(t, i < 2, ps[i].Holding)
	}
}

func TestInspectErrors(t *testing.T) {
	t.Parallel()
	s, c := dialShared(t, calm), admin(t)
	ctx := within(t, 10*time.Second)
	ps, err := Inspect(ctx, s, newPath(t))
	require.NoError(t, err)
	require.Empty(t, ps)
	for _, path := range []string{"", "relative", "/a/", "/a//b"} {
		_, err = Inspect(ctx, s, path)
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, "inspect")
	}
	_, err = Inspect(ctx, nil, "/a")
	require.ErrorIs(t, err, ErrInvalid)
	secret := newPath(t)
	_, err = c.Create(secret, nil, 0, zk.DigestACL(zk.PermAll, "u", "p"))
	require.NoError(t, err)
	_, err = Inspect(ctx, s, secret)
	require.ErrorIs(t, err, zk.ErrNoAuth)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = Inspect(ended, s, secret)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, s.Close())
	_, err = Inspect(ctx, s, secret)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, Revoke(ctx, s, secret+"/lock-0000000000"), ErrClosed)
}

// A holder is asked to give its lease back: of each kind, and each of the leases that one owner has on the znode.
func TestRevokeOfAHolder(t *testing.T) {
	t.Parallel()
	a, b := dialShared(t, calm), dialShared(t, calm)
	ctx := within(t, 20*time.Second)
	for _, takes := range []string{"M", "W", "R", "MM", "RR", "MR"} {
		path := newPath(t)
		var ls []*Lease
		for _, kind := range []byte(takes) {
			l, err := lockerOf(a, path, kind, WithOwner("o")).Lock(ctx)
			require.NoError(t, err)
			ls = append(ls, l)
		}
		for _, l := range ls {
			select {
			case <-l.Revoked():
				t.Fatal("before anybody asked")
			default:
			}
		}
		ps, err := Inspect(ctx, b, path)
		require.NoError(t, err)
		require.NoError(t, Revoke(ctx, b, ps[0].Node))
		for _, l := range ls {
			next(t, l.Revoked())
			require.NoError(t, l.Err(), "a request is no loss")
		}
		ps, err = Inspect(ctx, b, path)
		require.NoError(t, err)
		require.Empty(t, ps[0].Owner, "its data say something else now")
		again, err := lockerOf(a, path, takes[0], WithOwner("o")).Lock(ctx)
		require.NoError(t, err, "and the owner in this Session is the same one")
		next(t, again.Revoked())
		for _, l := range append(ls, again) {
			require.NoError(t, l.Release(ctx))
		}
		require.NoError(t, Revoke(ctx, b, ls[0].Node()), "it has gone meanwhile")
		require.Empty(t, children(t, admin(t), path))
	}
	// A read with a znode of its own, and the write that it is under, are asked one by one.
	path := newPath(t)
	w, err := NewRWLock(a, path).Lock(ctx)
	require.NoError(t, err)
	r, err := NewRWLock(a, path).RLock(w.Context())
	require.NoError(t, err)
	require.NoError(t, Revoke(ctx, b, r.Node()))
	next(t, r.Revoked())
	select {
	case <-w.Revoked():
		t.Fatal("the write lease was not asked for")
	default:
	}
	require.NoError(t, Revoke(ctx, b, w.Node()))
	next(t, w.Revoked())
	require.NoError(t, w.Release(ctx))
	require.NoError(t, r.Release(ctx))
}

// A waiter that was asked knows when its lease comes.
func TestRevokeOfAWaiter(t *testing.T) {
	t.Parallel()
	a, b := dialShared(t, calm), dialShared(t, calm)
	ctx := within(t, 30*time.Second)
	for _, kind := range []byte("MWR") {
		path := newPath(t)
		first, err := NewMutex(a, path).Lock(ctx)
		require.NoError(t, err)
		asked := make(chan struct{}, 1)
		s, p := dialProxy(t, calm)
		waiter := goLock(ctx, lockerOf(s, path, kind))
		waitingFor(t, path, 2)
		eventually(t, 10*time.Second, "it watches its znode", func() bool {
			n := 0
			for _, r := range p.Requests() {
				if r.Op == zktest.OpGetData && r.Answered {
					n++
				}
			}
			return n >= 2
		})
		p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpGetData), Times: 1, Do: zktest.Call(func(zktest.Frame) { asked <- struct{}{} })})
		ps, err := Inspect(ctx, b, path)
		require.NoError(t, err)
		require.Len(t, ps.Waiters(), 1)
		require.NoError(t, Revoke(ctx, b, ps.Waiters()[0].Node))
		next(t, asked) // it reads its znode again
		require.NoError(t, first.Release(ctx))
		l := mustLease(t, waiter)
		next(t, l.Revoked())
		require.NoError(t, l.Err())
		require.NoError(t, l.Release(ctx))
	}
}

func TestRevokeRefusesWhatIsNoLock(t *testing.T) {
	t.Parallel()
	s, c := dialShared(t, calm), admin(t)
	ctx := within(t, 10*time.Second)
	path := newPath(t)
	put(t, c, path)
	const hex = "0123456789abcdef0123456789abcdef"
	for _, node := range []string{
		"", "x", path, "/", path + "/lock-", path + "/latch-0000000000", path + "/lease-0000000000", path + "/lock-0000000000/x", path + "/" + hex + "__lock__0000000000",
	} {
		err := Revoke(ctx, s, node)
		require.ErrorIs(t, err, ErrInvalid, node)
		require.ErrorContains(t, err, "revoke")
	}
	require.ErrorIs(t, Revoke(ctx, nil, path+"/lock-0000000000"), ErrInvalid)
	data, _, err := c.Get(path)
	require.NoError(t, err)
	require.Empty(t, data)
	require.NoError(t, Revoke(ctx, s, path+"/lock-0000000000"), "nobody is there")
	_, err = c.Create(path+"/lock-0000000007", []byte("theirs"), 0, zk.DigestACL(zk.PermAll, "u", "p"))
	require.NoError(t, err)
	err = Revoke(ctx, s, path+"/lock-0000000007")
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.ErrorContains(t, err, path+"/lock-0000000007")
	// Whoever says so from the start was not asked.
	l, err := NewMutex(s, newPath(t), WithData([]byte("__REVOKE__"))).Lock(ctx)
	require.NoError(t, err)
	_, err = c.Set(l.Node(), []byte("else"), -1)
	require.NoError(t, err)
	select {
	case <-l.Revoked():
		t.Fatal("nobody asked")
	default:
	}
	require.NoError(t, l.Release(ctx))
}

// Data that are not the owner are nobody's owner either when that owner reads under its mutex, on the same znode.
func TestOwnerOfASharedZnodeWithData(t *testing.T) {
	t.Parallel()
	s := dialShared(t, calm)
	path := newPath(t)
	ctx := within(t, 20*time.Second)
	m, err := NewMutex(s, path, WithOwner("o"), WithData([]byte("data"))).Lock(ctx)
	require.NoError(t, err)
	r, err := NewRWLock(s, path, WithOwner("o")).RLock(ctx)
	require.NoError(t, err)
	unnamed := func() {
		for range 20 {
			ps, err := Inspect(ctx, s, path)
			require.NoError(t, err)
			require.Len(t, ps, 1)
			require.Empty(t, ps[0].Owner)
			require.Equal(t, "data", string(ps[0].Data))
		}
	}
	unnamed()
	require.NoError(t, m.Release(ctx))
	unnamed()
	require.NoError(t, r.Release(ctx))
}
