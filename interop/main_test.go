package interop

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

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

func TestMain(m *testing.M) {
	if os.Getenv(parentRole) != "" {
		os.Exit(parent())
	}
	if library := os.Getenv(childRole); library != "" {
		os.Exit(serve(library))
	}
	os.Exit(testrun.Main(m, nil, CloseShared, zktest.CloseShared))
}

var pathCount atomic.Int64

// newPath returns a path that no other test uses.
func newPath(t testing.TB) string {
	name := strings.NewReplacer("/", "_", " ", "_", ",", "").Replace(t.Name())
	return fmt.Sprintf("/interop/%s-%d-%d", name, os.Getpid(), pathCount.Add(1))
}

// within returns a ctx for everything that a test waits for.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func servers(t testing.TB) []string { return zktest.Shared(t).Addrs() }

// dial opens a Session that is closed with the test.
func dial(t testing.TB) *zkrecipes.Session {
	t.Helper()
	return dialAt(t, servers(t))
}

func dialAt(t testing.TB, servers []string) *zkrecipes.Session {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := zkrecipes.Dial(within(t, 20*time.Second), servers, zkrecipes.WithTimeout(sessionTimeout), zkrecipes.WithLogger(log))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// plain opens a plain client of go-zookeeper's.
func plain(t testing.TB) *zk.Conn {
	t.Helper()
	return clientOf(t, servers(t)[0])
}

// open opens a client of another library in the process that the tests share.
func open(t testing.TB, kind Kind) *Peer {
	t.Helper()
	return Shared(t, kind).Open(t, servers(t))
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	const patience = 10 * time.Second
	for deadline := time.Now().Add(patience); !cond(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(2 * time.Millisecond) // a poll of a condition with a deadline, not a synchronisation
	}
}

// inspect is Inspect behind a sync, so that what other sessions have done before is in it.
func inspect(t testing.TB, s *zkrecipes.Session, path string) zkrecipes.Participants {
	t.Helper()
	_, err := s.Conn().Sync(path)
	require.NoError(t, err)
	ps, err := zkrecipes.Inspect(within(t, 10*time.Second), s, path)
	require.NoError(t, err)
	return ps
}
