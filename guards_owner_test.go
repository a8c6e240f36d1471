package zkrecipes

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// Release asks the clock by itself, too: what was lost at that moment was not given back.
func TestVirtualReleaseAsksTheClock(t *testing.T) {
	for i := range 24 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			virtual(t, func(t *testing.T, server *zktest.Server) {
				s, proofs := dialVirtual(t, server)
				l, err := NewMutex(s, "/v/lock").Lock(t.Context())
				require.NoError(t, err)
				time.Sleep(time.Minute + time.Duration(i)*time.Millisecond*173)
				synctest.Wait()
				heal := server.Partition(s.ID())
				time.Sleep(time.Until(proofs.get().Add(virtualTimeout * 2 / 3)))
				over, cancel := context.WithCancel(t.Context())
				cancel()
				require.ErrorIs(t, l.Release(over), ErrLost)
				heal()
			})
		})
	}
}

// A lease that is released twice is counted once: the other leases of the Session are proved alive as before.
func TestVirtualReleaseTwiceEndsNoOtherLease(t *testing.T) {
	virtual(t, func(t *testing.T, server *zktest.Server) {
		s, _ := dialVirtual(t, server)
		one, err := NewMutex(s, "/v/one").Lock(t.Context())
		require.NoError(t, err)
		two, err := NewMutex(s, "/v/two").Lock(t.Context())
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, one.Release(t.Context()))
		}
		time.Sleep(time.Hour)
		require.NoError(t, two.Err())
		require.NoError(t, two.Release(t.Context()))
	})
}

// A wait is given up when its grant is on its way already. Either the caller has the lease or nobody has.
func TestGrantThatMeetsTheEndOfTheWait(t *testing.T) {
	t.Parallel()
	s, other, path := dialShared(t, calm), dialShared(t, calm), newPath(t)
	ctx := within(t, 30*time.Second)
	granted := 0
	for range 5 {
		first, err := NewMutex(other, path).Lock(ctx)
		require.NoError(t, err)
		waits, cancel := context.WithCancel(ctx)
		got := goLock(waits, NewMutex(s, path))
		waitingFor(t, path, 2)
		s.mu.Lock() // who comes for it is served in the order of arrival: first the grant, then the caller that gives up
		require.NoError(t, first.Release(ctx))
		<-time.After(50 * time.Millisecond)
		cancel()
		<-time.After(5 * time.Millisecond)
		s.mu.Unlock()
		if r := <-got; r.err == nil {
			granted++
			require.NoError(t, r.lease.Release(ctx))
		}
		require.Empty(t, s.Leases())
		next, err := NewMutex(other, path).Lock(within(t, 5*time.Second))
		require.NoError(t, err)
		require.NoError(t, next.Release(ctx))
	}
	t.Logf("granted %d times", granted)
}

// The transaction that makes a read under a write is lost with its connection, while the write lease is released. The writer's znode stays until the read is
// decided, so that the read takes the writer's place and not one behind those who wait.
func TestReadThatIsCutKeepsTheWritersPlace(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t, calm)
	path := newPath(t)
	ctx := within(t, 30*time.Second)
	w, err := NewRWLock(s, path, WithOwner("o")).Lock(ctx)
	require.NoError(t, err)
	waits := goLock(ctx, NewRWLock(dialShared(t, calm), path))
	waitingFor(t, path, 2)
	gate := zktest.NewGate()
	defer gate.Open()
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldRequest(gate)})
	read := goLock(ctx, NewRWLock(s, path, WithOwner("o")).RLocker())
	next(t, gate.Reached())
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, w.Release(short), context.DeadlineExceeded)
	p.Cut()
	r := mustLease(t, read)
	require.Equal(t, w.Token(), r.Token(), "the read has queued behind the one that waits")
	select {
	case got := <-waits:
		t.Fatalf("the writer holds beside the read: %v, %v", got.lease, got.err)
	default:
	}
	require.NoError(t, r.Release(ctx))
	require.NoError(t, mustLease(t, waits).Release(ctx))
}
