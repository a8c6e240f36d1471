package core

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// queued is how many requests may be inside the client at once. Its own queue has 16 places: what waits there survives an expiry and is executed in the
// next session, and a full one keeps Close from sending its request. One place is the heartbeat's, one is Close's. Callers through Conn may take
// callerQueued of them, so that they cannot keep the engine from its work.
const (
	queued       = 14
	callerQueued = 8
)

// rebuildAfter is how many session timeouts without a session pass before the engine asks whether the fault is the client's.
const rebuildAfter = 3

// State is what the engine knows of its standing with the ensemble.
type State int

// The states of an engine.
const (
	Suspended State = iota // no connection, or no session yet
	Connected
	Lost // the session is over, or may be: its clock has run out
	Closed
)

// A Listener is told what ends leases. Its methods are called on the engine's goroutines and must not block.
type Listener interface {
	// SessionOver: the session has ended or was replaced.
	SessionOver(session int64)
	// ClockOut: nothing proves any more that the session lives. It may be told twice.
	ClockOut(session int64)
	// Disconnected: the connection is gone, the session may live on.
	Disconnected()
	// StateChanged is called in order.
	StateChanged(State)
}

// Config is what an engine is made from.
type Config struct {
	Servers  []string
	Timeout  time.Duration
	Dialer   zk.Dialer
	TLS      *tls.Config
	Auth     []Auth
	ACL      []zk.ACL
	Logger   *slog.Logger
	Listener Listener
}

// Auth is one credential.
type Auth struct {
	Scheme string
	Data   []byte
}

// An Engine keeps one client going and answers for its requests.
type Engine struct {
	cfg     Config
	route   route
	contact *Contact
	tracker *Serial
	hub     *hub
	reaper  *reaper
	slots   chan struct{}
	callers chan struct{}
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	wg      sync.WaitGroup
	pulse   chan struct{} // wakes the clock
	fatal   chan error    // an error that Dial must return
	noConts atomic.Bool   // the server has no containers

	mu      sync.Mutex
	client  *client
	open    Epoch         // the epoch for which the gate is open
	opened  chan struct{} // closed when it opens, replaced when it closes
	users   int           // leases and contenders: what the heartbeat goes on for
	holds   int           // leases: what a clock that ran out is told to
	state   State
	session int64 // the tracker's: the session whose end has not been told
	closing bool
}

// A client is one *zk.Conn and its lane. The engine replaces it when it is stuck.
type client struct {
	conn   *zk.Conn
	lane   *lane
	gone   <-chan zk.Event // closed when the client's goroutines are
	made   chan struct{}   // closed when conn and gone are set
	authed int             // credentials that the client knows; the tracker's
	since  time.Time       // without a session since
	served bool            // a server served meanwhile
}

// New makes an engine that will own its connection; Start begins to connect.
func New(cfg Config) *Engine {
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{
		cfg:     cfg,
		route:   route{newServerList(cfg.Servers), cfg.Dialer, cfg.TLS},
		contact: NewContact(),
		tracker: NewSerial(),
		slots:   make(chan struct{}, queued),
		callers: make(chan struct{}, callerQueued),
		ctx:     ctx,
		stop:    cancel,
		pulse:   make(chan struct{}, 1),
		fatal:   make(chan error, 1),
		opened:  make(chan struct{}),
	}
	e.hub = newHub(e)
	e.reaper = newReaper(e)
	e.contact.notify = func(s signal) { e.tracker.Add(func() { e.handle(s) }) }
	return e
}

// Start begins to connect. The caller waits with Await, and closes the engine whatever comes.
func (e *Engine) Start() error {
	if err := e.newClient(); err != nil {
		return err
	}
	e.wg.Go(e.runClock)
	e.wg.Go(e.runWatchdog)
	return nil
}

