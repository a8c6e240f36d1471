package zkrecipes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

func TestBadArguments(t *testing.T) {
	s, p := dialProxy(t)
	ctx := within(t, 10*time.Second)
	p.ResetCounters()
	for path, why := range map[string]string{
		"": "", "relative": "relative", "/a/": "trailing slash", "//a": "empty", "/a//b": "empty", "/a/../b": "", "/a/.": "", "/a\x00b": "", "/zookeeper": "server",
		"/zookeeper/x": "server",
	} {
		m := NewMutex(s, path)
		_, lock := m.Lock(ctx)
		_, try := m.TryLock(ctx)
		_, parts := m.Participants(ctx)
		gone := error(nil)
		if !strings.HasPrefix(path, "/zookeeper") { // which may be watched
			gone = NewWatcher(s, path).Gone(ctx)
		}
		for _, err := range []error{lock, try, parts, gone, Do(ctx, m, nil), TryDo(ctx, m, nil)} {
			if err == nil {
				continue
			}
			require.ErrorIs(t, err, ErrInvalid)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, path, e.Path)
			require.Contains(t, err.Error(), why)
		}
		require.Error(t, lock)
		require.Error(t, try)
		require.Error(t, parts)
	}
	for _, m := range []*Mutex{NewMutex(s, "/a", WithMaxHold(-1)), NewMutex(s, "/a", WithData(make([]byte, 1<<20))), NewMutex(nil, "/a")} {
		_, err := m.Lock(ctx)
		require.ErrorIs(t, err, ErrInvalid)
		_, err = m.Participants(ctx)
		require.ErrorIs(t, err, ErrInvalid)
	}
	require.ErrorIs(t, NewWatcher(nil, "/a").Gone(ctx), ErrInvalid)
	for op, n := range p.Counts().Requests {
		require.Contains(t, []zktest.Op{zktest.OpPing, zktest.OpSync}, op, "%d requests for bad arguments", n)
	}
	// Nil options are none.
	l, err := NewMutex(s, newPath(t), nil).Lock(ctx)
	require.NoError(t, err)
	require.NoError(t, l.Release(ctx))
}

func TestDialBadArguments(t *testing.T) {
	ctx := within(t, 5*time.Second)
	for name, dial := range map[string]func() (*Session, error){
		"no servers":       func() (*Session, error) { return Dial(ctx, nil) },
		"empty server":     func() (*Session, error) { return Dial(ctx, []string{""}) },
		"no port number":   func() (*Session, error) { return Dial(ctx, []string{"host:http"}) },
		"port too large":   func() (*Session, error) { return Dial(ctx, []string{"host:70000"}) },
		"chroot in a host": func() (*Session, error) { return Dial(ctx, []string{"host:2181/x"}) },
		"a list in one":    func() (*Session, error) { return Dial(ctx, []string{"h1:2181,h2:2181"}) },
		"timeout":          func() (*Session, error) { return Dial(ctx, []string{"host"}, WithTimeout(-1)) },
		"namespace":        func() (*Session, error) { return Dial(ctx, []string{"host"}, WithNamespace("/a/../b")) },
		"empty ACL":        func() (*Session, error) { return Dial(ctx, []string{"host"}, WithACL()) },
		"auth scheme":      func() (*Session, error) { return Dial(ctx, []string{"host"}, WithAuth("", "u:p")) },
	} {
		s, err := dial()
		require.Nil(t, s, name)
		require.ErrorIs(t, err, ErrInvalid, name)
		var e *Error
		require.ErrorAs(t, err, &e, name)
		require.Equal(t, "dial", e.Op)
	}
}

func TestDialUnreachable(t *testing.T) {
	t.Parallel()
	// Ports that nobody listens on.
	var servers []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		servers = append(servers, l.Addr().String())
		require.NoError(t, l.Close())
	}
	const nowhere = "no-such-host.invalid"
	servers = append(servers, nowhere+":2181")
	dialer := WithDialer(func(network, addr string, timeout time.Duration) (net.Conn, error) {
		if strings.HasPrefix(addr, nowhere) { // as a resolver says that has not to ask the network
			return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: nowhere, IsNotFound: true}}
		}
		return net.DialTimeout(network, addr, timeout)
	})
	why := errors.New("had enough")
	ctx, cancel := context.WithTimeoutCause(context.Background(), 700*time.Millisecond, why)
	defer cancel()
	start := time.Now()
	s, err := Dial(ctx, servers, dialer, WithLogger(quiet(t)))
	require.Nil(t, s)
	require.Less(t, time.Since(start), 2*time.Second)
	for _, target := range []error{context.DeadlineExceeded, why, ErrNoConnection} {
		require.ErrorIs(t, err, target)
	}
	for _, server := range servers {
		require.Contains(t, err.Error(), server, "the last error of each server is named")
	}
	t.Log(err)
	done, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Dial(done, servers, dialer, WithLogger(quiet(t)))
	require.ErrorIs(t, err, context.Canceled)
}

