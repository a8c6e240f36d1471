//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/examples/internal/program"
)

func TestMain(m *testing.M) { program.Main(m, main) }

// A shop is what is migrated: a file with a line for each step that was done.
type shop struct {
	t          *testing.T
	folder, to string
}

func newShop(t *testing.T) *shop {
	return &shop{t, t.TempDir(), filepath.Join(t.TempDir(), "shop")}
}

// step writes a file of the migration, and what it does before it is done.
func (s *shop) step(name, first string) {
	s.t.Helper()
	script := fmt.Sprintf("#!/bin/sh\nset -e\n%s\necho %s >>'%s'\n", first, name, s.to)
	if err := os.WriteFile(filepath.Join(s.folder, name), []byte(script), 0o700); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) done() []string {
	s.t.Helper()
	b, err := os.ReadFile(s.to)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	return strings.Fields(string(b))
}

func (s *shop) migrate(servers string, flags ...string) *program.Process {
	return program.Start(s.t, append(flags, "-servers", servers, "/shop/schema", s.folder)...)
}

// A fleet starts at once, and later with one step more.
func TestEachStepIsDoneOnce(t *testing.T) {
	servers := program.Servers(t)
	s := newShop(t)
	for _, want := range [][]string{{"1-orders"}, {"1-orders", "2-prices", "3-index"}} {
		for _, name := range want {
			s.step(name, "")
		}
		var fleet []*program.Process
		for range 4 {
			fleet = append(fleet, s.migrate(servers))
		}
		for _, host := range fleet {
			if code := host.Exit(); code != 0 || !strings.HasSuffix(host.Output(), "up to date\n") {
				t.Error("exit code", code, host.Output())
			}
		}
		if got := s.done(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if err := os.Remove(filepath.Join(s.folder, "3-index")); err != nil {
		t.Fatal(err)
	}
	old := s.migrate(servers)
	if code := old.Exit(); code != 1 || !strings.Contains(old.Output(), errNewer.Error()) {
		t.Error("exit code", code, old.Output())
	}
}

// A step that fails ends the migration there; the next host begins with it, and not with those before.
func TestAFailedStep(t *testing.T) {
	servers := program.Servers(t)
	s := newShop(t)
	s.step("1-orders", "")
	s.step("2-prices", "exit 7")
	host := s.migrate(servers)
	if code := host.Exit(); code != 1 || !strings.Contains(host.Output(), "step 2, 2-prices: exit status 7") {
		t.Error("exit code", code, host.Output())
	}
	s.step("2-prices", "")
	if code := s.migrate(servers).Exit(); code != 0 {
		t.Error("exit code", code)
	}
	if got := s.done(); !slices.Equal(got, []string{"1-orders", "2-prices"}) {
		t.Errorf("%q", got)
	}
}

// The host that migrates is killed in the middle of a step. One that waits goes on with that step when the session of the dead one is over.
func TestTheHostIsKilledInTheMiddle(t *testing.T) {
	servers := program.Servers(t)
	s := newShop(t)
	once := filepath.Join(t.TempDir(), "begun")
	s.step("1-orders", "")
	s.step("2-prices", fmt.Sprintf("[ -e '%s' ] || { echo $$ >'%[1]s'; exec sleep 600; }", once))
	first := s.migrate(servers, "-session-timeout", "2s")
	var pid int
	program.Eventually(t, "the second step", func() bool {
		b, _ := os.ReadFile(once)
		n, _ := fmt.Sscanln(string(b), &pid)
		return n == 1
	})
	second := s.migrate(servers)
	first.Signal(os.Kill)
	if step, err := os.FindProcess(pid); err == nil { // nobody else ends it: see docs/cookbook.md
		_ = step.Kill() // before Exit, which would wait for the pipes that it has
	}
	if code := first.Exit(); code != -1 {
		t.Error("exit code", code)
	}
	if code := second.Exit(); code != 0 || strings.Contains(second.Output(), "1-orders") {
		t.Error("exit code", code, second.Output())
	}
	if got := s.done(); !slices.Equal(got, []string{"1-orders", "2-prices"}) {
		t.Errorf("%q", got)
	}
}

// A holder whose znode is gone has not learned of it yet, or was paused: the server refuses its mark, whatever the step itself has done.
func TestALostHolderCannotMark(t *testing.T) {
	servers := program.Servers(t)
	session := program.Session(t, servers)
	_, chroot, err := zkrecipes.ParseConnectString(servers)
	if err != nil {
		t.Fatal(err)
	}
	m := Migration{Session: session, Lock: zkrecipes.NewMutex(session, "/shop/schema/lock"), Marker: chroot + "/shop/schema/done"}
	other := Migration{Session: session, Lock: m.Lock, Marker: m.Marker, Steps: []Step{{"by the next", func(context.Context, zkrecipes.Token) error { return nil }}}}
	m.Steps = []Step{{"interrupted", func(ctx context.Context, _ zkrecipes.Token) error {
		lease, _ := zkrecipes.LeaseFromContext(ctx)
		if err := session.Conn().Delete(lease.Node(), -1); err != nil {
			return err
		}
		<-ctx.Done()
		return other.Run(zkrecipes.ContextWithOwner(t.Context(), zkrecipes.NewOwner())) // and it goes on all the same
	}}}
	err = m.Run(t.Context())
	if !errors.Is(err, zkrecipes.ErrLost) || !errors.Is(err, zk.ErrNoNode) {
		t.Error(err)
	}
	if n, _, err := m.done(); n != 1 || err != nil {
		t.Error(n, err)
	}
}
