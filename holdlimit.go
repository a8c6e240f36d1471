package zkrecipes

import (
	"slices"
	"time"
)

// A holdLimit is WithMaxHold's for everything that one owner holds of a path: the earliest deadline of all its leases counts, and when it has passed they end
// together. Everything in it is under Session.mu.
type holdLimit struct {
	s        *Session
	holds    []*hold
	deadline time.Time // zero for none
	timer    *time.Timer
}

// limited returns the limit of a hold, and of what shares it; mu is held.
func (h *hold) limited() *holdLimit {
	if h.limit == nil {
		h.limit = &holdLimit{s: h.s, holds: []*hold{h}}
	}
	return h.limit
}

// tighten makes d from now the deadline, unless there is an earlier one; mu is held.
func (l *holdLimit) tighten(d time.Duration) {
	end := time.Now().Add(d)
	if l.timer != nil {
		if !end.Before(l.deadline) {
			return
		}
		l.timer.Stop()
	}
	l.deadline = end
	l.timer = time.AfterFunc(d, func() {
		l.s.mu.Lock()
		tell := l.s.lose(ReasonHoldLimit, nil, l.holds...)
		l.s.mu.Unlock()
		tell()
	})
}

// passed reports whether there is a deadline that has passed; mu is held.
func (l *holdLimit) passed() bool {
	return l != nil && l.timer != nil && !time.Now().Before(l.deadline)
}

// drop takes a hold out, the last one with the timer; mu is held.
func (l *holdLimit) drop(h *hold) {
	if l == nil {
		return
	}
	l.holds = slices.DeleteFunc(l.holds, func(o *hold) bool { return o == h })
	if len(l.holds) == 0 && l.timer != nil {
		l.timer.Stop()
	}
}
