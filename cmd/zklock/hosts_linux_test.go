package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A host is a network namespace with a cable to this machine: processes in it reach the servers through that, and nothing else.
type host struct {
	name    string
	socket  string // the end of the cable that is here
	servers string // as they are reached from there
}

// ip is ip(8).
func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// hostNames begin with this; what follows is the process that has made one, and its number.
const hostNames = "zklock-test-"

// missingForHosts says why this process cannot make hosts; it is empty if it can.
func missingForHosts() string {
	sweepHosts()
	probe := fmt.Sprintf("%s%d-probe", hostNames, os.Getpid())
	if err := ip("netns", "add", probe); err != nil {
		return fmt.Sprintf("root, ip(8) and the right to make network namespaces (%v)", err)
	}
	err := ip("-n", probe, "link", "add", "name", "veth0", "type", "veth", "peer", "name", "veth1")
	if err := errors.Join(err, ip("netns", "delete", probe)); err != nil {
		return fmt.Sprintf("cables between network namespaces (%v)", err)
	}
	return ""
}

// sweepHosts removes those of processes that are no more. Their cables go with them.
func sweepHosts() {
	names, _ := filepath.Glob("/run/netns/" + hostNames + "*")
	for _, name := range names {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(name), hostNames), "-")
		if n, err := strconv.Atoi(pid); err == nil && syscall.Kill(n, 0) == syscall.ESRCH {
			_ = ip("netns", "delete", filepath.Base(name))
		}
	}
}

// newHosts makes some, which go with the test.
func newHosts(t *testing.T, n int, servers []string) (hosts []*host) {
	t.Helper()
	block := fmt.Sprintf("198.%d.%d", 18+rand.IntN(2), rand.IntN(256)) // addresses for tests in a laboratory
	for i := range n {
		h := &host{name: fmt.Sprintf("%s%d-%d", hostNames, os.Getpid(), i), socket: fmt.Sprintf("zkt%d-%d", os.Getpid()%1e7, i)}
		here, there := fmt.Sprintf("%s.%d", block, 4*i+1), fmt.Sprintf("%s.%d", block, 4*i+2)
		require.NoError(t, ip("netns", "add", h.name))
		t.Cleanup(func() { require.NoError(t, ip("netns", "delete", h.name)) })
		for _, step := range [][]string{
			{"link", "add", "name", h.socket, "type", "veth", "peer", "name", "eth0", "netns", h.name},
			{"address", "add", here + "/30", "dev", h.socket},
			{"link", "set", h.socket, "up"},
			{"-n", h.name, "address", "add", there + "/30", "dev", "eth0"},
			{"-n", h.name, "link", "set", "lo", "up"},
			{"-n", h.name, "link", "set", "eth0", "up"},
		} {
			require.NoError(t, ip(step...))
		}
		var reached []string
		for _, server := range servers {
			reached = append(reached, forward(t, here, server))
		}
		h.servers = strings.Join(reached, ",")
		hosts = append(hosts, h)
	}
	return hosts
}

// forward lets an address here lead to a server, which listens on loopback only.
func forward(t *testing.T, here, server string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(here, "0"))
	require.NoError(t, err)
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := make(map[net.Conn]bool)
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for c := range open { // the other end may be out of reach
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	copyBoth := func(a, b net.Conn) {
		defer a.Close()
		defer b.Close()
		wg.Go(func() {
			_, _ = io.Copy(a, b)
			_ = a.Close()
		})
		_, _ = io.Copy(b, a)
	}
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", server)
			if err != nil {
				_ = in.Close()
				continue
			}
			mu.Lock()
			open[in], open[out] = true, true
			mu.Unlock()
			wg.Go(func() { copyBoth(in, out) })
		}
	})
	return l.Addr().String()
}

// cut pulls the cable, and plug puts it back.
func (h *host) cut(t *testing.T) {
	t.Helper()
	require.NoError(t, ip("link", "set", h.socket, "down"))
}

func (h *host) plug(t *testing.T) {
	t.Helper()
	require.NoError(t, ip("link", "set", h.socket, "up"))
}

