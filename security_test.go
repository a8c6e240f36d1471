package zkrecipes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// Whatever a recipe makes, in whatever way, has the ACL of its Session, and so do the parents: everything there is while each of them is held.
func TestACLOfEveryZnode(t *testing.T) {
	t.Parallel()
	const secret = "carol:correct-horse"
	acl := zk.DigestACL(zk.PermAll, "carol", "correct-horse")
	top, look := newPath(t), adminWith(t, secret)
	open := func() *Session {
		return dialShared(t, calm, WithAuth("digest", secret), WithACL(acl...), WithNamespace(top))
	}
	s, other := open(), open()
	bg := within(t, 30*time.Second)
	rw := NewRWLock(s, "/deep/rw")
	writes, err := rw.Lock(bg)
	require.NoError(t, err)
	_, err = rw.RLock(writes.Context()) // by a transaction
	require.NoError(t, err)
	for _, lock := range []Locker{
		NewMutex(s, "/deep/mutex"), NewRWLock(s, "/deep/readers").RLocker(), NewSemaphore(s, "/deep/semaphore", 3).Locker(2),
		NewMultiLock(NewMutex(s, "/deep/a"), NewSemaphore(s, "/deep/b", 1).Locker(1)), NewMajorityLock(NewMutex(s, "/deep/c")),
	} {
		_, err := lock.Lock(bg)
		require.NoError(t, err)
	}
	waiting := goLock(bg, NewMutex(other, "/deep/mutex"))
	ctx, cancel := context.WithCancel(bg)
	var wg sync.WaitGroup
	latch := NewLeaderLatch(s, "/deep/election")
	wg.Go(func() { _ = latch.Run(ctx) })
	_, err = latch.Await(bg)
	require.NoError(t, err)
	require.NoError(t, NewBarrier(s, "/deep/barrier").Set(bg))
	var entered sync.WaitGroup
	for _, s := range []*Session{s, other} {
		entered.Go(func() {
			if err := NewDoubleBarrier(s, "/deep/double", 2).Enter(bg); err != nil {
				t.Error(err)
			}
		})
	}
	entered.Wait()
	eventually(t, 5*time.Second, "one waits", func() bool { return len(children(t, look, top+"/deep/mutex")) == 2 })

	seen := 0
	var walk func(node string)
	walk = func(node string) {
		got, _, err := look.GetACL(node)
		if path.Base(node) == "locks" && errors.Is(err, zk.ErrNoNode) { // an empty container
			return
		}
		require.NoError(t, err, node)
		require.Equal(t, acl, got, node)
		seen++
		names, _, err := look.Children(node)
		if !errors.Is(err, zk.ErrNoNode) {
			require.NoError(t, err, node)
		}
		for _, name := range names {
			walk(path.Join(node, name))
		}
	}
	walk(top)
	// Top and deep, the ten paths, the leases of the two semaphores, whose locks may have gone again, and what is held or waits.
	require.GreaterOrEqual(t, seen, 2+10+2+14)
	cancel()
	wg.Wait()
	require.NoError(t, s.Close())
	mustLease(t, waiting)
}

// A connection that proves who it is does so again after each reconnect, and in each new session, before anything is asked: no call is ever refused for that, also
// when the connection breaks in the middle of it.
func TestDigestOverReconnects(t *testing.T) {
	t.Parallel()
	const secret = "dave:correct-horse"
	s, p := dialProxy(t, calm, WithAuth("digest", secret), WithAuth("digest", "second:identity"), WithACL(zk.DigestACL(zk.PermAll, "dave", "correct-horse")...))
	lock := newPath(t)
	kept, err := NewMutex(s, lock+"/kept").Lock(within(t, 5*time.Second)) // what nobody else may touch
	require.NoError(t, err)
	for i := range max(6, 12/oneIn(t)) {
		switch i % 3 {
		case 0:
			p.Cut()
		case 1: // the connection that proves it ends in that
			p.OnRequest(zktest.Rule{Match: zktest.Nth(i%2, zktest.MatchOp(zktest.OpAuth)), Times: 1, Do: zktest.CutBefore()})
			p.Cut()
		case 2:
			p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpAuth), Times: 1, Do: zktest.CutAfter()})
			p.Cut()
		}
		l, err := NewMutex(s, lock+"/cycles").Lock(within(t, 20*time.Second))
		require.NoError(t, err)
		require.NoError(t, l.Release(within(t, 20*time.Second)))
	}
	require.NoError(t, kept.Err())
	old := s.ID()
	expireSession(t, p)
	<-kept.Done()
	again, err := NewMutex(s, lock+"/kept").Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	require.NotEqual(t, old, s.ID())
	require.NoError(t, again.Release(within(t, 5*time.Second)))
}

