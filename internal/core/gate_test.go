package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// What the client is given while there is no session survives an expiry in its queue and is executed in the next session.
func TestNothingEntersTheClientWithoutASession(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		var mute atomic.Bool
		f.setOnConnect(func(c *fakeConn, r fakeConnect) bool {
			if mute.Load() { // accepted, never answered
				<-c.done
			}
			return false
		})
		e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
		entered := make(chan int, 100)
		var wg sync.WaitGroup
		ask := func(ctx context.Context, n int, want error) {
			for range n {
				wg.Go(func() {
					_, err := e.Do(ctx, func(c Conn) error {
						entered <- 1
						_, err := c.Sync("/")
						return err
					})
					if !errors.Is(err, want) {
						t.Errorf("got %v, want %v", err, want)
					}
				})
			}
		}
		mute.Store(true)
		f.cut()
		pass(100 * time.Millisecond)
		require.False(t, e.Ready())
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		ask(ctx, 30, context.DeadlineExceeded)
		wg.Wait()
		require.Empty(t, entered)
		ask(context.Background(), 30, nil)
		pass(10 * time.Second)
		require.Empty(t, entered)
		mute.Store(false)
		wg.Wait()
		require.Len(t, entered, 30)

		require.NoError(t, closeWithin(e, time.Second))
		ask(context.Background(), 1, ErrClosed)
		wg.Wait()
		require.Len(t, entered, 30)
	})
}

// A server that reads nothing any more: what is in the client's queue stays there. One place is left for the heartbeat and one for Close, and what the
// user asks for leaves some to the engine.
func TestFewerThanSixteenAreQueued(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial, Timeout: 20 * time.Second})
		f.setOnRequest(func(c *fakeConn, _ fakeRequest) bool {
			<-c.done
			return true
		})
		var callers, own atomic.Int32
		request := func(inside *atomic.Int32) func(Conn) error {
			return func(c Conn) error {
				inside.Add(1)
				_, err := c.Sync("/")
				return err
			}
		}
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() { _ = e.DoCaller(context.Background(), request(&callers)) })
		}
		pass(time.Second)
		require.EqualValues(t, callerQueued, callers.Load())
		for range 40 {
			wg.Go(func() { _, _ = e.Do(context.Background(), request(&own)) })
		}
		e.Enter() // the heartbeat comes on top
		pass(5 * time.Second)
		e.Leave()
		require.EqualValues(t, queued, callers.Load()+own.Load())
		require.GreaterOrEqual(t, own.Load(), int32(4), "what callers may take leaves some to the engine")
		require.Less(t, callers.Load()+own.Load()+1, int32(16))

		began := time.Now()
		_ = closeWithin(e, 100*time.Millisecond)
		// The client waits a second for the answer; two more if there is no place in its queue for the request.
		require.Less(t, time.Since(began), 2*time.Second)
		wg.Wait()
	})
}

// A create that lay in the client's queue when its session expired is executed in the next one, and succeeds. Its znode is nobody's: it is removed, and
// the call goes on with one of its own.
func TestQueuedCreateThatRunsInTheNextSessionIsRemoved(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		f.make("/q")
		e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial, Timeout: 20 * time.Second})
		first := e.Epoch().Session
		var stopped atomic.Bool
		stopped.Store(true)
		f.setOnRequest(func(c *fakeConn, r fakeRequest) bool {
			if stopped.Load() {
				<-c.done
			}
			return false
		})
		go func() { _, _ = e.Do(context.Background(), func(c Conn) error { _, err := c.Sync("/"); return err }) }()
		pass(10 * time.Millisecond)
		// The server reads no further: this one fills the socket, and the create stays in the queue.
		go func() { _, _ = e.Do(context.Background(), func(c Conn) error { _, err := c.Sync("/"); return err }) }()
		pass(10 * time.Millisecond)
		type result struct {
			made Created
			err  error
		}
		done := make(chan result, 1)
		go func() {
			made, err := e.Create(context.Background(), "/q", znode.LockName, nil)
			done <- result{made, err}
		}()
		pass(10 * time.Millisecond)
		f.expire(first)
		stopped.Store(false)
		f.cut()
		r := <-done
		require.NoError(t, r.err)
		second := e.Epoch().Session
		require.NotEqual(t, first, second)
		require.Equal(t, second, r.made.Session)
		pass(time.Second)
		creates := f.requests(opCreate)
		require.Len(t, creates, 2)
		require.NotEqual(t, creates[0].path, creates[1].path, "a fresh id")
		require.Equal(t, []string{r.made.Path}, f.has("/q/"))
		require.Zero(t, e.Owing())
	})
}

