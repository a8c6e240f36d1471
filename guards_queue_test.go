package zkrecipes

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// The list that is sent right behind the create may be older than that. One that does not show the own znode proves nothing: the next one is asked for after
// the create was answered, and until then the znode is there.
func TestListWithoutTheOwnZnodeIsReadAgain(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t, calm)
	path, look := newPath(t), admin(t)
	mkdirs(t, look, path)
	listed, gate := zktest.MatchPath(zktest.OpGetChildren2, path), zktest.NewGate() // the create is answered when that list is on its way
	defer gate.Open()
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, path+"/"), Times: 1, Do: zktest.HoldReply(gate)})
	p.OnRequest(zktest.Rule{Times: 1, Do: zktest.RewriteReply(emptyList), Match: func(f zktest.Frame) bool {
		if !listed(f) {
			return false
		}
		gate.Open()
		return true
	}})
	l, err := NewMutex(s, path).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	require.Len(t, children(t, look, path), 1)
	require.Equal(t, 1, p.Counts().Requests[zktest.OpCreate])
	require.NoError(t, l.Release(within(t, 5*time.Second)))
}

// A TryLock that has written after all, because somebody came between its look and its create, returns when that is gone: until then it is in others' way.
func TestTryLockReturnsWhenWhatItWroteIsGone(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t, calm)
	path, look := newPath(t), admin(t)
	first, err := NewMutex(dialShared(t, calm), path).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpGetChildren2, path), Times: 1, Do: zktest.RewriteReply(emptyList)})
	gate := zktest.NewGate()
	defer gate.Open()
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpDelete, path+"/"), Times: 1, Do: zktest.HoldRequest(gate)})
	tried := goCall(func() error {
		_, err := NewMutex(s, path).TryLock(within(t, 10*time.Second))
		return err
	})
	next(t, gate.Reached())
	still(t, tried)
	gate.Open()
	require.ErrorIs(t, next(t, tried), ErrHeld)
	require.Len(t, children(t, look, path), 1)
	require.NoError(t, first.Release(within(t, 5*time.Second)))
}

// A znode whose create was not answered may yet be used by who made it, so nobody passes it over meanwhile: not even another call in the same Session, which
// knows of it. Otherwise both would hold.
func TestNobodyPassesAZnodeThatIsLookedFor(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t, calm)
	path, look := newPath(t), admin(t)
	mkdirs(t, look, path)
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, path+"/"), Times: 1, Do: zktest.CutAfter()})
	const throttled = -127 // whoever looks for it asks again
	find := p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpSync, path), Do: zktest.ReplyError(throttled)})
	one := goLock(context.Background(), NewMutex(s, path))
	eventually(t, 5*time.Second, "it is looked for", func() bool { return p.Counts().Requests[zktest.OpSync] > 0 && len(children(t, look, path)) == 1 })
	two := goLock(context.Background(), NewMutex(s, path))
	waitingFor(t, path, 2)
	select {
	case r := <-two:
		t.Fatalf("it has passed the one that is looked for: %+v", r)
	case <-time.After(300 * time.Millisecond):
	}
	find()
	for _, got := range []<-chan lockResult{one, two} {
		l := mustLease(t, got)
		require.NoError(t, l.Release(within(t, 5*time.Second)))
	}
	require.Empty(t, children(t, look, path))
}

// A create that was given up may land when nobody reads its directory any more. Whoever made it looks for it again after each reconnect.
func TestCreateThatLandsLateIsRemovedAfterAReconnect(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t, calm)
	path, other := newPath(t), admin(t)
	mkdirs(t, other, path)
	asked := make(chan string, 1)
	create := zktest.MatchPath(zktest.OpCreate, path+"/")
	p.OnRequest(zktest.Rule{Times: 1, Do: zktest.CutBefore(), Match: func(f zktest.Frame) bool {
		if !create(f) || len(asked) > 0 {
			return false
		}
		asked <- f.Path
		return true
	}})
	l, err := NewMutex(s, path).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	eventually(t, 5*time.Second, "it is known that nothing of the first create is there", func() bool {
		syncs := 0
		for _, q := range p.Requests() {
			if q.Op == zktest.OpSync && q.Path == path && q.Answered {
				syncs++
			}
		}
		return syncs > 1 // of the recovery, and of the sweep
	})
	for range 3 {
		_, err = s.Conn().Sync("/") // what was asked for before is answered
		require.NoError(t, err)
	}
	_, err = other.Create(next(t, asked), nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	p.Cut()
	eventually(t, 5*time.Second, "it is removed", func() bool { return len(children(t, other, path)) == 1 })
	require.NoError(t, l.Err())
	require.NoError(t, l.Release(within(t, 5*time.Second)))
}

// Close of an adopted connection waits for the look for a create that was given up a moment ago, and deletes what it finds.
func TestAdoptedCloseLooksForWhatWasAbandoned(t *testing.T) {
	forAdoptions(t, func(t testing.TB) {
		r, sv := newAdopted(t, 5*time.Second)
		recovers, sweeps := zktest.NewGate(), zktest.NewGate()
		defer recovers.Open()
		defer sweeps.Open()
		r.p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, r.path+"/"), Times: 1, Do: zktest.CutAfter()})
		r.p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpSync, r.path), Times: 1, Do: zktest.HoldReply(recovers)})
		r.p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpSync, r.path), Times: 1, Do: zktest.HoldReply(sweeps)})
		ctx, cancel := context.WithCancel(context.Background())
		got := goLock(ctx, r.m)
		next(t, recovers.Reached())
		cancel()
		require.ErrorIs(t, (<-got).err, context.Canceled)
		recovers.Open()
		next(t, sweeps.Reached())
		closing := goCall(r.s.Close)
		still(t, closing)
		sweeps.Open()
		require.NoError(t, next(t, closing))
		r.exactly()
		sv.usable(t, r.s.ID())
	})
}
