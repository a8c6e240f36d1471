package core

import (
	"sync/atomic"
	"time"
)

// A glance is what was left of a session when both clocks were last read for that question, and answers it for a moment without reading them again. On Linux
// a reading of CLOCK_BOOTTIME is a system call, and those who enter again, or ask a lease whether it is still held, may do so a hundred thousand times between
// two requests. Soon after such a reading, one of the monotonic clock will do, and no lock. Nothing that a Contact learns passes it by: whatever changes the
// answer forgets it, under Contact.mu, where it is also taken.
//
// It never says that more is left than the clocks would at the moment at which it reads the monotonic one. Let m and b be the two clocks, m0 and b0 those
// readings: b-m is constant but for suspensions, in which it grows. b0 was read after m0, so b0-m0 is no less than b-m was at m0; with no suspension since,
// b0+(m-m0) is no less than b. So what it takes off, m-m0, is no less than what passed by either clock. (Slewing changes the rate of both alike, and no setting
// of the wall clock touches either. Where that is the clock that goes on, its being set forward may go unseen for as long as fresh.) It says too little by the
// time that passed between the two readings, which is less than fresh, or it is not asked any more.
//
// That there is no suspension between m0 and m, which are less than fresh apart, is so because the monotonic clock stands still only for the innermost of
// one: before, a kernel makes every process wait, and puts its devices and all processors but one to sleep, and after it does all of that backwards, and
// only then does a process run again. Linux alone, where a thread of all those does not stop at once, sleeps for half a millisecond, 25 times fresh, before it
// looks at it again. The difference of wall and monotonic clock, in which a suspension shows, too, would allow longer, but takes another reading each time, and
// hides a suspension for which the wall clock was set back.
type glance struct {
	version atomic.Uint64 // odd while it is being changed
	session atomic.Int64  // 0 for nothing
	at      atomic.Int64  // by the monotonic clock, since origin
	left    atomic.Int64
}

// fresh is for how long a glance answers.
const fresh = 20 * time.Microsecond

// origin is a time with which monotonic readings are compared.
var origin = time.Now()

// take notes what was left at that instant; Contact.mu is held, and so it is for forget.
func (g *glance) take(session int64, at instant, left time.Duration) {
	g.version.Add(1)
	g.session.Store(session)
	g.at.Store(int64(at.mono.Sub(origin)))
	g.left.Store(int64(left))
	g.version.Add(1)
}

func (g *glance) forget() { g.take(0, instant{mono: origin}, 0) }

// of returns what is left of a session; ok is false when the clocks have to be asked.
func (g *glance) of(session int64) (left time.Duration, ok bool) {
	version := g.version.Load()
	whose, at, was := g.session.Load(), time.Duration(g.at.Load()), time.Duration(g.left.Load())
	if whose != session || version%2 != 0 || g.version.Load() != version {
		return 0, false
	}
	passed := monotonicSince(origin) - at
	return was - passed, 0 <= passed && passed < min(fresh, was)
}
