//go:build unix

package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes"
)

// works is a CMD that runs until it is told to end.
const works = `trap 'exit 0' TERM; echo "works as $ZKLOCK_OWNER with $ZKLOCK_TOKEN"; while :; do sleep 0.05; done`

// candidates are leaders that do not run yet.
func candidates(t *testing.T, servers string, n int) (all []*zklock) {
	for i := range n {
		all = append(all, onServers(t, servers, "leader", "-owner", fmt.Sprintf("host-%d", i), "-session-timeout", "4s", "/lock", "--", "sh", "-c", works))
	}
	return all
}

func TestLeaderRunsOnOneHostAtATime(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := observer(t, servers)
	all := candidates(t, servers, 3)
	for i, z := range all {
		require.NoError(t, z.Start())
		eventually(t, 20*time.Second, "its place in the queue", func() bool { return len(queue(t, s, "/lock")) == i+1 })
	}
	var tokens []int
	for i, z := range all {
		token, err := strconv.Atoi(z.find(t, fmt.Sprintf(`works as host-%d with (\d+)`, i))[1])
		require.NoError(t, err)
		tokens = append(tokens, token)
		for _, other := range all[i+1:] {
			require.Empty(t, other.stdout.String())
		}
		require.NoError(t, z.Process.Signal(syscall.SIGTERM))
		require.Equal(t, exitOK, z.finish(t), "CMD's")
		require.Contains(t, z.stderr.String(), fmt.Sprintf("zklock leader: stands by at /lock\nzklock leader: leads at /lock as host-%d with token %d\n", i, token))
		require.NotContains(t, z.stderr.String(), "ended")
	}
	require.IsIncreasing(t, tokens)
	require.Empty(t, queue(t, s, "/lock"))
}

// failsTwice is a CMD that counts its runs in the file $0. The third one stays, so that it is known what a signal meets.
const failsTwice = `n=$(cat "$0" 2>/dev/null || echo 0); echo $((n+1)) >"$0"; echo run; [ $n -lt 2 ] && exit 3; while :; do sleep 0.05; done`

// When CMD ends leadership goes to the next, and comes back when that one ends.
func TestLeaderRestartsCmdAfterThePause(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	z := onServers(t, servers, "leader", "-backoff", "50ms", "-backoff-max", "1m", "/lock", "--", "sh", "-c", failsTwice, filepath.Join(t.TempDir(), "runs"))
	require.NoError(t, z.Start())
	eventually(t, 30*time.Second, "three runs", func() bool { return strings.Count(z.stdout.String(), "run\n") == 3 })
	require.NoError(t, z.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitSignal+int(syscall.SIGTERM), z.finish(t))
	for _, pause := range []string{"50ms", "100ms"} {
		require.Contains(t, z.stderr.String(), "ended with exit code 3, and may run here again in "+pause+"\n")
	}
}

func TestLeaderGivesOthersATurn(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := observer(t, servers)
	fails := onServers(t, servers, "leader", "-backoff", "1m", "/lock", "--", "sh", "-c", "echo fails; read line; exit 3")
	stdin, err := fails.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, fails.Start())
	fails.find(t, "fails")
	other := candidates(t, servers, 1)[0]
	require.NoError(t, other.Start())
	eventually(t, 20*time.Second, "a second in the queue", func() bool { return len(queue(t, s, "/lock")) == 2 })
	require.NoError(t, stdin.Close())
	other.find(t, "works as host-0")
	require.NoError(t, fails.Process.Signal(syscall.SIGINT), "in its pause")
	require.Equal(t, exitSignal+int(syscall.SIGINT), fails.finish(t))
	require.NoError(t, other.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitOK, other.finish(t))
}

func TestLeaderOnceEndsAsCmdDoes(t *testing.T) {
	t.Parallel()
	z := onServers(t, sharedServers(t), "leader", "-once", "/lock", "--", "sh", "-c", "exit 7")
	require.Equal(t, 7, z.run(t))
}

func TestLeaderThatIsLostLeadsAgain(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{false, true} {
		t.Run(fmt.Sprintf("once=%v", once), func(t *testing.T) {
			t.Parallel()
			servers := sharedServers(t)
			proxy, through := proxied(t, servers)
			args := []string{"leader", "-backoff", "1m", "-session-timeout", "2s", "/lock", "--", "sh", "-c", works}
			if once {
				args = append(args[:1:1], append([]string{"-once"}, args[1:]...)...)
			}
			z := onServers(t, through, args...)
			require.NoError(t, z.Start())
			z.find(t, "works")
			expire(t, proxy)
			if once {
				require.Equal(t, exitLost, z.finish(t))
				return
			}
			eventually(t, 20*time.Second, "a second term", func() bool { return strings.Count(z.stdout.String(), "works") == 2 })
			require.Contains(t, z.stderr.String(), "the lease is lost: session expired")
			require.NoError(t, z.Process.Signal(syscall.SIGTERM))
			require.Equal(t, exitOK, z.finish(t))
		})
	}
}

// A hang-up is CMD's to understand; one that it dies of was meant for zklock, too.
func TestLeaderAndHangUp(t *testing.T) {
	t.Parallel()
	z := onServers(t, sharedServers(t), "leader", "/lock", "--", "sh", "-c", `trap 'trap - HUP; echo reads its configuration again' HUP; echo begun; while :; do sleep 0.05; done`)
	require.NoError(t, z.Start())
	z.find(t, "begun")
	require.NoError(t, z.Process.Signal(syscall.SIGHUP))
	z.find(t, "again")
	require.NoError(t, z.Process.Signal(syscall.SIGHUP))
	require.Equal(t, exitSignal+int(syscall.SIGHUP), z.finish(t))
}

func TestLeaderWithACmdThatIsNone(t *testing.T) {
	t.Parallel()
	z := onServers(t, sharedServers(t), "leader", "/lock", "--", "no-such-command")
	require.Equal(t, exitNotFound, z.run(t))
}

func TestLeaderGivesUpOnASignal(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := observer(t, servers)
	hold(t, s, "/lock", "the other")
	z := onServers(t, servers, "leader", "/lock", "--", "echo", "ran")
	require.NoError(t, z.Start())
	eventually(t, 20*time.Second, "a candidate", func() bool { return len(queue(t, s, "/lock")) == 2 })
	require.NoError(t, z.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitSignal+int(syscall.SIGTERM), z.finish(t))
	require.Empty(t, z.stdout.String())
}

func TestLeaderIsAskedToEnd(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := observer(t, servers)
	z := onServers(t, servers, "leader", "-once", "-revocable", "/lock", "--", "sh", "-c", works)
	require.NoError(t, z.Start())
	z.find(t, "works")
	require.NoError(t, zkrecipes.Revoke(within(t, 20*time.Second), s, queue(t, s, "/lock")[0].Node))
	require.Equal(t, exitOK, z.finish(t))
}

func TestPauses(t *testing.T) {
	t.Parallel()
	p := pauses{time.Second, 5 * time.Second, 0}
	var all []time.Duration
	for _, ran := range []time.Duration{time.Hour, 0, 0, 4 * time.Second, 0, 5 * time.Second, 0} {
		all = append(all, p.after(ran))
	}
	require.Equal(t, []time.Duration{1e9, 2e9, 4e9, 5e9, 5e9, 1e9, 2e9}, all)
}
