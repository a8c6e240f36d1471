//go:build unix

package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// busy runs until a signal ends it. A shell that is about to exec a long sleep may lose a SIGINT.
const busy = "while :; do sleep 0.05; done"

// within is a ctx that the test's calls end with.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// onServers is zklock with a connect string.
func onServers(t *testing.T, servers string, args ...string) *zklock {
	t.Helper()
	z := newZklock(t, args...)
	z.Env = append(z.Env, "ZKLOCK_SERVERS="+servers)
	return z
}

// observer is a session of the test's own.
func observer(t *testing.T, servers string, opts ...zkrecipes.DialOption) *zkrecipes.Session {
	t.Helper()
	s, err := dial(within(t, 20*time.Second), servers, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func queue(t *testing.T, s *zkrecipes.Session, path string) zkrecipes.Participants {
	t.Helper()
	ps, err := zkrecipes.Inspect(within(t, 20*time.Second), s, path)
	require.NoError(t, err)
	return ps
}

// hold takes a lock for the rest of the test.
func hold(t *testing.T, s *zkrecipes.Session, path string, owner zkrecipes.Owner) *zkrecipes.Lease {
	t.Helper()
	lease, err := zkrecipes.NewMutex(s, path, zkrecipes.WithOwner(owner)).Lock(within(t, 20*time.Second))
	require.NoError(t, err)
	return lease
}

func TestRunHoldsTheLockWhileCmdRuns(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"lock": nil, "reader": {"-shared"}, "permit": {"-permits", "2"}, "given owner": {"-owner", "job 7"}, "try": {"-try"}, "in time": {"-timeout", "1m"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := sharedServers(t)
			s := observer(t, servers)
			z := onServers(t, servers, append(append([]string{"run"}, flags...), "/lock", "--",
				"sh", "-c", `echo "token=$ZKLOCK_TOKEN owner=$ZKLOCK_OWNER path=$ZKLOCK_PATH."; cat; echo end`)...)
			stdin, err := z.StdinPipe()
			require.NoError(t, err)
			z.Env = append(z.Env, "ZKLOCK_TOKEN=of an outer zklock")
			require.NoError(t, z.Start())
			found := z.find(t, `token=(\d+) owner=(.+) path=/lock\.\n`)
			var ps zkrecipes.Participants
			eventually(t, 20*time.Second, "one holder", func() bool { // who has a permit leaves the queue for it afterwards
				ps = queue(t, s, "/lock")
				return len(ps) == 1 && ps[0].Holding
			})
			var token int64
			for _, r := range found[1] {
				token = 10*token + int64(r-'0')
			}
			require.EqualValues(t, ps[0].Token, token)
			require.EqualValues(t, ps[0].Owner, found[2])
			if name == "given owner" {
				require.Equal(t, "job 7", found[2])
			}
			_, err = stdin.Write([]byte("through standard input\n"))
			require.NoError(t, err)
			z.find(t, "through standard input\n")
			require.NoError(t, stdin.Close())
			require.Equal(t, exitOK, z.finish(t))
			require.Contains(t, z.stdout.String(), "end\n")
			require.Empty(t, z.stderr.String())
			require.Empty(t, queue(t, s, "/lock"))
		})
	}
}

func TestRunEndsAsCmdDoes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte("no program"), 0o600))
	broken := filepath.Join(dir, "broken")
	require.NoError(t, os.WriteFile(broken, []byte("\x7fELF and no more"), 0o700))
	for _, tc := range []struct {
		name   string
		argv   []string
		code   int
		stderr string
	}{
		{"success", []string{"true"}, exitOK, ""},
		{"failure", []string{"sh", "-c", "exit 7"}, 7, ""},
		{"signal", []string{"sh", "-c", "kill -KILL $$"}, exitSignal + int(syscall.SIGKILL), ""},
		{"its own flags", []string{"sh", "-c", `[ "$*" = "-try -- -x" ]`, "sh", "-try", "--", "-x"}, exitOK, ""},
		{"not found", []string{"no-such-command"}, exitNotFound, "whole path"},
		{"no such file", []string{dir + "/none"}, exitNotFound, "none"},
		{"not executable", []string{text}, exitNotStarted, "permission denied"},
		{"no program", []string{broken}, exitNotStarted, "exec format"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			servers := sharedServers(t)
			z := onServers(t, servers, append([]string{"run", "/lock", "--"}, tc.argv...)...)
			require.Equal(t, tc.code, z.run(t))
			if tc.stderr == "" {
				require.Empty(t, z.stderr.String())
			}
			require.Contains(t, z.stderr.String(), tc.stderr)
			require.Empty(t, queue(t, observer(t, servers), "/lock"))
		})
	}
}

func TestRunDoesNotHaveTheLock(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		flags []string
		code  int
	}{
		{"try", []string{"-try"}, exitHeld},
		{"a reader tries", []string{"-try", "-shared"}, exitHeld},
		// The time for the connection is in it, too.
		{"timeout", []string{"-timeout", "3s"}, exitTimeout},
		{"a reader in time", []string{"-timeout", "3s", "-shared"}, exitTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			servers := sharedServers(t)
			s := observer(t, servers)
			hold(t, s, "/lock", "the other")
			z := onServers(t, servers, append(append([]string{"run"}, tc.flags...), "/lock", "--", "echo", "ran")...)
			require.Equal(t, tc.code, z.run(t))
			require.Empty(t, z.stdout.String())
			require.Contains(t, z.stderr.String(), "the other")
			require.Contains(t, z.stderr.String(), "zklock status /lock shows more")
			require.Equal(t, 1, strings.Count(z.stderr.String(), "\n"))
			require.Len(t, queue(t, s, "/lock"), 1)
		})
	}
}

