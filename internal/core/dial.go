package core

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	connectTimeout = time.Second
	// firstLaps is how often the whole server list is tried with pauses of our own before the client is told that the list wrapped. Then it empties its
	// queue and sleeps for a second, which on a list of one would make every reconnect a second long.
	firstLaps = 4
	backoff   = 40 * time.Millisecond
	maxJitter = 250 * time.Millisecond
	// maxServers is how many addresses are remembered of a client that is somebody else's; names may resolve to ever new ones.
	maxServers = 32
)

// shortLived is the age below which a session that was cut counts as cut at once. It is replaced by tests that cut many.
var shortLived = time.Second

// A route is how a server is reached.
type route struct {
	servers *serverList
	dial    zk.Dialer // nil: our own
	tls     *tls.Config
}

// A lane is the way of one client to the servers: its dialer and its sockets. A poisoned lane never carries another byte.
type lane struct {
	route
	contact   *Contact
	handshake func() time.Duration
	ctx       context.Context // ends with the lane
	cancel    context.CancelFunc
	parked    chan struct{} // closed when the client asks a poisoned lane for a connection; it waits for letGo then
	goOn      chan struct{} // closed by letGo
	park      sync.Once
	closing   atomic.Bool // the client is being closed

	mu       sync.Mutex
	wires    map[*wire]struct{}
	poisoned bool
	paused   bool
	pause    time.Duration // before the next dial

	// The client makes setWatches for every connection, and what it could not send on one it sends on the next, first of all. Only that of the
	// present connection tells that its last zxid was read. What it throws away of its queue is counted on: a setWatches that waited for room in the queue
	// meanwhile is not thrown away.
	setting     int   // setWatches that are to come with this zxid
	settingZxid int64 // the last that the client had seen when it connected
}

// expectSetWatches notes that the client, which has seen zxid, makes setWatches for a connection.
func (l *lane) expectSetWatches(zxid int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settingZxid != zxid {
		l.setting, l.settingZxid = 0, zxid
	}
	l.setting++
}

// sawSetWatches reports whether a setWatches with this zxid is the present connection's.
func (l *lane) sawSetWatches(zxid int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if zxid != l.settingZxid {
		return false
	}
	l.setting = max(l.setting-1, 0)
	return l.setting == 0
}

func newLane(ctx context.Context, r route, c *Contact, handshake func() time.Duration) *lane {
	l := &lane{route: r, contact: c, handshake: handshake, wires: make(map[*wire]struct{}), parked: make(chan struct{}), goOn: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(ctx)
	return l
}

// Dial is the lane's zk.Dialer.
func (l *lane) Dial(network, server string, _ time.Duration) (net.Conn, error) {
	l.mu.Lock()
	wait := l.pause
	if l.paused {
		wait = max(wait, backoff)
	}
	l.mu.Unlock()
	if wait > 0 {
		select {
		case <-l.ctx.Done():
		case <-time.After(wait):
		}
	}
	if l.isPoisoned() {
		l.park.Do(func() { close(l.parked) })
		<-l.goOn
		return nil, ErrClosed
	}
	c, err := l.connect(l.ctx, network, server, l.handshake())
	if err != nil {
		l.servers.failed(server, err)
		return nil, err
	}
	w := newWire(c, l, l.handshake())
	l.mu.Lock()
	if l.poisoned || l.paused {
		l.mu.Unlock()
		c.Close()
		return nil, ErrClosed
	}
	old := l.wires
	l.wires = map[*wire]struct{}{w: {}}
	l.mu.Unlock()
	for o := range old { // the client leaves the socket of an expired session to the garbage collector
		o.Close()
	}
	return w, nil
}

// connect opens a socket to a server of the list, by one of the addresses that its name has now, and makes it secure if it is to be, for which there is
// as much time as for the handshake of a session.
func (r route) connect(ctx context.Context, network, server string, handshake time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout+handshake)
	defer cancel()
	host, _, err := net.SplitHostPort(server)
	if err != nil {
		return nil, err
	}
	var c net.Conn
	if r.dial != nil {
		c, err = r.dial(network, server, connectTimeout)
	} else {
		c, err = r.servers.dialOne(ctx, network, server)
	}
	if err != nil || r.tls == nil {
		return c, err
	}
	cfg := r.tls.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	t := tls.Client(c, cfg)
	secure, done := context.WithTimeout(ctx, handshake)
	defer done()
	if err := t.HandshakeContext(secure); err != nil {
		c.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return t, nil
}

func (l *lane) setPause(d time.Duration) {
	l.mu.Lock()
	l.pause = d
	l.mu.Unlock()
}

// isShut reports whether no connection may be used, for the time being or for good.
func (l *lane) isShut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.poisoned || l.paused
}

func (l *lane) isPoisoned() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.poisoned
}

func (l *lane) remove(w *wire, err error) {
	l.mu.Lock()
	delete(l.wires, w)
	l.mu.Unlock()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		l.servers.failed("", fmt.Errorf("%s: %w", w.RemoteAddr(), err))
	}
}

// poison closes the lane's sockets and lets it open none any more: a client that was closed in the middle of a handshake would otherwise resume the
// session when the server comes back, send what it has queued, and keep the session alive for ever.
func (l *lane) poison() {
	l.shut(true)
	l.cancel()
}