// newClient makes the current client.
func (e *Engine) newClient() error {
	c := &client{made: make(chan struct{}), since: time.Now()}
	c.lane = newLane(e.ctx, e.route, e.contact, func() time.Duration { return e.Timeout() / 3 })
	e.mu.Lock()
	if e.closing { // Close has ended the client that there was, and ends no other
		e.mu.Unlock()
		c.lane.poison()
		return ErrClosed
	}
	e.client = c
	e.shutGate()
	e.mu.Unlock()
	conn, gone, err := zk.Connect(e.route.servers.names, e.cfg.Timeout,
		zk.WithDialer(c.lane.Dial), zk.WithHostProvider(newHostProvider(c.lane)),
		zk.WithLogInfo(false), zk.WithLogger(clientLogger{e.cfg.Logger}),
		zk.WithMaxConnBufferSize(1<<20),
		zk.WithEventCallback(func(ev zk.Event) { e.tracker.Add(func() { e.event(c, ev) }) }))
	c.conn, c.gone = conn, gone
	close(c.made)
	if err != nil {
		c.lane.poison()
	}
	return err
}

// clientLogger passes what go-zookeeper logs on at debug level: the engine says at its own levels what its user should know.
type clientLogger struct{ l *slog.Logger }

func (c clientLogger) Printf(format string, args ...any) {
	if c.l.Enabled(context.Background(), slog.LevelDebug) {
		c.l.Debug("go-zookeeper: " + fmt.Sprintf(format, args...))
	}
}

// Timeout is the negotiated session timeout, before the first session the one that was asked for.
func (e *Engine) Timeout() time.Duration {
	if _, _, t := e.contact.identity(); t > 0 {
		return t
	}
	return e.cfg.Timeout
}

// Epoch returns the current epoch, or the last one.
func (e *Engine) Epoch() Epoch { return e.contact.Epoch() }

// Left returns how long the session is still certain to live.
func (e *Engine) Left(session int64) time.Duration { return e.contact.Left(session) }

// Over reports whether the session is known to have ended or to have been replaced.
func (e *Engine) Over(session int64) bool { return e.contact.Over(session) }

// ACL is what the engine's own znodes get.
func (e *Engine) ACL() []zk.ACL { return e.cfg.ACL }

// Context ends with the engine.
func (e *Engine) Context() context.Context { return e.ctx }

// Prove asks for an answer that restarts the lease clock.
func (e *Engine) Prove(ctx context.Context) {
	_, _ = e.Do(ctx, func(c Conn) error {
		_, err := c.Sync("/")
		return err
	})
}

// Logger is where the engine logs.
func (e *Engine) Logger() *slog.Logger { return e.cfg.Logger }

// DialError returns why the servers could not be reached, nil when they were.
func (e *Engine) DialError() error { return e.route.servers.Err() }

// Fatal delivers an error that no retry mends.
func (e *Engine) Fatal() <-chan error { return e.fatal }

// State returns the present state.
func (e *Engine) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}

// Ready reports whether there is a session that takes requests.
func (e *Engine) Ready() bool {
	epoch, up, _, _ := e.contact.timing()
	e.mu.Lock()
	defer e.mu.Unlock()
	return up && !e.closing && e.open == epoch
}

// Await waits for a session. It returns ErrClosed after Close, and ctx's error.
func (e *Engine) Await(ctx context.Context) (Epoch, error) {
	epoch, _, err := e.await(ctx)
	return epoch, err
}

func (e *Engine) await(ctx context.Context) (Epoch, Conn, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Epoch{}, nil, err
		}
		e.mu.Lock()
		// Asked with mu held: with a reading from before the gate was opened for a newer connection, that gate would be shut here, for good.
		epoch, up, _, _ := e.contact.timing()
		closing, ok, opened := e.closing, up && e.open == epoch, e.opened
		var conn Conn
		if ok {
			conn = e.client.conn
		}
		if !ok && e.open != (Epoch{}) {
			// The wire knows already that this connection is over, the tracker does not yet.
			e.shutGate()
			opened = e.opened
		}
		e.mu.Unlock()
		if closing {
			return Epoch{}, nil, ErrClosed
		}
		if ok {
			return epoch, conn, nil
		}
		select {
		case <-opened:
		case <-ctx.Done():
		case <-e.ctx.Done():
		}
	}
}

