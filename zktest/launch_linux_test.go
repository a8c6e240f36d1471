package zktest_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// TestDiesWithParent kills a test binary that runs a server, paused or not, so
// that it cannot clean up, and checks that the server goes too.
func TestDiesWithParent(t *testing.T) {
	for _, state := range []string{"running", "paused"} {
		t.Run(state, func(t *testing.T) {
			self, err := os.Executable()
			require.NoError(t, err)
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), envLauncher+"="+state)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			defer func() { _ = cmd.Process.Kill() }() // for a test that ends early
			line, err := bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err)
			first, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
			pid, err := strconv.Atoi(first)
			require.NoError(t, err, line)
			defer os.RemoveAll(dir)
			require.True(t, processExists(pid))
			owner := zktest.ProcessName(cmd.Process.Pid)
			if inDocker() {
				require.Len(t, containersOf(t, owner), 1)
			}
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
			eventually(t, "the server is gone", func() bool { return !alive(pid) })
			require.True(t, zktest.Gone(owner))
			if inDocker() {
				eventually(t, "its container is gone", func() bool { return len(containersOf(t, owner)) == 0 })
			}
		})
	}
}

// containersOf lists the containers of a process, in whatever state.
func containersOf(t *testing.T, owner string) []string {
	t.Helper()
	out, err := exec.Command("docker", "ps", "--all", "--quiet", "--filter", "label="+zktest.LabelKey+"="+owner).Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// TestOwnerNames: a number that the system gives to another process, or that
// means another process elsewhere, is not taken for the one that had it.
func TestOwnerNames(t *testing.T) {
	name := zktest.ProcessName(os.Getpid())
	require.False(t, zktest.Gone(name))
	space, rest, _ := strings.Cut(name, "-")
	pid, _, _ := strings.Cut(rest, "-")
	require.True(t, zktest.Gone(space+"-"+pid+"-1"), "it started at another time")
	require.False(t, zktest.Gone("1-"+rest), "of another namespace, so nobody here can tell")
	require.False(t, zktest.Gone("somebody else's label"))
	ended := exec.Command("cat")
	stdin, err := ended.StdinPipe() // until it is closed the process runs: one that has ended has no name any more
	require.NoError(t, err)
	require.NoError(t, ended.Start())
	name = zktest.ProcessName(ended.Process.Pid)
	require.NoError(t, stdin.Close())
	require.NoError(t, ended.Wait())
	require.True(t, zktest.Gone(name))
}

// alive tells whether a process runs; a zombie whose new parent does not wait
// for it does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}
