package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

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
