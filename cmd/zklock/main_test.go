package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"
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

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{nil, exitUsage, "", "usage: zklock command"},
		{[]string{"help"}, exitOK, "demo ", ""},
		{[]string{"-h"}, exitOK, "demo ", ""},
		{[]string{"dance"}, exitUsage, "", `no command "dance"`},
		{[]string{"demo", "-h"}, exitOK, "-servers", ""},
		{[]string{"demo", "-bogus"}, exitUsage, "", "-bogus"},
		{[]string{"demo", "extra"}, exitUsage, "", `"extra"`},
		{[]string{"demo", "-rounds", "1"}, exitUsage, "", "-rounds 1"},
		{[]string{"demo", "-rounds", "many"}, exitUsage, "", "many"},
		{[]string{"demo", "-hold", "-1s"}, exitUsage, "", "positive"},
		{[]string{"demo", "-timeout", "0"}, exitUsage, "", "positive"},
		{[]string{"demo", "-limit", "0s"}, exitUsage, "", "positive"},
		{[]string{"demo", "-servers", "host:port"}, exitUsage, "", "host:port"},
		{[]string{"demo", "-servers", "h1:2181,h2:2181/a//b"}, exitUsage, "", "/a//b"},
	} {
		t.Run(fmt.Sprint(tc.args), func(t *testing.T) {
			t.Parallel()
			z := newZklock(t, tc.args...)
			require.Equal(t, tc.code, z.run(t))
			for _, o := range []struct{ got, want string }{{z.stdout.String(), tc.stdout}, {z.stderr.String(), tc.stderr}} {
				if o.want == "" {
					require.Empty(t, o.got)
				}
				require.Contains(t, o.got, o.want)
				require.NotContains(t, o.got, "demo-worker", "it is no command for people")
			}
		})
	}
}
