package zkrecipes

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// A testServer is a server of a test's own: a real one, or where none was asked for one in this process.
type testServer struct {
	addr                       string
	stop, start, pause, resume func() error
	watches                    func(t testing.TB) int // that it keeps for its clients
}

func newTestServer(t testing.TB, tick time.Duration) *testServer {
	t.Helper()
	if testrun.Real() {
		m := zktest.Start(t, zktest.TickTime(tick)).Server(0)
		return &testServer{m.Addr(), m.Stop, m.Start, m.Pause, m.Resume, func(t testing.TB) int { return watchesOf(t, m) }}
	}
	s := zktest.NewServer(t, zktest.TickTime(tick))
	done := func(f func()) func() error { return func() error { f(); return nil } }
	resume := func() {}
	pause := func() {
		var all []int64
		for ses := range s.Sessions() {
			all = append(all, ses.ID)
		}
		resume = s.Partition(all...)
	}
	return &testServer{s.Addr(), done(s.Stop), s.Start, done(pause), done(func() { resume() }), func(testing.TB) (n int) {
		for ses := range s.Sessions() {
			n += ses.Watches
		}
		return n
	}}
}

func watchesOf(t testing.TB, server *zktest.Member) int {
	t.Helper()
	out, err := server.FourLetter(within(t, 5*time.Second), "mntr")
	require.NoError(t, err)
	for line := range strings.Lines(out) {
		if v, ok := strings.CutPrefix(line, "zk_watch_count\t"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(v))
			require.NoError(t, err)
			return n
		}
	}
	t.Fatal("no watch count in " + out)
	return 0
}
