//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/examples/internal/program"
	"github.com/zkrecipes/zkrecipes/zktest"
)

func TestMain(m *testing.M) { program.Main(m, main) }

// always is a period in which all of a test's runs are, whatever day it is.
const always = "100000h"

// report is a command that writes a line into a file, and what it has written so far.
func report(t *testing.T) (command []string, written func() []string) {
	file := filepath.Join(t.TempDir(), "report")
	return []string{"sh", "-c", `echo "$TOKEN" >>"$0"`, file}, func() []string {
		b, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Fields(string(b))
	}
}

func nightly(t *testing.T, servers string, command []string, flags ...string) *program.Process {
	return program.Start(t, append(append(flags, "-servers", servers, "/cron/report"), command...)...)
}

// Three hosts at the same moment, and one whose clock is late.
func TestOneHostRunsIt(t *testing.T) {
	servers := program.Servers(t)
	command, written := report(t)
	hosts := []*program.Process{nightly(t, servers, command, "-every", always), nightly(t, servers, command, "-every", always), nightly(t, servers, command, "-every", always)}
	skipped := 0
	for _, host := range hosts {
		if code := host.Exit(); code != 0 {
			t.Error("exit code", code)
		}
		skipped += strings.Count(host.Output(), "skipped: ")
	}
	if skipped != 2 {
		t.Error(skipped, "hosts have skipped it")
	}
	late := nightly(t, servers, command, "-every", always)
	if code := late.Exit(); code != 0 || !strings.HasSuffix(late.Output(), "skipped: it was done in this period\n") {
		t.Error("exit code", code, late.Output())
	}
	if lines := written(); len(lines) != 1 {
		t.Errorf("%q, want one report", lines)
	}
}

func TestItRunsAgainInTheNextPeriod(t *testing.T) {
	servers := program.Servers(t)
	session := program.Session(t, servers)
	_, chroot, _ := zkrecipes.ParseConnectString(servers)
	runs := 0
	job := &Job{Session: session, Lock: zkrecipes.NewMutex(session, "/cron/report/lock"), Marker: chroot + "/cron/report/done", Every: 24 * time.Hour}
	job.Work = func(context.Context, zkrecipes.Token) error { runs++; return nil }
	monday := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		now  time.Time
		want error
	}{
		{monday, nil},
		{monday.Add(time.Minute), errDone},
		{monday.Add(24 * time.Hour), nil},
		{monday.Add(25 * time.Hour), errDone},
		{monday.Add(time.Hour), errDone}, // a clock that is a day late
	} {
		if err := job.Run(t.Context(), tc.now); !errors.Is(err, tc.want) {
			t.Errorf("%v: %v, want %v", tc.now, err, tc.want)
		}
	}
	if runs != 2 {
		t.Error(runs, "runs")
	}
}

// A holder that does not know yet that its znode is gone finishes its work, and cannot say that it has.
func TestALostHolderCannotMark(t *testing.T) {
	servers := program.Servers(t)
	session := program.Session(t, servers)
	_, chroot, _ := zkrecipes.ParseConnectString(servers)
	job := &Job{Session: session, Lock: zkrecipes.NewMutex(session, "/cron/report/lock"), Marker: chroot + "/cron/report/done", Every: time.Hour}
	job.Work = func(ctx context.Context, _ zkrecipes.Token) error {
		lease, _ := zkrecipes.LeaseFromContext(ctx)
		return session.Conn().Delete(lease.Node(), -1)
	}
	if err := job.Run(t.Context(), time.Now()); !errors.Is(err, zk.ErrNoNode) {
		t.Error(err)
	}
	if last, _, err := job.last(); last != "" || err != nil {
		t.Error(last, err)
	}
}

// A report that fails is the next host's.
func TestAFailureIsNotMarked(t *testing.T) {
	servers := program.Servers(t)
	broken := nightly(t, servers, []string{"sh", "-c", "exit 7"}, "-every", always)
	if code := broken.Exit(); code != 1 || !strings.Contains(broken.Output(), "exit status 7") {
		t.Error("exit code", code, broken.Output())
	}
	command, written := report(t)
	if code := nightly(t, servers, command, "-every", always).Exit(); code != 0 || len(written()) != 1 {
		t.Error("exit code", code, written())
	}
}

// The network of the host that runs it breaks: the command is killed, the run is not marked, and the host that comes next does it, with a greater token.
func TestTheHostIsLostInTheMiddle(t *testing.T) {
	servers := program.Servers(t)
	proxy, through := program.Through(t, servers)
	started := filepath.Join(t.TempDir(), "started")
	lost := nightly(t, through, []string{"sh", "-c", `echo "$TOKEN" >"$0"; exec sleep 600`, started}, "-every", always, "-session-timeout", "2s")
	lost.Find("running")
	program.Eventually(t, "the command runs", func() bool { b, _ := os.ReadFile(started); return len(b) > 1 })
	command, written := report(t)
	busy := nightly(t, servers, command, "-every", always)
	if code := busy.Exit(); code != 0 || !strings.HasSuffix(busy.Output(), "skipped: another host is at it\n") {
		t.Error("exit code", code, busy.Output())
	}
	proxy.BlackHole(zktest.Both)
	if code := lost.Exit(); code != 1 || !strings.Contains(lost.Output(), " lost: ") {
		t.Error("exit code", code, lost.Output())
	}
	program.Eventually(t, "the next one runs it", func() bool {
		return nightly(t, servers, command, "-every", always).Exit() == 0 && len(written()) == 1
	})
	old, _ := os.ReadFile(started)
	if first := strings.TrimSpace(string(old)); len(first) > len(written()[0]) || len(first) == len(written()[0]) && first >= written()[0] {
		t.Error("the token went from", first, "to", written()[0])
	}
}