func TestDialSomethingThatIsNoZooKeeper(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			c.Close()
		}
	}()
	_, err = Dial(within(t, 500*time.Millisecond), []string{l.Addr().String()}, WithLogger(quiet(t)))
	require.ErrorIs(t, err, ErrNoConnection)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestAuthAndACL(t *testing.T) {
	const user, secret = "alice", "correct-horse"
	acl := zk.DigestACL(zk.PermAll, user, secret)
	var logged bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	path := newPath(t)
	bg := context.Background()
	alice := dialShared(t, WithAuth("digest", user+":"+secret), WithACL(acl...), WithLogger(logger))
	l, err := NewMutex(alice, path).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	for p := l.Node(); p != "/" && strings.HasPrefix(p, path); p = p[:max(1, strings.LastIndexByte(p, '/'))] {
		got, _, err := adminWith(t, user+":"+secret).GetACL(p)
		require.NoError(t, err)
		require.Equal(t, acl, got, "the znode and its parents: %s", p)
	}
	wrong := dialShared(t, WithAuth("digest", user+":wrong"), WithACL(acl...))
	for _, call := range []func() error{
		func() error { _, err := NewMutex(wrong, path).Lock(within(t, 5*time.Second)); return err },
		func() error { _, err := NewMutex(wrong, path).TryLock(within(t, 5*time.Second)); return err },
		func() error { _, err := NewMutex(wrong, path).Participants(within(t, 5*time.Second)); return err },
	} {
		err := call()
		require.ErrorIs(t, err, zk.ErrNoAuth)
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, path, e.Path)
		require.NotContains(t, err.Error(), "wrong")
	}
	require.NoError(t, l.Err())
	require.NoError(t, l.Release(bg))
	require.NoError(t, alice.Close())
	require.NotContains(t, logged.String(), secret)

	_, err = Dial(within(t, 5*time.Second), zktest.Shared(t).Addrs(), WithAuth("no-such-scheme", "x"), WithLogger(quiet(t)))
	require.ErrorIs(t, err, zk.ErrAuthFailed)
	require.Contains(t, err.Error(), "no-such-scheme")
}

func adminWith(t testing.TB, auth string) *zk.Conn {
	c := admin(t)
	require.NoError(t, c.AddAuth("digest", []byte(auth)))
	return c
}

// Reports: apache/curator #1258, ZOOKEEPER-3546.
func TestACLWithoutCreatePermissionLeavesNothing(t *testing.T) {
	c := admin(t)
	s := dialShared(t, WithACL(zk.WorldACL(zk.PermRead|zk.PermDelete)...))
	path := newPath(t)
	for _, m := range []*Mutex{NewMutex(s, path), NewMutex(s, path+"/deeper/still")} {
		_, err := m.Lock(within(t, 5*time.Second))
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.Contains(t, err.Error(), m.Path())
	}
	eventually(t, 5*time.Second, "the parents made on the way are gone", func() bool {
		ok, _, err := c.Exists(path)
		require.NoError(t, err)
		return !ok
	})
	// A directory in which others may not create: nothing either.
	path = newPath(t)
	mkdirs(t, c, path)
	_, err := c.SetACL(path, zk.WorldACL(zk.PermRead), -1)
	require.NoError(t, err)
	plain := dialShared(t)
	_, err = NewMutex(plain, path).Lock(within(t, 5*time.Second))
	require.ErrorIs(t, err, zk.ErrNoAuth)
	_, err = NewMutex(plain, path).TryLock(within(t, 5*time.Second))
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.Empty(t, children(t, c, path))
	require.Zero(t, plain.engine.Owing())
}

func TestDataAtAndOverTheLimit(t *testing.T) {
	s := dialShared(t)
	bg := context.Background()
	l, err := NewMutex(s, newPath(t), WithData(make([]byte, 1<<20-1<<10))).Lock(within(t, 10*time.Second))
	require.NoError(t, err, "what is announced as the limit is taken by the server")
	ps, err := NewMutex(s, l.Path()).Participants(bg)
	require.NoError(t, err)
	require.Empty(t, ps[0].Owner, "data is not an owner")
	require.NoError(t, l.Err())
	require.NoError(t, l.Release(bg))
	_, err = NewMutex(s, newPath(t), WithData(make([]byte, 1<<20-1<<10+1))).Lock(bg)
	require.ErrorIs(t, err, ErrInvalid)
}

// A server with a smaller limit drops the connection at each attempt; that ends, with an error that says so.
func TestDataOverTheLimitOfTheServer(t *testing.T) {
	small := zktest.Start(t, zktest.SystemProperty("jute.maxbuffer", fmt.Sprint(16<<10)))
	limited := dial(t, small.Addrs())
	path := newPath(t)
	_, err := NewMutex(limited, path, WithData(make([]byte, 64<<10))).Lock(within(t, 30*time.Second))
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.Contains(t, err.Error(), "65536 bytes")
	l, err := NewMutex(limited, path).Lock(within(t, 20*time.Second))
	require.NoError(t, err)
	require.NoError(t, l.Release(context.Background()))
	require.Empty(t, children(t, limited.Conn(), path))
}

