package core

import "time"

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
		var conn Conn
		if open {
			conn = e.source.conn()
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
					e.after.Go(func() {
						_, err := conn.Sync("/")
						e.source.done(epoch, err)
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
		case <-e.life.Done():
			return
		}
	}
}