// The gate opens for a connection once. Whoever looks at it with an old reading of the connection must not shut it again: nobody would open it before
// the next connection, and there would be none, because this one is good.
func TestOldReadingDoesNotShutTheGate(t *testing.T) {
	e, _ := newEngine(t, Config{Servers: []string{"zk:2181"}, Logger: slog.New(slog.DiscardHandler)})
	e.contact.notify = func(signal) {}
	l := newLane(e.ctx, owner(e).route, e.contact, e.Timeout)
	made := make(chan struct{})
	close(made)
	owner(e).client = &client{lane: l, made: made}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer func() {
		cancel()
		wg.Wait()
		owner(e).client = nil // there is nothing to close
		require.NoError(t, closeWithin(e, time.Second))
	}()
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _ = e.Await(ctx)
			}
		})
	}
	for range 3000 {
		w := &wire{lane: l, Conn: noConn{}, up: true}
		asked := e.contact.Epoch().Session
		_, ok := e.contact.connected(w, asked, now(), connectReply{timeoutMs: 2000, session: 7})
		require.True(t, ok)
		owner(e).openGate(owner(e).client, e.contact.Epoch())
		eventually(t, time.Second, "the gate is open", e.Ready)
		e.contact.disconnected(w, errors.New("cut"))
	}
}

func TestAwaitEndsWithItsContextAndWithClose(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		f.setOnDial(func(string) error { return fmt.Errorf("no way") })
		e, _ := start(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := e.Await(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 200*time.Millisecond, time.Since(began))
		require.ErrorContains(t, e.DialError(), "zk:2181: no way")
		done := make(chan error, 1)
		go func() {
			_, err := e.Await(context.Background())
			done <- err
		}()
		pass(time.Second)
		require.NoError(t, closeWithin(e, time.Second))
		require.ErrorIs(t, <-done, ErrClosed)
		require.NoError(t, closeWithin(e, time.Second), "again")
		require.False(t, e.Go(func() {}))
	})
}

// Read asks again after each connection that ended without an answer, and returns when its context ends though the request is under way.
func TestReadAsksAgainUntilItsContextEnds(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		f.make("/r")
		drops := 3
		f.setOnRequest(func(c *fakeConn, r fakeRequest) bool {
			switch {
			case r.path == "/silent":
				return true
			case r.path == "/r" && drops > 0:
				drops--
				c.close()
				return true
			}
			return false
		})
		e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
		exists := func(path string) func(Conn) (bool, error) {
			return func(c Conn) (bool, error) { ok, _, err := c.Exists(path); return ok, err }
		}
		ok, span, err := Read(context.Background(), e, exists("/r"))
		require.NoError(t, err)
		require.True(t, ok)
		require.True(t, span.SameConn())
		require.EqualValues(t, 4, span.After.Conn)
		require.Len(t, f.requests(opExists), 4)

		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, _, err = Read(ctx, e, exists("/silent"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 50*time.Millisecond, time.Since(began))

		_, _, err = Read(context.Background(), e, func(c Conn) (string, error) { return "", c.Delete("/none", -1) })
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.False(t, strings.Contains(err.Error(), "unknown"))
	})
}
