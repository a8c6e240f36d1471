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
