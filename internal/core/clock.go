package core

import "time"

// An instant is a reading of two clocks. Go's monotonic clock stands still while the machine is suspended; a lease must not.
type instant struct {
	mono  time.Time
	awake time.Duration // a clock that goes on while the machine is suspended
}

// The clocks, which tests replace.
var (
	suspendClock   = readSuspendClock
	monotonicNow   = time.Now
	monotonicSince = time.Since
)

// now reads the monotonic clock first: what passes in between makes a later reading see more time, never less.
func now() instant {
	mono := monotonicNow()
	return instant{mono, suspendClock()}
}

func (t instant) isZero() bool { return t.mono.IsZero() }

// since returns how much time passed between u and t by the clock that saw more of it. That may end a lease early (a wall clock set forward, where
// there is no better one), never late.
func (t instant) since(u instant) time.Duration { return max(t.mono.Sub(u.mono), t.awake-u.awake) }

func (t instant) after(u instant) bool { return t.mono.After(u.mono) }

// A leaseClock says until when a session is certainly alive at the server. S is the time just before the last request was written that the server has
// answered and whose answer proves that the leader has heard of the session: a sync, a write, a connect request. The session cannot end before S + T,
// less what a follower had not yet reported (T/6, the pause between two such requests, and half a tick); a lease ends at S + 2T/3.
type leaseClock struct {
	s instant
	t time.Duration
}

func (c leaseClock) left(at instant) time.Duration {
	if c.s.isZero() || c.t <= 0 {
		return 0
	}
	return leaseSpan(c.t) - at.since(c.s)
}

func leaseSpan(timeout time.Duration) time.Duration { return timeout * 2 / 3 }

func heartbeat(timeout time.Duration) time.Duration { return timeout / 6 }
