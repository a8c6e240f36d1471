package history

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// A server is a test's own: a real one where one was asked for, else one in this process.
type server struct {
	addr    string
	restart func(ctx context.Context, down time.Duration)
}

func start(t testing.TB) server {
	const tick = 150 * time.Millisecond
	restart := func(stop, start func() error) func(context.Context, time.Duration) {
		return func(ctx context.Context, down time.Duration) {
			for _, step := range []func() error{stop, func() error { pause(ctx, down); return start() }} {
				if err := step(); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if testrun.Real() {
		m := zktest.Start(t, zktest.TickTime(tick)).Server(0)
		return server{m.Addr(), restart(m.Stop, m.Start)}
	}
	s := zktest.NewServer(t, zktest.TickTime(tick))
	return server{s.Addr(), restart(func() error { s.Stop(); return nil }, s.Start)}
}

func between(rnd *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(rnd.Int64N(int64(to-from)))
}

var struck = []zktest.Op{
	zktest.OpCreate, zktest.OpDelete, zktest.OpGetData, zktest.OpGetChildren2, zktest.OpExists, zktest.OpSync, zktest.OpMulti, zktest.OpEvent, zktest.OpPing,
}

// strikeProxy does to one client's connection what a network does, one thing after the other.
func strikeProxy(ctx context.Context, c *client, p *zktest.Proxy, timeout time.Duration) {
	rnd := c.rnd
	hold := func(action func(*zktest.Gate) zktest.Action) {
		gate := zktest.NewGate()
		remove := p.OnRequest(zktest.Rule{Match: zktest.MatchOp(struck[rnd.IntN(len(struck))]), Times: 1, Do: action(gate)})
		pause(ctx, between(rnd, time.Millisecond, timeout/2))
		remove()
		gate.Open()
	}
	for ctx.Err() == nil {
		pause(ctx, between(rnd, 0, timeout/3))
		switch rnd.IntN(10) {
		case 0:
			p.Cut()
		case 1:
			p.Flap(1+rnd.IntN(4), between(rnd, 0, 50*time.Millisecond))
		case 2, 3:
			d := []zktest.Direction{zktest.Both, zktest.ToServer, zktest.ToClient}[rnd.IntN(3)]
			p.BlackHole(d)
			pause(ctx, between(rnd, 0, 2*timeout))
			p.BlackHole(zktest.None)
		case 4:
			p.Delay(between(rnd, 0, timeout/4))
			pause(ctx, between(rnd, 0, timeout))
			p.Delay(0)
		case 5:
			hold(zktest.HoldRequest)
		case 6:
			hold(zktest.HoldReply)
		case 7:
			p.OnRequest(zktest.Rule{Match: zktest.MatchOp(struck[rnd.IntN(len(struck))]), Times: 1, Do: zktest.CutAfter()})
		case 8:
			p.OnRequest(zktest.Rule{Match: zktest.MatchOp(struck[rnd.IntN(len(struck))]), Times: 1, Do: zktest.CutBefore()})
		case 9:
			id, _, _ := p.Session() // which is the one that Expire ends, and may be newer than what the Session knows of
			c.ends(id)
			limited, cancel := context.WithTimeout(ctx, time.Second)
			_ = p.Expire(limited)
			cancel()
		}
	}
	p.BlackHole(zktest.None)
}

// strikeServer does to one client what the server of this process can do to it.
func strikeServer(ctx context.Context, c *client, s *zktest.Server, timeout time.Duration) {
	rnd := c.rnd
	for ctx.Err() == nil {
		pause(ctx, between(rnd, 0, timeout))
		op := struck[rnd.IntN(len(struck)-1)]
		switch rnd.IntN(8) {
		case 0:
			s.Disconnect(c.session.ID())
		case 1, 2:
			heal := s.Partition(c.session.ID())
			pause(ctx, between(rnd, 0, 2*timeout))
			heal()
		case 3:
			s.LoseReply(op, "/history")
		case 4:
			gate := s.Hold(op, "/history")
			pause(ctx, between(rnd, time.Millisecond, timeout))
			gate.Open()
		case 5:
			s.Fail(op, "/history", -127)
		case 6:
			id := c.session.ID()
			c.ends(id)
			s.Expire(id)
		case 7:
			if c.id == 0 {
				s.Stop()
				pause(ctx, between(rnd, time.Millisecond, timeout))
				_ = s.Start()
			}
		}
	}
}
