package zkrecipes

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// A Session keeps leases alive over one ZooKeeper connection. It outlives ZooKeeper sessions: expiry ends its leases, not it. One per process is
// enough; its methods may be called by any goroutine.
type Session struct {
	cfg            sessionConfig
	label          string // of the owners that are made up
	log            *slog.Logger
	engine         *core.Engine
	hooks          *core.Serial
	logs           *core.Serial
	tracesWaiting  bool
	tracesReleased bool
	adopted        bool
	done           chan struct{}

	mu     sync.Mutex
	holds  map[holdKey]*hold
	inside map[*entrant]struct{} // members of double barriers that have a znode and no call under way that sees to it
	closed bool

	heirs heirs

	statesMu sync.Mutex
	state    State
	watchers map[*stateWatcher]struct{}
}

// State is what the session knows of its standing with the ensemble.
type State int

// The states.
const (
	StateConnected State = iota + 1 // there is a connection with a session
	StateSuspended                  // there is none at the moment; the session may live on, and leases do until their clock runs out
	StateLost                       // the session is over, or may be: leases have ended. A new one will come
	StateClosed                     // Close was called
)

func (s State) String() string {
	switch s {
	case StateConnected:
		return "connected"
	case StateSuspended:
		return "suspended"
	case StateLost:
		return "lost"
	case StateClosed:
		return "closed"
	}
	return "State(" + strconv.Itoa(int(s)) + ")"
}

// Dial connects to an ensemble and waits for a session until ctx is done. The Session owns the connection; Close ends it.
//
// servers are "host:port" or "host" (port 2181). Names are resolved anew at every reconnect.
//
// Errors are *Error: ErrInvalid for bad arguments; when ctx ends, its error, ErrNoConnection and the last error of each server; zk.ErrAuthFailed for a
// credential that the server does not take at all. Nothing is left running then.
func Dial(ctx context.Context, servers []string, opts ...DialOption) (*Session, error) {
	var cfg dialConfig
	for _, o := range opts {
		if o != nil {
			o.applyDial(&cfg)
		}
	}
	fail := func(err error) (*Session, error) { return nil, &Error{Op: "dial", Err: err} }
	s, err := newSession(cfg.sessionConfig)
	if err != nil {
		return fail(err)
	}
	if err := checkServers(servers); err != nil {
		return fail(err)
	}
	for _, a := range cfg.auth {
		if a[0] == "" {
			return fail(invalid("WithAuth without a scheme"))
		}
	}
	if len(cfg.tracks) > 0 {
		return fail(invalid("TrackContact is for NewSession; Dial has a dialer of its own"))
	}
	ecfg := s.begin()
	ecfg.Servers, ecfg.Dialer, ecfg.TLS = slices.Clone(servers), cfg.dialer, cfg.tls
	for _, a := range cfg.auth {
		ecfg.Auth = append(ecfg.Auth, core.Auth{Scheme: a[0], Data: []byte(a[1])})
	}
	s.engine = core.New(ecfg)
	if err := s.engine.Start(); err != nil {
		_ = s.Close()
		return fail(err)
	}
	ready := make(chan error, 1)
	waiting, stop := context.WithCancel(ctx)
	go func() {
		_, err := s.engine.Await(waiting)
		ready <- err
	}()
	select {
	case err = <-s.engine.Fatal():
		stop()
		<-ready
	case err = <-ready:
		stop()
		if err != nil && ctx.Err() != nil {
			err = ended(ctx, true, s.engine.DialError(), nil, 0)
		}
	}
	if err != nil {
		_ = s.Close()
		return fail(err)
	}
	return s, nil
}

