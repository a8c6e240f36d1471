package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// The test binary is zklock when this is set, so that the command is tested as a process, and its workers with it.
const asCommand = "ZKLOCK_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	code := m.Run()
	if err := zktest.CloseShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// output collects what a process prints, while it prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func start(t *testing.T, args ...string) (*exec.Cmd, *output) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "ZKLOCK_SERVERS=")
	out := new(output)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

func zklock(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	cmd, o := start(t, args...)
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), o.String()
}

func TestDemoOnAGivenServer(t *testing.T) {
	t.Parallel()
	servers := strings.Join(zktest.Shared(t).Addrs(), ",")
	code, out := zklock(t, "demo", "-servers", servers+"/demo-test", "-timeout", "1s", "-hold", "100ms")
	require.Equal(t, exitOK, code, out)
	for _, line := range []string{
		`zookeeper +at +` + regexp.QuoteMeta(servers), `worker-\d +waits +behind worker-\d`, `worker-\d +HOLDS +token \d+`, `worker-2 +KILLED`,
		`HOLDS +token \d+, .* after the kill`, `summary +ok +7 critical sections, counter 7`,
	} {
		require.Regexp(t, line, out)
	}
}

func TestDemoStartsAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	code, out := zklock(t, "demo", "-timeout", "1s", "-hold", "50ms", "-rounds", "4")
	require.Equal(t, exitOK, code, out)
	require.Contains(t, out, "started for this demo")
	require.Contains(t, out, "9 critical sections")
}

func TestDemoNoticesThatExclusionIsBroken(t *testing.T) {
	t.Parallel()
	code, out := zklock(t, "demo", "-servers", zktest.Shared(t).Addrs()[0], "-unlocked", "-hold", "200ms")
	require.Equal(t, exitFailed, code, out)
	require.Contains(t, out, "EXCLUSION BROKEN")
}

func TestDemoWithoutAServerSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	start := time.Now()
	code, out := zklock(t, "demo", "-servers", "127.0.0.1:1", "-limit", "2s")
	require.Equal(t, exitFailed, code, out)
	require.Contains(t, out, "127.0.0.1:1")
	require.Less(t, time.Since(start), 10*time.Second)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exitUsage, "usage: zklock"},
		{[]string{"help"}, exitOK, "demo"},
		{[]string{"demo", "-h"}, exitOK, "-servers"},
		{[]string{"dance"}, exitUsage, `no command "dance"`},
		{[]string{"demo", "-bogus"}, exitUsage, "-bogus"},
		{[]string{"demo", "extra"}, exitUsage, `"extra"`},
		{[]string{"demo", "-rounds", "2"}, exitUsage, "-rounds"},
		{[]string{"demo", "-hold", "-1s"}, exitUsage, "positive"},
		{[]string{"demo", "-servers", "host:port"}, exitUsage, "host:port"},
	} {
		code, out := zklock(t, tc.args...)
		require.Equal(t, tc.code, code, "%v: %s", tc.args, out)
		require.Contains(t, out, tc.says, "%v", tc.args)
	}
}

// Ctrl-C ends the demo, its workers and the server that it started.
func TestInterruptLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	cmd, out := start(t, "demo", "-hold", "20s")
	require.NoError(t, cmd.Start())
	eventually(t, 30*time.Second, func() bool { return strings.Contains(out.String(), "HOLDS") })
	children := descendants(cmd.Process.Pid)
	require.Len(t, children, workers+1, "the workers and the server")
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.Error(t, cmd.Wait())
	require.Equal(t, exitFailed, cmd.ProcessState.ExitCode(), out.String())
	eventually(t, 10*time.Second, func() bool {
		for _, pid := range children {
			if syscall.Kill(pid, 0) == nil {
				return false
			}
		}
		return true
	})
}

// A demo that is killed takes its workers and its server along.
func TestKilledDemoLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	cmd, out := start(t, "demo", "-hold", "20s")
	require.NoError(t, cmd.Start())
	eventually(t, 30*time.Second, func() bool { return strings.Contains(out.String(), "HOLDS") })
	children := descendants(cmd.Process.Pid)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	eventually(t, 10*time.Second, func() bool {
		for _, pid := range children {
			if syscall.Kill(pid, 0) == nil && !zombie(pid) {
				return false
			}
		}
		return true
	})
}

func eventually(t *testing.T, d time.Duration, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !cond(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v", d)
		}
		time.Sleep(10 * time.Millisecond) // a poll with a deadline
	}
}

// descendants are the children of a process, by /proc.
func descendants(pid int) []int {
	var pids []int
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		for _, f := range strings.Fields(string(b)) {
			var child int
			if _, err := fmt.Sscan(f, &child); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}
