package zktest

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// talk begins a dialogue by pipes with a server; each open is a machine of its own.
func talk(t *testing.T, s *Server) *dialogue {
	return &dialogue{t: t, dial: func() (net.Conn, error) { return s.Dialer()("tcp", "any:1", time.Second) }}
}

// back comes back with the session.
func (r *rawConn) back() *rawConn { return r.d.open(r.name+"'", r.id, r.passwd, 0) }

// said returns what was said since it was last asked.
func (d *dialogue) said() []string {
	lines := d.lines
	d.lines = nil
	return lines
}

// keep answers for the session for as long as it takes, as a client's pings do.
func (r *rawConn) keep(d time.Duration) {
	for until := time.Now().Add(d); time.Now().Before(until); {
		time.Sleep(time.Second)
		r.call(OpPing)
		r.d.lines = r.d.lines[:len(r.d.lines)-1]
	}
}

func paths(s *Server, below string) (all []string) {
	for z := range s.Znodes(below) {
		all = append(all, z.Path)
	}
	return all
}

// bubble runs a test with a server in virtual time.
func bubble(t *testing.T, run func(t *testing.T, s *Server, d *dialogue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(t, TickTime(time.Second))
		run(t, s, talk(t, s))
	})
}

// Ticks that do not fall together with anything else that the server does by the clock.
func TestServerSessionTimeoutByTicks(t *testing.T) {
	for _, tick := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, 7 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := NewServer(t, TickTime(tick))
			began := time.Now()
			time.Sleep(370 * time.Millisecond)
			talk(t, s).join("a")
			end := ((30370*time.Millisecond)/tick + 1) * tick
			time.Sleep(end - time.Since(began) - time.Nanosecond)
			synctest.Wait()
			require.Len(t, slices.Collect(s.Sessions()), 1)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			require.Empty(t, slices.Collect(s.Sessions()))
		})
	}
}

// A session ends at the first full tick after its timeout without a word, and not a millisecond before.
func TestServerSessionTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, d *dialogue) {
		time.Sleep(300 * time.Millisecond)
		a, b := d.join("a"), d.join("b")
		a.call(OpCreate, "/e", []byte("x"), open, 1)
		b.call(OpExists, "/e", true)
		b.keep(20 * time.Second) // a is silent since 0.3 s and has 30 s
		b.keep(10 * time.Second)
		d.said()
		time.Sleep(699 * time.Millisecond) // 31 s less 1 ms
		synctest.Wait()
		require.Equal(t, []string{"/e"}, paths(s, "/e"))
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Empty(t, paths(s, "/e"))
		a.ended()
		a.back().ended()
		b.call(OpPing)
		require.Equal(t, []string{"a: closed true", "a': session 0 for 0s, 37 bytes", "a': closed true", "b: event 2 /e"}, d.said()[:4])
	})
}

// Virtual hours pass at once, and pings keep a session.
func TestServerKeepsSession(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, d *dialogue) {
		a := d.join("a")
		a.call(OpCreate, "/e", []byte("x"), open, 1)
		a.keep(5 * time.Hour)
		require.Equal(t, []string{"/e"}, paths(s, "/e"))
	})
}

// A timeout is cut to what a launched server grants with the same tick.
func TestServerNegotiates(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, d *dialogue) {
		for asked, want := range map[int32]time.Duration{0: 400 * time.Millisecond, 7000: 7 * time.Second, 1 << 30: time.Minute} {
			require.Equal(t, want, s.negotiate(asked))
		}
	})
}