func newSession(cfg sessionConfig) (*Session, error) {
	if cfg.timeout == 0 {
		cfg.timeout = defaultTimeout
	}
	if cfg.timeout < minTimeout || cfg.timeout > maxTimeout {
		return nil, invalid("WithTimeout(%v)", cfg.timeout)
	}
	if cfg.logger == nil {
		cfg.logger = slog.Default()
	}
	if cfg.acl == nil {
		cfg.acl = zk.WorldACL(zk.PermAll)
	}
	if len(cfg.acl) == 0 {
		return nil, invalid("WithACL without an entry: nobody could do anything with the znodes")
	}
	if err := znode.ValidateNamespace(cfg.namespace); err != nil {
		return nil, invalid("WithNamespace(%q): %w", cfg.namespace, err)
	}
	if len(cfg.name) > maxOwner/2 {
		return nil, invalid("WithName of %d bytes, at most %d", len(cfg.name), maxOwner/2)
	}
	if ns := strings.Trim(cfg.namespace, "/"); ns != "" {
		cfg.namespace = "/" + ns
	} else {
		cfg.namespace = ""
	}
	s := &Session{
		cfg: cfg, label: ownerLabel(cfg.name), log: cfg.logger, done: make(chan struct{}), holds: make(map[holdKey]*hold), inside: make(map[*entrant]struct{}), state: StateSuspended,
		watchers: make(map[*stateWatcher]struct{}),
		heirs:    heirs{m: make(map[string]*heir), off: cfg.noShortcuts},
	}
	for _, t := range cfg.trace {
		s.tracesWaiting = s.tracesWaiting || t.Waiting != nil
		s.tracesReleased = s.tracesReleased || t.Released != nil
	}
	return s, nil
}

// begin starts what the engine of a new Session relies on.
func (s *Session) begin() core.Config {
	s.hooks, s.logs = core.NewSerial(), core.NewSerial()
	s.log = slog.New(queuedHandler{s.cfg.logger.Handler(), s.logs})
	return core.Config{Timeout: s.cfg.timeout, ACL: s.cfg.acl, Logger: s.log, Listener: (*listener)(s)}
}

func checkServers(servers []string) error {
	if len(servers) == 0 {
		return invalid("empty server list")
	}
	for _, server := range servers {
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			host, port = strings.Trim(server, "[]"), "2181"
			if strings.Contains(host, ":") && net.ParseIP(host) == nil {
				return invalid("server %q: %w", server, err)
			}
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return invalid("server %q: port %q", server, port)
		}
		if host == "" || strings.ContainsAny(host, "/, \t\n") {
			return invalid("server %q: want host:port; a path belongs to WithNamespace, see ParseConnectString", server)
		}
	}
	return nil
}

// ParseConnectString splits "h1:2181,h2:2181/chroot" into servers and the namespace for WithNamespace ("/chroot", or "").
func ParseConnectString(s string) (servers []string, namespace string, err error) {
	fail := func(err error) ([]string, string, error) {
		return nil, "", &Error{Op: "parse connect string " + strconv.Quote(s), Err: err}
	}
	hosts := s
	if i := strings.IndexByte(s, '/'); i >= 0 {
		hosts, namespace = s[:i], s[i:]
		if namespace == "/" {
			namespace = ""
		}
		if err := znode.ValidateNamespace(namespace); err != nil {
			return fail(invalid("%w", err))
		}
	}
	for h := range strings.SplitSeq(hosts, ",") {
		if h = strings.TrimSpace(h); h != "" {
			servers = append(servers, h)
		}
	}
	if err := checkServers(servers); err != nil {
		return fail(err)
	}
	return servers, namespace, nil
}

// abs returns the absolute path of one that a caller gave.
func (s *Session) abs(path string) (string, error) {
	if err := znode.Validate(path); err != nil {
		return "", invalid("%w", err)
	}
	return znode.Join(s.cfg.namespace, path), nil
}

// noSession is ErrNoConnection while there is no session, else nil.
func (s *Session) noSession() error {
	if s.engine.Ready() {
		return nil
	}
	return ErrNoConnection
}

// ID returns the current ZooKeeper session id, 0 before the first.
func (s *Session) ID() int64 { return s.engine.Epoch().Session }

// Timeout returns the session timeout that the server has granted, which may be another one than WithTimeout asked for.
func (s *Session) Timeout() time.Duration { return s.engine.Timeout() }

// State returns the present state.
func (s *Session) State() State {
	s.statesMu.Lock()
	defer s.statesMu.Unlock()
	return s.state
}

// Leases returns what this Session holds now, as its callers got it: a composite lease, not its parts.
func (s *Session) Leases() []*Lease {
	s.mu.Lock()
	var ls []*Lease
	for _, h := range s.holds {
		ls = append(ls, h.leases...)
	}
	s.mu.Unlock()
	seen := make(map[*Lease]bool)
	var whole []*Lease
	for _, l := range ls {
		for _, l := range l.whole() {
			if !seen[l] {
				seen[l] = true
				whole = append(whole, l)
			}
		}
	}
	return whole
}

// Done is closed by Close only.
func (s *Session) Done() <-chan struct{} { return s.done }

