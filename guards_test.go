package zkrecipes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// To enter again asks the clock by itself: at the moment at which it runs out nobody may have told the lease yet.
func TestVirtualReentryAsksTheClock(t *testing.T) {
	for i := range 24 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			virtual(t, func(t *testing.T, server *zktest.Server) {
				s, proofs := dialVirtual(t, server)
				m := NewMutex(s, "/v/lock", WithOwner("deep"))
				_, err := m.Lock(t.Context())
				require.NoError(t, err)
				time.Sleep(time.Minute + time.Duration(i)*time.Millisecond*173)
				synctest.Wait()
				defer server.Partition(s.ID())()
				end := proofs.get().Add(virtualTimeout * 2 / 3)
				time.Sleep(time.Until(end) - time.Nanosecond)
				again, err := m.TryLock(t.Context())
				require.NoError(t, err)
				require.NoError(t, again.Release(t.Context()))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				time.Sleep(time.Nanosecond)
				_, err = m.TryLock(ctx)
				require.Error(t, err, "a dead lease is entered again")
			})
		})
	}
}

// A znode whose create was given up, because a recovery on a server that lags did not show it, is removed by whoever lists its directory next: here the sweep
// that looks for it is refused each time, and only the list that the recipe reads for itself shows it.
func TestListOfARecipeShowsWhatWasAbandoned(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		below string
		enter func(t testing.TB, s *Session, path string) (leave func())
	}{
		"mutex": {"", func(t testing.TB, s *Session, path string) func() {
			return heldBy(t, NewMutex(s, path))
		}},
		"permit": {"/leases", func(t testing.TB, s *Session, path string) func() {
			return heldBy(t, NewSemaphore(s, path, 2).Locker(1))
		}},
		"double barrier": {"", func(t testing.TB, s *Session, path string) func() {
			b := NewDoubleBarrier(s, path, 1)
			require.NoError(t, b.Enter(within(t, 10*time.Second)))
			return func() { require.NoError(t, b.Leave(within(t, 10*time.Second))) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := dialProxy(t, calm)
			path, look := newPath(t), admin(t)
			dir := path + c.below
			mkdirs(t, look, dir)
			create := zktest.MatchPath(zktest.OpCreate, dir+"/")
			p.OnRequest(zktest.Rule{Times: 1, Do: zktest.CutAfter(), Match: func(f zktest.Frame) bool { return create(f) && !strings.HasSuffix(f.Path, "/ready") }})
			syncs, lists := 0, 0
			p.OnRequest(zktest.Rule{Do: zktest.RewriteReply(emptyList), Match: func(f zktest.Frame) bool { // of the recovery
				if f.Op != zktest.OpGetChildren2 || f.Path != dir || syncs != 1 {
					return false
				}
				lists++
				return lists == 1
			}})
			const invalidACL = -114                                                                       // a refusal of the server's
			p.OnRequest(zktest.Rule{Do: zktest.ReplyError(invalidACL), Match: func(f zktest.Frame) bool { // of the sweeps
				if f.Op != zktest.OpSync || f.Path != dir {
					return false
				}
				syncs++
				return syncs > 1
			}})
			leave := c.enter(t, s, path)
			eventually(t, 5*time.Second, "there is one znode", func() bool {
				return len(slices.DeleteFunc(children(t, look, dir), func(name string) bool { return name == readyName || name == locksDir })) == 1
			})
			leave()
			eventually(t, 5*time.Second, "there is none", func() bool { return len(children(t, look, dir)) == 0 })
		})
	}
}

// heldBy takes a lock, and returns what gives it back.
func heldBy(t testing.TB, l Locker) func() {
	lease, err := l.Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	return func() { require.NoError(t, lease.Release(within(t, 10*time.Second))) }
}

// A ready that names nobody is the round's only if it is the one by which the member came in: another one that stands in its place by the time the member
// leaves is somebody else's, and stays.
func TestDoubleBarrierLeavesAForeignReadyOfAnotherRound(t *testing.T) {
	t.Parallel()
	for _, byForeign := range []bool{true, false} {
		t.Run(fmt.Sprint(byForeign), func(t *testing.T) {
			t.Parallel()
			path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
			put(t, c, path)
			ready := path + "/" + readyName
			members := 1
			if byForeign {
				members = 5
				put(t, c, ready)
			}
			b := NewDoubleBarrier(dialShared(t), path, members)
			require.NoError(t, b.Enter(ctx))
			require.NoError(t, c.Delete(ready, -1))
			put(t, c, ready)
			require.NoError(t, b.Leave(ctx))
			require.Equal(t, []string{readyName}, children(t, c, path))
		})
	}
}
