package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/zktest"
)

var directories atomic.Int64

// sharedServers is a connect string with a directory that no other test uses.
func sharedServers(t *testing.T) string {
	return fmt.Sprintf("%s/zklock-%d-%d-%s", strings.Join(zktest.Shared(t).Addrs(), ","), os.Getpid(), directories.Add(1), strings.ReplaceAll(t.Name(), "/", "-"))
}

// requireStory checks the lines of a demo that went well.
func requireStory(t *testing.T, z *zklock, rounds int) {
	t.Helper()
	out := z.stdout.String()
	require.Regexp(t, `(?m)^ +\d+\.\d\d s  worker-\d  HOLDS   token \d+$`, out)
	require.Regexp(t, `(?m)^ +\d+\.\d\d s  worker-\d  waits   behind worker-\d(, 2 ahead)?$`, out)
	require.Regexp(t, `(?m)^ +\d+\.\d\d s  worker-\d  done    gives token \d+ back$`, out)

	killed := regexp.MustCompile(`(worker-\d)  KILLED  with SIGKILL while it holds token (\d+)`).FindStringSubmatch(out)
	require.NotNil(t, killed)
	heir := regexp.MustCompile(`(worker-\d)  HOLDS   token \d+, \d+\.\d\d s after the kill: the session of ` + killed[1] + ` has ended`).FindStringSubmatch(out)
	require.NotNil(t, heir)
	require.NotEqual(t, killed[1], heir[1])
	_, afterKill, _ := strings.Cut(out, "KILLED")
	require.NotRegexp(t, killed[1]+`  (waits|HOLDS|done)`, afterKill, "the dead speak")

	sections := (workers-1)*rounds + 1 // the victim finishes only its first
	require.Equal(t, sections, strings.Count(out, "  done    "))
	require.Contains(t, out, fmt.Sprintf("\nok: %d critical sections in 3 processes, never two at a time, and the counter is %d. Tokens only grew", sections, sections))
	require.Regexp(t, killed[1]+` was killed while it held, and `+heir[1]+` was granted \d+\.\d\d s later\.\n$`, out)
	require.Empty(t, z.stderr.String())

	// The tokens as printed, in the order of the lines.
	var last int64
	for _, m := range regexp.MustCompile(`HOLDS   token (\d+)`).FindAllStringSubmatch(out, -1) {
		var token int64
		_, err := fmt.Sscan(m[1], &token)
		require.NoError(t, err)
		require.Greater(t, token, last)
		last = token
	}
}

func TestDemoOnAServerThatRuns(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	z := newZklock(t, "demo", "-servers", servers, "-timeout", "1s", "-hold", "100ms")
	require.Equal(t, exitOK, z.run(t))
	requireStory(t, z, 3)
	require.Contains(t, z.stdout.String(), " on "+servers)

	requireTidy(t, servers)
}

// requireTidy checks that nothing of a demo stays on a server: it is somebody's.
func requireTidy(t *testing.T, servers string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := dial(ctx, servers)
	require.NoError(t, err)
	defer s.Close()
	_, namespace, err := zkrecipes.ParseConnectString(servers)
	require.NoError(t, err)
	_, err = s.Conn().Sync(namespace + demoRoot)
	require.NoError(t, err)
	left, _, err := s.Conn().Exists(namespace + demoRoot)
	require.NoError(t, err)
	require.False(t, left)
}

func TestDemoTakesTheServersOfTheEnvironment(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	z := newZklock(t, "demo", "-timeout", "1s", "-hold", "20ms", "-rounds", "2")
	z.Env = append(z.Env, "ZKLOCK_SERVERS="+servers)
	require.Equal(t, exitOK, z.run(t))
	requireStory(t, z, 2)
	require.Contains(t, z.stdout.String(), " on "+servers)
}

func TestDemoNeedsNothing(t *testing.T) {
	t.Parallel()
	z := newZklock(t, "demo", "-timeout", "1s", "-hold", "50ms", "-rounds", "4")
	z.Env = append(z.Env, "ZOOKEEPER_HOME="+t.TempDir(), "JAVA_HOME="+t.TempDir(), "PATH=")
	require.Equal(t, exitOK, z.run(t))
	requireStory(t, z, 4)
	require.Contains(t, z.stdout.String(), "The ZooKeeper is one in this process")
}

func TestDemoStartsARealServer(t *testing.T) {
	t.Parallel()
	z := newZklock(t, "demo", "-real", "-timeout", "1s", "-hold", "50ms", "-rounds", "4")
	z.Env = append(z.Env, "ZKLOCK_SERVERS=127.0.0.1:1") // -real counts more
	require.Equal(t, exitOK, z.run(t))
	requireStory(t, z, 4)
	require.Regexp(t, `^Starting ZooKeeper.* for this demo`, z.stdout.String())
}

func TestDemoWithoutAZooKeeperSaysWhatToDo(t *testing.T) {
	t.Parallel()
	z := newZklock(t, "demo", "-real")
	none := t.TempDir()
	z.Env = append(z.Env, "ZOOKEEPER_HOME="+none, "ZKTEST_REAL=local")
	require.Equal(t, exitFailed, z.run(t))
	for _, way := range []string{"without -real", "make demo", "apt-get install", "-servers", "ZKLOCK_SERVERS", "ZOOKEEPER_HOME", none} {
		require.Contains(t, z.stderr.String(), way)
	}
	require.Empty(t, z.stdout.String())
}

func TestDemoNamesAServerThatCannotBeReached(t *testing.T) {
	t.Parallel()
	z := newZklock(t, "demo", "-servers", "127.0.0.1:1")
	begin := time.Now()
	require.Equal(t, exitFailed, z.run(t))
	require.Less(t, time.Since(begin), reachWithin+10*time.Second)
	require.Contains(t, z.stderr.String(), "127.0.0.1:1")
	require.Contains(t, z.stderr.String(), "no answer within 5s")
}

func TestDemoNoticesThatExclusionIsBroken(t *testing.T) {
	t.Parallel()
	z := newZklock(t, "demo", "-servers", sharedServers(t), "-hold", "200ms")
	z.Env = append(z.Env, envUnlocked+"=1")
	require.Equal(t, exitFailed, z.run(t))
	require.Contains(t, z.stderr.String(), "EXCLUSION BROKEN")
	require.NotContains(t, z.stdout.String(), "ok:")
}

func TestDemoEndsAtItsLimit(t *testing.T) {
	t.Parallel()
	z := newZklock(t, "demo", "-servers", sharedServers(t), "-hold", "10m", "-limit", "3s")
	begin := time.Now()
	require.Equal(t, exitFailed, z.run(t))
	require.Less(t, time.Since(begin), 3*time.Second+leaveWithin+10*time.Second)
	require.Contains(t, z.stderr.String(), "not finished within -limit 3s")
	require.NotContains(t, z.stdout.String(), "ok:")
}
