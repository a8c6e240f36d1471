package core

import (
	"context"
	"fmt"
	"time"
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
		e.source.handle(s)
		e.cfg.Logger.Warn("zkrecipes: connection lost", "session", sessionID(s.epoch.Session), "err", s.err)
		e.cfg.Listener.Disconnected()
		e.refreshState()
	case signalExpired:
		e.sessionOver(s.epoch.Session, true)
	}
	if s.kind != signalDown {
		e.source.handle(s)
	}
	e.wakeClock()
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
		e.source.replaced(session)
	}
	e.refreshState()
}

// landing is how long it may take, beyond two session timeouts, until what was sent on a connection that is over cannot come into effect any more, and
// until a session that nobody keeps alive is over: a server that was cut off from its leader gives up after syncLimit ticks, and a new leader gives
// each session a fresh timeout.
const landing = 30 * time.Second

// mustBeOver is how long it takes a session to end when nobody keeps it alive, whatever happens to the servers meanwhile.
func (e *Engine) mustBeOver() time.Duration { return 2*e.Timeout() + landing }

// endFor tries to end a session until a server has answered, or ctx ends: then it is false.
func (e *Engine) endFor(ctx context.Context, r route, session int64) bool {
	passwd, timeout := e.contact.takeFormer(session), e.Timeout()
	for wait := backoff; ; wait = min(2*wait, time.Second) {
		if err := r.endSession(ctx, session, passwd, timeout); err == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(jitter(wait)):
		}
	}
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