// letGo sends a client that is parked at a poisoned lane on its way, which ends as soon as it is closed.
func (l *lane) letGo() { close(l.goOn) }

// isOver reports whether the client was let go.
func (l *lane) isOver() bool {
	select {
	case <-l.goOn:
		return true
	default:
		return false
	}
}

// hold is a poison that release takes back.
func (l *lane) hold() { l.shut(false) }

func (l *lane) release() {
	l.mu.Lock()
	l.paused = false
	l.mu.Unlock()
}

func (l *lane) shut(forGood bool) {
	l.mu.Lock()
	l.poisoned = l.poisoned || forGood
	l.paused = true
	old := l.wires
	l.wires = make(map[*wire]struct{})
	l.mu.Unlock()
	for w := range old {
		w.Close()
	}
}

// A serverList is the configured servers, by name. Names are resolved anew for every dial.
type serverList struct {
	names []string // constant, but for a client that is somebody else's, see add

	mu    sync.Mutex
	turn  map[string]int // which of a name's addresses is next
	last  map[string]error
	other error // of a connection that was open
}

func newServerList(servers []string) *serverList {
	names := make([]string, len(servers))
	for i, s := range servers {
		names[i] = withPort(s)
	}
	return &serverList{names: names, turn: make(map[string]int), last: make(map[string]error)}
}

// add takes a server into the list, of which it keeps the latest.
func (s *serverList) add(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.names, server) {
		return
	}
	if len(s.names) == maxServers {
		delete(s.last, s.names[0])
		delete(s.turn, s.names[0])
		s.names = s.names[1:]
	}
	s.names = append(slices.Clone(s.names), server)
}

func (s *serverList) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names
}

// withPort adds the default port to a server that names none; go-zookeeper's own way of doing so takes a bare IPv6 address for one with a port.
func withPort(server string) string {
	if _, _, err := net.SplitHostPort(server); err == nil {
		return server
	}
	return net.JoinHostPort(strings.Trim(server, "[]"), strconv.Itoa(zk.DefaultPort))
}

// dialOne tries one address of a server, another one each time, so that a name with three addresses behind it is a list of three.
func (s *serverList) dialOne(ctx context.Context, network, server string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return nil, err
	}
	addrs, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if _, ok := s.turn[server]; !ok {
		s.turn[server] = rand.IntN(len(addrs))
	}
	addr := addrs[s.turn[server]%len(addrs)]
	s.turn[server]++
	s.mu.Unlock()
	d := net.Dialer{Timeout: connectTimeout}
	return d.DialContext(ctx, network, net.JoinHostPort(addr, port))
}

func (s *serverList) failed(server string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if server == "" {
		s.other = err
		return
	}
	s.last[server] = err
}

// connected forgets the errors of before.
func (s *serverList) connected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.last)
	s.other = nil
}

// Err joins the last error of each server, nil if there was none.
func (s *serverList) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, n := range s.names {
		if err := s.last[n]; err != nil {
			if strings.Contains(err.Error(), n) {
				errs = append(errs, err)
			} else {
				errs = append(errs, fmt.Errorf("%s: %w", n, err))
			}
		}
	}
	if s.other != nil {
		errs = append(errs, s.other)
	}
	return errors.Join(errs...)
}

// A hostProvider walks the server list for one client.
type hostProvider struct {
	lane  *lane
	order []string

	mu        sync.Mutex
	tried     int // dials since the last session
	connected time.Time
	cut       int // short-lived sessions in a row
}

func newHostProvider(l *lane) *hostProvider {
	order := append([]string(nil), l.servers.names...)
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return &hostProvider{lane: l, order: order}
}

// Init is called by the client with the servers it was given; the list is known.
func (h *hostProvider) Init([]string) error { return nil }

// Len returns the number of servers.
func (h *hostProvider) Len() int { return len(h.order) }

// Next returns the next server. The first lap goes without a pause, the following ones with a growing one of our own, and from then on the client
// sleeps a second per lap, to which jitter is added so that a fleet does not come back in step. Sessions that are cut as soon as they stand cost a
// growing pause too.
func (h *hostProvider) Next() (server string, retryStart bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.order)
	lap, first := h.tried/n, h.tried%n == 0
	server = h.order[h.tried%n]
	var pause time.Duration
	switch {
	case h.tried == 0 && !h.connected.IsZero():
		if time.Since(h.connected) > shortLived {
			h.cut = 0
		} else if h.cut++; h.cut > 2 {
			pause = jitter(backoff << min(h.cut-3, 3))
		}
	case lap == 0 || !first:
	case lap < firstLaps:
		pause = jitter(backoff << lap)
	default:
		retryStart = true
		pause = rand.N(maxJitter)
	}
	h.tried++
	h.lane.setPause(pause)
	if h.lane.isPoisoned() {
		retryStart = h.lane.isOver()
	}
	return server, retryStart
}

// Connected is called when a session was made or resumed. The next lap starts behind this server.
func (h *hostProvider) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := (h.tried - 1 + len(h.order)) % len(h.order)
	h.order = append(append([]string(nil), h.order[at+1:]...), h.order[:at+1]...)
	h.tried, h.connected = 0, time.Now()
	h.lane.servers.connected()
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }
