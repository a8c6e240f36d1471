package zkrecipes

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// Tokens grow from one grant to the next that it excludes, over a downgrade, the end of a session and a directory that is made anew. What is guarded
// by the Check of a lease goes with its own znode: a read that goes on guards, its writer does not.
func TestReadWriteTokensOnlyGrow(t *testing.T) {
	t.Parallel()
	bg, c, path := context.Background(), admin(t), newPath(t)
	s, p := dialProxy(t, WithTimeout(4*time.Second))
	other := NewRWLock(dialShared(t, WithTimeout(10*time.Second)), path)
	l := NewRWLock(s, path)
	value := path + "-value"
	put(t, c, value)
	guarded := func(lease *Lease) error {
		_, err := c.Multi(lease.Check(), &zk.SetDataRequest{Path: value, Data: nil, Version: -1})
		return err
	}
	var last Token
	grew := func(lease *Lease, err error) *Lease {
		t.Helper()
		require.NoError(t, err)
		require.Greater(t, lease.Token(), last)
		last = lease.Token()
		require.NoError(t, guarded(lease))
		return lease
	}
	for round := range 3 {
		w := grew(l.Lock(within(t, 20*time.Second)))
		waiting := goLock(bg, other)
		waitingFor(t, path, 2)
		r, err := l.RLock(w.Context())
		require.NoError(t, err)
		require.Equal(t, w.Token(), r.Token())
		require.NoError(t, guarded(r))
		require.NoError(t, w.Release(bg))
		require.ErrorIs(t, guarded(w), zk.ErrNoNode)
		require.NoError(t, guarded(r))
		ps, err := l.Participants(bg)
		require.NoError(t, err)
		require.Greater(t, ps[0].Token, r.Token(), "its own znode came after the writer's that waits")
		require.NoError(t, r.Release(bg))
		require.ErrorIs(t, guarded(r), zk.ErrNoNode)
		r = grew(mustLease(t, waiting), nil)
		require.NoError(t, r.Release(bg))

		r = grew(l.RLock(within(t, 20*time.Second)))
		if round == 0 {
			session := s.ID()
			expireSession(t, p)
			<-r.Done()
			eventually(t, 10*time.Second, "another session", func() bool { return s.ID() != session && s.State() == StateConnected })
		} else {
			require.NoError(t, r.Release(bg))
		}
		require.ErrorIs(t, guarded(r), zk.ErrNoNode)
		eventually(t, 10*time.Second, "the directory is deleted", func() bool { err := c.Delete(path, -1); return err == nil || err == zk.ErrNoNode })
	}
}

// Near the limit of a directory's counter a nested read takes a znode of its own up to the last number with which it can count on order by number;
// from there on it shares its writer's, and keeps it when the write lease is released: nobody is granted beside it, whatever the numbers do.
func TestReadUnderWriteAtTheLimit(t *testing.T) {
	t.Parallel()
	const near, at, past = "/near", "/at", "/past"
	addrs := startAt(t, map[string]int32{near: lastNested - 1, at: 1<<31 - 3, past: -1 << 31})
	c := adminAt(t, addrs)
	s, others := dial(t, addrs, WithTimeout(10*time.Second)), dial(t, addrs, WithTimeout(10*time.Second))
	bg := context.Background()

	for i := range 3 {
		l := NewRWLock(s, near)
		w, err := l.Lock(within(t, 10*time.Second))
		require.NoError(t, err)
		r, err := l.RLock(w.Context())
		require.NoError(t, err)
		require.Equal(t, w.Token(), r.Token())
		require.Equal(t, i > 0, r.Node() == w.Node(), "%s under %s", r.Node(), w.Node())
		require.NoError(t, w.Release(bg))
		require.NoError(t, r.Err())
		require.Len(t, children(t, c, near), 1)
		_, err = NewRWLock(others, near).TryLock(bg)
		require.ErrorIs(t, err, ErrHeld)
		require.NoError(t, r.Release(bg))
		require.Empty(t, children(t, c, near))
	}

	readsOnTheWriters(t, NewRWLock(s, past))

	var mu sync.Mutex
	readers, writers := 0, 0
	var tokens []Token
	enter := func(l *Lease, n *int) {
		mu.Lock()
		defer mu.Unlock()
		*n++
		if writers > 1 || writers == 1 && readers > 0 {
			t.Errorf("%d writers and %d readers", writers, readers)
		}
		if n == &writers {
			tokens = append(tokens, l.Token())
		}
	}
	leave := func(n *int) {
		mu.Lock()
		defer mu.Unlock()
		*n--
	}
	l := NewRWLock(s, at)
	first, err := l.Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	enter(first, &writers)
	var wg sync.WaitGroup
	for i := range 12 { // behind the first the number sticks at its limit, or wraps
		wg.Go(func() {
			lock := NewRWLock([]*Session{s, others}[i/2%2], at)
			ctx := within(t, 60*time.Second)
			if i%3 == 1 {
				r, err := lock.RLock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				enter(r, &readers)
				leave(&readers)
				if err := r.Release(bg); err != nil {
					t.Error(err)
				}
				return
			}
			w, err := lock.Lock(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			enter(w, &writers)
			r, err := lock.RLock(readUnder(ctx, w))
			if err != nil {
				t.Error(err)
				return
			}
			if r.Node() != w.Node() || r.Token() != w.Token() {
				t.Errorf("it does not share its writer's znode: %s and %s", r.Node(), w.Node())
			}
			leave(&writers)
			if err := w.Release(bg); err != nil {
				t.Error(err)
			}
			enter(r, &readers)
			leave(&readers)
			if err := r.Release(bg); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, 10*time.Second, "all queued", func() bool { return len(children(t, c, at)) == 13 })
	r, err := l.RLock(first.Context())
	require.NoError(t, err)
	require.Equal(t, first.Node(), r.Node())
	leave(&writers)
	require.NoError(t, first.Release(bg))
	enter(r, &readers)
	require.Len(t, children(t, c, at), 13)
	require.NoError(t, r.Err())
	leave(&readers)
	require.NoError(t, r.Release(bg))
	wg.Wait()
	require.IsIncreasing(t, tokens)
	require.Empty(t, children(t, c, at))
	require.True(t, strings.HasSuffix(first.Node(), "2147483645"), first.Node())
}

// readsOnTheWriters reads under a write whose number is below zero, which is nobody's place.
func readsOnTheWriters(t testing.TB, l *RWLock) {
	w, err := l.Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	r, err := l.RLock(w.Context())
	require.NoError(t, err)
	require.Equal(t, w.Node(), r.Node())
	require.NoError(t, w.Release(within(t, 10*time.Second)))
	require.NoError(t, r.Release(within(t, 10*time.Second)))
}
