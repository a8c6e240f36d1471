package main

import (
	"encoding/binary"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A meter counts what the connections that it dials carry, of as many sessions as use it. A proxy counts more, but lives in this process: beside thousands of
// sessions it would be what is measured.
type meter struct{ requests, writes, syncs, pings, bytes atomic.Int64 }

func (m *meter) traffic() traffic {
	return traffic{
		requests: int(m.requests.Load()), writes: int(m.writes.Load()), heartbeats: int(m.syncs.Load()), pings: int(m.pings.Load()), bytes: m.bytes.Load(),
	}
}

// dial is a zk.Dialer.
func (m *meter) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	c, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return &metered{Conn: c, frames: frames{meter: m}}, nil
}

// A metered connection is written by one goroutine and read by one, as a client does.
type metered struct {
	net.Conn
	frames frames
}

func (c *metered) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.frames.meter.bytes.Add(int64(n))
	return n, err
}

func (c *metered) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.frames.meter.bytes.Add(int64(n))
	c.frames.written(b[:n])
	return n, err
}

// Of a frame: its length, its number, and what it asks for.
const headLen = 12

// frames follows the frames that go to a server, in whatever pieces they are written.
type frames struct {
	meter     *meter
	connected bool // the first frame is the connect request, which asks for nothing
	head      [headLen]byte
	have      int // of the head
	rest      int // of the frame, behind its head
}

func (f *frames) written(b []byte) {
	for len(b) > 0 {
		if f.rest > 0 {
			n := min(f.rest, len(b))
			f.rest, b = f.rest-n, b[n:]
			continue
		}
		n := copy(f.head[f.have:], b)
		f.have, b = f.have+n, b[n:]
		if f.have < headLen {
			continue
		}
		f.have, f.rest = 0, int(binary.BigEndian.Uint32(f.head[:]))-(headLen-4)
		f.count(zktest.Op(binary.BigEndian.Uint32(f.head[8:])))
	}
}

func (f *frames) count(op zktest.Op) {
	switch {
	case !f.connected:
		f.connected = true
		return
	case op == zktest.OpPing:
		f.meter.pings.Add(1)
		return
	case op == zktest.OpSync:
		f.meter.syncs.Add(1)
	case slices.Contains(writeOps, op):
		f.meter.writes.Add(1)
	}
	f.meter.requests.Add(1)
}