func TestRunWithoutAServer(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"-try"}} {
		// Long enough for an attempt to fail: of one that goes on there is nothing to tell.
		z := onServers(t, "127.0.0.1:1", append(append([]string{"run", "-timeout", "2s"}, flags...), "/lock", "--", "echo", "ran")...)
		require.Equal(t, exitNoConnection, z.run(t))
		require.Empty(t, z.stdout.String())
		require.Contains(t, z.stderr.String(), "127.0.0.1:1")
		require.Contains(t, z.stderr.String(), "ZKLOCK_SERVERS")
	}
}

// As many as there are permits, and no more.
func TestRunPermits(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	var first []*zklock
	for range 2 {
		z := onServers(t, servers, "run", "-permits", "2", "/lock", "--", "sh", "-c", "echo runs; read end")
		stdin, err := z.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, z.Start())
		z.find(t, "runs")
		t.Cleanup(func() { _ = stdin.Close() })
		first = append(first, z)
	}
	third := onServers(t, servers, "run", "-permits", "2", "-try", "/lock", "--", "echo", "ran")
	require.Equal(t, exitHeld, third.run(t))
	require.Empty(t, third.stdout.String())
	for _, z := range first {
		require.NoError(t, z.Process.Signal(syscall.SIGTERM))
		require.Equal(t, exitSignal+int(syscall.SIGTERM), z.finish(t))
	}
}

func TestRunTellsWhatHappens(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := observer(t, servers)
	lease := hold(t, s, "/lock", "the other")
	z := onServers(t, servers, "run", "-v", "/lock", "--", "echo", "ran")
	require.NoError(t, z.Start())
	eventually(t, 20*time.Second, "a line that it waits", func() bool { return strings.Contains(z.stderr.String(), "waiting for /lock, 1 ahead") })
	require.NoError(t, lease.Release(within(t, 20*time.Second)))
	require.Equal(t, exitOK, z.finish(t))
	require.Regexp(t, `/lock is held as .+ with token \d+\n`, z.stderr.String())
	require.Equal(t, "ran\n", z.stdout.String())
}

// losses end a lease while CMD runs.
var losses = map[string]func(t *testing.T, p *zktest.Proxy, s *zkrecipes.Session){
	"session expired": func(t *testing.T, p *zktest.Proxy, _ *zkrecipes.Session) { expire(t, p) },
	"znode was deleted": func(t *testing.T, _ *zktest.Proxy, s *zkrecipes.Session) {
		require.NoError(t, s.Conn().Delete(queue(t, s, "/lock")[0].Node, -1))
	},
	"no proof": func(_ *testing.T, p *zktest.Proxy, _ *zkrecipes.Session) { p.BlackHole(zktest.Both) },
}

// proxied is a proxy in front of a server, and a connect string through it into the directory of the test.
func proxied(t *testing.T, servers string) (*zktest.Proxy, string) {
	hosts, namespace, err := zkrecipes.ParseConnectString(servers)
	require.NoError(t, err)
	p := zktest.NewProxy(t, hosts[0])
	return p, p.Addr() + namespace
}

// expire ends the session of a proxy's client, which cannot come back to it meanwhile.
func expire(t *testing.T, p *zktest.Proxy) {
	t.Helper()
	gate := zktest.NewGate()
	defer gate.Open()
	defer p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpConnect), Do: zktest.HoldRequest(gate)})()
	require.NoError(t, p.Expire(within(t, 20*time.Second)))
}

func TestRunTellsCmdThatTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := sharedServers(t)
			proxy, through := proxied(t, servers)
			z := onServers(t, through, "run", "-session-timeout", "2s", "-grace", "1m", "/lock", "--",
				"sh", "-c", `trap 'echo told; exit 3' TERM; echo begun; while :; do sleep 0.05; done`)
			require.NoError(t, z.Start())
			z.find(t, "begun")
			lose(t, proxy, observer(t, servers))
			require.Equal(t, exitLost, z.finish(t), "soon, without the grace time")
			require.Equal(t, "begun\ntold\n", z.stdout.String())
			require.Contains(t, z.stderr.String(), name)
			require.Contains(t, z.stderr.String(), "exit code 3")
		})
	}
}

// A CMD that ends well, but after the loss, has not done so under the lock.
func TestRunWithASuccessThatCameTooLate(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	proxy, through := proxied(t, servers)
	z := onServers(t, through, "run", "-session-timeout", "2s", "/lock", "--", "sh", "-c", `trap 'exit 0' TERM; echo begun; while :; do sleep 0.05; done`)
	require.NoError(t, z.Start())
	z.find(t, "begun")
	expire(t, proxy)
	require.Equal(t, exitLost, z.finish(t))
}

// The default grace time goes by what the server has granted, not by what was asked for.
func TestGraceIsByTheGrantedTimeout(t *testing.T) {
	t.Parallel()
	const granted = 400 * time.Millisecond // the least of this server: two ticks
	server := zktest.NewServer(t, zktest.TickTime(200*time.Millisecond))
	s, err := zkrecipes.Dial(within(t, 20*time.Second), []string{server.Addr()}, zkrecipes.WithTimeout(100*time.Millisecond), zkrecipes.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, granted, s.Timeout())
	byDefault, given := job{grace: unset}, job{grace: time.Hour}
	byDefault.fit(s)
	given.fit(s)
	require.Equal(t, killedAfterLoss(granted), byDefault.grace)
	require.Equal(t, time.Hour, given.grace)
}
