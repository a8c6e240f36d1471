package main

import (
	"os"
	"path"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// stubborn has a process in its group that outlives it, and neither hears SIGTERM.
const stubborn = `trap "" TERM; sleep 600 & echo "pids $$ $!."; while :; do sleep 0.05; done`

// pids finds those that stubborn has printed.
func (z *zklock) pids(t *testing.T) (all map[int]string) {
	t.Helper()
	all = make(map[int]string)
	for _, text := range z.find(t, `pids (\d+) (\d+)\.`)[1:] {
		pid, err := strconv.Atoi(text)
		require.NoError(t, err)
		all[pid] = "process " + text + " of CMD"
	}
	return all
}

func TestRunKillsTheGroupAfterTheGraceTime(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"deaf": stubborn,
		"leader ends, another process of the group does not": `(trap "" TERM; exec sleep 600) & trap 'exit 3' TERM; echo "pids $$ $!."; while :; do sleep 0.05; done`,
		"stopped": stubborn + ` & kill -STOP $$`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := sharedServers(t)
			proxy, through := proxied(t, servers)
			z := onServers(t, through, "run", "-session-timeout", "2s", "-grace", "400ms", "/lock", "--", "sh", "-c", script)
			require.NoError(t, z.Start())
			pids := z.pids(t)
			begin := time.Now()
			expire(t, proxy)
			require.Equal(t, exitLost, z.finish(t))
			require.GreaterOrEqual(t, time.Since(begin), 400*time.Millisecond)
			requireGone(t, pids)
		})
	}
}

// A holder that hears nothing from the servers, and a CMD that does not listen to it: with the default grace time the group is dead before anybody else
// is granted.
func TestRunEndsBeforeTheNextIsGranted(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	proxy, through := proxied(t, servers)
	z := onServers(t, through, "run", "-session-timeout", "6s", "/lock", "--", "sh", "-c", stubborn)
	require.NoError(t, z.Start())
	pids := z.pids(t)
	s := observer(t, servers)
	proxy.BlackHole(zktest.Both)
	lease := hold(t, s, "/lock", "the next")
	for pid, name := range pids {
		require.True(t, gone(pid), "%s was at work when the next was granted", name)
	}
	require.Equal(t, exitLost, z.finish(t))
	require.NoError(t, lease.Release(within(t, 20*time.Second)))
}

func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, script string
		signal       syscall.Signal
		code         int
		stdout       string
	}{
		{"CMD dies of it", "echo begun; " + busy, syscall.SIGTERM, exitSignal + int(syscall.SIGTERM), "begun\n"},
		{"CMD catches it", "trap 'echo told; exit 5' INT; echo begun; while :; do sleep 0.05; done", syscall.SIGINT, 5, "begun\ntold\n"},
		{"its group gets it, too", "trap : USR1; (trap 'echo told; exit' USR1; echo begun; " + busy + ") & wait; wait", syscall.SIGUSR1, 0, "begun\ntold\n"},
		{"hang-up", "trap 'echo told; exit 6' HUP; echo begun; while :; do sleep 0.05; done", syscall.SIGHUP, 6, "begun\ntold\n"},
		{"CMD does not care", "trap '' TERM; echo begun; read line; echo went on; exit 4", syscall.SIGTERM, 4, "begun\nwent on\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			servers := sharedServers(t)
			z := onServers(t, servers, "run", "/lock", "--", "sh", "-c", tc.script)
			stdin, err := z.StdinPipe()
			require.NoError(t, err)
			require.NoError(t, z.Start())
			z.find(t, "begun")
			require.NoError(t, z.Process.Signal(tc.signal))
			if tc.code == 4 {
				require.Len(t, queue(t, observer(t, servers), "/lock"), 1, "it is CMD that decides")
			}
			require.NoError(t, stdin.Close())
			require.Equal(t, tc.code, z.finish(t))
			require.Equal(t, tc.stdout, z.stdout.String())
			require.NotContains(t, z.stderr.String(), "zklock") // a shell may tell of the signal
			require.Empty(t, queue(t, observer(t, servers), "/lock"), "given back")
		})
	}
}

func TestRunGivesUpOnASignal(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			servers := sharedServers(t)
			s := observer(t, servers)
			hold(t, s, "/lock", "the other")
			z := onServers(t, servers, "run", "-session-timeout", "1m", "/lock", "--", "echo", "ran")
			require.NoError(t, z.Start())
			eventually(t, 20*time.Second, "a waiter", func() bool { return len(queue(t, s, "/lock")) == 2 })
			require.NoError(t, z.Process.Signal(signal))
			require.Equal(t, exitSignal+int(signal), z.finish(t))
			require.Contains(t, z.stderr.String(), "while waiting")
			require.Empty(t, z.stdout.String())
			require.Len(t, queue(t, s, "/lock"), 1)
		})
	}
}

