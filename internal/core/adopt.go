package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

var errOwnerClosed = fmt.Errorf("%w: the connection was closed by its owner", ErrClosed)

// How often an adopted connection is looked at. Its state and session id are two atomic loads.
const (
	gateLook    = 2 * time.Millisecond   // a wire has seen the session, the client has not said so yet; for a second, then
	gateLookOn  = 50 * time.Millisecond  // this often: it may be that it never does
	downLook    = 10 * time.Millisecond  // it has no session
	minLook     = 10 * time.Millisecond  // it has one: a fiftieth of the timeout, within these limits
	maxLook     = 200 * time.Millisecond //
	neverLook   = time.Hour              // a wire tells of every change
	refusedWait = 10 * time.Millisecond  // after a request without an answer on a connection that says it is well; doubled while that goes on
)

// adopted is the source of NewSession: a connection that the service has and goes on having. It has no life-cycle; what happens to it is seen, by wires
// where the service made it with a Track, else by looking.
//
// States, of which only the tracker and abandon know more than the Contact does: without a session (gate shut), with one (gate open), abandoned by its
// owner (for good).
type adopted struct {
	e      *Engine
	given  Conn
	conns  Conn // what requests are made on
	events <-chan zk.Event
	track  *Track // nil: no wire sees the connection
	hint   chan struct{}

	looking sync.Mutex // readings of the connection come to the Contact in the order in which they were made

	// Under Engine.mu.
	gone      bool      // its owner has closed it
	refused   int       // requests in a row that were not answered although the connection seems well,
	since     time.Time // the first of them
	notBefore time.Time // when the next ones are let in

	// Of run alone.
	upSince    time.Time // when the gate was seen to be shut in spite of a session
	sweepEvery time.Duration
	sweepAt    time.Time
}

// NewAdopted makes an engine on a connection that its owner goes on owning. With a track, which must have been taken, the connection was made by its
// dialer; else cfg.Timeout is the session timeout that the connection has negotiated. events is nil or what the client sends its events to, with no other
// reader; they are hints only.
func NewAdopted(cfg Config, conn Conn, events <-chan zk.Event, track *Track) *Engine {
	a := &adopted{given: conn, conns: conn, events: events, track: track, hint: make(chan struct{}, 1)}
	var contact *Contact
	if track != nil {
		contact = track.contact
	} else {
		contact = newObserved(cfg.Timeout)
		a.conns = provingConn{conn, contact}
	}
	e := newEngineOn(cfg, contact)
	e.life, e.endLife = context.WithCancel(context.Background())
	e.source, a.e = a, e
	return e
}

func (a *adopted) start() error {
	a.e.contact.attach(a.e.notified)
	a.look()
	a.e.after.Go(a.e.runClock)
	a.e.after.Go(a.run)
	return nil
}

func (a *adopted) conn() Conn { return a.conns }

func (a *adopted) callsBack() bool { return false }

// look reads what the connection says of itself, unless wires see more.
func (a *adopted) look() {
	if a.track != nil {
		return
	}
	a.looking.Lock()
	defer a.looking.Unlock()
	up := a.given.State() == zk.StateHasSession
	a.e.contact.observe(a.given.SessionID(), up)
}

// run looks at the connection until nothing is cleaned up any more.
func (a *adopted) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	events := a.events
	for {
		select {
		case <-timer.C:
		case <-a.hint:
		case ev, ok := <-events:
			if !ok { // the last thing that a client does
				events = nil
				a.abandon()
			}
			a.event(ev)
		case <-a.e.life.Done():
			return
		}
		timer.Reset(a.poll())
	}
}

func (a *adopted) wake() {
	select {
	case a.hint <- struct{}{}:
	default:
	}
}

// event takes an event of the connection. It may be old, and others may have been thrown away: what it says is looked up. That a session has expired is
// true of the one that was known, if that is no longer the connection's.
func (a *adopted) event(ev zk.Event) {
	if ev.Type != zk.EventSession || ev.State != zk.StateExpired || a.track != nil {
		return
	}
	if known := a.e.contact.Epoch().Session; a.given.SessionID() != known {
		a.e.contact.expired(known)
	}
}

// poll looks once, opens the gate if there is reason to, and returns when to look again.
func (a *adopted) poll() time.Duration {
	a.look()
	e := a.e
	epoch, up, _, _ := e.contact.timing()
	e.mu.Lock()
	open, wait, gone := e.open == epoch, time.Until(a.notBefore), a.gone
	e.mu.Unlock()
	var next time.Duration
	switch {
	case gone:
		next = neverLook
	case up && !open:
		if a.upSince.IsZero() {
			a.upSince = time.Now()
		}
		next = gateLook
		if time.Since(a.upSince) > time.Second {
			next = gateLookOn
		}
		next = max(next, wait)
		// What a wire saw of the handshake the client may not know yet. It says that it has a session after it has forgotten the last connection, on
		// which it does not any more when it dials the next.
		if wait <= 0 && (a.track == nil || a.given.State() == zk.StateHasSession && a.given.SessionID() == epoch.Session) {
			e.tracker.Add(func() { e.openGate(epoch, func() bool { return !a.gone }) })
		}
	case a.track != nil:
		next = neverLook
	case !up:
		next = downLook
	default:
		next = min(max(e.Timeout()/50, minLook), maxLook)
	}
	if open || !up {
		a.upSince = time.Time{}
	}
	return min(next, a.sweep())
}

