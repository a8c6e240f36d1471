package main

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

func TestWhatAServerTells(t *testing.T) {
	require.Equal(t, 12.0, monitored("zk_version\t3.8.0-x, built on y\nzk_watch_count\t12\n", mntrWatches))
	require.True(t, math.IsNaN(monitored("zk_watch_counter\t12\n", mntrWatches)))
	require.True(t, math.IsNaN(monitored("This ZooKeeper instance is not currently serving requests", mntrWatches)))

	require.Equal(t, 7890123.0, liveBytes(" num     #instances         #bytes  class name\n   1:   9   800  [B (java.base@17)\nTotal        123456        7890123\n"))
	require.True(t, math.IsNaN(liveBytes("12345:\njava.lang.Exception")))

	require.Equal(t, 3.5, cpuSeconds("4711 (java) S 1 4711 4711 0 -1 4194560 9999 0 3 0 250 100 7 8 20 0 41 0 1234 5 6"))
	require.Equal(t, 0.02, cpuSeconds("4711 (a ) b) S 1 4711 4711 0 -1 4194560 9999 0 3 0 1 1 7 8 20 0 41 0 1234 5 6"))
	require.True(t, math.IsNaN(cpuSeconds("4711 (java) S 1 4711")))
	require.True(t, math.IsNaN(cpuSeconds("")))
}

func TestListens(t *testing.T) {
	const line = "   0: %s 00000000:0000 %s 00000000:00000000 00:00000000 00000000  1000        0 54321 1 0 100 0 0 10 0"
	for _, tc := range []struct {
		local, state, addr string
		want               bool
	}{
		{"0100007F:0885", "0A", "127.0.0.1:2181", true},
		{"0100007F:0885", "01", "127.0.0.1:2181", false}, // a connection
		{"0100007F:0886", "0A", "127.0.0.1:2181", false},
		{"0200007F:0885", "0A", "127.0.0.1:2181", false},
		{"00000000:0885", "0A", "127.0.0.1:2181", true},
		{"0000000000000000FFFF00000100007F:0885", "0A", "127.0.0.1:2181", true}, // as Java does
		{"00000000000000000000000001000000:0885", "0A", "[::1]:2181", true},
		{"00000000000000000000000000000000:0885", "0A", "127.0.0.1:2181", true},
		{"0000000000000000000000000100000:0885", "0A", "[::1]:2181", false}, // cut off
	} {
		inode, ok := listens(fmt.Sprintf(line, tc.local, tc.state), netip.MustParseAddrPort(tc.addr))
		require.Equal(t, tc.want, ok, "%v", tc)
		if ok {
			require.Equal(t, "54321", inode)
		}
	}
	_, ok := listens("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode", netip.MustParseAddrPort("127.0.0.1:2181"))
	require.False(t, ok)
}

func TestListenerOf(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	require.Zero(t, listenerOf("zookeeper.example.com:2181"))
	require.Zero(t, listenerOf("10.0.0.1:2181"))
	if runtime.GOOS == "linux" {
		require.Equal(t, os.Getpid(), listenerOf(l.Addr().String()))
		require.Positive(t, ownCPU())
	}
}

func TestServerSide(t *testing.T) {
	s := newServerSide(zktest.Shared(t).Server(0))
	if testrun.Real() {
		require.Greater(t, s.monitor(t.Context(), mntrZnodes), 0.0)
		return
	}
	require.Zero(t, s.pid)
	require.True(t, math.IsNaN(s.cpu()))
	require.True(t, math.IsNaN(s.heap(t.Context())))
	require.True(t, math.IsNaN(s.monitor(t.Context(), mntrZnodes)))
}
