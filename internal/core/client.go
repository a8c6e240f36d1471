package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"
)

// rebuildAfter is how many session timeouts without a session pass before the engine asks whether the fault is the client's.
const rebuildAfter = 3

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

// owned is the source of Dial: it makes the client, replaces one that is stuck, and closes it.
type owned struct {
	e      *Engine
	route  route
	client *client // the current one; under Engine.mu
}

func (o *owned) start() error {
	if err := o.newClient(); err != nil {
		return err
	}
	o.e.wg.Go(o.e.runClock)
	o.e.wg.Go(o.runWatchdog)
	return nil
}

func (o *owned) conn() Conn { return o.client.conn }

// look has nothing to do: a wire tells the Contact of everything before the client knows it.
func (o *owned) look() {}

func (o *owned) done(Epoch, error) {}

func (o *owned) callsBack() bool { return true }

func (o *owned) notWatching(int64, error) {}

func (o *owned) unreachable() error { return o.route.servers.Err() }

// handle starts the watchdog's time for the client whose connection is over.
func (o *owned) handle(s signal) {
	if s.kind != signalDown {
		return
	}
	o.e.mu.Lock()
	defer o.e.mu.Unlock()
	if o.client.lane == s.lane {
		o.client.since, o.client.served = time.Now(), false
	}
}

// replaced closes a session that this side gave up, so that its znodes do not stay until its timeout, or for ever behind a client that was abandoned.
// After a while it is over in any case.
func (o *owned) replaced(session int64) {
	e := o.e
	ctx, cancel := context.WithTimeout(e.life, e.mustBeOver())
	if !e.goOn(func() {
		defer cancel()
		e.endFor(ctx, o.route, session)
		if e.life.Err() == nil {
			e.tracker.Add(func() { e.reaper.sessionOver(session, true) })
		}
	}) {
		cancel()
	}
}

// newClient makes the current client.
func (o *owned) newClient() error {
	e := o.e
	c := &client{made: make(chan struct{}), since: time.Now()}
	c.lane = newLane(e.ctx, o.route, e.contact, func() time.Duration { return e.Timeout() / 3 })
	e.mu.Lock()
	if e.closing { // Close has ended the client that there was, and ends no other
		e.mu.Unlock()
		c.lane.poison()
		return ErrClosed
	}
	o.client = c
	e.shutGate()
	e.mu.Unlock()
	conn, gone, err := zk.Connect(o.route.servers.names, e.cfg.Timeout,
		zk.WithDialer(c.lane.Dial), zk.WithHostProvider(newHostProvider(c.lane)),
		zk.WithLogInfo(false), zk.WithLogger(clientLogger{e.cfg.Logger}),
		zk.WithMaxConnBufferSize(1<<20),
		zk.WithEventCallback(func(ev zk.Event) { e.tracker.Add(func() { o.event(c, ev) }) }))
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

// runWatchdog replaces a client that cannot get a session although a server serves: one whose re-authentication is wedged, or whose last zxid lies
// beyond what the servers know since they were set back. First it only asks; a session timeout later, if nothing changed, it ends the old session for
// certain and starts anew.
func (o *owned) runWatchdog() {
	e := o.e
	for {
		t := e.Timeout()
		select {
		case <-e.ctx.Done():
			return
		case <-time.After(max(t/2, 100*time.Millisecond)):
		}
		e.mu.Lock()
		c := o.client
		since, served := c.since, c.served
		e.mu.Unlock()
		if e.Ready() || time.Since(since) < rebuildAfter*t {
			continue
		}
		ctx, cancel := context.WithTimeout(e.ctx, 2*connectTimeout+t)
		if !served {
			if o.route.endSession(ctx, 0, nil, t) == nil {
				e.mu.Lock()
				if c.since == since { // else a connection came and went meanwhile
					c.served, c.since = true, time.Now().Add(-(rebuildAfter-1)*t)
				}
				e.mu.Unlock()
			}
			cancel()
			continue
		}
		o.rebuild(ctx, c)
		cancel()
	}
}

func (o *owned) rebuild(ctx context.Context, c *client) {
	e := o.e
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
	if err := o.route.endSession(ctx, session, passwd, timeout); err != nil {
		c.lane.release()
		e.mu.Lock()
		c.served = false
		e.mu.Unlock()
		return
	}
	c.lane.poison()
	e.cfg.Logger.Error("zkrecipes: no session although a server serves; starting a new client", "session", sessionID(session))
	e.tracker.Add(func() { e.sessionOver(session, true) })
	if err := o.newClient(); err != nil {
		e.cfg.Logger.Error("zkrecipes: new client", "err", err)
		return
	}
	e.wg.Go(func() { discard(c) })
}

// event takes what the client called back with. It runs on the tracker.
func (o *owned) event(c *client, ev zk.Event) {
	<-c.made // the client calls back from the moment it is made
	switch {
	case ev.Type == zk.EventSession && ev.State == zk.StateHasSession:
		o.hasSession(c)
	case ev.Type != zk.EventSession:
		o.e.hub.dispatch(ev)
	}
}

// hasSession opens the gate, after the credentials that a new client does not know yet. It runs on the tracker.
func (o *owned) hasSession(c *client) {
	e := o.e
	epoch := e.contact.Epoch()
	if c.authed == len(e.cfg.Auth) {
		o.openGate(c, epoch)
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
				o.openGate(c, epoch)
			}
		})
	})
}

// openGate lets requests in, if the client is still the current one. It runs on the tracker.
func (o *owned) openGate(c *client, epoch Epoch) {
	if o.e.openGate(epoch, func() bool { return o.client == c }) {
		o.e.mu.Lock()
		c.served = false
		o.e.mu.Unlock()
	}
}

// close closes the session at the server, and whatever is answered the client.
func (o *owned) close(ctx context.Context) error {
	e := o.e
	e.mu.Lock()
	c := o.client
	e.ended = true
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
		e.awaitUnlooked(ctx)
		c.close()
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
				if err = o.route.endSession(ctx, session, passwd, timeout); err != nil {
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
	e.end(left)
	return err
}

func (e *Engine) hasOpenSession() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.session != 0
}

func (c *client) close() {
	c.lane.closing.Store(true)
	c.conn.Close()
}

// discard closes a client whose lane is poisoned, once. It frees its callers; a wedged one keeps its goroutine for ever.
//
// The client's Close ends its loop and then waits a second for the answer to a last request, which a loop that has ended never sends. So the loop is kept
// at the lane until that request is in the client's queue; on its way to the next server it throws the queue away, and that is the answer. A loop that
// sleeps between two laps ends too soon for that; what is left of its client then sleeps out its second alone, and holds nothing.
func discard(c *client) {
	<-c.made
	const (
		toPark  = 100 * time.Millisecond // a dialer of the user's may take longer to return
		toEnd   = 100 * time.Millisecond
		toQueue = time.Millisecond
		steps   = 5 // of toQueue: in one of them the process may have stood still
	)
	gone := drained(c.gone)
	select {
	case <-c.lane.parked:
	case <-gone:
	case <-time.After(toPark):
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.close()
	}()
	for range steps {
		select {
		case <-closed:
		case <-time.After(toQueue):
			continue
		}
		break
	}
	c.lane.letGo()
	limit := time.NewTimer(toEnd)
	defer limit.Stop()
	for _, done := range []<-chan struct{}{closed, gone} {
		select {
		case <-done:
		case <-limit.C:
			return
		}
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
