package zkrecipes

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A drain is a lock that a session holds, with waiters of the same session behind, who give it back as soon as they have it.
type drain struct {
	holder  *Lease
	waiters sync.WaitGroup
	last    Token // of the grants, which come one after the other
}

// newDrain returns when all wait, and each has claimed the place of the one before it.
func newDrain(t testing.TB, s *Session, path string, waiters int) *drain {
	bg := context.Background()
	l, err := NewMutex(s, path).Lock(bg)
	require.NoError(t, err)
	d := &drain{holder: l, last: l.Token()}
	for range waiters {
		d.waiters.Go(func() {
			l, err := NewMutex(s, path).Lock(bg)
			if err != nil {
				t.Error(err)
				return
			}
			if l.Token() <= d.last {
				t.Errorf("%d was granted after %d", l.Token(), d.last)
			}
			d.last = l.Token()
			if err := l.Release(bg); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, 60*time.Second, "all wait", func() bool {
		s.heirs.mu.Lock()
		defer s.heirs.mu.Unlock()
		return len(s.heirs.m) == waiters
	})
	return d
}

func (d *drain) run(t testing.TB) {
	require.NoError(t, d.holder.Release(context.Background()))
	d.waiters.Wait()
}

// What the drain of a queue of one session costs does not depend on its length: a request for each grant, and the notice that a watched znode went. While they
// come, those who list at the same time share a list, and a znode is read once, for its owner and for the one behind it.
func TestDrainOfOneSession(t *testing.T) {
	const short, long = 50, 400
	per := make(map[int]float64)
	for _, n := range []int{short, long} {
		s, p := dialProxy(t, WithTimeout(30*time.Second), withShortcuts)
		path := fmt.Sprintf("/drain-%d-%d", n, pathCount.Add(1))
		put(t, admin(t), path)
		d := newDrain(t, s, path, n)
		c := p.Counts().Requests
		require.Equal(t, n+1, c[zktest.OpCreate])
		require.LessOrEqual(t, c[zktest.OpGetData], n+n/10+1, "each znode is watched once")
		require.Less(t, c[zktest.OpGetChildren2], n+n/4)
		if n == long {
			require.Less(t, c[zktest.OpGetChildren2], n*3/4)
		}
		p.ResetCounters()
		d.run(t)
		counts := p.Counts()
		heartbeats := counts.Requests[zktest.OpSync]
		require.Equal(t, n, counts.Requests[zktest.OpMulti])
		require.Equal(t, n+1, counts.Total()-heartbeats, "%v", counts.Requests)
		per[n] = float64(counts.ToServer+counts.ToClient-int64(heartbeats)*50) / float64(n)
		require.Less(t, per[n], 134+3*float64(len(path)+1+55)+20, "bytes of a waiter: a transaction with two paths, its answer, and a notice with one")
		require.Empty(t, children(t, admin(t), path))
		require.Empty(t, s.Leases())
	}
	require.InEpsilon(t, per[short], per[long], 0.1)
	t.Logf("bytes of a waiter: %.0f", per[long])
}

// BenchmarkDrain is one waiter's share of the drain of a queue of one session.
func BenchmarkDrain(b *testing.B) {
	s := dialShared(b, WithTimeout(30*time.Second), withShortcuts)
	b.StopTimer()
	for left := b.N; left > 0; left -= 1000 {
		d := newDrain(b, s, newPath(b), min(left, 1000))
		b.StartTimer()
		d.run(b)
		b.StopTimer()
	}
}