// shutGate is called with mu held.
func (e *Engine) shutGate() {
	if e.open != (Epoch{}) {
		e.open = Epoch{}
		e.opened = make(chan struct{})
	}
}

// Do runs one request when there is a session and a place in the client's queue. The request itself is not interrupted: it ends with its answer, with
// its connection, or with Close.
func (e *Engine) Do(ctx context.Context, fn func(Conn) error) (Span, error) {
	select {
	case e.slots <- struct{}{}:
	case <-ctx.Done():
		return Span{}, ctx.Err()
	case <-e.ctx.Done():
		return Span{}, ErrClosed
	}
	defer func() { <-e.slots }()
	epoch, conn, err := e.await(ctx)
	if err != nil {
		return Span{}, err
	}
	err = fn(conn)
	if err != nil && e.ctx.Err() != nil && Classify(err) == Ambiguous {
		err = ErrClosed
	}
	return Span{epoch, e.contact.Epoch()}, err
}

// DoCaller is Do for requests of the user's own.
func (e *Engine) DoCaller(ctx context.Context, fn func(Conn) error) error {
	select {
	case e.callers <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-e.ctx.Done():
		return ErrClosed
	}
	defer func() { <-e.callers }()
	_, err := e.Do(ctx, fn)
	return err
}

// Read runs a request that changes nothing, again after each connection that ended without an answer, until ctx ends. It returns at that moment; the
// request, if one is under way, ends by itself.
func Read[T any](ctx context.Context, e *Engine, fn func(Conn) (T, error)) (T, Span, error) {
	type result struct {
		v    T
		span Span
		err  error
	}
	run := func() (r result) {
		for {
			r.span, r.err = e.Do(ctx, func(c Conn) (err error) {
				r.v, err = fn(c)
				return err
			})
			if r.err == nil || errors.Is(r.err, ErrClosed) || ctx.Err() != nil || Classify(r.err) == Answered {
				return r
			}
		}
	}
	if ctx.Done() == nil {
		r := run()
		return r.v, r.span, r.err
	}
	done := make(chan result, 1)
	if !e.Go(func() { done <- run() }) {
		var none T
		return none, Span{}, ErrClosed
	}
	select {
	case r := <-done:
		return r.v, r.span, r.err
	case <-ctx.Done():
		var none T
		return none, Span{}, ctx.Err()
	}
}

// Go runs fn on a goroutine that Close waits for; false once the engine is closing.
func (e *Engine) Go(fn func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return false
	}
	e.wg.Go(fn)
	return true
}

// handle takes what a wire saw. It runs on the tracker.
func (e *Engine) handle(s signal) {
	switch s.kind {
	case signalUp:
		e.mu.Lock()
		old := e.session
		e.session = s.epoch.Session
		e.mu.Unlock()
		if old != 0 && old != s.epoch.Session {
			// No server said that the old one expired; some never do.
			e.sessionOver(old, false)
		}
	case signalDown:
		e.mu.Lock()
		closing := e.closing
		if e.open == s.epoch {
			e.shutGate()
		}
		e.mu.Unlock()
		if closing {
			return
		}
		e.lost(s.lane)
		e.cfg.Logger.Warn("zkrecipes: connection lost", "session", sessionID(s.epoch.Session), "err", s.err)
		e.cfg.Listener.Disconnected()
		e.refreshState()
	case signalExpired:
		e.sessionOver(s.epoch.Session, true)
	}
	e.wakeClock()
}

// lost starts the watchdog's time for the client of that lane.
func (e *Engine) lost(l *lane) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.lane == l {
		e.client.since, e.client.served = time.Now(), false
	}
}

