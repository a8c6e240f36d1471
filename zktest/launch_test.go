package zktest_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

func processExists(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestServerLifeCycle(t *testing.T) {
	ens := zktest.Start(t)
	s := ens.Server(0)
	require.Equal(t, []string{s.Addr()}, ens.Addrs())
	require.Same(t, s, ens.Leader())
	require.Empty(t, ens.Followers())
	c := newClient(t, 10*time.Second, s.Addr())
	_, err := c.Create("/a", []byte("kept"), 0, open)
	require.NoError(t, err)

	for name, end := range map[string]func() error{"Kill": s.Kill, "Stop": s.Stop} {
		t.Run(name, func(t *testing.T) {
			pid := s.PID()
			require.True(t, s.Running())
			require.ErrorContains(t, s.Start(), "it is running")
			require.ErrorContains(t, s.Wipe(), "stop it first")
			require.NoError(t, end())
			require.False(t, processExists(pid))
			require.False(t, s.Running())
			require.True(t, refused(s.Addr()))
			require.Nil(t, ens.Leader())
			for _, f := range []func() error{s.Kill, s.Stop, s.Pause, s.Resume} {
				require.ErrorContains(t, f(), "not running")
			}
			require.NoError(t, ens.WaitReady(t.Context()), "of no server")
			require.NoError(t, s.Start())
			answer, err := s.FourLetter(t.Context(), "srvr")
			require.NoError(t, err)
			require.Contains(t, answer, "Mode: standalone", "it serves at once")
			data, _, err := newClient(t, 10*time.Second, s.Addr()).Get("/a")
			require.NoError(t, err)
			require.Equal(t, "kept", string(data))
		})
	}
	t.Run("Wipe", func(t *testing.T) {
		require.NoError(t, s.Stop())
		require.NoError(t, s.Wipe())
		require.NoError(t, s.Start())
		require.False(t, exists(t, newClient(t, 10*time.Second, s.Addr()), "/a"))
	})
	t.Run("Pause", func(t *testing.T) {
		require.NoError(t, s.Pause())
		require.NoError(t, s.Pause())
		require.True(t, s.Running())
		require.Nil(t, ens.Leader())
		require.NoError(t, ens.WaitReady(t.Context()), "nobody waits for a paused one")
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := s.FourLetter(ctx, "ruok")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, s.Resume())
		require.NoError(t, s.Resume())
		answer, err := s.FourLetter(t.Context(), "ruok")
		require.NoError(t, err)
		require.Equal(t, "imok", answer)
	})
	t.Run("ended while paused", func(t *testing.T) {
		for _, end := range []func() error{s.Kill, s.Stop} {
			require.NoError(t, s.Pause())
			require.NoError(t, end())
			require.NoError(t, s.Start())
		}
	})
	t.Run("died by itself", func(t *testing.T) {
		require.NoError(t, syscall.Kill(s.PID(), syscall.SIGKILL))
		eventually(t, "noticed", func() bool { return !s.Running() })
		require.ErrorContains(t, ens.WaitReady(t.Context()), "the end of its log")
		require.NoError(t, s.Start())
		require.NoError(t, ens.WaitReady(t.Context()))
	})
}

func TestQuorum(t *testing.T) {
	ens := zktest.Start(t, zktest.Servers(3))
	require.Len(t, ens.Servers(), 3)
	leader := ens.Leader()
	require.NotNil(t, leader)
	require.Len(t, ens.Followers(), 2)
	require.NotContains(t, ens.Followers(), leader)
	c := newClient(t, 10*time.Second, ens.Addrs()...)
	_, err := c.Create("/a", nil, 0, open)
	require.NoError(t, err)

	t.Run("a leader killed", func(t *testing.T) {
		require.NoError(t, leader.Kill())
		eventually(t, "another leader", func() bool { return ens.Leader() != nil })
		require.NoError(t, ens.WaitReady(t.Context()), "of the two that run")
		require.NotSame(t, leader, ens.Leader())
		require.Len(t, ens.Followers(), 1)
		require.NoError(t, leader.Wipe())
		require.NoError(t, leader.Start())
		require.NoError(t, ens.WaitReady(t.Context()))
		require.Len(t, ens.Followers(), 2)
		c := newClient(t, 10*time.Second, leader.Addr())
		_, err := c.Sync("/a")
		require.NoError(t, err)
		require.True(t, exists(t, c, "/a"), "it learns all from the others")
	})
	t.Run("no quorum", func(t *testing.T) {
		for _, s := range ens.Followers() {
			require.NoError(t, s.Stop())
		}
		eventually(t, "no leader", func() bool { return ens.Leader() == nil })
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		err := ens.WaitReady(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "is not ready")
		for _, s := range ens.Servers() {
			if !s.Running() {
				require.NoError(t, s.Start())
				require.False(t, refused(s.Addr()), "it accepts at once")
			}
		}
		require.NoError(t, ens.WaitReady(t.Context()))
		require.NotNil(t, ens.Leader())
	})
}

