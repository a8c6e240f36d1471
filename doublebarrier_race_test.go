package zkrecipes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// The ctx of all members but the last one ends about when that one comes: all of them are inside, or none.
func TestDoubleBarrierAllAgreeAtTheDeadline(t *testing.T) {
	t.Parallel()
	const members = 3
	seed := testSeed(t)
	rnd := newRand(seed)
	c := admin(t)
	path := newPath(t)
	var bs []*DoubleBarrier
	for range members {
		bs = append(bs, NewDoubleBarrier(dialShared(t, calm), path, members))
	}
	opened, unknown := 0, 0
	limit := 4 * time.Millisecond // of the time that the last one has: such that about every second round opens, however quick the machine is
	n := rounds(t, 500)
	for i := range n {
		ctx, cancel := context.WithCancel(context.Background())
		var calls []<-chan error
		for _, b := range bs[1:] {
			calls = append(calls, goCall(func() error { return b.Enter(ctx) }))
		}
		assembled(t, c, path, members-1)
		last, give := context.WithCancel(context.Background())
		calls = append(calls, goCall(func() error { return bs[0].Enter(last) }))
		time.AfterFunc(time.Duration(rnd.Int64N(int64(limit))), func() { cancel(); give() })
		in, known := 0, true
		for k, call := range calls {
			err := next(t, call)
			if err == nil {
				in++
			} else {
				require.ErrorIs(t, err, context.Canceled, "seed %d, run %d, member %d", seed, i, k)
				known = known && !strings.Contains(err.Error(), "not known") // by a server that did not answer for so long
			}
		}
		cancel()
		give()
		switch {
		case !known:
			unknown++
			var inside []*DoubleBarrier
			for _, b := range bs {
				if b.in != nil {
					inside = append(inside, b)
				}
			}
			leaveAll(t, inside...) // at once: one waits for the other
		case in != 0:
			require.Equal(t, members, in, "seed %d, run %d", seed, i)
			leaveAll(t, bs...)
			opened++
			limit = max(limit*4/5, time.Millisecond)
		default:
			limit = limit * 5 / 4
		}
		eventually(t, 5*time.Second, "nothing is left", func() bool { return len(children(t, c, path)) == 0 })
	}
	require.Positive(t, opened)
	require.Less(t, opened, n)
	require.LessOrEqual(t, unknown, n/20)
	t.Logf("open in %d of %d runs, not known in %d", opened, n, unknown)
}

// Round after round with little in between, each member at its own pace, as ZOOKEEPER-1011 and Curator's #416 have it: a round's members are all in it together, and
// none is told of another round's.
func TestDoubleBarrierRoundsDoNotMix(t *testing.T) {
	t.Parallel()
	forEachWay(t, func(t testing.TB) {
		const members = 4
		n, path, ctx := rounds(t, 100), newPath(t), within(t, 60*time.Second)
		var round [members]atomic.Int64
		var wg sync.WaitGroup
		for i := range members {
			b, rnd := NewDoubleBarrier(dialShared(t, calm), path, members), newRand(testSeed(t)+uint64(i))
			wg.Go(func() {
				for k := range int64(n) {
					<-time.After(time.Duration(rnd.Int64N(int64(3 * time.Millisecond))))
					round[i].Store(2 * k) // about to enter round k
					if err := b.Enter(ctx); err != nil {
						t.Errorf("%v", err)
						return
					}
					for o := range members {
						if at := round[o].Load(); at < 2*k || at > 2*k+1 {
							t.Errorf("inside round %d, but member %d is at %d/2", k, o, at)
						}
					}
					<-time.After(time.Duration(rnd.Int64N(int64(3 * time.Millisecond))))
					round[i].Store(2*k + 1) // about to leave it
					if err := b.Leave(ctx); err != nil {
						t.Errorf("%v", err)
						return
					}
					for o := range members {
						if at := round[o].Load(); at < 2*k+1 || at > 2*k+2 {
							t.Errorf("out of round %d, but member %d is at %d/2", k, o, at)
						}
					}
				}
			})
		}
		wg.Wait()
	})
}