// What a credential says, and what WithData puts into a znode, is in no line of a log at any level, and in the text of no error, whatever goes wrong.
func TestNoSecretIsTold(t *testing.T) {
	t.Parallel()
	const password, data = "hunter2-password", "card-number-4711"
	var mu sync.Mutex
	var logged bytes.Buffer
	logger := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return logged.Write(b)
	}), &slog.HandlerOptions{Level: slog.LevelDebug - 10}))
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	opts := []DialOption{WithTimeout(testTimeout), WithLogger(logger), WithAuth("digest", "erin:"+password), WithACL(zk.DigestACL(zk.PermAll, "erin", password)...)}
	s, err := Dial(within(t, 10*time.Second), []string{p.Addr()}, opts...)
	require.NoError(t, err)
	defer s.Close()
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	lock := newPath(t)
	secretly := WithData([]byte(data))
	held, err := NewMutex(s, lock, secretly).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	// Who waits is told the owner of who is ahead, so that one has none to hide.
	_, err = NewMutex(s, lock+"-plain").Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	for _, m := range []Locker{NewMutex(s, lock+"-plain", secretly), NewRWLock(s, lock+"-plain", secretly), NewRWLock(s, lock+"-plain", secretly).RLocker()} {
		_, err := m.TryLock(within(t, 5*time.Second))
		add(err)
		_, err = m.Lock(within(t, 50*time.Millisecond))
		add(err)
	}
	stranger := dialShared(t, WithLogger(logger), WithAuth("digest", "mallory:"+password))
	_, err = NewMutex(stranger, lock, secretly).Lock(within(t, 5*time.Second))
	add(err)
	_, err = Inspect(within(t, 5*time.Second), stranger, lock)
	add(err)
	add(NewDoubleBarrier(stranger, lock, 2, secretly).Enter(within(t, 5*time.Second)))
	add(NewDoubleBarrier(s, lock+"-double", 2, secretly).Enter(within(t, 50*time.Millisecond)))
	_, err = NewMutex(s, lock, WithData(bytes.Repeat([]byte(data), 1<<17))).Lock(within(t, 5*time.Second))
	add(err)
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, lock+"-cut"), Times: 3, Do: zktest.CutBefore()})
	_, err = NewMutex(s, lock+"-cut", secretly).Lock(within(t, 5*time.Second))
	add(err)
	expireSession(t, p)
	<-held.Done()
	add(held.Err())
	add(held.Release(within(t, 5*time.Second)))
	add(s.Close())
	_, err = NewMutex(s, lock, secretly).Lock(within(t, 5*time.Second))
	add(err)
	for _, wrong := range [][2]string{{"", "erin:" + password}, {"no-such-scheme", password}} {
		_, err := Dial(within(t, 5*time.Second), []string{p.Addr()}, WithLogger(logger), WithAuth(wrong[0], wrong[1]))
		require.Error(t, err)
		add(err)
	}
	p.Refuse(true)
	_, err = Dial(within(t, 300*time.Millisecond), []string{p.Addr()}, opts...)
	add(err)

	require.GreaterOrEqual(t, len(errs), 14)
	for _, err := range errs {
		for e := err; e != nil; e = errors.Unwrap(e) {
			text := fmt.Sprintf("%v %+v %s %q", e, e, e, e)
			require.NotContains(t, text, password)
			require.NotContains(t, text, data)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	require.Positive(t, strings.Count(logged.String(), "\n"))
	require.NotContains(t, logged.String(), password)
	require.NotContains(t, logged.String(), data)
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// What WithData puts into a znode is nobody's owner in an error either.
func TestErrorOfAWaitDoesNotShowData(t *testing.T) {
	t.Parallel()
	const data = "card-number-4711"
	for name, of := range map[string]func(*Session, string) Locker{
		"mutex":     func(s *Session, path string) Locker { return NewMutex(s, path, WithData([]byte(data))) },
		"read lock": func(s *Session, path string) Locker { return NewRWLock(s, path, WithData([]byte(data))) },
		"semaphore": func(s *Session, path string) Locker {
			return NewSemaphore(s, path, 1, WithData([]byte(data))).Locker(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, path := dialShared(t, calm), newPath(t)
			for _, holder := range []*Session{s, dialShared(t, calm)} {
				held, err := of(holder, path).Lock(within(t, 5*time.Second))
				require.NoError(t, err)
				_, try := of(s, path).TryLock(within(t, 10*time.Second))
				for _, err := range []error{try, staysHeld(t, context.Background(), of(s, path).Lock)} {
					require.ErrorIs(t, err, ErrHeld)
					require.NotContains(t, err.Error(), data)
					var e *Error
					require.ErrorAs(t, err, &e)
					for _, p := range e.Ahead {
						require.Empty(t, p.Owner)
					}
				}
				require.NoError(t, held.Release(within(t, 5*time.Second)))
			}
		})
	}
}
