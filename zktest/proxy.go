package zktest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Proxy stands between one client and one server and does to their frames what
// a test asks for. Give each client a proxy of its own, then faults are per
// client.
//
// Faults are of two kinds. Those of the whole proxy (Cut, Refuse, BlackHole,
// Stall, Delay, Flap) hit present connections, idle ones too, and where they
// say so later ones. Those of a [Rule] hit single frames. A frame is first
// delayed, then stalled or swallowed, then shown to the rules, then sent.
//
// Each connection has its own state; rules and counters are shared by all
// connections of the proxy. All methods may be called from several goroutines.
type Proxy struct {
	tb   TB
	port int
	addr string

	rules   ruleset
	journal journal

	// faults is held while BlackHole or Stall waits for writes under way, and
	// accepting while the listener is opened or closed. Both come before mu.
	faults    sync.Mutex
	accepting sync.Mutex
	acceptors sync.WaitGroup // the goroutine of the listener

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // the goroutines of the links

	mu       sync.Mutex
	listener *net.TCPListener // nil while refusing
	closed   bool
	target   string
	delay    time.Duration
	hole     Direction
	stall    Direction
	changed  chan struct{} // closed and replaced when hole or stall changes
	links    map[*link]struct{}
	accepted int // numbers the links
}

// NewProxy listens on a free port of 127.0.0.1 and forwards each connection to
// target, a host:port. It closes with the test. When it cannot listen the test
// fails.
func NewProxy(tb TB, target string) *Proxy {
	tb.Helper()
	l, port, err := listen()
	if err != nil {
		tb.Fatalf("%v", err)
		return nil
	}
	p := &Proxy{
		tb:      tb,
		port:    port,
		addr:    hostPort(port),
		target:  target,
		changed: make(chan struct{}),
		links:   map[*link]struct{}{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.serve(l)
	tb.Cleanup(p.Close)
	return p
}

// Addr is the host:port to give to the client. It stays the same for the life
// of the proxy.
func (p *Proxy) Addr() string { return p.addr }

// SetTarget changes where new connections go. Present ones stay where they are.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// serve accepts from l until it is closed. Call it with accepting held, or
// before anybody else knows p.
func (p *Proxy) serve(l *net.TCPListener) {
	p.mu.Lock()
	p.listener = l
	p.mu.Unlock()
	p.acceptors.Go(func() {
		for {
			conn, err := l.AcceptTCP()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				p.fail("cannot accept: %v", err)
				return
			}
			p.open(conn)
		}
	})
}

// open starts a link for an accepted connection.
func (p *Proxy) open(client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := newLink(p, p.accepted, client, p.target)
	p.accepted++
	p.links[l] = struct{}{}
	p.wg.Go(l.run)
}

// unlisten closes the listener and waits until nothing more is accepted. Call
// it with accepting held.
func (p *Proxy) unlisten() {
	p.mu.Lock()
	l := p.listener
	p.listener = nil
	p.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
	p.acceptors.Wait()
}

// present are the links that exist now.
func (p *Proxy) present() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*link, 0, len(p.links))
	for l := range p.links {
		all = append(all, l)
	}
	return all
}

// Cut resets all present connections on both sides. When it returns they are
// gone; the next one is served as ever.
func (p *Proxy) Cut() {
	for _, l := range p.present() {
		l.close(true)
	}
}

// Flap cuts n times with a pause of gap in between, and returns after the last
// cut, or when the proxy is closed.
func (p *Proxy) Flap(n int, gap time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for range n {
		select {
		case <-p.ctx.Done():
			return
		case <-timer.C:
		}
		p.Cut()
		timer.Reset(gap)
	}
}

// Refuse closes the port, so that connecting fails with "connection refused",
// and cuts all present connections; with false it opens the port again.
func (p *Proxy) Refuse(on bool) {
	p.accepting.Lock()
	defer p.accepting.Unlock()
	if on {
		p.unlisten()
		p.Cut()
		return
	}
	p.mu.Lock()
	open := p.listener != nil || p.closed
	p.mu.Unlock()
	if open {
		return
	}
	l, err := net.Listen("tcp4", p.addr)
	if err != nil {
		p.tb.Errorf("zktest: Refuse(false): somebody else took the proxy's port meanwhile: %v", err)
		return
	}
	p.serve(l.(*net.TCPListener))
}

