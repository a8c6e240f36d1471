//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/zkrecipes/zkrecipes/examples/internal/program"
)

// A process is stopped between its read and its write, for longer than its session lives, and another one writes meanwhile. When it wakes up it writes nothing,
// and says so.
func TestAPausedProcess(t *testing.T) {
	servers := program.Servers(t)
	_, file, state := newDB(t)
	paused := program.Start(t, "-servers", servers, "-db", file, "-session-timeout", "2s", "-think", "3s", "acme", "7")
	paused.Find("the balance is 0, token")
	paused.Signal(syscall.SIGSTOP)
	if other := program.Start(t, "-servers", servers, "-db", file, "acme", "50"); other.Exit() != 0 {
		t.Error("exit code")
	}
	paused.Signal(syscall.SIGCONT)
	if code := paused.Exit(); code != 1 || !strings.Contains(paused.Output(), "lost") && !strings.Contains(paused.Output(), "refused") {
		t.Error("exit code", code)
	}
	if got := state(); got != "balance 50, entries 50" {
		t.Error(got)
	}
}
