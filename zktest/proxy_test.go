package zktest_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/zktest"
)

func TestForward(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()

	// A frame in pieces, split in the length and in the body.
	whole := framed(request(1, zktest.OpCreate, "/a"))
	for _, piece := range [][]byte{whole[:2], whole[2:4], whole[4:5], whole[5:]} {
		c.write(piece)
	}
	require.Equal(t, whole[4:], s.frame())

	// Many in one segment.
	var many [][]byte
	for xid := range int32(500) {
		many = append(many, request(xid, zktest.OpExists, "/b"))
	}
	c.send(many...)
	for _, want := range many {
		require.Equal(t, want, s.frame())
	}

	// Two MiB each way at the same time.
	big := request(7, zktest.OpSetData, "/"+string(bytes.Repeat([]byte("x"), 2<<20)))
	go c.Write(framed(big))
	go s.Write(framed(big))
	require.True(t, bytes.Equal(big, s.frame()))
	require.True(t, bytes.Equal(big, c.frame()))

	// Frames too short to be any, and empty ones.
	c.send([]byte{}, []byte{1})
	require.Empty(t, s.frame())
	require.Equal(t, []byte{1}, s.frame())
	s.send([]byte{}, []byte{2})
	require.Empty(t, c.frame())
	require.Equal(t, []byte{2}, c.frame())
}

func TestEndsPassAsTheyCome(t *testing.T) {
	r := newRig(t)
	t.Run("client closes", func(t *testing.T) {
		c, s := r.connect()
		c.send(ping())
		require.NoError(t, c.Close())
		require.Equal(t, ping(), s.frame())
		s.expectEOF()
		require.NoError(t, s.Close())
		eventually(t, "link gone", func() bool { return r.p.Links() == 0 })
	})
	t.Run("server closes", func(t *testing.T) {
		c, s := r.connect()
		s.send(reply(1, 0))
		require.NoError(t, s.Close())
		require.Equal(t, reply(1, 0), c.frame())
		c.expectEOF()
	})
	t.Run("server resets", func(t *testing.T) {
		c, s := r.connect()
		require.NoError(t, s.SetLinger(0))
		require.NoError(t, s.Close())
		c.expectReset()
	})
	t.Run("client closes within a frame", func(t *testing.T) {
		c, s := r.connect()
		c.write(framed(ping())[:9])
		require.NoError(t, c.CloseWrite())
		got, err := io.ReadAll(s.r)
		require.NoError(t, err)
		require.Equal(t, framed(ping())[:9], got)
	})
	t.Run("one direction only", func(t *testing.T) {
		c, s := r.connect()
		require.NoError(t, c.CloseWrite())
		s.expectEOF()
		s.send(reply(1, 0))
		require.Equal(t, reply(1, 0), c.frame())
	})
}

func TestNotTheProtocol(t *testing.T) {
	l := listen(t)
	tb := &failingTB{TB: t}
	p := zktest.NewProxy(tb, l.Addr().String())
	r := &rig{t, l, p}
	c, s := r.open()
	c.write([]byte("ruok"))
	c.expectReset()
	s.expectReset()
	tb.cleanup()
	require.Contains(t, tb.said(), "not a frame")
}

func TestTargetDown(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.l.Close())
	// The reset can come before the client's connect has returned.
	if conn, err := dialPlain(r.p.Addr()); err == nil {
		newEnd(t, conn).expectReset()
	} else {
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}
	r.p.BlackHole(zktest.ToClient)
	c := r.dial()
	c.expectSilence()
	r.p.BlackHole(zktest.None)
	c.expectReset()
}

func TestSetTarget(t *testing.T) {
	r := newRig(t)
	c1, s1 := r.connect()
	other := listen(t)
	r.p.SetTarget(other.Addr().String())
	ask(c1, s1, 1, zktest.OpExists, "/present connections stay")
	c2 := r.dial()
	s2 := accept(t, other)
	c2.send(connectFrame(0))
	require.Equal(t, connectFrame(0), s2.frame())
}

func TestCut(t *testing.T) {
	r := newRig(t)
	c1, s1 := r.connect()
	c2, s2 := r.open() // not even a handshake
	eventually(t, "both links", func() bool { return r.p.Links() == 2 })
	r.p.Cut()
	require.Zero(t, r.p.Links())
	for _, e := range []*end{c1, s1, c2, s2} {
		e.expectReset()
	}
	c, s := r.connect()
	ask(c, s, 1, zktest.OpExists, "/a")
}

func TestFlap(t *testing.T) {
	t.Parallel()
	for _, gap := range []time.Duration{250 * time.Millisecond, time.Second, 4 * time.Second} {
		if flap(t, gap) {
			return
		}
	}
	t.Fatal("no connection is ever there before the next cut")
}

// flap has a connection hit by each of three cuts. It returns false when one was not there before the next cut was due, which shows nothing.
func flap(t *testing.T, gap time.Duration) bool {
	r := newRig(t)
	defer r.p.Close()
	c, s := r.connect()
	done := make(chan time.Duration, 1)
	began := time.Now()
	go func() {
		r.p.Flap(3, gap)
		done <- time.Since(began)
	}()
	for n := range 3 {
		c.expectReset()
		s.expectReset()
		if n == 2 {
			break
		}
		var err error
		c, s, err = r.reconnect()
		if time.Since(began) >= time.Duration(n+1)*gap {
			return false
		}
		require.NoError(t, err)
	}
	require.GreaterOrEqual(t, <-done, 2*gap)
	c, s = r.connect()
	ask(c, s, 1, zktest.OpExists, "/a")

	returned := make(chan struct{})
	go func() {
		defer close(returned)
		r.p.Flap(1, time.Hour)
	}()
	c.expectReset()
	s.expectReset()
	select {
	case <-returned:
	case <-time.After(patience):
		t.Fatal("it waits after the last cut")
	}
	return true
}

// reconnect is connect for a connection that may be cut meanwhile.
func (r *rig) reconnect() (c, s *end, err error) {
	conn, err := net.Dial("tcp4", r.p.Addr())
	if err != nil {
		return nil, nil, err
	}
	c = newEnd(r.t, conn)
	if err := r.l.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, nil, err
	}
	if conn, err = r.l.Accept(); err != nil {
		return nil, nil, err
	}
	s = newEnd(r.t, conn)
	for _, f := range []struct {
		from, to *end
		frame    []byte
	}{{c, s, connectFrame(0x1234)}, {s, c, connectReply(0x1234, 4000)}} {
		if _, err := f.from.Write(framed(f.frame)); err != nil {
			return nil, nil, err
		}
		if _, err := f.to.read(patience); err != nil {
			return nil, nil, err
		}
	}
	return c, s, nil
}

func TestRefuse(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()
	for range 2 {
		r.p.Refuse(true)
		require.True(t, refused(r.p.Addr()))
	}
	c.expectReset()
	s.expectReset()
	for range 2 {
		r.p.Refuse(false)
		c, s = r.connect()
		ask(c, s, 1, zktest.OpExists, "/a")
	}
}

func TestRefuseAfterSomebodyTookThePort(t *testing.T) {
	tb := &failingTB{TB: t}
	p := zktest.NewProxy(tb, "127.0.0.1:1")
	p.Refuse(true)
	l := listenOn(t, p.Addr())
	p.Refuse(false)
	require.Contains(t, tb.said(), "took the proxy's port")
	require.NoError(t, l.Close())
	p.Refuse(false)
	require.False(t, refused(p.Addr()))
	tb.cleanup()
}

func TestBlackHole(t *testing.T) {
	t.Run("to server", func(t *testing.T) {
		r := newRig(t)
		c, s := r.connect()
		spared, sparedServer := r.connect()
		r.p.BlackHole(zktest.ToServer)
		c.send(request(1, zktest.OpCreate, "/a"))
		awaitFates(t, r.p, zktest.FateSwallowed)
		s.expectSilence()
		s.send(reply(9, 0)) // the other direction works
		require.Equal(t, reply(9, 0), c.frame())
		// A stream with a hole ends; one without goes on.
		r.p.BlackHole(zktest.None)
		c.expectReset()
		s.expectReset()
		ask(spared, sparedServer, 1, zktest.OpExists, "/a")
	})
	t.Run("to client", func(t *testing.T) {
		r := newRig(t)
		c, s := r.connect()
		r.p.BlackHole(zktest.ToClient)
		c.send(request(1, zktest.OpCreate, "/a"))
		require.Equal(t, request(1, zktest.OpCreate, "/a"), s.frame())
		s.send(reply(1, 0))
		awaitFates(t, r.p, zktest.FateReplyLost)
		c.expectSilence()
		require.True(t, requests(r.p)[0].Answered)
		r.p.BlackHole(zktest.None)
		c.expectReset()
		s.expectReset()
	})
	t.Run("both, and new connections", func(t *testing.T) {
		r := newRig(t)
		r.p.BlackHole(zktest.Both)
		c, s := r.open()
		c.send(connectFrame(0))
		eventually(t, "connect swallowed", func() bool { return len(r.p.Requests()) == 1 })
		require.Equal(t, zktest.FateSwallowed, r.p.Requests()[0].Fate)
		s.send(connectReply(1, 4000))
		c.expectSilence()
		s.expectSilence()
		require.Zero(t, r.p.Counts().ToServer)
		require.Zero(t, r.p.Counts().ToClient)
		r.p.BlackHole(zktest.None)
		c.expectReset()
		s.expectReset()
		c, s = r.connect()
		ask(c, s, 1, zktest.OpExists, "/a")
	})
	t.Run("the end of a connection", func(t *testing.T) {
		r := newRig(t)
		c, s := r.connect()
		r.p.BlackHole(zktest.ToServer)
		require.NoError(t, c.SetLinger(0))
		require.NoError(t, c.Close())
		s.expectSilence()
		require.Equal(t, 1, r.p.Links())
		r.p.BlackHole(zktest.None)
		s.expectReset()
	})
	t.Run("both ends of a connection", func(t *testing.T) {
		r := newRig(t)
		c, s := r.connect()
		r.p.BlackHole(zktest.Both)
		require.NoError(t, c.CloseWrite())
		require.NoError(t, s.CloseWrite())
		eventually(t, "both swallowed", func() bool { return r.p.Lost() == zktest.Both })
		c.expectSilence()
		s.expectSilence()
		r.p.BlackHole(zktest.None)
		c.expectReset()
		s.expectReset()
	})
	t.Run("moved to the other direction", func(t *testing.T) {
		r := newRig(t)
		c, s := r.connect()
		spared, sparedServer := r.connect()
		r.p.BlackHole(zktest.ToServer)
		c.send(ping())
		awaitFates(t, r.p, zktest.FateSwallowed)
		r.p.BlackHole(zktest.ToClient)
		c.expectReset()
		s.expectReset()
		spared.send(ping())
		require.Equal(t, ping(), sparedServer.frame())
	})
	t.Run("widened", func(t *testing.T) {
		r := newRig(t)
		c, s := r.connect()
		r.p.BlackHole(zktest.ToServer)
		c.send(ping())
		awaitFates(t, r.p, zktest.FateSwallowed)
		r.p.BlackHole(zktest.Both)
		c.expectSilence()
		s.expectSilence()
	})
	t.Run("in the middle of a write", func(t *testing.T) {
		r := newRig(t)
		c, s := r.connect()
		big := make([]byte, 16<<20) // more than the buffers of two sockets
		go c.Write(framed(big))
		eventually(t, "write begun", func() bool { return r.p.Counts().Requests[zktest.OpUnknown] == 1 })
		r.p.BlackHole(zktest.ToServer) // nobody reads, so this would hang
		awaitFates(t, r.p, zktest.FateSwallowed)
		r.p.BlackHole(zktest.None)
		require.NoError(t, s.SetReadDeadline(time.Now().Add(patience)))
		got, err := io.Copy(io.Discard, s.r)
		require.Error(t, err)
		require.Less(t, got, int64(len(big)))
	})
}

// TestBlackHoleIsTight has a stream of frames running and checks that none
// passes once BlackHole has returned.
func TestBlackHoleIsTight(t *testing.T) {
	for range 20 {
		r := newRig(t)
		c, s := r.connect()
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			for {
				if _, err := c.Write(framed(ping())); err != nil {
					return
				}
			}
		}()
		for range 10 {
			s.frame()
		}
		r.p.BlackHole(zktest.ToServer)
		passed := r.p.Counts().ToServer
		eventually(t, "swallowing", func() bool {
			rs := r.p.Requests()
			return rs[len(rs)-1].Fate == zktest.FateSwallowed
		})
		require.Equal(t, passed, r.p.Counts().ToServer)
		r.p.Close()
		<-stop
	}
}

func TestStall(t *testing.T) {
	t.Parallel()
	for _, d := range []zktest.Direction{zktest.ToServer, zktest.ToClient} {
		t.Run(d.String(), func(t *testing.T) {
			r := newRig(t)
			c, s := r.connect()
			from, to := c, s
			if d == zktest.ToClient {
				from, to = s, c
			}
			r.p.Stall(d)
			frames := [][]byte{request(1, zktest.OpCreate, "/a"), request(2, zktest.OpCreate, "/b")}
			from.send(frames...)
			require.NoError(t, from.CloseWrite())
			to.expectSilence()
			to.send(ping()) // the other direction works
			require.Equal(t, ping(), from.frame())
			r.p.Stall(zktest.None)
			for _, f := range frames {
				require.Equal(t, f, to.frame())
			}
			to.expectEOF()
		})
	}
	t.Run("new connections", func(t *testing.T) {
		r := newRig(t)
		r.p.Stall(zktest.Both)
		c, s := r.open()
		c.send(connectFrame(0))
		s.expectSilence()
		require.Empty(t, r.p.Requests())
		r.p.Stall(zktest.None)
		require.Equal(t, connectFrame(0), s.frame())
	})
	t.Run("swallowed when a black hole opens", func(t *testing.T) {
		r := newRig(t)
		c, s := r.connect()
		r.p.Stall(zktest.ToServer)
		c.send(ping())
		s.expectSilence()
		r.p.BlackHole(zktest.ToServer)
		awaitFates(t, r.p, zktest.FateSwallowed)
		r.p.Stall(zktest.None)
		s.expectSilence()
	})
	t.Run("in the middle of a write", func(t *testing.T) {
		r := newRig(t)
		c, s := r.connect()
		big := make([]byte, 16<<20)
		_, _ = rand.Read(big)
		clear(big[:8])
		go c.Write(framed(big))
		eventually(t, "write begun", func() bool { return r.p.Counts().Requests[zktest.OpUnknown] == 1 })
		for range 3 {
			r.p.Stall(zktest.ToServer)
			r.p.Stall(zktest.None)
		}
		require.True(t, bytes.Equal(big, s.frame()))
	})
	t.Run("begun in the middle of a write", func(t *testing.T) {
		r := newRig(t)
		c, s := r.connect()
		big := make([]byte, 16<<20)
		_, _ = rand.Read(big)
		clear(big[:8])
		go c.Write(framed(big))
		eventually(t, "write begun", func() bool { return r.p.Counts().Requests[zktest.OpUnknown] == 1 })
		r.p.Stall(zktest.ToServer)
		got := s.drain(glance) // what had left the proxy before
		require.Less(t, len(got), len(big))
		r.p.Stall(zktest.None)
		for len(got) < 4+len(big) {
			got = append(got, s.drain(glance)...)
		}
		require.True(t, bytes.Equal(framed(big), got))
	})
	t.Run("more than the proxy keeps", func(t *testing.T) {
		r := newRig(t)
		c, s := r.connect()
		r.p.Stall(zktest.ToServer)
		piece := make([]byte, 4<<20)
		const pieces = 20
		var written atomic.Int32
		go func() {
			for range pieces {
				if _, err := c.Write(framed(piece)); err != nil {
					return
				}
				written.Add(1)
			}
		}()
		eventually(t, "the proxy is full", func() bool { return written.Load() >= 4 })
		for range 10 {
			s.expectSilence()
		}
		require.Less(t, written.Load(), int32(pieces), "TCP stalls the sender")
		r.p.Stall(zktest.None)
		for range pieces {
			require.Len(t, s.frame(), len(piece))
		}
	})
}

// TestNoStreamWithAHole checks that a server never sees a later frame without
// the earlier ones, whenever a black hole opens and closes.
func TestNoStreamWithAHole(t *testing.T) {
	r := newRig(t)
	for range 40 {
		c, s := r.connect()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for xid := int32(0); ; xid++ {
				if _, err := c.Write(framed(request(xid, zktest.OpExists, "/a"))); err != nil {
					return
				}
			}
		}()
		s.frame()
		healed := make(chan struct{})
		go func() {
			defer close(healed)
			r.p.BlackHole(zktest.ToServer)
			r.p.BlackHole(zktest.None)
			r.p.Stall(zktest.ToServer)
			r.p.BlackHole(zktest.Both)
			r.p.Stall(zktest.None)
			r.p.BlackHole(zktest.None)
			r.p.Cut()
		}()
		for xid := int32(1); ; xid++ {
			b, err := s.read(patience)
			if err != nil {
				require.ErrorIs(t, err, syscall.ECONNRESET)
				break
			}
			require.Equal(t, request(xid, zktest.OpExists, "/a"), b)
		}
		<-done
		<-healed
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, s := r.connect()
	const d, n = 200 * time.Millisecond, 20
	r.p.Delay(d)
	began := time.Now()
	for xid := range int32(n) {
		c.send(request(xid, zktest.OpExists, "/a"))
	}
	for xid := range int32(n) {
		require.Equal(t, request(xid, zktest.OpExists, "/a"), s.frame())
		if xid == 0 {
			require.GreaterOrEqual(t, time.Since(began), d)
		}
	}
	there := time.Since(began)
	require.Less(t, there, n*d/2, "requests wait for one another")
	sent := time.Now()
	s.send(reply(0, 0))
	require.Equal(t, reply(0, 0), c.frame())
	require.GreaterOrEqual(t, time.Since(sent), d)

	// Cut does not wait for what is on the wire.
	r.p.Delay(time.Hour)
	c.send(ping())
	s.send(ping())
	r.p.Cut()
	c.expectReset()
	s.expectReset()

	r.p.Delay(0)
	c, s = r.connect()
	ask(c, s, 1, zktest.OpExists, "/a")
}

func TestDelayKeepsOrder(t *testing.T) {
	r := newRig(t)
	c, s := r.connect()
	r.p.Delay(100 * time.Millisecond)
	c.send(request(1, zktest.OpExists, "/slow"))
	sentSlow := time.Now()
	// The proxy must have read it under the old delay.
	eventually(t, "the first is under way", func() bool { return time.Since(sentSlow) > 50*time.Millisecond })
	r.p.Delay(0)
	c.send(request(2, zktest.OpExists, "/fast"))
	require.Equal(t, request(1, zktest.OpExists, "/slow"), s.frame())
	require.Equal(t, request(2, zktest.OpExists, "/fast"), s.frame())
}

// TestClose closes a proxy in every state it can be in and checks that nothing
// stays behind.
func TestClose(t *testing.T) {
	states := map[string]func(r *rig, c, s *end){
		"idle":        func(*rig, *end, *end) {},
		"refusing":    func(r *rig, _, _ *end) { r.p.Refuse(true) },
		"black hole":  func(r *rig, c, _ *end) { r.p.BlackHole(zktest.Both); c.send(ping()) },
		"stalled":     func(r *rig, c, _ *end) { r.p.Stall(zktest.Both); c.send(ping()) },
		"delayed":     func(r *rig, c, _ *end) { r.p.Delay(time.Hour); c.send(ping()) },
		"unconnected": func(r *rig, _, _ *end) { r.l.Close(); r.p.BlackHole(zktest.Both); r.dial() },
		"flapping": func(r *rig, _, _ *end) {
			go r.p.Flap(1000, time.Hour)
		},
		"holding a request": func(r *rig, c, _ *end) {
			g := zktest.NewGate()
			r.p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpPing), Do: zktest.HoldRequest(g)})
			c.send(ping())
			<-g.Reached()
		},
		"holding a reply": func(r *rig, c, s *end) {
			g := zktest.NewGate()
			r.p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpPing), Do: zktest.HoldReply(g)})
			c.send(ping())
			s.frame()
			s.send(new(builder).int32(-2).int64(0).int32(0).b)
			<-g.Reached()
		},
	}
	for name, enter := range states {
		t.Run(name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			r := newRig(t)
			c, s := r.connect()
			enter(r, c, s)
			r.p.Close()
			r.p.Close()
			require.NoError(t, goleak.Find(before))
			require.True(t, refused(r.p.Addr()))
			c.expectReset()
			s.expectReset()
			// Nothing comes back to life.
			r.p.Refuse(false)
			require.True(t, refused(r.p.Addr()))
		})
	}
}

// TestCloseWaits checks that the proxy runs no function of the test's after
// Close.
func TestCloseWaits(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect()
	entered, leave, closed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r.on(zktest.AllRequests, zktest.Call(func(zktest.Frame) { close(entered); <-leave }))
	c.send(request(1, zktest.OpCreate, "/a"))
	<-entered
	go func() {
		r.p.Close()
		close(closed)
	}()
	c.expectReset()
	select {
	case <-closed:
		t.Fatal("closed while a Call runs")
	case <-time.After(glance):
	}
	close(leave)
	<-closed
}

// TestStorm has clients reconnect while every fault is set and healed at once:
// for the race detector, and for a deadlock.
func TestStorm(t *testing.T) {
	r := newRig(t)
	stop := make(chan struct{})
	running := make(chan string, 64)
	n := 0
	run := func(name string, f func()) {
		n++
		go func() {
			defer func() { running <- name }()
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		}()
	}
	echo := r.l
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	for range 3 {
		run("client", func() {
			e, err := dialPlain(r.p.Addr())
			if err != nil {
				return
			}
			defer e.Close()
			_, _ = e.Write(framed(connectFrame(1)))
			for xid := range int32(20) {
				_, _ = e.Write(framed(request(xid, zktest.OpCreate, "/a")))
			}
			_ = e.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
			_, _ = io.Copy(io.Discard, e)
		})
	}
	run("cut", r.p.Cut)
	run("hole", func() { r.p.BlackHole(zktest.ToServer); r.p.BlackHole(zktest.Both); r.p.BlackHole(zktest.None) })
	run("stall", func() { r.p.Stall(zktest.Both); r.p.Stall(zktest.None) })
	run("refuse", func() { r.p.Refuse(true); r.p.Refuse(false) })
	run("rules", func() {
		remove := r.p.OnRequest(zktest.Rule{Match: zktest.Nth(3, zktest.AllRequests), Times: 1, Do: zktest.CutAfter()})
		r.p.OnRequest(zktest.Rule{Match: zktest.Nth(5, zktest.AllRequests), Times: 1, Do: zktest.BlackHoleAfter()})
		r.p.OnRequest(zktest.Rule{Match: zktest.Nth(7, zktest.AllRequests), Times: 1, Do: zktest.CutBefore()})
		r.p.ResetCounters()
		remove()
	})
	run("read", func() { r.p.Counts(); r.p.Session(); r.p.Delay(time.Microsecond) })
	<-time.After(300 * time.Millisecond)
	close(stop)
	for range n {
		select {
		case <-running:
		case <-time.After(patience):
			t.Fatal("deadlock")
		}
	}
	// It still works after all that. Nothing of the connections that Refuse has
	// cut may act any more.
	r.p.Refuse(true)
	r.p.BlackHole(zktest.None)
	r.p.Stall(zktest.None)
	r.p.Delay(0)
	require.NoError(t, r.l.Close())
	l := listen(t)
	r.p.SetTarget(l.Addr().String())
	r.l = l
	r.p.ResetCounters()
	r.p.Refuse(false)
	c, s := r.connect()
	c.send(ping())
	require.Equal(t, ping(), s.frame(), fmt.Sprint(r.p.Counts()))
}