// sweep has the reaper look for the creates that were not answered, and returns when to do so again. Such a create may come into effect after the client
// has moved from one server to another and back, and where no wire sees the connection, that may be all that there is to see of it. The pauses grow: the
// longer ago, the less likely.
func (a *adopted) sweep() time.Duration {
	e := a.e
	e.mu.Lock()
	closing := e.closing
	e.mu.Unlock()
	if a.track != nil && !closing || e.reaper.owes(time.Time{}).unknown == 0 {
		a.sweepEvery = 0
		return neverLook
	}
	t := e.Timeout()
	if a.sweepEvery == 0 {
		a.sweepEvery = heartbeat(t)
		a.sweepAt = time.Now().Add(a.sweepEvery)
	} else if !time.Now().Before(a.sweepAt) {
		e.reaper.kick()
		a.sweepEvery = min(2*a.sweepEvery, 2*t)
		a.sweepAt = time.Now().Add(a.sweepEvery)
	}
	return max(time.Until(a.sweepAt), time.Millisecond)
}

// done is told how a request ended. One without an answer may be all that is seen of a reconnect. When the connection seems well in spite of it, the
// client refuses requests because it is about to find out, or is being closed; then others wait a moment before they try, so that whoever tries
// until he has an answer does not do it all the time.
func (a *adopted) done(epoch Epoch, err error) {
	a.look()
	e := a.e
	if err == nil || Classify(err) != Ambiguous {
		e.mu.Lock()
		a.refused = 0
		e.mu.Unlock()
		return
	}
	if errors.Is(err, zk.ErrClosing) {
		a.abandon()
	}
	now, up, _, _ := e.contact.timing()
	if a.track == nil {
		e.contact.interrupted(epoch, err)
	}
	e.mu.Lock()
	if e.open == epoch {
		e.shutGate()
	}
	if up && now == epoch {
		a.notBefore = time.Now().Add(refusedWait << min(a.refused, 4))
		if a.refused == 0 {
			a.since = time.Now()
		}
		a.refused++
	}
	e.mu.Unlock()
	a.wake()
}

func (a *adopted) handle(s signal) {
	switch s.kind {
	case signalUp:
		if a.track != nil {
			a.track.lane.servers.connected()
		}
	case signalClosing:
		a.abandon()
	case signalClosed:
		a.e.reaper.sessionOver(s.epoch.Session, true)
	}
	a.wake()
}

// notWatching takes why the client ended a watch. It says so of all watches of a session that has expired, and of all when it is closed.
func (a *adopted) notWatching(session int64, err error) {
	switch {
	case errors.Is(err, zk.ErrClosing):
		a.abandon()
	case errors.Is(err, zk.ErrSessionExpired) && a.track == nil:
		a.e.contact.expired(session)
	}
}

// abandon notes that the owner has closed the connection: there will never be another session. What the server has done with the last one is known
// only if a wire sees it.
func (a *adopted) abandon() {
	e := a.e
	e.mu.Lock()
	if a.gone {
		e.mu.Unlock()
		return
	}
	a.gone = true
	e.shutGate()
	e.left = errOwnerClosed
	e.wakeWaiting()
	e.mu.Unlock()
	session := e.contact.Epoch().Session
	e.contact.end(session)
	e.tracker.Add(func() {
		e.cfg.Logger.Warn("zkrecipes: the connection was closed by its owner", "session", sessionID(session))
		e.sessionOver(session, false)
		e.hub.recheck(Recheck)
		if a.track == nil {
			e.reaper.close(errOwnerClosed)
		}
	})
}

// replaced waits until a session is over that the client has left without a server having said so: until the time for that has passed, or, when wires
// have seen how it can be reached, until it was ended over a connection of its own.
func (a *adopted) replaced(session int64) {
	e := a.e
	e.mu.Lock()
	gone := a.gone
	e.mu.Unlock()
	if a.track == nil && gone { // the reaper can do nothing any more
		return
	}
	limit := e.mustBeOver()
	e.goOn(func() {
		ctx, cancel := context.WithTimeout(e.life, limit)
		defer cancel()
		if a.track != nil {
			if gone { // the client is about to do it itself, and must not be disturbed
				select {
				case <-e.contact.closed:
					return
				case <-ctx.Done():
				case <-time.After(2 * connectTimeout):
				}
			}
			e.endFor(ctx, a.track.lane.route, session)
		} else {
			<-ctx.Done()
		}
		if e.life.Err() == nil {
			e.tracker.Add(func() { e.reaper.sessionOver(session, true) })
		}
	})
}

const passDialer = "pass that dialer to the zk.Connect that makes the connection, and to no other"

// unreachable says what is wrong with the connection.
func (a *adopted) unreachable() error {
	e := a.e
	e.mu.Lock()
	gone := a.gone
	e.mu.Unlock()
	seen, up, _, _ := e.contact.timing()
	state, session := a.given.State(), a.given.SessionID()
	switch {
	case gone:
		return errOwnerClosed
	case e.Ready():
		return nil
	case state != zk.StateHasSession:
		err := fmt.Errorf("the connection's state is %v", state)
		if a.track != nil {
			err = errors.Join(err, a.track.lane.servers.Err())
		}
		return err
	case a.track != nil && seen.Session == 0:
		return errors.New("the connection has a session of which the dialer of TrackContact knows nothing: " + passDialer)
	case a.track != nil && up && seen.Session != session:
		return fmt.Errorf("the dialer of TrackContact has made session %s, and the connection is in session %s: %s",
			sessionID(seen.Session), sessionID(session), passDialer)
	}
	return nil
}