// TestLeaderPaused also shows what SyncLimit is for.
func TestLeaderPaused(t *testing.T) {
	ens := zktest.Start(t, zktest.Servers(3), zktest.SyncLimit(2))
	old := ens.Leader()
	require.NoError(t, old.Pause())
	eventually(t, "another leader", func() bool { l := ens.Leader(); return l != nil && l != old })
	require.NoError(t, old.Resume())
	eventually(t, "the old one follows", func() bool { return len(ens.Followers()) == 2 })
}

func TestOptions(t *testing.T) {
	ens := zktest.Start(t,
		zktest.TickTime(100*time.Millisecond),
		zktest.Property("maxSessionTimeout", "3000"),
		zktest.Property("maxClientCnxns", "7"),
		zktest.SystemProperty("zookeeper.digest.enabled", "false"),
		zktest.SystemProperty("znode.container.checkIntervalMs", "500"))
	answer, err := ens.Server(0).FourLetter(t.Context(), "conf")
	require.NoError(t, err)
	for _, line := range []string{"tickTime=100", "maxSessionTimeout=3000", "maxClientCnxns=7", "minSessionTimeout=200"} {
		require.Contains(t, answer, line+"\n")
	}
	args, err := exec.Command("ps", "-ww", "-o", "args=", "-p", strconv.Itoa(ens.Server(0).PID())).Output()
	require.NoError(t, err)
	require.Contains(t, string(args), "-Dzookeeper.digest.enabled=false ")
	require.Contains(t, string(args), "-Dznode.container.checkIntervalMs=500 ")
	require.NotContains(t, string(args), "checkIntervalMs=1000")

	answer, err = zktest.Start(t).Server(0).FourLetter(t.Context(), "conf")
	require.NoError(t, err)
	for _, line := range []string{"tickTime=200", "minSessionTimeout=400", "maxSessionTimeout=60000", "maxClientCnxns=0"} {
		require.Contains(t, answer, line+"\n")
	}
}

// TestLoopbackOnly checks that the server cannot be reached from outside.
func TestLoopbackOnly(t *testing.T) {
	addr := zktest.Start(t).Addrs()[0]
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	for _, host := range []string{"127.0.0.2", "::1"} {
		require.True(t, refused(net.JoinHostPort(host, port)), host)
	}
}