// sessionOver tells everybody that a session has ended. certain is false when only this side decided so: then its znodes may live on.
func (e *Engine) sessionOver(session int64, certain bool) {
	e.mu.Lock()
	current := e.session == session
	if current {
		e.session = 0
		e.shutGate()
	}
	e.mu.Unlock()
	if session == 0 {
		return
	}
	e.cfg.Logger.Warn("zkrecipes: session over", "session", sessionID(session), "certain", certain)
	e.contact.end(session) // first: what is granted on its clock until now is told, and nothing is granted on it afterwards
	e.cfg.Listener.SessionOver(session)
	e.setState(Lost)
	e.hub.recheck(Recheck)
	e.reaper.sessionOver(session, certain)
	if !certain {
		e.endInBackground(session)
	}
	e.refreshState()
}

// endInBackground closes a session that this side gave up, so that its znodes do not stay until its timeout, or for ever behind a client that was
// abandoned. Until a server has answered, the reaper keeps what it owes for it.
func (e *Engine) endInBackground(session int64) {
	passwd, timeout := e.contact.takeFormer(session), e.Timeout()
	e.Go(func() {
		for wait := backoff; ; wait = min(2*wait, time.Second) {
			if err := e.route.endSession(e.ctx, session, passwd, timeout); err == nil {
				e.tracker.Add(func() { e.reaper.sessionOver(session, true) })
				return
			}
			select {
			case <-e.ctx.Done():
				return
			case <-time.After(jitter(wait)):
			}
		}
	})
}

// event takes what the client called back with. It runs on the tracker.
func (e *Engine) event(c *client, ev zk.Event) {
	<-c.made // the client calls back from the moment it is made
	switch {
	case ev.Type == zk.EventSession && ev.State == zk.StateHasSession:
		e.hasSession(c)
	case ev.Type != zk.EventSession:
		e.hub.dispatch(ev)
	}
}

// hasSession opens the gate, after the credentials that a new client does not know yet. It runs on the tracker.
func (e *Engine) hasSession(c *client) {
	epoch := e.contact.Epoch()
	if c.authed == len(e.cfg.Auth) {
		e.openGate(c, epoch)
		return
	}
	from := c.authed
	e.Go(func() {
		for i := from; i < len(e.cfg.Auth); i++ {
			a := e.cfg.Auth[i]
			err := c.conn.AddAuth(a.Scheme, a.Data)
			if errors.Is(err, zk.ErrAuthFailed) {
				// The server hangs up on it. The client does not keep such a credential; offering it at every reconnect would never end.
				e.cfg.Logger.Error("zkrecipes: the server refused a credential", "scheme", a.Scheme)
				select {
				case e.fatal <- fmt.Errorf("auth scheme %q: %w", a.Scheme, err):
				default:
				}
			} else if err != nil {
				return // the next connection goes on here
			}
			e.tracker.Add(func() { c.authed = max(c.authed, i+1) })
		}
		e.tracker.Add(func() {
			if c.authed == len(e.cfg.Auth) {
				e.openGate(c, epoch)
			}
		})
	})
}

// openGate lets requests in, after it was told that the engine is connected: who gets in has a right to see that. It runs on the tracker.
func (e *Engine) openGate(c *client, epoch Epoch) {
	usable := func() bool { // mu is held
		now, up, _, _ := e.contact.timing()
		return up && now == epoch && !e.closing && e.client == c && e.open != epoch
	}
	e.mu.Lock()
	ok := usable()
	e.mu.Unlock()
	if !ok {
		return
	}
	e.setState(Connected)
	e.mu.Lock()
	if !usable() { // its end is on its way here
		e.mu.Unlock()
		return
	}
	e.shutGate()
	e.open = epoch
	e.client.served = false
	close(e.opened)
	e.mu.Unlock()
	e.cfg.Logger.Info("zkrecipes: connected", "session", sessionID(epoch.Session), "timeout", e.Timeout())
	e.hub.recheck(Recheck)
	e.reaper.kick()
	e.wakeClock()
}

func sessionID(id int64) string { return fmt.Sprintf("0x%x", uint64(id)) }

