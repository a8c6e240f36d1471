package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// The test binary is zklock when this is set, so that the command is tested as a process, and its workers with it.
const asCommand = "ZKLOCK_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	realOnly := []string{"TestInterruptLeavesNothingBehind", "TestInterruptOfAStartLeavesNothingBehind", "TestKilledDemoLeavesNoProcessBehind", "TestDemoStartsARealServer", "TestThreeHosts"}
	if testrun.Real() {
		if missing := missingForHosts(); missing != "" {
			testrun.LeaveOut(missing, "TestThreeHosts")
		}
	}
	os.Exit(testrun.Main(m, realOnly, zktest.CloseShared))
}

// output is what a process has printed so far.
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

// A zklock is the command as a process.
type zklock struct {
	*exec.Cmd
	stdout, stderr output
	tmp            string // where its files are
}

func newZklock(t *testing.T, args ...string) *zklock {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	t.Cleanup(cancel)
	z := &zklock{Cmd: exec.CommandContext(ctx, exe, args...), tmp: t.TempDir()}
	z.Env = append(os.Environ(), asCommand+"=1", "ZKLOCK_SERVERS=", "TMPDIR="+z.tmp)
	z.WaitDelay = 20 * time.Second // for what a killed one leaves behind with its pipes
	z.Stdout, z.Stderr = &z.stdout, &z.stderr
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("zklock %q\n%s%s", args, z.stdout.String(), z.stderr.String())
		}
	})
	return z
}

// finish waits for the end of a process and returns its exit code, -1 after a signal. The process may leave no file behind.
func (z *zklock) finish(t *testing.T) int {
	t.Helper()
	_ = z.Wait() // the exit code says it
	files, err := os.ReadDir(z.tmp)
	require.NoError(t, err)
	require.Empty(t, files, "left behind")
	return z.ProcessState.ExitCode()
}

func (z *zklock) run(t *testing.T) int {
	t.Helper()
	require.NoError(t, z.Start())
	return z.finish(t)
}

// find waits until standard output matches, and returns the groups of the first match.
func (z *zklock) find(t *testing.T, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	var found []string
	eventually(t, 30*time.Second, pattern, func() bool {
		found = re.FindStringSubmatch(z.stdout.String())
		return found != nil
	})
	return found
}

func eventually(t *testing.T, d time.Duration, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !cond(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", d, what)
		}
		time.Sleep(5 * time.Millisecond) // a poll of a condition with a deadline, not a synchronisation
	}
}
