// Package program runs the program of a test's own package as processes, as its user would.
package program

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

const (
	asProgram = "ZKRECIPES_TEST_AS_PROGRAM"
	patience  = 30 * time.Second
)

// Main is the TestMain of a program's package: the test binary is the program when [Start] runs it.
func Main(m *testing.M, main func()) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(testrun.Main(m, nil, zktest.CloseShared))
}

var directories atomic.Int64

// Servers is a connect string of the server that the tests share, with a directory that no other test uses.
func Servers(t *testing.T) string {
	return fmt.Sprintf("%s/example-%d-%d-%s", strings.Join(zktest.Shared(t).Addrs(), ","), os.Getpid(), directories.Add(1), strings.ReplaceAll(t.Name(), "/", "-"))
}

// Through is the same directory, seen through a proxy.
func Through(t *testing.T, connect string) (*zktest.Proxy, string) {
	t.Helper()
	servers, namespace, err := zkrecipes.ParseConnectString(connect)
	if err != nil {
		t.Fatal(err)
	}
	p := zktest.NewProxy(t, servers[0])
	return p, p.Addr() + namespace
}

// Session is one of the test's own.
func Session(t *testing.T, connect string, opts ...zkrecipes.DialOption) *zkrecipes.Session {
	t.Helper()
	servers, namespace, err := zkrecipes.ParseConnectString(connect)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := zkrecipes.Dial(ctx, servers, append(opts, zkrecipes.WithNamespace(namespace))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A Process is the program at work. What it prints, on both outputs, is kept.
type Process struct {
	t   *testing.T
	cmd *exec.Cmd

	mu     sync.Mutex
	output bytes.Buffer
}

// Write is for the process.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(b)
}

// Output is what it has printed so far.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// Start starts the program. It is killed with the test, if it has not ended before.
func Start(t *testing.T, args ...string) *Process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, cmd: exec.Command(exe, args...)}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.WaitDelay = 5 * time.Second // for what a killed one leaves behind with its pipes
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("%q\n%s", args, p.Output())
		}
	})
	return p
}

// Find waits until the output matches, and returns the groups of the first match.
func (p *Process) Find(pattern string) (found []string) {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	Eventually(p.t, pattern, func() bool {
		found = re.FindStringSubmatch(p.Output())
		return found != nil
	})
	return found
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// Exit waits for the end of the process and returns its exit code, -1 after a signal that ended it.
func (p *Process) Exit() int {
	p.t.Helper()
	limit := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer limit.Stop()
	_ = p.cmd.Wait() // the exit code says it
	return p.cmd.ProcessState.ExitCode()
}

// Eventually waits for a condition.
func Eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond) // a poll of a condition with a deadline, not a synchronisation
	}
}
