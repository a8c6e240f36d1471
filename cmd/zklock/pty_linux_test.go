package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// A screen is a terminal with somebody in front of it: the test.
type screen struct {
	t      *testing.T
	keys   *os.File
	seen   output
	passed int // what of seen was looked at
}

// open makes a terminal. The second file is what a process has as its standard input and outputs.
func openScreen(t *testing.T) (*screen, *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	var unlock, number int32
	conn, err := keys.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, conn.Control(func(fd uintptr) {
		require.Zero(t, ioctl(int(fd), syscall.TIOCSPTLCK, unsafe.Pointer(&unlock)))
		require.Zero(t, ioctl(int(fd), syscall.TIOCGPTN, unsafe.Pointer(&number)))
	}))
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	s := &screen{t: t, keys: keys}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for b := make([]byte, 4096); ; {
			n, err := keys.Read(b)
			_, _ = s.seen.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = keys.Close()
		<-read
		if t.Failed() {
			text := s.seen.String()
			t.Logf("the terminal: %q", text[max(0, len(text)-2000):])
		}
	})
	return s, tty
}

// attach lets a process begin a session on a terminal of its own.
func attach(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	s, tty := openScreen(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	require.NoError(t, cmd.Start())
	require.NoError(t, tty.Close())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return s
}

// shell is an interactive one with job control, to which $Z is zklock.
func shell(t *testing.T, servers string) (*screen, *exec.Cmd) {
	t.Helper()
	z := onServers(t, servers)
	z.Cmd.Env = append(z.Env, "Z="+z.Path, "PS1=ready> ", "ENV=", "HISTFILE=")
	cmd := exec.Command("/bin/sh", "-i")
	cmd.Env = z.Env
	s := attach(t, cmd)
	s.find("ready> ")
	return s, cmd
}

func (s *screen) enter(keys string) {
	s.t.Helper()
	_, err := s.keys.WriteString(keys)
	require.NoError(s.t, err)
}

// The keys that mean something to a terminal.
const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// find waits until what has come since the last find matches.
func (s *screen) find(pattern string) []string {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	var found []string
	eventually(s.t, 30*time.Second, pattern, func() bool {
		text := s.seen.String()[s.passed:]
		at := re.FindStringSubmatchIndex(text)
		if at == nil {
			return false
		}
		found = re.FindStringSubmatch(text)
		s.passed += at[1]
		return true
	})
	return found
}

// end ends a shell.
func (s *screen) end(cmd *exec.Cmd) {
	s.t.Helper()
	s.enter("exit 0\n")
	require.NoError(s.t, cmd.Wait())
}

// Words are written apart, so that the echo of a line is not taken for what it prints.

func TestCmdReadsFromTheTerminal(t *testing.T) {
	t.Parallel()
	z := onServers(t, sharedServers(t), "run", "/lock", "--", "sh", "-c", `echo begun; read line; echo "line=$line"; exit 3`)
	s := attach(t, z.Cmd)
	s.find("begun")
	s.enter("hello\n")
	s.find("line=hello")
	require.Equal(t, 3, z.finish(t))
}

// What Ctrl-C would have ended without zklock it ends with it.
func TestCtrlCEndsCmdAndZklock(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	z := onServers(t, servers, "run", "/lock", "--", "sh", "-c", "echo begun; "+busy)
	s := attach(t, z.Cmd)
	s.find("begun")
	s.enter(ctrlC)
	require.Equal(t, -1, z.finish(t))
	require.Equal(t, syscall.SIGINT, z.ProcessState.Sys().(syscall.WaitStatus).Signal())
	require.Empty(t, queue(t, observer(t, servers), "/lock"))
}

// Without a shell nobody could continue a zklock that has stopped, so CMD goes on.
func TestCtrlZWithoutAShell(t *testing.T) {
	t.Parallel()
	z := onServers(t, sharedServers(t), "run", "/lock", "--", "sh", "-c", `echo begun; read line; echo "line=$line"`)
	s := attach(t, z.Cmd)
	s.find("begun")
	s.enter(ctrlZ)
	s.find(`\^Z`)
	s.enter("hello\n")
	s.find("line=hello")
	require.Equal(t, exitOK, z.finish(t))
}

func TestCtrlCEndsTheLoopOfAShell(t *testing.T) {
	t.Parallel()
	s, cmd := shell(t, sharedServers(t))
	s.enter(`while :; do $Z run /lock -- sh -c 'echo be""gun; ` + busy + `'; echo aga""in; done` + "\n")
	s.find("begun")
	s.enter(ctrlC)
	s.find("ready> ")
	s.enter(`echo shell=$((40+2)) code=$?` + "\n")
	s.find("shell=42")
	s.end(cmd)
	require.NotContains(t, s.seen.String(), "again")
}

func TestCtrlZStopsTheJobAndFgGoesOn(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"alone":         `$Z run /lock -- sh -c 'echo be""gun; read line; echo "li""ne=$line"'`,
		"pipeline":      `$Z run /lock -- sh -c 'echo be""gun; read line; echo "li""ne=$line"' | cat`,
		"in a script":   `sh -c "$Z"' run /lock -- sh -c "echo be\"\"gun; read line; echo line=\$line"; true'`,
		"leader -once":  `$Z leader -once /lock -- sh -c 'echo be""gun; read line; echo "li""ne=$line"'`,
		"CMD forks":     `$Z run /lock -- sh -c '(echo be""gun; read line; echo "li""ne=$line"); true'`,
		"behind a pipe": `echo x | $Z run /lock -- sh -c 'echo be""gun; read line </dev/tty; echo "li""ne=$line"'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, cmd := shell(t, sharedServers(t))
			s.enter(line + "; echo code=$?\n")
			s.find("begun")
			s.enter(ctrlZ)
			s.find("(?i)stopped|suspended|ready> ")
			s.enter("echo shell=$((40+2))\n")
			s.find("shell=42")
			s.enter("fg; echo code=$?\n")
			s.enter("hello\n")
			s.find("line=hello")
			s.find("code=0")
			s.end(cmd)
		})
	}
}

// Who waits for the lock can be stopped, too.
func TestCtrlZWhileWaiting(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"run", "leader -once"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			servers := sharedServers(t)
			o := observer(t, servers)
			lease := hold(t, o, "/lock", "the other")
			s, cmd := shell(t, servers)
			s.enter("$Z " + command + ` /lock -- echo r""an` + "\n")
			eventually(t, 20*time.Second, "a waiter", func() bool { return len(queue(t, o, "/lock")) == 2 })
			s.enter(ctrlZ)
			s.find("ready> ")
			s.enter("fg; echo code=$?\n")
			require.NoError(t, lease.Release(within(t, 20*time.Second)))
			s.find("ran")
			s.find("code=0")
			s.end(cmd)
		})
	}
}

// A shell's background job that reads from the terminal stops until it is in front.
func TestBackgroundCmdThatReadsStops(t *testing.T) {
	t.Parallel()
	s, cmd := shell(t, sharedServers(t))
	s.enter(`$Z run /lock -- sh -c 'echo be""gun; read line </dev/tty; echo "li""ne=$line"' &` + "\n")
	s.find("begun")
	eventually(t, 20*time.Second, "a stopped job", func() bool {
		s.enter("jobs; echo looked\n")
		s.find("\nlooked")
		return regexp.MustCompile("(?i)stopped").MatchString(s.seen.String())
	})
	s.enter("fg; echo code=$?\n")
	s.enter("hello\n")
	s.find("line=hello")
	s.find("code=0")
	s.end(cmd)
}

// A stopped zklock cannot keep its lease. CMD, stopped with it, does nothing before it is told.
func TestFgAfterTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s, cmd := shell(t, servers)
	s.enter(`$Z run -session-timeout 1s -grace 1m /lock -- sh -c 'trap "echo to\"\"ld; exit 3" TERM; echo be""gun; while :; do sleep 0.05; done'` + "\n")
	s.find("begun")
	s.enter(ctrlZ)
	s.find("ready> ")
	o := observer(t, servers)
	eventually(t, 20*time.Second, "the end of the session", func() bool { return len(queue(t, o, "/lock")) == 0 })
	s.enter("fg; echo code=$?\n")
	s.find("told")
	s.find(fmt.Sprintf("code=%d", exitLost))
	s.end(cmd)
}

// The terminal is zklock's group's again when CMD has ended, or turns out not to be a program: a script goes on reading from it.
func TestTerminalAfterCmd(t *testing.T) {
	t.Parallel()
	broken := t.TempDir() + "/broken"
	require.NoError(t, os.WriteFile(broken, []byte("\x7fELF and no more"), 0o700))
	for argv, code := range map[string]int{"true": exitOK, broken: exitNotStarted} {
		s, cmd := shell(t, sharedServers(t))
		s.enter(`sh -c '$Z run /lock -- ` + argv + `; echo co""de=$?; read line; echo "li""ne=$line"'` + "\n")
		s.find(fmt.Sprintf("code=%d", code))
		s.enter("hello\n")
		s.find("line=hello")
		s.end(cmd)
	}
}

// With stty tostop whoever writes from the background is stopped: not zklock, which has to kill CMD.
func TestLossOnATerminalWithTostop(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	proxy, through := proxied(t, servers)
	s, cmd := shell(t, through)
	s.enter("stty tostop; $Z run -session-timeout 2s -grace 200ms /lock -- sh -c 'trap \"\" TERM; echo be\"\"gun; while :; do sleep 0.05; done'; echo code=$?\n")
	s.find("begun")
	expire(t, proxy)
	s.find(fmt.Sprintf("code=%d", exitLost))
	s.end(cmd)
}

func TestCtrlCEndsALeaderOnATerminal(t *testing.T) {
	t.Parallel()
	z := onServers(t, sharedServers(t), "leader", "/lock", "--", "sh", "-c", "echo begun; "+busy)
	s := attach(t, z.Cmd)
	s.find("begun")
	s.enter(ctrlC)
	require.Equal(t, exitSignal+int(syscall.SIGINT), z.finish(t))
}
