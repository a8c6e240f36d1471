package main

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// serve answers each connection's frames with the given ones, one for one, then closes it.
func serve(t *testing.T, replies ...[]byte) (addr string, requests chan []byte) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	requests = make(chan []byte, 10)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			for _, reply := range replies {
				var size [4]byte
				if _, err := io.ReadFull(conn, size[:]); err != nil {
					break
				}
				req := make([]byte, binary.BigEndian.Uint32(size[:]))
				if _, err := io.ReadFull(conn, req); err != nil {
					break
				}
				requests <- req
				conn.Write(reply)
			}
			conn.Close()
		}
	}()
	return ln.Addr().String(), requests
}

func connectReply(session uint64) []byte {
	b := binary.BigEndian.AppendUint32(nil, 37)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, 10_000)
	b = binary.BigEndian.AppendUint64(b, session)
	b = binary.BigEndian.AppendUint32(b, 16)
	return append(b, make([]byte, 17)...)
}

func closeReply() []byte {
	return append(binary.BigEndian.AppendUint32(nil, 16), make([]byte, 16)...)
}

func TestPingClosesItsSession(t *testing.T) {
	addr, requests := serve(t, connectReply(7), closeReply())
	require.NoError(t, pingAll(addr+", "+addr, timeout))
	require.Len(t, requests, 4)
	require.Len(t, <-requests, 44)
	require.Equal(t, []byte{0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5}, <-requests)
}

func TestPingRefuses(t *testing.T) {
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, unused.Close())
	closes, _ := serve(t, nil)
	other, _ := serve(t, []byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	refused, _ := serve(t, connectReply(0))
	good, _ := serve(t, connectReply(1), closeReply())
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()

	for _, tc := range []struct{ name, servers, want string }{
		{"nobody listens", unused.Addr().String(), "refused"},
		{"closed without an answer", closes, "without an answer"},
		{"another protocol", other, errNotZooKeeper.Error()},
		{"session refused", refused, "refused the session"},
		{"never answers", silent.Addr().String(), "timeout"},
		{"one of two bad", good + "," + refused, "refused the session"},
		{"with a path", "127.0.0.1:2181/chroot", "no path"},
		{"empty", "", "refused"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name == "empty" {
				require.Error(t, pingAll(tc.servers, timeout))
				return
			}
			limit := timeout
			if tc.name == "never answers" {
				limit = 200 * time.Millisecond
			}
			require.ErrorContains(t, pingAll(tc.servers, limit), tc.want)
		})
	}
}
