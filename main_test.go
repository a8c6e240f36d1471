package zkrecipes

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

func TestMain(m *testing.M) {
	if role := os.Getenv("ZKRECIPES_TEST_WORKER"); role != "" {
		os.Exit(testWorker(role))
	}
	realOnly := []string{ // servers that lag behind, or three of them
		"Test(Adopted)?CreateStuckInAPausedFollowerLeavesNoOrphan", "TestNestedReadStuckInAPausedFollowerLeavesNoOrphan", "TestNestedReadThatLandsLate",
		"Test(Adopted)?LossBeforeRegrantOnThreeServers", "TestLeaderOnThreeServers", "TestThreeServersUnderFaults", "TestRecipes", "TestDataOverTheLimitOfTheServer",
	}
	os.Exit(testrun.Main(m, realOnly, func() error { return os.RemoveAll(plainDir) }, zktest.CloseShared)) // "" is none
}

// quick is go test without anything else, on the server of this process: for a first answer within a minute.
func quick() bool { return !testrun.Real() && os.Getenv("ZKRECIPES_TORTURE") == "" }

// What most tests use: the tick of their servers, and the timeout of their sessions.
const (
	testTick    = 200 * time.Millisecond
	testTimeout = 10 * testTick
)

// calm is for sessions of tests that are not about time: as long as the server allows, so that a machine that stands still for a second ends none.
var calm = WithTimeout(10 * time.Second)

var pathCount atomic.Int64

// newPath returns a path that no other test uses.
func newPath(t testing.TB) string {
	return fmt.Sprintf("/%s-%d-%d", strings.NewReplacer("/", "_", " ", "_").Replace(t.Name()), os.Getpid(), pathCount.Add(1))
}

// quiet is a logger whose lines show only when the test fails.
func quiet(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	defer func() { _ = recover() }() // the test is over
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// dial opens a Session, in the way of the test, that is closed with the test.
func dial(t testing.TB, addrs []string, opts ...DialOption) *Session {
	t.Helper()
	if shortcutsOff() {
		opts = append([]DialOption{withoutShortcuts}, opts...)
	}
	if wayOf(t) != dialed {
		s, _ := adopt(t, addrs, opts...)
		return s
	}
	opts = append([]DialOption{WithTimeout(testTimeout), WithLogger(quiet(t))}, opts...)
	s, err := Dial(within(t, 20*time.Second), addrs, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Tests that are about a shortcut ask for it, or for its absence; in all others ZKRECIPES_SHORTCUTS=off leaves it away.
var (
	withShortcuts    = sessionOption(func(c *sessionConfig) { c.noShortcuts = false })
	withoutShortcuts = sessionOption(func(c *sessionConfig) { c.noShortcuts = true })
)

func shortcutsOff() bool { return os.Getenv("ZKRECIPES_SHORTCUTS") == "off" }

// dialShared opens a Session on the server that the tests share.
func dialShared(t testing.TB, opts ...DialOption) *Session {
	t.Helper()
	return dial(t, zktest.Shared(t).Addrs(), opts...)
}

// dialProxy opens a Session through a proxy of its own.
func dialProxy(t testing.TB, opts ...DialOption) (*Session, *zktest.Proxy) {
	t.Helper()
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	return dial(t, []string{p.Addr()}, opts...), p
}

// admin is a plain client for looking at the tree from outside.
func admin(t testing.TB) *zk.Conn {
	t.Helper()
	return adminAt(t, zktest.Shared(t).Addrs())
}

func adminAt(t testing.TB, addrs []string) *zk.Conn {
	t.Helper()
	c, events, err := zk.Connect(addrs, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(discard{}))
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		for range events {
		}
	})
	return c
}

type discard struct{}

func (discard) Printf(string, ...any) {}

// children lists a directory after a sync; a missing one is empty. The look of a client that is between two connections, since its server was away, comes later.
func children(t testing.TB, c Conn, path string) []string {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		_, err := c.Sync(path)
		var names []string
		if err == nil {
			names, _, err = c.Children(path)
		}
		switch {
		case err == zk.ErrNoNode:
			return nil
		case (err == zk.ErrNoServer || err == zk.ErrConnectionClosed) && time.Now().Before(deadline):
			continue
		}
		require.NoError(t, err)
		return names
	}
}

func eventually(t testing.TB, d time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(d)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", d, what)
		}
		time.Sleep(2 * time.Millisecond) // a poll of a condition with a deadline, not a synchronisation
	}
}
