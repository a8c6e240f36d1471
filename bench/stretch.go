package main

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A stretch is a wire of any protocol: it counts the bytes, and each arrives so much later. What the requests are its client says.
type stretch struct {
	listener net.Listener
	target   string
	rtt      atomic.Int64
	bytes    atomic.Int64
	asked    atomic.Int64
	beats    atomic.Int64
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

func newStretch(s *scope, target string) wire {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	s.must(err)
	w := &stretch{listener: l, target: target}
	w.running.Go(w.serve)
	s.Cleanup(w.close)
	return w
}

func (w *stretch) address() string            { return w.listener.Addr().String() }
func (w *stretch) lengthen(rtt time.Duration) { w.rtt.Store(int64(rtt)) }

func (w *stretch) traffic() traffic {
	return traffic{requests: int(w.asked.Load()), heartbeats: int(w.beats.Load()), bytes: w.bytes.Load()}
}

// ask counts a request; a client without a wire has a nil one.
func (w *stretch) ask(heartbeat bool) {
	if w == nil {
		return
	}
	w.asked.Add(1)
	if heartbeat {
		w.beats.Add(1)
	}
}

// keep has a connection closed with the wire, or closes it at once.
func (w *stretch) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		_ = c.Close()
		return false
	}
	w.conns = append(w.conns, c)
	return true
}

func (w *stretch) serve() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !w.keep(client) || !w.keep(server) {
			_ = client.Close()
			return
		}
		w.running.Go(func() { w.pump(client, server) })
		w.running.Go(func() { w.pump(server, client) })
	}
}

// A parcel is some bytes, and when they are due.
type parcel struct {
	bytes []byte
	due   time.Time
}

// pump carries what comes from one to the other. What is read is never kept from being read by what waits to be written: it is a longer wire, not a slower one.
func (w *stretch) pump(from, to net.Conn) {
	parcels := make(chan parcel, 1<<12)
	w.running.Go(func() {
		defer func() { _ = to.Close() }()
		for p := range parcels {
			time.Sleep(time.Until(p.due)) // this is the delay, and no synchronisation
			if _, err := to.Write(p.bytes); err != nil {
				_ = from.Close()
				for range parcels {
				}
				return
			}
		}
	})
	defer close(parcels)
	for {
		b := make([]byte, 32<<10)
		n, err := from.Read(b)
		if n > 0 {
			w.bytes.Add(int64(n))
			parcels <- parcel{b[:n], time.Now().Add(time.Duration(w.rtt.Load()) / 2)}
		}
		if err != nil {
			return
		}
	}
}

func (w *stretch) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	w.closed = true
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.running.Wait()
}