func TestClosedSession(t *testing.T) {
	s := dialShared(t)
	bg := context.Background()
	path := newPath(t)
	held, err := NewMutex(s, path).Lock(bg)
	require.NoError(t, err)
	waiting := goLock(bg, NewMutex(s, path))
	waitingFor(t, path, 2)
	gone := make(chan error, 1)
	go func() { gone <- NewWatcher(s, "/").Gone(bg) }()
	require.NoError(t, s.Close())
	require.ErrorIs(t, (<-waiting).err, ErrClosed)
	require.ErrorIs(t, <-gone, ErrClosed)
	var lost *LostError
	require.ErrorAs(t, held.Err(), &lost)
	require.Equal(t, ReasonSessionClosed, lost.Reason)
	require.ErrorIs(t, held.Release(bg), ErrLost)
	require.Empty(t, children(t, admin(t), path), "the session's znodes went with it")
	require.NoError(t, s.Close())
	require.Equal(t, StateClosed, s.State())
	require.Empty(t, s.Leases())
	<-s.Done()

	m := NewMutex(s, path)
	_, lock := m.Lock(bg)
	_, try := m.TryLock(bg)
	_, parts := m.Participants(bg)
	for _, err := range []error{lock, try, parts, Do(bg, m, nil), NewWatcher(s, path).Gone(bg)} {
		require.ErrorIs(t, err, ErrClosed)
		require.Contains(t, err.Error(), path)
	}
	_, _, err = s.Conn().Get(path)
	require.ErrorIs(t, err, zk.ErrConnectionClosed)
}

func TestCloseWithNobodyThere(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t)
	l, err := NewMutex(s, newPath(t)).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	p.BlackHole(zktest.Both)
	start := time.Now()
	err = s.Close()
	require.Less(t, time.Since(start), testTimeout+3*time.Second)
	require.ErrorIs(t, err, ErrNoConnection, "nobody confirmed it: %v", err)
	require.ErrorIs(t, l.Err(), ErrLost)
}

func TestNamespace(t *testing.T) {
	path := newPath(t)
	s := dialShared(t, WithNamespace(path+"/ns"))
	l, err := NewMutex(s, "/in").Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	require.Equal(t, "/in", l.Path())
	require.True(t, strings.HasPrefix(l.Node(), path+"/ns/in/_c_"), l.Node())
	require.Equal(t, l.Node(), l.Check().Path)
	_, err = NewMutex(s, "/in").TryLock(within(t, 5*time.Second))
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "/in", e.Path)
	require.Equal(t, l.Node(), e.Ahead[0].Node)
	outside := dialShared(t)
	_, err = NewMutex(outside, path+"/ns/in").TryLock(within(t, 5*time.Second))
	require.ErrorIs(t, err, ErrHeld)
	require.NoError(t, l.Release(context.Background()))
	// The root of the namespace is a lock path like another.
	l, err = NewMutex(s, "/").Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	require.NoError(t, l.Release(context.Background()))
}

func TestParseConnectString(t *testing.T) {
	for in, want := range map[string][]string{
		"h1:2181":                {"h1:2181"},
		"h1:2181,h2:2181":        {"h1:2181", "h2:2181"},
		" h1:2181 , h2 ":         {"h1:2181", "h2"},
		"h1:2181,h2:2181/a/b":    {"h1:2181", "h2:2181"},
		"[::1]:2181,[::2]:2181/": {"[::1]:2181", "[::2]:2181"},
		"h1,":                    {"h1"},
	} {
		servers, ns, err := ParseConnectString(in)
		require.NoError(t, err, in)
		require.Equal(t, want, servers, in)
		if strings.HasSuffix(in, "/a/b") {
			require.Equal(t, "/a/b", ns)
		} else {
			require.Empty(t, ns)
		}
	}
	for _, in := range []string{"", "/a", ",", "h1:x", "h1:2181/a/", "h1:2181/a//b", "h1:2181/../b", "h 1:2181"} {
		_, _, err := ParseConnectString(in)
		require.ErrorIs(t, err, ErrInvalid, in)
	}
}

// Reports: etcd commit 5b8c6b548, etcd commit d1ae4cd5b.
func TestReleaseTwice(t *testing.T) {
	s, p := dialProxy(t)
	bg := context.Background()
	m := NewMutex(s, newPath(t))
	l, err := m.Lock(bg)
	require.NoError(t, err)
	require.NoError(t, l.Release(bg))
	p.ResetCounters()
	require.NoError(t, l.Release(bg))
	require.Zero(t, p.Counts().Requests[zktest.OpDelete])
	next, err := m.Lock(bg)
	require.NoError(t, err)
	require.NoError(t, l.Release(bg), "a late release does not touch the next hold")
	require.NoError(t, next.Err())
	require.NoError(t, next.Release(bg))
}
