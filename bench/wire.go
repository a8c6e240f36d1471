package main

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// traffic is what went over some wires.
type traffic struct {
	requests   int
	writes     int // those that change something
	heartbeats int // those that only prove a session alive
	pings      int // of ZooKeeper's clients; no requests
	bytes      int64
}

func (t traffic) sub(o traffic) traffic {
	return traffic{t.requests - o.requests, t.writes - o.writes, t.heartbeats - o.heartbeats, t.pings - o.pings, t.bytes - o.bytes}
}

func (t traffic) add(o traffic) traffic {
	return traffic{t.requests + o.requests, t.writes + o.writes, t.heartbeats + o.heartbeats, t.pings + o.pings, t.bytes + o.bytes}
}

// A counter knows what went over some wire.
type counter interface{ traffic() traffic }

// A wire is between one session and its server: it counts, and it can be made longer.
type wire interface {
	counter
	address() string
	lengthen(rtt time.Duration)
}

// A zkWire is a wire of ZooKeeper's protocol.
type zkWire struct{ p *zktest.Proxy }

func newZKWire(s *scope, server string) wire { return zkWire{zktest.NewProxy(s, server)} }

func (w zkWire) address() string            { return w.p.Addr() }
func (w zkWire) lengthen(rtt time.Duration) { w.p.Delay(rtt / 2) }

// writeOps are the requests that change something.
var writeOps = []zktest.Op{
	zktest.OpCreate, zktest.OpCreate2, zktest.OpCreateContainer, zktest.OpCreateTTL, zktest.OpDelete, zktest.OpDeleteContainer, zktest.OpSetData,
	zktest.OpSetACL, zktest.OpMulti,
}

func (w zkWire) traffic() traffic {
	c := w.p.Counts()
	t := traffic{requests: c.Total(), heartbeats: c.Requests[zktest.OpSync], pings: c.Requests[zktest.OpPing], bytes: c.ToServer + c.ToClient}
	for _, op := range writeOps {
		t.writes += c.Requests[op]
	}
	return t
}

// total is what went over all of them.
func total[C counter](wires []C) (t traffic) {
	for _, w := range wires {
		t = t.add(w.traffic())
	}
	return t
}

const (
	lookEvery = 20 * time.Millisecond
	quietFor  = 300 * time.Millisecond
)

// settle waits until at least so many requests have gone over the wires since before, and then none for a while: everybody waits.
// Heartbeats do not count.
func settle[C counter](ctx context.Context, wires []C, before traffic, requests int) error {
	_, err := settled(ctx, wires, before, requests)
	return err
}

// settled is settle, and says when the last request had gone.
func settled[C counter](ctx context.Context, wires []C, before traffic, requests int) (last time.Time, err error) {
	asked := func() int {
		t := total(wires)
		return t.requests - t.heartbeats
	}
	least := before.requests - before.heartbeats + requests
	count, last := asked(), time.Now()
	for {
		if err := pause(ctx, lookEvery); err != nil {
			return last, err
		}
		now := asked()
		if now != count || now < least {
			count, last = now, time.Now()
		}
		if time.Since(last) >= quietFor {
			return last, nil
		}
	}
}
