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
)

// TestDiesWithParent kills a test binary that runs a server, so that it cannot
// clean up, and checks that the server goes too.
func TestDiesWithParent(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envLauncher+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	first, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
	pid, err := strconv.Atoi(first)
	require.NoError(t, err, line)
	defer os.RemoveAll(dir)
	require.True(t, processExists(pid))
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	eventually(t, "the server is gone", func() bool { return !alive(pid) })
}

// alive tells whether a process runs; a zombie whose new parent does not wait
// for it does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}