// Containers and znodes with a time to live go by themselves, from the leaves up, and those that never had a child stay.
func TestServerReaps(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, d *dialogue) {
		time.Sleep(300 * time.Millisecond) // not at the moments at which it looks
		a := d.join("a")
		for _, path := range []string{"/new", "/c", "/c/c", "/c/c/c"} {
			a.call(OpCreateContainer, path, []byte("x"), open, 4)
		}
		a.call(OpCreate, "/c/c/c/x", []byte("x"), open, 0)
		a.call(OpCreateTTL, "/t", []byte("x"), open, 5, int64(10000))
		a.call(OpCreateTTL, "/t/t", []byte("x"), open, 5, int64(1000))
		a.keep(5 * time.Second)
		require.Equal(t, []string{"/t"}, paths(s, "/t"))
		require.Equal(t, []string{"/c", "/c/c", "/c/c/c", "/c/c/c/x"}, paths(s, "/c"))
		a.call(OpDelete, "/c/c/c/x", -1)
		for _, left := range [][]string{{"/c", "/c/c"}, {"/c"}, nil} { // one level at a time
			time.Sleep(containerCheck)
			synctest.Wait()
			require.Equal(t, left, paths(s, "/c"))
		}
		a.keep(4 * time.Second)
		require.Empty(t, paths(s, "/t"))
		require.Equal(t, []string{"/new"}, paths(s, "/new"))
	})
}

// At the limit of the counter numbers repeat from one create to the next, and within one multi they go on with negative ones.
func TestServerSequenceLimit(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, d *dialogue) {
		a := d.join("a")
		a.call(OpCreate, "/q", []byte("x"), open, 0)
		require.True(t, s.SetCounter("/q", 1<<31-2))
		require.False(t, s.SetCounter("/none", 1))
		d.said()
		for range 2 {
			a.call(OpCreate, "/q/n", []byte("x"), open, 2)
		}
		a.call(OpCreate, "/q/n", []byte("x"), open, 2)
		a.multi(in(OpCreate, "/q/m", []byte("x"), open, 2), in(OpCreate, "/q/m", []byte("x"), open, 2), in(OpCreate, "/q/m", []byte("x"), open, 2))
		require.Equal(t, []string{"/q", "/q/m-2147483647", "/q/m-2147483648", "/q/m2147483647", "/q/n2147483646", "/q/n2147483647"}, paths(s, "/q"))
		require.Contains(t, d.said()[2], ": -110 ")
	})
}

func TestServerExpire(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, d *dialogue) {
		a, b := d.join("a"), d.join("b")
		a.call(OpCreate, "/e", []byte("x"), open, 1)
		b.call(OpExists, "/e", true)
		d.said()
		require.True(t, s.Expire(a.id))
		require.False(t, s.Expire(a.id))
		require.Empty(t, paths(s, "/e"))
		a.ended()
		a.back().ended()
		b.call(OpPing)
		require.Equal(t, []string{"a: closed true", "a': session 0 for 0s, 37 bytes", "a': closed true", "b: event 2 /e"}, d.said()[:4])
	})
}

func TestServerDisconnect(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, d *dialogue) {
		a, b := d.join("a"), d.join("b")
		a.call(OpCreate, "/e", []byte("x"), open, 1)
		s.Disconnect(a.id)
		a.ended()
		d.said()
		b.call(OpExists, "/e", false)
		require.Contains(t, d.said()[0], "owner=s0")
		again := a.back()
		require.Equal(t, a.id, again.id)
		s.Disconnect()
		again.ended()
		b.ended()
		require.Equal(t, []string{"a': closed true", "b: closed true"}, d.said()[1:])
		for info := range s.Sessions() {
			require.False(t, info.Connected)
		}
	})
}

// While a session is cut off nothing arrives on any way, its time passes, and what was under way arrives afterwards.
func TestServerPartition(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, d *dialogue) {
		dialer := s.Dialer()
		d.dial = func() (net.Conn, error) { return dialer("tcp", "any:1", 0) }
		a := d.join("a")
		b := talk(t, s).join("b")
		heal := s.Partition(a.id)
		over := s.Partition(a.id) // twice
		heal()
		heal()
		done := make(chan time.Time)
		go func() {
			a.call(OpCreate, "/a", []byte("x"), open, 1)
			done <- time.Now()
		}()
		b.call(OpCreate, "/b", []byte("x"), open, 0) // others are not cut off
		time.Sleep(5 * time.Second)
		require.Empty(t, paths(s, "/a"))
		over()
		require.WithinDuration(t, time.Now(), <-done, 0)
		require.Equal(t, []string{"/a"}, paths(s, "/a"))

		defer s.Partition(a.id)()
		c, err := d.dial()
		require.NoError(t, err)
		defer c.Close()
		fresh := &rawConn{d: d, c: c, name: "fresh"}
		fresh.write(connectRequest(session{timeout: 30 * time.Second, passwd: make([]byte, 16)}))
		require.NoError(t, c.SetReadDeadline(time.Now().Add(9*time.Second)))
		_, err = c.Read(make([]byte, 1))
		require.ErrorContains(t, err, "timeout", "the same machine gets no new session")
		b.keep(20 * time.Second)
		time.Sleep(3 * time.Second) // 32 s of silence
		require.Empty(t, paths(s, "/a"))
		require.NoError(t, a.c.SetReadDeadline(time.Now().Add(5*time.Second)))
		_, err = a.c.Read(make([]byte, 1))
		require.ErrorContains(t, err, "timeout", "not even the end of the connection is heard")
	})
}

// An event that is due while its client is cut off comes when that is healed.
func TestServerPartitionHoldsEvents(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, d *dialogue) {
		a, b := d.join("a"), d.join("b")
		a.call(OpExists, "/w", true)
		heal := s.Partition(a.id)
		b.call(OpCreate, "/w", []byte("x"), open, 0)
		require.NoError(t, a.c.SetReadDeadline(time.Now().Add(9*time.Second)))
		_, err := a.c.Read(make([]byte, 1))
		require.ErrorContains(t, err, "timeout")
		heal()
		d.said()
		a.call(OpPing)
		require.Equal(t, "a: event 1 /w", d.lines[0])
	})
}

// A partition that outlasts the session ends with the end of its connection.
func TestServerHealsTooLate(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, d *dialogue) {
		a := d.join("a")
		heal := s.Partition(a.id)
		time.Sleep(40 * time.Second)
		heal()
		a.ended()
		a.back().ended()
		require.Equal(t, []string{"a: closed true", "a': session 0 for 0s, 37 bytes", "a': closed true"}, d.said()[1:])
	})
}

func TestServerStop(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, d *dialogue) {
		a := d.join("a")
		a.call(OpCreate, "/e", []byte("x"), open, 1)
		s.Stop()
		s.Stop()
		a.ended()
		_, err := d.dial()
		require.ErrorContains(t, err, "refused")
		time.Sleep(time.Hour) // no time to the server
		require.NoError(t, s.Start())
		require.NoError(t, s.Start())
		time.Sleep(29 * time.Second)
		require.Equal(t, []string{"/e"}, paths(s, "/e"))
		again := a.back()
		again.call(OpDelete, "/e", -1)
		require.Contains(t, d.said()[4], "delete [/e -1]: 0")
		s.Close()
		s.Close()
		require.NoError(t, s.Start(), "nothing to start")
		_, err = d.dial()
		require.Error(t, err)
	})
}

func TestServerFail(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, d *dialogue) {
		a := d.join("a")
		d.said()
		s.Fail(OpCreate, "/x/", -102)
		a.call(OpCreate, "/y", []byte("x"), open, 0)
		a.call(OpExists, "/x/y", false)
		a.call(OpCreate, "/x/y", []byte("x"), open, 0)
		a.call(OpCreate, "/x/y", []byte("x"), open, 0)
		for i, code := range []string{": 0 ", ": -101 ", ": -102 ", ": -101 "} {
			require.Contains(t, d.lines[i], code)
		}
		d.said()
		s.Fail(OpMulti, "/y", -4)
		for range 2 {
			a.multi(in(OpDelete, "/y", -1))
		}
		require.Contains(t, d.lines[0], ": -4 ")
		require.Contains(t, d.lines[1], ": 0 ")
	})
}