// refreshState derives the state from what is known. It runs on the tracker.
func (e *Engine) refreshState() {
	epoch, up, clock, heard := e.contact.timing()
	e.mu.Lock()
	open, holds, session := e.open == epoch && up, e.holds, e.session
	e.mu.Unlock()
	if holds == 0 && heard.after(clock.s) {
		clock.s = heard // nobody depends on proof, so anything heard will do
	}
	switch {
	case e.State() == Closed:
	case session != 0 && (holds > 0 || !up) && clock.left(now()) <= 0:
		if holds > 0 && e.State() != Lost {
			e.cfg.Listener.ClockOut(session) // runClock may be about to
		}
		e.setState(Lost)
	case open:
		e.setState(Connected)
	case e.State() != Lost: // which only a new connection ends
		e.setState(Suspended)
	}
}

// clockOut is what is left to do when the clock that ran out was told. It runs on the tracker.
func (e *Engine) clockOut(told leaseClock) {
	if _, _, clock, _ := e.contact.timing(); clock == told {
		e.setState(Lost)
	}
}

func (e *Engine) setState(s State) {
	e.mu.Lock()
	changed := e.state != s && e.state != Closed
	if changed {
		e.state = s
	}
	e.mu.Unlock()
	if changed {
		e.cfg.Listener.StateChanged(s)
	}
}

// Enter and Leave count the leases and contenders of this engine; while there is one, the session is proved alive every sixth of its timeout.
func (e *Engine) Enter() {
	e.mu.Lock()
	e.users++
	e.mu.Unlock()
	e.wakeClock()
}

// Leave takes an Enter back.
func (e *Engine) Leave() {
	e.mu.Lock()
	e.users--
	e.mu.Unlock()
}

// Hold tells that a lease depends on the clock from now on.
func (e *Engine) Hold() {
	e.mu.Lock()
	e.holds++
	e.mu.Unlock()
	e.wakeClock()
}

// Unhold takes a Hold back.
func (e *Engine) Unhold() {
	e.mu.Lock()
	e.holds--
	e.mu.Unlock()
}

func (e *Engine) wakeClock() {
	select {
	case e.pulse <- struct{}{}:
	default:
	}
}

// runClock sends a sync every sixth of the timeout while anything depends on the clock, and tells when it has run out.
func (e *Engine) runClock() {
	var told instant // the S for which ClockOut was told
	syncing := make(chan struct{}, 1)
	inFlight := false
	var asked instant // when the last sync was sent; one that proved nothing is not repeated at once
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		at := now()
		epoch, up, clock, _ := e.contact.timing()
		e.mu.Lock()
		users, holds, open := e.users, e.holds, e.open == epoch && up
		var conn *zk.Conn
		if open {
			conn = e.client.conn
		}
		e.mu.Unlock()
		wait := time.Hour
		if users > 0 && clock.t > 0 {
			if left := clock.left(at); left > 0 {
				wait = left
			} else if holds > 0 && told != clock.s {
				told = clock.s
				e.cfg.Logger.Warn("zkrecipes: nothing proves any more that the session lives", "session", sessionID(epoch.Session), "since", at.since(clock.s))
				e.cfg.Listener.ClockOut(epoch.Session)
				// The leases have ended by now, and with them what refreshState goes by.
				e.tracker.Add(func() { e.clockOut(clock) })
			}
			if open && !inFlight {
				due := heartbeat(clock.t) - at.since(clock.s)
				if !asked.isZero() {
					due = max(due, heartbeat(clock.t)/2-at.since(asked))
				}
				if due > 0 {
					wait = min(wait, due)
				} else {
					inFlight, asked = true, at
					e.wg.Go(func() {
						_, _ = conn.Sync("/")
						syncing <- struct{}{}
					})
				}
			}
		}
		if !up && e.State() == Suspended {
			wait = min(wait, max(e.Timeout()/10, 10*time.Millisecond)) // the state of a session without leases has no timer of its own
			e.tracker.Add(e.refreshState)
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-e.pulse:
		case <-syncing:
			inFlight = false
			e.tracker.Add(e.refreshState)
		case <-e.ctx.Done():
			return
		}
	}
}

