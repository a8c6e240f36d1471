package zkrecipes

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Processes are stopped in turn, wherever they are, for longer than their sessions live, and wake up in the middle of what they did: with the lease that they had,
// which somebody else has had since. Nobody can be told while he does not run; but whoever is refused by the register then finds its lease lost, without the
// server's help, and no access with an old token is taken (the essay on fencing tokens of 2016; Curator's Tech Note 10; go-zookeeper #207).
// Reports: Curator Tech Note 10, samuel/go-zookeeper #207.
func TestPausedProcessesHarmNobody(t *testing.T) {
	t.Parallel()
	pauses := rounds(t, 8)
	reg := newRegister(t)
	server := newTestServer(t, 100*time.Millisecond)
	const timeout = 600 * time.Millisecond
	var ws []*worker
	path, names := newPath(t), []string{"a", "b", "c"}
	for _, name := range names {
		ws = append(ws, startWorker(t, "increment", task{
			Servers: []string{server.addr}, Timeout: timeout, Path: path, Register: reg.listener.Addr().String(), Name: name, Linger: 100 * time.Millisecond,
		}))
	}
	for _, w := range ws {
		w.ready(t)
	}
	for _, w := range ws {
		w.goOn(t)
	}
	for i := range pauses {
		w := ws[i%len(ws)]
		eventually(t, 10*time.Second, "it writes", func() bool { return reg.writtenBy(names[i%len(ws)]) > i/len(ws) })
		require.NoError(t, w.cmd.Process.Signal(syscall.SIGSTOP))
		<-time.After(timeout + 5*time.Duration(i)*time.Millisecond + 300*time.Millisecond) // the server has ended its session
		require.NoError(t, w.cmd.Process.Signal(syscall.SIGCONT))
	}
	for _, w := range ws {
		w.stop()
	}
	written, lost, refused := 0, 0, 0
	for _, w := range ws {
		r := w.report(t, 20*time.Second)
		require.Empty(t, r.Wrong)
		require.Empty(t, r.GaveUp)
		require.LessOrEqual(t, r.Refused, r.Lost)
		written, lost, refused = written+r.Written, lost+r.Lost, refused+r.Refused
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	t.Logf("%d pauses: %d leases lost, %d accesses refused, %d written", pauses, lost, refused, written)
	require.Equal(t, written, reg.value)
	require.Equal(t, refused, reg.refused)
}