// The request is executed, its reply and all after it do not come, and what came before does.
func TestServerLoseReply(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, d *dialogue) {
		a := d.join("a")
		a.call(OpGetChildren, "/", true)
		s.LoseReply(OpCreate, "")
		d.said()
		a.call(OpCreate, "/x", []byte("x"), open, 0)
		require.Equal(t, []string{"/x"}, paths(s, "/x"))
		require.Equal(t, "a: event 4 /", d.lines[0])
		require.Contains(t, d.lines[1], "no reply")
		s.LoseReply(OpConnect, "")
		a.back()
		require.Equal(t, "a': no connect reply", d.lines[2])
		require.Equal(t, a.id, a.back().id)
	})
}

// What is held keeps back what comes after it on its connection, and nothing on others.
func TestServerHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, d *dialogue) {
		a := d.join("a")
		a.call(OpExists, "/x", true)
		d.said()
		event := s.Hold(OpEvent, "/x")
		b := talk(t, s).join("b")
		b.call(OpCreate, "/x", []byte("x"), open, 0)
		<-event.Reached()
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.call(OpPing)
		}()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Empty(t, d.lines)
		event.Open()
		<-done
		require.Equal(t, "a: event 1 /x", d.lines[0])
		require.Contains(t, d.lines[1], "ping")

		reply := s.Hold(OpSetData, "/x")
		go b.call(OpSetData, "/x", []byte("y"), -1)
		<-reply.Reached()
		a.call(OpGetData, "/x", false) // executed before it is answered
		require.Contains(t, d.lines[2], "version=1")
		s.Disconnect(b.id) // a gate that stays shut keeps nobody
	})
}

func TestServerDelay(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, d *dialogue) {
		a := d.join("a")
		s.Delay(700 * time.Millisecond)
		for range 3 {
			began := time.Now()
			a.call(OpPing)
			require.Equal(t, 700*time.Millisecond, time.Since(began))
		}
		s.Delay(0)
		began := time.Now()
		a.call(OpPing)
		require.Zero(t, time.Since(began))
	})
}

func TestServerLooks(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, d *dialogue) {
		a, b := d.join("a"), d.join("b")
		s.ResetCounters()
		a.call(OpCreate, "/n", []byte("data"), open, 1)
		a.call(OpCreateContainer, "/o", []byte{}, open, 4)
		b.call(OpGetChildren, "/", true)
		b.call(OpGetData, "/n", true)
		a.call(OpSetData, "/n", []byte("more"), 0)
		b.call(OpPing)
		c := s.Counts()
		require.Equal(t, map[Op]int{OpCreate: 1, OpCreateContainer: 1, OpGetChildren: 1, OpGetData: 1, OpSetData: 1, OpPing: 1}, c.Requests)
		require.Equal(t, []int{5, 1}, []int{c.Total(), c.Events})
		require.Positive(t, c.ToClient)
		require.Positive(t, c.ToServer)
		require.Equal(t, []SessionInfo{{a.id, 30 * time.Second, true, 0}, {b.id, 30 * time.Second, true, 1}}, slices.Collect(s.Sessions()))
		require.Equal(t, []ZnodeInfo{{"/n", []byte("more"), a.id, false, firstZxid + 3, 1}}, slices.Collect(s.Znodes("/n")))
		all := slices.Collect(s.Znodes("/"))
		require.Equal(t, "/", all[0].Path)
		require.True(t, all[2].Container)
	})
}

// A client that does not read keeps nobody waiting.
func TestServerSlowClient(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, d *dialogue) {
		a, b := d.join("a"), d.join("b")
		var e encoder
		e.int32(1)
		e.int32(int32(OpAddWatch))
		e.args([]any{"/", 1})
		a.write(e.b)
		synctest.Wait()
		for i := range 300 {
			b.call(OpCreate, fmt.Sprint("/x", i), []byte("x"), open, 0)
		}
		require.Len(t, paths(s, "/"), 304)
		_, err := a.frame() // the reply to addWatch
		require.NoError(t, err)
		d.said()
		a.call(OpPing)
		require.Len(t, d.said(), 301)
	})
}
