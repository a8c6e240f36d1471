package core

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/znode"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// The wire reads the token off the reply to the create: it is the znode's czxid, however many creates are under way at once.
func TestTokenIsTheCzxid(t *testing.T) {
	e, _, p := connectShared(t, Config{})
	dir := newPath(t)
	mk(t, e, dir, "")
	p.ResetCounters()
	const callers, each = 16, 25
	var mu sync.Mutex
	var all []Created
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				made, err := e.Create(context.Background(), dir, znode.LockName, nil)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				all = append(all, made)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, all, callers*each)
	require.Zero(t, p.Counts().Requests[zktest.OpExists], "it is not asked for")
	seen := make(map[int64]bool)
	for _, made := range all {
		var stat *zk.Stat
		do(t, e, func(c Conn) (err error) { _, stat, err = c.Exists(made.Path); return err })
		require.Equal(t, stat.Czxid, made.Token)
		require.Equal(t, stat.EphemeralOwner, made.Session)
		require.False(t, seen[made.Token])
		seen[made.Token] = true
	}
	e.contact.mu.Lock()
	defer e.contact.mu.Unlock()
	require.Empty(t, e.contact.taps)
}

// The list is under way before the create is answered, and behind it: one round trip for both.
func TestListFollowsTheCreateWithoutWaiting(t *testing.T) {
	e, _, p := connectShared(t, Config{Timeout: 10 * time.Second})
	dir := newPath(t)
	mk(t, e, dir, "")
	p.ResetCounters()
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, dir+"/"), Times: 1, Do: zktest.HoldReply(gate)})
	type result struct {
		made Created
		err  error
	}
	done := make(chan result, 1)
	go func() {
		made, err := e.Create(context.Background(), dir, znode.LockName, nil)
		done <- result{made, err}
	}()
	ops := func() (ops []zktest.Op) {
		for _, r := range p.Requests() {
			if zktest.AllRequests(zktest.Frame{Op: r.Op}) {
				ops = append(ops, r.Op)
			}
		}
		return ops
	}
	eventually(t, 5*time.Second, "the list is sent though the create is not answered", func() bool { return len(ops()) == 2 })
	select {
	case r := <-done:
		t.Fatalf("returned %+v without an answer", r)
	default:
	}
	gate.Open()
	r := <-done
	require.NoError(t, r.err)
	require.Equal(t, []string{r.made.Name()}, r.made.List.Names)
	require.Equal(t, []zktest.Op{zktest.OpCreate, zktest.OpGetChildren2}, ops())
}

// Through a long wire with many creates under way, the list never comes before its create.
func TestListSeesTheCreate(t *testing.T) {
	e, _, p := connectShared(t, Config{Timeout: 10 * time.Second})
	dir := newPath(t)
	mk(t, e, dir, "")
	p.Delay(2 * time.Millisecond)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 40 {
				made, err := e.Create(context.Background(), dir, znode.LockName, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if made.List.Names == nil {
					t.Error("no list")
				}
				found := false
				for _, n := range made.List.Names {
					found = found || n == made.Name()
				}
				if !found {
					t.Errorf("%s is not in the list", made.Name())
				}
			}
		})
	}
	wg.Wait()
}