// As under nohup: what was ignored when zklock began stays so, for it and for CMD.
func TestRunIgnoresWhatItsCallerIgnores(t *testing.T) {
	t.Parallel()
	z := onServers(t, sharedServers(t), "run", "/lock", "--", "sh", "-c", "echo begun; read line; echo end")
	z.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`, z.Path}, z.Args[1:]...)
	z.Path = "/bin/sh"
	stdin, err := z.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, z.Start())
	z.find(t, "begun")
	for pid := range children(z.Process.Pid) {
		require.NoError(t, syscall.Kill(pid, syscall.SIGHUP))
	}
	require.NoError(t, z.Process.Signal(syscall.SIGHUP))
	require.NoError(t, stdin.Close())
	require.Equal(t, exitOK, z.finish(t))
	require.Equal(t, "begun\nend\n", z.stdout.String())
}

// Nobody renews the lease of a zklock that was killed, so CMD goes with it, and the next is granted when the session is over.
func TestKilledRunTakesCmdWithIt(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := observer(t, servers)
	z := onServers(t, servers, "run", "-session-timeout", "2s", "/lock", "--", "sh", "-c", `trap "" TERM; echo begun; while :; do sleep 0.05; done`)
	require.NoError(t, z.Start())
	z.find(t, "begun")
	started := children(z.Process.Pid)
	require.Len(t, started, 1)
	require.NoError(t, z.Process.Kill())
	requireGone(t, started)
	require.Len(t, queue(t, s, "/lock"), 1, "its znode is there until its session ends")
	lease := hold(t, s, "/lock", "the next")
	require.NoError(t, lease.Release(within(t, 20*time.Second)))
	_ = z.Wait()
}

// A connection that comes back in time is nothing to CMD.
func TestCmdDoesNotNoticeAShortDisconnect(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	proxy, through := proxied(t, servers)
	z := onServers(t, through, "run", "-session-timeout", "4s", "/lock", "--", "sh", "-c", "echo begun; read line; echo end")
	stdin, err := z.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, z.Start())
	z.find(t, "begun")
	proxy.Flap(5, 50*time.Millisecond)
	require.NoError(t, stdin.Close())
	require.Equal(t, exitOK, z.finish(t))
	require.Equal(t, "begun\nend\n", z.stdout.String())
}

func TestRunIsRevocable(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := observer(t, servers)
	deaf := onServers(t, servers, "run", "/lock", "--", "sh", "-c", "echo begun; read line; exit 9")
	stdin, err := deaf.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, deaf.Start())
	deaf.find(t, "begun")
	require.NoError(t, zkrecipes.Revoke(within(t, 20*time.Second), s, queue(t, s, "/lock")[0].Node))
	eventually(t, 20*time.Second, "a line about it", func() bool { return deaf.stderr.String() != "" })
	require.Contains(t, deaf.stderr.String(), "without -revocable")
	require.NoError(t, stdin.Close())
	require.Equal(t, 9, deaf.finish(t))

	z := onServers(t, servers, "run", "-revocable", "/lock", "--", "sh", "-c", "echo begun; "+busy)
	require.NoError(t, z.Start())
	z.find(t, "begun")
	r := onServers(t, servers, "revoke", z.node(t, s))
	require.Equal(t, exitOK, r.run(t))
	require.Regexp(t, `^asked .+ \(session 0x[0-9a-f]+, token \d+\) to give /lock/.+ back; zklock status /lock shows whether it does\n$`, r.stdout.String())
	require.Equal(t, exitSignal+int(syscall.SIGTERM), z.finish(t))
	require.Contains(t, z.stderr.String(), "SIGTERM")
	require.Empty(t, queue(t, s, "/lock"))
}

// node is the path of the only znode of /lock, as a user names it.
func (z *zklock) node(t *testing.T, s *zkrecipes.Session) string {
	t.Helper()
	ps := queue(t, s, "/lock")
	require.Len(t, ps, 1)
	return "/lock/" + path.Base(ps[0].Node)
}

// Who reads what zklock tells may have gone. CMD runs all the same.
func TestRunWithNobodyToTell(t *testing.T) {
	t.Parallel()
	z := onServers(t, sharedServers(t), "run", "-v", "/lock", "--", "sh", "-c", "echo ran; exit 9")
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	z.Stderr = w
	require.NoError(t, z.Start())
	require.NoError(t, w.Close())
	require.Equal(t, 9, z.finish(t))
	require.Equal(t, "ran\n", z.stdout.String())
}

// A lease that ends in the moment of the grant.
func TestCmdIsNotStartedWithoutTheLease(t *testing.T) {
	t.Parallel()
	s := observer(t, sharedServers(t))
	lease := hold(t, s, "/lock", "me")
	require.NoError(t, s.Conn().Delete(lease.Node(), -1))
	<-lease.Done()
	j := &job{file: "/bin/true", argv: []string{"true"}, tell: t.Logf}
	o, err := j.run(lease)
	require.NoError(t, err)
	require.ErrorIs(t, o.lost, zkrecipes.ErrLost)
	require.Zero(t, o.ran)
	require.ErrorContains(t, o.exit(), "not started")
}