func TestOptionErrors(t *testing.T) {
	for want, o := range map[string]zktest.Option{
		"at least one server":       zktest.Servers(0),
		"whole milliseconds":        zktest.TickTime(time.Microsecond),
		"at least one tick":         zktest.SyncLimit(0),
		"sets this line itself":     zktest.Property("clientPort", "2181"),
		"say Servers(n) instead":    zktest.Property("server.1", "x"),
		"the end of its log":        zktest.Property("tickTime", "soon"),
		"NumberFormatException":     zktest.Property("tickTime", "soon"),
		"ended while it was waited": zktest.Property("tickTime", "soon"),
	} {
		ens, err := zktest.Launch(o)
		require.ErrorContains(t, err, want)
		require.Nil(t, ens)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	ens, err := zktest.Launch()
	require.NoError(t, err)
	s := ens.Server(0)
	pid, dir := s.PID(), ens.Dir()
	require.NoError(t, s.Pause())
	require.NoError(t, ens.Close())
	require.NoError(t, ens.Close())
	require.False(t, processExists(pid))
	_, err = os.Stat(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.False(t, s.Running())
	require.ErrorContains(t, s.Start(), "closed")
}

func TestStartCleansUp(t *testing.T) {
	tb := &failingTB{TB: t}
	ens := zktest.Start(tb)
	pid := ens.Server(0).PID()
	tb.cleanup()
	require.False(t, processExists(pid))
	require.Empty(t, tb.said())
}

func TestStartSaysWhatToInstall(t *testing.T) {
	t.Setenv("ZOOKEEPER_HOME", t.TempDir())
	t.Setenv("ZKTEST_IMAGE", "zkrecipes.invalid/none")
	said := fatality(t, func(tb zktest.TB) { zktest.Start(tb) })
	if inDocker() {
		require.Contains(t, said, "run scripts/zkimage")
	} else {
		require.Contains(t, said, "point it at an unpacked binary release")
	}
}

// TestPortTaken has another process take the port between the moment it is
// found free and the moment the server binds it. Something that looks like the
// command that launches servers, java or docker, does so here for the first one.
func TestPortTaken(t *testing.T) {
	command := ""
	if inDocker() {
		d, err := zktest.FindDocker()
		require.NoError(t, err)
		command = d.Command
	} else {
		inst, err := zktest.Find()
		require.NoError(t, err)
		command = inst.Java
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	require.NoError(t, os.Mkdir(bin, 0o755))
	report := filepath.Join(dir, "port")
	// It tells the test which port, and waits until the test has taken it.
	script := fmt.Sprintf(`#!/bin/sh
for last; do :; done
case $last in */zoo.cfg)
	if [ ! -e %[1]s ]; then
		sed -n 's/^clientPort=//p' "$last" > %[1]s.new
		mv %[1]s.new %[1]s
		while [ ! -e %[1]s.taken ]; do sleep 0.01; done
	fi
esac
exec %[2]s "$@"
`, report, command)
	require.NoError(t, os.WriteFile(filepath.Join(bin, filepath.Base(command)), []byte(script), 0o755))
	t.Setenv("JAVA_HOME", dir)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))

	taken := make(chan string)
	go func() {
		defer close(taken)
		for {
			b, err := os.ReadFile(report)
			if err != nil {
				continue
			}
			port := strings.TrimSpace(string(b))
			if l, err := net.Listen("tcp4", "127.0.0.1:"+port); err == nil {
				defer l.Close()
			}
			_ = os.WriteFile(report+".taken", nil, 0o644)
			taken <- port
			<-t.Context().Done() // the port stays taken
			return
		}
	}()
	ens := zktest.Start(t)
	port := <-taken
	require.NotContains(t, ens.Addrs()[0], ":"+port)
	require.True(t, ens.Server(0).Running())
}

func TestPorts(t *testing.T) {
	seen := map[int]bool{}
	for range 250 { // more than one block
		port, err := zktest.TakePort()
		require.NoError(t, err)
		defer zktest.GivePort(port)
		require.False(t, seen[port])
		seen[port] = true
		require.GreaterOrEqual(t, port, zktest.FirstPort)
		require.Less(t, port, zktest.LastPort)
	}
}

// launchAndHang is what the test binary does for TestDiesWithParent.
func launchAndHang() {
	ens, err := zktest.Launch()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if os.Getenv(envLauncher) == "paused" {
		if err := ens.Server(0).Pause(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	fmt.Println(ens.Server(0).PID(), ens.Dir())
	select {}
}

const envLauncher = "ZKTEST_TEST_LAUNCHER"

func TestSessionTimeoutIsShort(t *testing.T) {
	ens := zktest.Start(t)
	p := zktest.NewProxy(t, ens.Addrs()[0])
	newClient(t, 400*time.Millisecond, p.Addr())
	var timeout time.Duration
	eventually(t, "a session", func() bool {
		id, _, granted := p.Session()
		timeout = granted
		return id != 0
	})
	require.Equal(t, 400*time.Millisecond, timeout)
}
