package interop

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Children die with the process that started them, also when that one is killed and they are stuck.
func TestDiesWithParent(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	dir, err := compiled()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), parentRole+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	var curator, kazoo int
	_, err = fmt.Sscan(line, &curator, &kazoo)
	require.NoError(t, err, line)
	for _, pid := range []int{curator, kazoo} {
		require.True(t, alive(pid))
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
		t.Cleanup(func() {
			if alive(pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		})
	}
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	eventually(t, "both are gone", func() bool { return !alive(curator) && !alive(kazoo) })
}

// alive tells whether a process runs; a zombie whose new parent does not wait for it does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}
