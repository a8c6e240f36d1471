package core

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// load keeps requests of every kind pending, and watches set, until the returned function is called. It fails the test when something is refused.
func load(t *testing.T, e *Engine, dir string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range 8 {
		path := fmt.Sprintf("%s/%d", dir, i)
		mk(t, e, path, "")
		wg.Go(func() {
			sub := e.Watch(path, Data, func(Wake) {})
			defer sub.Cancel()
			for ctx.Err() == nil {
				var err error
				switch rand.N(4) {
				case 0:
					_, _, err = sub.Arm(ctx)
				case 1:
					_, err = e.Do(ctx, func(c Conn) error { _, err := c.Set(path, nil, -1); return err })
				case 2:
					_, err = e.Do(ctx, func(c Conn) error { _, _, err := c.Children(dir); return err })
				case 3:
					_, err = e.Do(ctx, func(c Conn) error { _, err := c.Sync(path); return err })
				}
				if err != nil && ctx.Err() == nil && Classify(err) == Answered {
					t.Errorf("%s: %v", path, err)
					return
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// Go's race detector finds the client reading its last zxid for setWatches while its receive loop writes it, unless the wire keeps the frames back. So
// this test says nothing without -race.
func TestReconnectsUnderLoad(t *testing.T) {
	withoutPauses(t)
	e, _, p := connectShared(t, Config{Timeout: 10 * time.Second})
	dir := newPath(t)
	mk(t, e, dir, "")
	stop := load(t, e, dir)
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	for range 8 { // past the gate: what has got into the client's queue when the connection is lost is sent first on the next one
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _ = owner(e).client.conn.Set(dir, nil, -1)
			}
		})
	}
	session := e.Epoch().Session
	cuts := 100
	if !testrun.Real() {
		cuts = 20
	}
	for range cuts {
		conn := e.Epoch().Conn
		p.Cut()
		eventually(t, 10*time.Second, "it is back", func() bool { return e.Ready() && e.Epoch().Conn > conn })
		before := p.Counts().Total()
		eventually(t, 10*time.Second, "requests pass", func() bool { return p.Counts().Total() > before+4 })
	}
	require.Equal(t, session, e.Epoch().Session)
	require.NotZero(t, p.Counts().Requests[zktest.OpSetWatches])
}

// withoutPauses lets a test cut one connection after another without the pauses that this costs.
func withoutPauses(t *testing.T) {
	old := shortLived
	shortLived = 0
	t.Cleanup(func() { shortLived = old })
}

// Credentials and watches are sent again at every reconnect, and each waits for answers of its own.
func TestCredentialsAndWatchesAtAReconnect(t *testing.T) {
	withoutPauses(t)
	e, _, p := connectShared(t, Config{Auth: []Auth{{"digest", []byte("u:p")}, {"digest", []byte("v:q")}}})
	path := newPath(t)
	do(t, e, func(c Conn) error {
		_, err := c.Create(path, nil, 0, zk.DigestACL(zk.PermAll, "u", "p"))
		return err
	})
	second := newPath(t)
	do(t, e, func(c Conn) error {
		_, err := c.Create(second, nil, 0, zk.DigestACL(zk.PermAll, "v", "q"))
		return err
	})
	session := e.Epoch().Session
	var woken atomic.Int32
	sub := e.Watch(path, Data, func(w Wake) {
		if w == Changed {
			woken.Add(1)
		}
	})
	defer sub.Cancel()
	for range 20 {
		_, _, err := sub.Arm(within(t, 10*time.Second))
		require.NoError(t, err)
		conn, n := e.Epoch().Conn, woken.Load()
		p.Cut()
		eventually(t, 10*time.Second, "it is back", func() bool { return e.Ready() && e.Epoch().Conn > conn })
		do(t, e, func(c Conn) error { _, _, err := c.Get(path); return err })
		do(t, e, func(c Conn) error { _, _, err := c.Get(second); return err })
		do(t, e, func(c Conn) error { _, err := c.Set(path, nil, -1); return err })
		eventually(t, 10*time.Second, "the watch that was set before has fired", func() bool { return woken.Load() > n })
	}
	require.Equal(t, session, e.Epoch().Session)
}

// A client without the credential is refused: the tests of this file would see a lost one.
func TestCredentialsAreNeeded(t *testing.T) {
	e, _, _ := connectShared(t, Config{Auth: []Auth{{"digest", []byte("u:p")}}})
	path := newPath(t)
	do(t, e, func(c Conn) error {
		_, err := c.Create(path, nil, 0, zk.DigestACL(zk.PermAll, "u", "p"))
		return err
	})
	other, _, _ := connectShared(t, Config{Auth: []Auth{{"digest", []byte("u:wrong")}}})
	_, err := other.Do(within(t, 5*time.Second), func(c Conn) error { _, _, err := c.Get(path); return err })
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.Equal(t, Answered, Classify(err))
}

// The gate opens when the server has taken the credentials, also when the connection was lost in between.
func TestCredentialsAreTakenBeforeTheFirstRequest(t *testing.T) {
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	for n := range 2 {
		p.OnRequest(zktest.Rule{Match: zktest.Nth(n, zktest.MatchOp(zktest.OpAuth)), Times: 1, Do: zktest.CutBefore()})
	}
	e, _ := connect(t, Config{Servers: []string{p.Addr()}, Auth: []Auth{{"digest", []byte("u:p")}, {"digest", []byte("v:q")}}})
	path := newPath(t)
	do(t, e, func(c Conn) error {
		_, err := c.Create(path, nil, 0, zk.DigestACL(zk.PermAll, "v", "q"))
		return err
	})
	do(t, e, func(c Conn) error { _, _, err := c.Get(path); return err })
	for _, r := range p.Requests() {
		if r.Op == zktest.OpCreate {
			break
		}
		require.Contains(t, []zktest.Op{zktest.OpConnect, zktest.OpAuth, zktest.OpPing}, r.Op)
	}
}

// A credential that the server does not take at all will never be taken: the engine says so, and goes on without it.
func TestRefusedCredential(t *testing.T) {
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	e, _ := start(t, Config{Servers: []string{p.Addr()}, Auth: []Auth{{"digest", []byte("u:p")}, {"no-such-scheme", []byte("x")}, {"digest", []byte("v:q")}}})
	select {
	case err := <-e.Fatal():
		require.ErrorIs(t, err, zk.ErrAuthFailed)
		require.ErrorContains(t, err, "no-such-scheme")
	case <-time.After(15 * time.Second):
		t.Fatal("nothing is said")
	}
	await(t, e)
	path := newPath(t)
	do(t, e, func(c Conn) error {
		_, err := c.Create(path, nil, 0, zk.DigestACL(zk.PermAll, "v", "q"))
		return err
	})
	do(t, e, func(c Conn) error { _, _, err := c.Get(path); return err })
	require.LessOrEqual(t, p.Counts().Requests[zktest.OpConnect], 4, "it is not offered again and again")
}

// More than 128 KiB of watches are sent in several batches, each of which waits for the answer to the one before.
func TestManyWatchesAtAReconnect(t *testing.T) {
	e, _, p := connectShared(t, Config{Timeout: 10 * time.Second, Auth: []Auth{{"digest", []byte("u:p")}}})
	other, _, _ := connectShared(t, Config{})
	dir := newPath(t)
	mk(t, e, dir, "")
	const n = 2500
	name := func(i int) string { return fmt.Sprintf("%s/%s-%d", dir, strings.Repeat("w", 120), i) }
	var woken atomic.Int32
	var subs []*Sub
	var wg sync.WaitGroup
	places := make(chan struct{}, queued)
	for i := range n {
		sub := e.Watch(name(i), Presence, func(w Wake) {
			if w == Changed {
				woken.Add(1)
			}
		})
		subs = append(subs, sub)
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			if _, _, err := sub.Arm(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	defer func() {
		for _, s := range subs {
			s.Cancel()
		}
	}()
	session, conn := e.Epoch().Session, e.Epoch().Conn
	p.ResetCounters()
	p.Refuse(true)
	for i := range 20 { // while nobody watches
		mk(t, other, name(i*100), "")
	}
	p.Refuse(false)
	eventually(t, 15*time.Second, "it is back", func() bool { return e.Ready() && e.Epoch().Conn > conn })
	eventually(t, 15*time.Second, "what happened meanwhile is told", func() bool { return woken.Load() == 20 })
	eventually(t, 15*time.Second, "all watches are set", func() bool { return p.Counts().Requests[zktest.OpSetWatches] >= 3 })
	do(t, e, func(c Conn) error { _, err := c.Sync("/"); return err })
	mk(t, other, name(1), "")
	eventually(t, 15*time.Second, "a watch set again fires", func() bool { return woken.Load() == 21 })
	require.Equal(t, session, e.Epoch().Session)
}

// Without watches nothing is held, with watches only until they are sent; both in no time at all.
func TestReconnectWaitsForNothing(t *testing.T) {
	for _, watched := range []bool{false, true} {
		virtual(t, func(t *testing.T) {
			f := newFake(t)
			f.make("/w")
			e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
			pass(0)
			if watched {
				subscribe(t, e, "/w", Data).arm(t)
			}
			began := time.Now()
			f.cut()
			pass(0)
			do(t, e, func(c Conn) error { _, err := c.Sync("/"); return err })
			require.Equal(t, began, time.Now())
			require.EqualValues(t, 2, e.Epoch().Conn)
			require.Len(t, f.requests(opSetWatches), map[bool]int{false: 0, true: 1}[watched])
		})
	}
}
