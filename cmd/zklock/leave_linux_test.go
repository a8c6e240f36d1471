package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// These tests look into /proc for the processes that a demo has started.

// children are the processes that a process has started, with their command lines.
func children(pid int) map[int]string {
	all := make(map[int]string)
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		b, _ := os.ReadFile(task)
		for f := range strings.FieldsSeq(string(b)) {
			var child int
			if _, err := fmt.Sscan(f, &child); err == nil {
				args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
				all[child] = string(bytes.ReplaceAll(args, []byte{0}, []byte{' '}))
			}
		}
	}
	return all
}

// worker is the process id of a demo's worker.
func (z *zklock) worker(t *testing.T, name string) int {
	t.Helper()
	for pid, args := range children(z.Process.Pid) {
		if strings.Contains(args, " demo-worker ") && strings.Contains(args, " -name "+name+" ") {
			return pid
		}
	}
	require.Fail(t, "no process of "+name)
	return 0
}

// gone tells whether a process has ended; who reaps orphans may be slow.
func gone(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

func requireGone(t *testing.T, pids map[int]string) {
	t.Helper()
	for pid, args := range pids {
		eventually(t, 10*time.Second, "the end of "+args, func() bool { return gone(pid) })
	}
}

// launched is how many processes launching a server takes: the server, or the command that runs its container and the shell that watches over it.
func launched() int {
	if os.Getenv("ZKTEST_REAL") == "docker" {
		return 2
	}
	return 1
}

// signals are two ways to end a demo that leads its process group.
var signals = map[string]func(pid int) error{
	"Ctrl-C on a terminal reaches its processes, too": func(pid int) error { return syscall.Kill(-pid, syscall.SIGINT) },
	"SIGTERM reaches the demo only":                   func(pid int) error { return syscall.Kill(pid, syscall.SIGTERM) },
}

func TestInterruptLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, signal := range signals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			z := newZklock(t, "demo", "-real", "-hold", "10m")
			z.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			require.NoError(t, z.Start())
			z.find(t, "waits   behind worker-\\d, 2 ahead\n")
			started := children(z.Process.Pid)
			require.Len(t, started, workers+launched(), "the workers and what launching a server takes")
			require.NoError(t, signal(z.Process.Pid))
			require.Equal(t, exitFailed, z.finish(t))
			require.Contains(t, z.stderr.String(), "signal received")
			requireGone(t, started)
		})
	}
}

// Workers that are told to go close their sessions, so that no znode of theirs stays until it times out.
func TestInterruptLeavesNoZnodeBehind(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	z := newZklock(t, "demo", "-servers", servers, "-hold", "10m", "-timeout", "20s")
	require.NoError(t, z.Start())
	z.find(t, "waits   behind worker-\\d, 2 ahead\n")
	require.NoError(t, z.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitFailed, z.finish(t))
	requireTidy(t, servers)
}

func TestInterruptOfAStartLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, signal := range signals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			z := newZklock(t, "demo", "-real")
			z.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			require.NoError(t, z.Start())
			var started map[int]string
			eventually(t, 30*time.Second, "the server's process", func() bool {
				started = children(z.Process.Pid)
				return len(started) > 0
			})
			require.NoError(t, signal(z.Process.Pid))
			require.Equal(t, exitFailed, z.finish(t))
			require.Contains(t, z.stderr.String(), "signal received")
			requireGone(t, started)
		})
	}
}

func TestKilledDemoLeavesNoProcessBehind(t *testing.T) {
	t.Parallel()
	z := newZklock(t, "demo", "-real", "-hold", "10m")
	require.NoError(t, z.Start())
	z.find(t, "HOLDS")
	started := children(z.Process.Pid)
	require.Len(t, started, workers+launched(), "the workers and what launching a server takes")
	require.NoError(t, z.Process.Kill())
	_ = z.Wait()
	requireGone(t, started)
}

func TestDemoFailsWithAWorkerThatDies(t *testing.T) {
	t.Parallel()
	z := newZklock(t, "demo", "-servers", sharedServers(t), "-hold", "10m")
	require.NoError(t, z.Start())
	z.find(t, "HOLDS")
	started := children(z.Process.Pid)
	require.NoError(t, syscall.Kill(z.worker(t, "worker-3"), syscall.SIGKILL))
	require.Equal(t, exitFailed, z.finish(t))
	require.Contains(t, z.stderr.String(), "worker-3: signal: killed")
	requireGone(t, started)
}

// A worker that does not hear that it is over is killed.
func TestDemoEndsThoughAWorkerIsStuck(t *testing.T) {
	t.Parallel()
	z := newZklock(t, "demo", "-servers", sharedServers(t), "-hold", "10m")
	require.NoError(t, z.Start())
	z.find(t, "HOLDS")
	started := children(z.Process.Pid)
	require.NoError(t, syscall.Kill(z.worker(t, "worker-1"), syscall.SIGSTOP))
	require.NoError(t, z.Process.Signal(os.Interrupt))
	require.Equal(t, exitFailed, z.finish(t))
	require.Contains(t, z.stderr.String(), "signal received")
	requireGone(t, started)
}

// A holder that is paused for longer than its session cannot know that somebody else was granted. When it wakes up it must find its lease lost; the demo
// goes on, and does not take this for a broken lock.
func TestPausedHolderIsToldAndGoesOn(t *testing.T) {
	t.Parallel()
	for range 5 {
		if pausedHolderIsToldAndGoesOn(t) {
			return
		}
	}
	t.Fatal("no holder is ever paused before it has given its lease back")
}

// pausedHolderIsToldAndGoesOn returns false when the holder was done before it was paused, which shows nothing. It says that it is done before its release, so
// that the line stands before the next grant.
func pausedHolderIsToldAndGoesOn(t *testing.T) bool {
	z := newZklock(t, "demo", "-servers", sharedServers(t), "-timeout", "1s", "-hold", "700ms", "-rounds", "2")
	require.NoError(t, z.Start())
	name := z.find(t, `(worker-\d)  HOLDS`)[1]
	pid := z.worker(t, name)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	late := strings.Contains(z.find(t, name+`  HOLDS(?s:.*?)  HOLDS`)[0], name+"  done ")
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	require.Equal(t, exitOK, z.finish(t))
	if late {
		return false
	}
	require.Regexp(t, name+`  LOST    token \d+: `, z.stdout.String())
	requireStory(t, z, 2)
	return true
}