// Close ends all leases (ReasonSessionClosed) and waiting calls (ErrClosed), closes the ZooKeeper session, with which the server deletes every znode of
// it, and the connection. It takes no longer than the session timeout or 5 s, whichever is less. When no server could be told it returns an *Error: the
// znodes then stay until the session times out. A second Close returns nil.
//
// A Session of NewSession leaves the connection and its ZooKeeper session to their owner. Close deletes what the recipes have made in it, and returns nil
// when all of that has gone. When that takes longer than it may take, or a create was never answered and may yet come into effect, it returns an *Error
// that says so, and goes on in the background: until all has gone, the connection is closed or the session must be over. Nothing is created any more,
// and no hook is called.
func (s *Session) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.done
		return nil
	}
	s.closed = true
	s.heirs.end()
	var tells []func()
	for _, h := range s.holds {
		switch h.phase {
		case held:
			tells = append(tells, s.lose(ReasonSessionClosed, nil, h))
		case acquiring:
			s.endHold(h)
			h.refuse(ErrClosed)
			h.seeker.cancel()
		}
	}
	for m := range s.inside {
		s.engine.Remove(m.made.Path, m.made.Session)
	}
	s.mu.Unlock()
	for _, t := range tells {
		t()
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(s.engine.Timeout(), 5*time.Second))
	defer cancel()
	err := s.engine.Close(ctx)
	s.hooks.Stop()
	select {
	case <-s.hooks.Done():
	case <-ctx.Done(): // a hook that does not return, or that called Close
	}
	s.logs.Stop()
	select {
	case <-s.logs.Done():
	case <-ctx.Done():
	}
	close(s.done)
	switch {
	case err == nil:
		return nil
	case s.adopted && s.engine.Reachable():
		return &Error{Op: "close", Err: err}
	}
	return &Error{Op: "close", Err: also(plain(err), ErrNoConnection, err)}
}

// A stateWatcher is one States loop.
type stateWatcher struct {
	state State
	lost  bool // a loss lay between
	wake  chan struct{}
}

// States yields the state, first the present one, then each change, until ctx is done or the loop ends; StateClosed is the last. A slow reader sees the
// latest state, and never misses that a loss lay between.
func (s *Session) States(ctx context.Context) iter.Seq[State] {
	return func(yield func(State) bool) {
		w := &stateWatcher{wake: make(chan struct{}, 1)}
		s.statesMu.Lock()
		seen := s.state
		s.watchers[w] = struct{}{}
		s.statesMu.Unlock()
		defer func() {
			s.statesMu.Lock()
			delete(s.watchers, w)
			s.statesMu.Unlock()
		}()
		for {
			if !yield(seen) || seen == StateClosed {
				return
			}
			select {
			case <-w.wake:
			case <-ctx.Done():
				return
			}
			s.statesMu.Lock()
			next, lost := w.state, w.lost
			w.lost = false
			select { // of a change that came meanwhile, and is seen now
			case <-w.wake:
			default:
			}
			s.statesMu.Unlock()
			if lost && next != StateLost && !yield(StateLost) {
				return
			}
			seen = next
		}
	}
}

// tell is called with statesMu held.
func (s *Session) tell(state State) {
	s.state = state
	for w := range s.watchers {
		w.state, w.lost = state, w.lost || state == StateLost
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// listener is the Session as the engine sees it.
type listener Session

func (l *listener) SessionOver(session int64) {
	s := (*Session)(l)
	for _, h := range s.heldIn(session) {
		s.loseNow(h, ReasonSessionExpired, zk.ErrSessionExpired)
	}
}

func (l *listener) ClockOut(session int64) {
	s := (*Session)(l)
	for _, h := range s.heldIn(session) {
		s.ask(h)
	}
}

func (l *listener) Disconnected() {
	s := (*Session)(l)
	if s.cfg.strict {
		for _, h := range s.heldIn(0) {
			s.loseNow(h, ReasonUnconfirmed, errors.New("disconnected"))
		}
	}
}

func (l *listener) StateChanged(st core.State) {
	s := (*Session)(l)
	state := map[core.State]State{
		core.Connected: StateConnected, core.Suspended: StateSuspended, core.Lost: StateLost, core.Closed: StateClosed,
	}[st]
	s.statesMu.Lock()
	s.tell(state)
	s.statesMu.Unlock()
	for _, t := range s.cfg.trace {
		if t.StateChanged != nil {
			s.hooks.Add(func() { t.StateChanged(s, state) })
		}
	}
}