// loop is what cron would do if its minute were short. The job writes a line into one file again and again; without a file that lets it be quick it has no end.
const loop = `
while [ ! -e "$DIR/stop" ]; do
	"$Z" run -try -session-timeout 6s /cron/report -- sh -c '
		n=0
		until [ -e "$DIR/quick" ] && [ $n -ge 5 ]; do
			echo "$NAME $ZKLOCK_TOKEN" >>"$DIR/log"
			n=$((n+1))
			sleep 0.05
		done'
	echo "$NAME code=$?" >>"$DIR/codes"
	sleep 0.1
done`

// start starts the loop on a host. It ends when there is a file named stop.
func (h *host) start(t *testing.T, dir string) *zklock {
	t.Helper()
	z := newZklock(t)
	z.Cmd.Args = []string{"ip", "netns", "exec", h.name, "sh", "-c", loop}
	z.Env = append(z.Env, "Z="+z.Path, "DIR="+dir, "NAME="+h.name, "ZKLOCK_SERVERS="+h.servers)
	var err error
	z.Path, err = exec.LookPath("ip")
	require.NoError(t, err)
	z.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, z.Start())
	t.Cleanup(func() {
		if z.ProcessState == nil {
			_ = syscall.Kill(-z.Process.Pid, syscall.SIGKILL) // and what zklock runs goes with it
			_ = z.Wait()
		}
	})
	return z
}

// A turn is what the job has written under one token.
type turn struct {
	host  string
	token int64
}

// turns are those in the log, in its order. A token that is less than the one before it is that of a job beside another one.
func turns(t *testing.T, dir string) (all []turn) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil && !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	for line := range strings.Lines(string(log)) {
		var now turn
		_, err := fmt.Sscanf(line, "%s %d\n", &now.host, &now.token)
		require.NoError(t, err, line)
		if len(all) > 0 && all[len(all)-1] == now {
			continue
		}
		if len(all) > 0 {
			require.Greater(t, now.token, all[len(all)-1].token, "two at once: %v, and then %v", all, now)
		}
		all = append(all, now)
	}
	return all
}

// Three hosts and three servers. The one whose job runs is cut off, and nobody can tell it: its job has ended before another host's begins, and no host's ever
// runs beside another's. When the cable is back it takes its turns again.
func TestThreeHosts(t *testing.T) {
	t.Parallel()
	servers := zktest.Start(t, zktest.Servers(3))
	hosts := newHosts(t, 3, servers.Addrs())
	dir := t.TempDir()
	touch := func(name string) { require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600)) }
	var loops []*zklock
	for _, h := range hosts {
		loops = append(loops, h.start(t, dir))
	}
	eventually(t, 60*time.Second, "a job", func() bool { return len(turns(t, dir)) > 0 })
	first := turns(t, dir)[0]
	victim := hosts[slices.IndexFunc(hosts, func(h *host) bool { return h.name == first.host })]
	victim.cut(t)
	ran := func(name string, after int) bool {
		all := turns(t, dir)
		return len(all) > after && slices.ContainsFunc(all[after:], func(r turn) bool { return r.host == name })
	}
	code := fmt.Sprintf("%s code=%d\n", victim.name, exitLost)
	eventually(t, 60*time.Second, "the end of the job that was cut off", func() bool {
		codes, _ := os.ReadFile(filepath.Join(dir, "codes"))
		return strings.Contains(string(codes), code)
	})
	eventually(t, 60*time.Second, "a job elsewhere", func() bool { return len(turns(t, dir)) > 1 })
	touch("quick")
	for _, h := range hosts {
		if h != victim {
			eventually(t, 60*time.Second, "a job on "+h.name, func() bool { return ran(h.name, 1) })
		}
	}
	require.False(t, ran(victim.name, 1), "it has no network")

	victim.plug(t)
	before := len(turns(t, dir))
	eventually(t, 60*time.Second, "the host is back", func() bool { return ran(victim.name, before) })
	touch("stop")
	for _, z := range loops {
		require.Zero(t, z.finish(t))
	}
	all := turns(t, dir)
	t.Logf("%d turns: %v", len(all), all)
}
