package core

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A machine is the clocks of one, in which a reading takes a while, and which may be suspended at any time: a millisecond of the monotonic clock passes then,
// and hours of the other.
type machine struct {
	rand   *rand.Rand
	began  time.Time
	mono   time.Duration
	slept  time.Duration
	sleeps bool

	read  time.Duration // the last reading of the monotonic clock,
	awake time.Duration // what the other one would have shown then,
	asked int           // and how often it was read
}

func newMachine(t *testing.T, seed uint64) *machine {
	m := &machine{rand: rand.New(rand.NewPCG(seed, 0)), began: time.Now()}
	setSuspendClock(t, func() time.Duration {
		m.pass()
		m.asked++
		return m.mono + m.slept
	})
	now := monotonicNow
	t.Cleanup(func() { monotonicNow = now })
	read := func() time.Time {
		m.pass()
		m.read, m.awake = m.mono, m.mono+m.slept
		return m.began.Add(m.mono)
	}
	monotonicNow = read
	monotonicSince = func(then time.Time) time.Duration { return read().Sub(then) }
	return m
}

// pass lets the time of a reading pass: mostly next to nothing, now and then that for which another process runs, and rarely that of a suspension.
func (m *machine) pass() {
	switch n := m.rand.IntN(100); {
	case n < 90:
		m.mono += m.upTo(fresh / 10)
	case n < 98 || !m.sleeps:
		m.mono += m.upTo(100 * fresh)
	default:
		m.mono += time.Millisecond
		m.slept += m.upTo(10 * time.Hour)
	}
}

func (m *machine) upTo(d time.Duration) time.Duration { return time.Duration(m.rand.Int64N(int64(d))) }

// left is what the clocks would have said when the monotonic one was last read.
func (m *machine) left(c leaseClock) time.Duration {
	return c.left(instant{m.began.Add(m.read), m.awake})
}

// A glance says no more than the clocks would at the same moment, and less by no more than fresh, whatever the machine does.
func TestAGlanceIsNeverLate(t *testing.T) {
	const session = 7
	for seed := range uint64(50) {
		m := newMachine(t, seed)
		m.sleeps = true
		c := NewContact()
		cheap, over := 0, 0
		for range 2000 {
			if c.Left(session) <= 0 {
				c.connected(&wire{lane: new(lane)}, 0, now(), connectReply{timeoutMs: 36_000_000, session: session})
			}
			asked := m.asked
			left, exact := c.Left(session), m.left(c.clock)
			require.LessOrEqual(t, left, exact, "seed %d", seed)
			switch {
			case left <= 0:
				over++
			case m.asked == asked:
				cheap++
				require.Less(t, exact-left, fresh, "seed %d", seed)
			}
		}
		require.Greater(t, cheap, 500, "most have not asked the other clock")
		require.Greater(t, over, 5)
	}
}

// What ends a session, or its proof, is not waited for until a glance is too old.
func TestAGlanceIsForgottenWithTheSession(t *testing.T) {
	const session = 7
	since := monotonicSince
	t.Cleanup(func() { monotonicSince = since })
	reply := connectReply{timeoutMs: 6000, session: session}
	for name, over := range map[string]func(c *Contact, w *wire){
		"it was told that it is over":     func(c *Contact, _ *wire) { c.end(session) },
		"a server says so":                func(c *Contact, w *wire) { c.connected(w, session, now(), connectReply{}) },
		"another one in its place":        func(c *Contact, w *wire) { c.connected(w, session, now(), connectReply{timeoutMs: 6000, session: 8}) },
		"its client closes it":            func(c *Contact, w *wire) { c.foreign = true; c.writing(nil, w, opClose, nil) },
		"an adopted connection forgot it": func(c *Contact, _ *wire) { c.observe(0, false) },
		"an adopted one has another":      func(c *Contact, _ *wire) { c.observe(8, true) },
		"an adopted one was answered so":  func(c *Contact, _ *wire) { c.expired(session) },
	} {
		t.Run(name, func(t *testing.T) {
			at := origin
			monotonicSince = func(time.Time) time.Duration { return at.Sub(origin) } // it stands still
			c, w := NewContact(), &wire{lane: new(lane)}
			c.connected(w, 0, now(), reply)
			require.Positive(t, c.Left(session))
			at = at.Add(time.Duration(c.glance.at.Load()))
			_, ok := c.glance.of(session)
			require.True(t, ok)
			over(c, w)
			require.Zero(t, c.Left(session))
		})
	}
	t.Run("a timeout that is shorter", func(t *testing.T) {
		c, w := NewContact(), &wire{lane: new(lane)}
		c.connected(w, 0, now(), reply)
		require.Positive(t, c.Left(session))
		at := time.Duration(c.glance.at.Load())
		monotonicSince = func(time.Time) time.Duration { return at }
		c.connected(w, session, now(), connectReply{timeoutMs: 600, session: session})
		require.LessOrEqual(t, c.Left(session), 400*time.Millisecond)
	})
}
