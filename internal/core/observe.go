package core

import (
	"errors"
	"time"
)

// Where no wire sees an adopted connection, its Contact is fed with what the connection says of itself (its state and session id, which are read again
// and again) and with the outcome of the engine's own requests. That is less:
//
//   - The number in an Epoch grows with every change that is seen, and with every request that ended without an answer, since the client ends what is in
//     flight when a connection does. A reconnect between two looks with nothing in flight is not seen. Span.SameConn then says less than it seems to;
//     whoever goes by it says why that is enough.
//   - The session id is exact: it is read before and after each request, and the client changes it before it sends anything in the new session.

var errSeenDown = errors.New("the connection says that it has no session")

// newObserved returns a Contact that no wire feeds, with the timeout that the connection is said to have negotiated.
func newObserved(timeout time.Duration) *Contact {
	c := NewContact()
	c.wired, c.foreign, c.timeout = false, true, timeout
	c.clock.t = timeout
	return c
}

// observe takes a reading of the connection's session id, and of whether it has a session. Readings come in the order in which they were made.
func (c *Contact) observe(session int64, up bool) {
	at := now()
	c.mu.Lock()
	defer c.mu.Unlock()
	up = up && session != 0 && session != c.dead
	switch {
	case session == 0:
		c.endNow() // the client forgets an id only when a server said that the session is over
	case session != c.epoch.Session:
		c.fall(errSeenDown)
		c.clock, c.heard = leaseClock{t: c.timeout}, instant{} // nothing was answered in it yet
		c.rise(session, up)
	case up && !c.up:
		c.rise(session, up)
	case !up:
		c.fall(errSeenDown)
	}
	if c.up {
		c.heard = at
	}
}

// rise begins a connection; mu is held.
func (c *Contact) rise(session int64, up bool) {
	c.conns++
	c.epoch, c.up = Epoch{session, c.conns}, up
	c.glance.forget()
	if up {
		c.notify(signal{kind: signalUp, epoch: c.epoch})
	}
}

// fall ends a connection; mu is held.
func (c *Contact) fall(err error) {
	if c.up {
		c.up = false
		c.notify(signal{kind: signalDown, epoch: c.epoch, err: err})
	}
}

// endNow notes that a server said that the session is over; mu is held.
func (c *Contact) endNow() {
	if s := c.epoch.Session; s != 0 && s != c.dead {
		c.fall(errSeenDown)
		c.dead = s
		c.glance.forget()
		c.notify(signal{kind: signalExpired, epoch: c.epoch})
	}
}

// expired notes that a server said that this session, the present one or an earlier one, is over.
func (c *Contact) expired(session int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if session == c.epoch.Session {
		c.endNow()
	} else if session != 0 {
		c.notify(signal{kind: signalExpired, epoch: Epoch{Session: session}})
	}
}

// interrupted notes that a request that began in epoch was not answered: its connection may have ended, and another one begun.
func (c *Contact) interrupted(epoch Epoch, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch == epoch {
		c.fall(err)
	}
}

// proved notes that a request which the leader has to answer was, and succeeded, and that it was begun at that time and all of it happened in this
// session. S of the lease clock is the time before the call: the request was sent later.
func (c *Contact) proved(session int64, began instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if session != 0 && session == c.epoch.Session && session != c.dead && began.after(c.clock.s) {
		c.clock = leaseClock{began, c.timeout}
		c.glance.forget()
	}
}

// attach lets notify be told of what wires see from now on, and of what they have seen last, with nothing in between.
func (c *Contact) attach(notify func(signal)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notify = notify
	if c.up {
		notify(signal{kind: signalUp, epoch: c.epoch})
	}
}

// take lets one engine go by this Contact.
func (c *Contact) take() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.taken
	c.taken = true
	return !taken
}