// BlackHole swallows all bytes in the given direction while sockets stay open:
// neither side hears anything from the other, not even its end. It replaces the
// black hole there was, and holds for new connections too; they are accepted
// and get no answer.
//
// What was swallowed is lost for good. So when a direction is healed, by
// BlackHole(None) or another direction, the connections that lost bytes in it
// are reset: a stream with a hole in it is no stream. Connections that lost
// nothing go on.
func (p *Proxy) BlackHole(d Direction) { p.blackHole(d, nil, None) }

// blackHole also marks that l has lost a frame in direction lost, in the same
// step, so that nobody sees a lossy link without its hole. A link that was
// closed meanwhile has no say any more: what Cut has ended must not begin a
// black hole afterwards.
func (p *Proxy) blackHole(d Direction, l *link, lost Direction) {
	p.faults.Lock()
	defer p.faults.Unlock()
	p.mu.Lock()
	if l != nil {
		if l.closed {
			p.mu.Unlock()
			return
		}
		l.lost |= lost
	}
	p.hole = d
	p.broadcast()
	var broken []*link
	for l := range p.links {
		if l.lost&^d != 0 {
			broken = append(broken, l)
		}
	}
	p.mu.Unlock()
	for _, l := range broken {
		l.close(true)
	}
	p.settle(d)
}

// Stall keeps all bytes in the given direction at the proxy, for new
// connections too, and replaces the stall there was. The bytes go on, in order,
// when their direction is no longer stalled.
func (p *Proxy) Stall(d Direction) {
	p.faults.Lock()
	defer p.faults.Unlock()
	p.mu.Lock()
	p.stall = d
	p.broadcast()
	p.mu.Unlock()
	p.settle(d)
}

// settle waits until no write in direction d that began before the fault is
// under way. Call it with faults held.
func (p *Proxy) settle(d Direction) {
	for _, l := range p.present() {
		p.mu.Lock()
		lines := l.lines
		p.mu.Unlock()
		for _, ln := range lines {
			if ln != nil && ln.dir&d != 0 {
				ln.interrupt()
			}
		}
	}
}

// broadcast wakes what waits for a change. Call it with mu held.
func (p *Proxy) broadcast() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Delay makes every frame arrive d later, in each direction. It is a longer
// wire, not a slower one: two requests sent back to back arrive back to back.
// Frames already under way keep the delay they set out with.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

func (p *Proxy) currentDelay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}

// OnRequest adds a rule behind the others and returns what removes it. Removing
// a rule does not take back what it already decided: the reply to a request it
// has acted on is still cut, held or rewritten.
func (p *Proxy) OnRequest(r Rule) (remove func()) { return p.rules.add(r) }

// Requests returns the requests that reached the proxy since it was made or
// [Proxy.ResetCounters], in order, at most the last 100000. A request stays
// out while Delay, Stall or a frame held in front of it keeps it back.
func (p *Proxy) Requests() []Record { return p.journal.records() }

// Counts returns totals since the proxy was made or [Proxy.ResetCounters]. What
// a client has received is counted.
func (p *Proxy) Counts() Counts { return p.journal.totals() }

// ResetCounters forgets the requests and starts all counters again, those of
// the rules too.
func (p *Proxy) ResetCounters() {
	p.rules.reset()
	p.journal.reset()
}

// Close resets all connections and frees the port. When it returns no goroutine
// of the proxy is left. It is called with the clean-up of the test; further
// calls do nothing.
func (p *Proxy) Close() {
	p.accepting.Lock()
	defer p.accepting.Unlock()
	p.mu.Lock()
	was := p.closed
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.unlisten()
	p.Cut()
	p.wg.Wait()
	if !was {
		pool.give(p.port)
	}
}

// fail reports a fault of the proxy itself. Goroutines of the proxy may call
// it: they end before the test does.
func (p *Proxy) fail(format string, args ...any) {
	p.tb.Errorf("zktest: proxy %s: %s", p.addr, fmt.Sprintf(format, args...))
}
