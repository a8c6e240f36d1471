package main

import (
	"encoding/binary"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// frame is one of a request with so many bytes behind its head.
func frame(xid int32, op zktest.Op, body int) []byte {
	b := make([]byte, headLen+body)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	binary.BigEndian.PutUint32(b[4:], uint32(xid))
	binary.BigEndian.PutUint32(b[8:], uint32(op))
	return b
}

func TestFramesInPieces(t *testing.T) {
	var all []byte
	for _, f := range [][]byte{
		frame(0, 0, 32), // the connect request
		frame(1, zktest.OpCreate2, 70), frame(-2, zktest.OpPing, 0), frame(2, zktest.OpGetData, 9), frame(3, zktest.OpSync, 5), frame(4, zktest.OpMulti, 200),
		frame(5, zktest.OpClose, 0),
	} {
		all = append(all, f...)
	}
	for piece := 1; piece <= len(all); piece++ {
		f := frames{meter: &meter{}}
		for rest := all; len(rest) > 0; {
			n := min(piece, len(rest))
			f.written(rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, traffic{requests: 5, writes: 2, heartbeats: 1, pings: 1}, f.meter.traffic(), "in pieces of %d", piece)
	}
}

// A meter says the same of a session as the proxy of zktest.
func TestMeterCountsWhatAProxyDoes(t *testing.T) {
	server := zktest.Shared(t)
	proxy := zktest.NewProxy(t, server.Addrs()[0])
	m := &meter{}
	conn, events, err := zk.Connect([]string{proxy.Addr()}, longTimeout, zk.WithDialer(m.dial), zk.WithLogger(silent{}))
	require.NoError(t, err)
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	node, err := conn.Create("/meter-", []byte("data"), zk.FlagEphemeral|zk.FlagSequence, openACL)
	require.NoError(t, err)
	_, err = conn.Sync(node)
	require.NoError(t, err)
	_, _, _, err = conn.GetW(node)
	require.NoError(t, err)
	require.NoError(t, conn.Delete(node, -1))
	require.NoError(t, settle(t.Context(), []counter{m, zkWire{proxy}}, traffic{}, 2*3))
	got, want := m.traffic(), zkWire{proxy}.traffic()
	conn.Close()
	require.Equal(t, want, got)
	require.Equal(t, 4, got.requests)
	require.Equal(t, 2, got.writes)
	require.Equal(t, 1, got.heartbeats)
}