// One member is told late that the barrier is open, when the others are leaving already, or have timed out in that.
func TestDoubleBarrierSlowMember(t *testing.T) {
	t.Parallel()
	path, c, ctx := newPath(t), admin(t), within(t, 20*time.Second)
	s, p := dialProxy(t)
	slow := NewDoubleBarrier(s, path, 3)
	bs := []*DoubleBarrier{NewDoubleBarrier(dialShared(t), path, 3), NewDoubleBarrier(dialShared(t), path, 3)}
	for _, timesOut := range []bool{false, true} {
		gate := zktest.NewGate()
		p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpEvent, path+"/ready"), Times: 1, Do: zktest.HoldReply(gate)})
		p.ResetCounters()
		entered := goCall(func() error { return slow.Enter(ctx) })
		eventually(t, 5*time.Second, "it watches ready", func() bool {
			return slices.ContainsFunc(p.Requests(), func(r zktest.Record) bool { return r.Op == zktest.OpExists && r.Answered })
		})
		enterAll(t, bs...)
		next(t, gate.Reached())
		leaves, cancel := context.WithCancel(ctx)
		var left []<-chan error
		for _, b := range bs {
			left = append(left, goCall(func() error { return b.Leave(leaves) }))
		}
		for _, l := range left {
			still(t, l)
		}
		if timesOut {
			cancel()
			for _, l := range left {
				require.ErrorIs(t, next(t, l), context.Canceled)
			}
		}
		gate.Open()
		require.NoError(t, next(t, entered), "it was counted")
		require.NoError(t, slow.Leave(ctx))
		for _, l := range left {
			if !timesOut {
				require.NoError(t, next(t, l))
			}
		}
		cancel()
		require.Empty(t, children(t, c, path))
	}
}

// Members enter and leave with and without patience, over a network that drops, holes and ends sessions. Who passes was in company: at a moment of its call
// all were there. In the end all enter and leave once more, and nothing is left.
func TestDoubleBarrierUnderFaults(t *testing.T) {
	t.Parallel()
	const members = 4
	seed, path, c := testSeed(t), newPath(t), admin(t)
	end := time.Now().Add(tortureTime(t))
	var there company
	there.all = members
	var bs []*DoubleBarrier
	var wg, faults sync.WaitGroup
	var passed atomic.Int64
	for i := range members {
		s, p := dialProxy(t, WithTimeout(time.Second))
		owner := NewOwner()
		b := NewDoubleBarrier(s, path, members, WithOwner(owner))
		bs = append(bs, b)
		rnd, strikes := newRand(seed+uint64(i)), newRand(seed+uint64(100+i))
		faults.Go(func() {
			for time.Now().Before(end) {
				<-time.After(time.Duration(strikes.Int64N(int64(time.Second))))
				switch strikes.IntN(6) {
				case 0:
					p.BlackHole(zktest.Both)
					<-time.After(time.Duration(strikes.Int64N(int64(1500 * time.Millisecond))))
					p.BlackHole(zktest.None)
				case 1:
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					_ = p.Expire(ctx)
					cancel()
				default:
					p.Cut()
				}
			}
			p.BlackHole(zktest.None)
		})
		wg.Go(func() {
			for time.Now().Before(end) {
				patience := time.Duration(rnd.Int64N(int64(4 * time.Second)))
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				began := there.comes()
				err := b.Enter(ctx)
				cancel()
				if err == nil {
					passed.Add(1)
					if full := there.full(); full < began {
						t.Errorf("seed %d: passed alone", seed)
					}
					<-time.After(time.Duration(rnd.Int64N(int64(20 * time.Millisecond))))
					ctx, cancel = context.WithTimeout(context.Background(), patience)
					err = b.Leave(ctx)
					cancel()
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrLost) {
					t.Errorf("seed %d: %v", seed, err)
				}
				there.goes(goneFrom(t, c, path, owner))
			}
		})
	}
	wg.Wait()
	faults.Wait()
	for round := 1; ; round++ {
		enterAll(t, bs...)
		ctx := within(t, 20*time.Second)
		var calls []<-chan error
		for _, b := range bs {
			calls = append(calls, goCall(func() error { return b.Leave(ctx) }))
		}
		lost := false
		for _, call := range calls {
			err := next(t, call)
			if errors.Is(err, ErrLost) && round < 3 { // a session of a second, on a machine that stood still
				lost = true
				continue
			}
			require.NoError(t, err)
		}
		if !lost {
			break
		}
	}
	require.Empty(t, children(t, c, path))
	t.Logf("seed %d: passed %d times", seed, passed.Load())
}

// company counts the members whose znodes may be there, and remembers when all were last.
type company struct {
	mu   sync.Mutex
	n    int
	all  int
	tick int
	last int
}

func (c *company) comes() (now int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tick++
	if c.n++; c.n == c.all {
		c.last = c.tick
	}
	return c.tick
}

// full returns when all were there last.
func (c *company) full() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == c.all {
		c.last = c.tick
	}
	return c.last
}

// goes is for a member whose call is over. Its znode may not be gone, if its connection is.
func (c *company) goes(gone func() bool) {
	for !gone() {
		<-time.After(time.Millisecond)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == c.all {
		c.last = c.tick
	}
	c.n--
}

// goneFrom reports whether no member with this owner is there.
func goneFrom(t testing.TB, c Conn, path string, owner Owner) func() bool {
	return func() bool {
		for _, name := range membersAt(t, c, path) {
			if data, _, err := c.Get(path + "/" + name); err == nil && string(data) == string(owner) {
				return false
			}
		}
		return true
	}
}