// runWatchdog replaces a client that cannot get a session although a server serves: one whose re-authentication is wedged, or whose last zxid lies
// beyond what the servers know since they were set back. First it only asks; a session timeout later, if nothing changed, it ends the old session for
// certain and starts anew.
func (e *Engine) runWatchdog() {
	for {
		t := e.Timeout()
		select {
		case <-e.ctx.Done():
			return
		case <-time.After(max(t/2, 100*time.Millisecond)):
		}
		e.mu.Lock()
		c := e.client
		since, served := c.since, c.served
		e.mu.Unlock()
		if e.Ready() || time.Since(since) < rebuildAfter*t {
			continue
		}
		ctx, cancel := context.WithTimeout(e.ctx, 2*connectTimeout+t)
		if !served {
			if e.route.endSession(ctx, 0, nil, t) == nil {
				e.mu.Lock()
				if c.since == since { // else a connection came and went meanwhile
					c.served, c.since = true, time.Now().Add(-(rebuildAfter-1)*t)
				}
				e.mu.Unlock()
			}
			cancel()
			continue
		}
		e.rebuild(ctx, c)
		cancel()
	}
}

func (e *Engine) rebuild(ctx context.Context, c *client) {
	c.lane.hold()
	session, passwd, timeout := e.contact.identity()
	if e.contact.Left(session) > 0 {
		// The client got through after all, and what is granted since must not be given away before it is told.
		c.lane.release()
		return
	}
	if timeout == 0 {
		timeout = e.cfg.Timeout
	}
	if err := e.route.endSession(ctx, session, passwd, timeout); err != nil {
		c.lane.release()
		e.mu.Lock()
		c.served = false
		e.mu.Unlock()
		return
	}
	c.lane.poison()
	e.cfg.Logger.Error("zkrecipes: no session although a server serves; starting a new client", "session", sessionID(session))
	e.tracker.Add(func() { e.sessionOver(session, true) })
	if err := e.newClient(); err != nil {
		e.cfg.Logger.Error("zkrecipes: new client", "err", err)
		return
	}
	e.wg.Go(func() { discard(c) })
}

// discard closes a client whose lane is poisoned. It frees its callers; a wedged one keeps its goroutine for ever.
func discard(c *client) {
	<-c.made
	go c.conn.Close() // which may wait a second for the answer to a request that nobody will send any more
	select {
	case <-drained(c.gone):
	case <-time.After(time.Second):
	}
}

// drained returns a channel that is closed when events is.
func drained(events <-chan zk.Event) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range events {
		}
	}()
	return done
}

// Close ends the engine: nobody is let in any more, the session is closed at the server, and when that was not answered in time, over a connection of
// its own, for at most the time that ctx leaves. It returns an error when the server did not confirm: then the session ends with its timeout.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		<-e.ctx.Done()
		return nil
	}
	e.closing = true
	c := e.client
	e.shutGate()
	close(e.opened) // closing is looked at first
	e.mu.Unlock()
	e.tracker.Add(func() { e.hub.recheck(Recheck) })
	if c != nil {
		<-c.made
	}
	if c == nil || c.conn == nil { // never started
		e.stop()
		e.wg.Wait()
		e.tracker.Stop()
		<-e.tracker.Done()
		return nil
	}

	session, passwd, timeout := e.contact.identity()
	_, up, _, _ := e.contact.timing()
	if up {
		c.conn.Close()
	}
	c.lane.poison()
	e.stop()
	discard(c)
	var err error
	if session != 0 {
		select {
		case <-e.contact.closed:
		default:
			if up || e.hasOpenSession() {
				if err = e.route.endSession(ctx, session, passwd, timeout); err != nil {
					err = fmt.Errorf("session %s ends with its timeout of %v: %w", sessionID(session), timeout, err)
				}
			}
		}
	}
	e.tracker.Add(func() { e.setState(Closed) })
	var left error
	if err != nil {
		left = ErrClosed
	}
	e.reaper.close(left)
	e.wg.Wait()
	e.tracker.Stop()
	<-e.tracker.Done()
	e.hub.close()
	return err
}

func (e *Engine) hasOpenSession() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.session != 0
}
