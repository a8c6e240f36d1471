package core

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// handClock is the clock that goes on in suspension, set by hand in seconds. The monotonic clock hardly moves during a test, so it decides.
func handClock(t *testing.T) *atomic.Int64 {
	var at atomic.Int64
	setSuspendClock(t, func() time.Duration { return time.Duration(at.Load()) * time.Second })
	return &at
}

// The operations whose answer shows that the leader has heard of the session since the request was sent, and no others, move the end of a lease.
func TestWhichAnswersProveTheSession(t *testing.T) {
	at := handClock(t)
	body := appendString(nil, "/p")
	for _, tt := range []struct {
		name   string
		op     int
		code   int
		proves bool
	}{
		{"sync", opSync, 0, true},
		{"create", opCreate, 0, true},
		{"create, no parent", opCreate, -101, true},
		{"create, exists", opCreate, -110, true},
		{"create, ephemeral parent", opCreate, -108, true},
		{"delete", opDelete, 0, true},
		{"delete, version", opDelete, -103, true},
		{"delete, not empty", opDelete, -111, true},
		{"setData", opSetData, 0, true},
		{"setACL", opSetACL, 0, true},
		{"multi", opMulti, 0, true},
		{"create2", opCreate2, 0, true},
		{"createContainer", opCreateContainer, 0, true},
		{"createTTL", opCreateTTL, 0, true},
		// What a follower can refuse by itself, or answer for a leader that is not there.
		{"create, no permission", opCreate, -102, false},
		{"create, bad ACL", opCreate, -114, false},
		{"create, session moved", opCreate, -118, false},
		{"create, session expired", opCreate, -112, false},
		{"create, throttled", opCreate, -127, false},
		{"create, not implemented", opCreateContainer, -6, false},
		{"sync, system error", opSync, -1, false},
		// What a follower answers by itself.
		{"getData", opGetData, 0, false},
		{"getChildren2", opGetChildren2, 0, false},
		{"exists", opExists, 0, false},
		{"exists, no node", opExists, -101, false},
		{"setWatches", opSetWatches, 0, false},
		{"auth", opAuth, 0, false},
		{"ping", opPing, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at.Store(100)
			r := newWireRig(t, NewContact())
			r.handshake(0, 7, 6*time.Second)
			require.Equal(t, 100*time.Second, r.proven(), "the connect request proves it")
			at.Store(110)
			xid := 1
			if tt.op == opPing {
				xid = xidPing
			}
			r.write(requestFrame(xid, tt.op, body))
			at.Store(120)
			r.read(replyFrame(xid, 55, tt.code, nil))
			want := 100 * time.Second
			if tt.proves {
				want = 110 * time.Second
			}
			require.Equal(t, want, r.proven())
		})
	}
}

// What counts is the time before the request is handed to the socket. A write can block there for as long as it likes.
func TestProofIsDatedBeforeTheWrite(t *testing.T) {
	at := handClock(t)
	r := newWireRig(t, NewContact())
	for _, slow := range []int64{10, 20} {
		r.s.onWrite = func() error { at.Store(slow + 5); return nil }
		at.Store(slow)
		if slow == 10 {
			r.handshake(0, 7, 6*time.Second)
		} else {
			r.write(requestFrame(1, opSync, appendString(nil, "/")))
			at.Store(slow + 8)
			r.read(replyFrame(1, 5, 0, nil))
		}
		require.Equal(t, time.Duration(slow)*time.Second, r.proven())
	}
}

// Replies are matched by xid: an answer to auth overtakes that to a create, a ping's is counted, and an event answers nothing.
func TestRepliesOutOfOrder(t *testing.T) {
	at := handClock(t)
	r := newWireRig(t, NewContact())
	send := func(when int64, xid, op int) {
		t.Helper()
		at.Store(when)
		r.write(requestFrame(xid, op, appendString(nil, "/p")))
	}
	at.Store(10)
	r.handshake(0, 7, 6*time.Second)
	send(20, 1, opCreate)
	send(21, xidPing, opPing)
	send(22, 2, opAuth)
	send(23, 3, opSync)
	send(24, xidPing, opPing)
	send(25, 4, opGetData)
	at.Store(30)
	r.read(replyFrame(2, 0, 0, nil))
	require.Equal(t, 10*time.Second, r.proven(), "auth")
	r.read(replyFrame(xidPing, 0, 0, nil), eventFrame(3, "/p"))
	require.Equal(t, 10*time.Second, r.proven(), "ping, event")
	r.read(replyFrame(1, 5, 0, nil))
	require.Equal(t, 20*time.Second, r.proven(), "create")
	r.read(replyFrame(4, 5, 0, nil), replyFrame(xidPing, 0, 0, nil))
	require.Equal(t, 20*time.Second, r.proven(), "read, ping")
	r.read(replyFrame(3, 5, 0, nil))
	require.Equal(t, 23*time.Second, r.proven(), "sync")
	send(40, 5, opSync)
	send(41, 6, opSync)
	r.read(replyFrame(6, 5, 0, nil))
	require.Equal(t, 41*time.Second, r.proven())
	r.read(replyFrame(5, 5, 0, nil))
	require.Equal(t, 41*time.Second, r.proven(), "an earlier one, answered later, takes nothing back")
	r.read(replyFrame(5, 5, 0, nil), replyFrame(77, 5, 0, nil), replyFrame(xidPing, 0, 0, nil))
	require.Equal(t, 41*time.Second, r.proven(), "answers to nothing")
}

// An answer that arrives over a connection that was given up says nothing about the one in use, whose timeout and session may be others.
func TestOnlyTheConnectionInUseProves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where Go's clock does not move by itself
		at := handClock(t)
		c := NewContact()
		old := newWireRig(t, c)
		at.Store(10)
		old.handshake(0, 7, 6*time.Second)
		at.Store(20)
		r := newWireRig(t, c)
		r.handshake(7, 7, 9*time.Second)
		require.Equal(t, 20*time.Second, r.proven())
		pass(time.Millisecond) // of two proofs the later one counts
		at.Store(30)
		old.write(requestFrame(1, opSync, appendString(nil, "/")))
		old.read(replyFrame(1, 5, 0, nil))
		require.Equal(t, 20*time.Second, r.proven())
		at.Store(20)
		require.Equal(t, Epoch{7, 2}, c.Epoch())
		require.Equal(t, 6*time.Second-time.Millisecond, c.Left(7), "two thirds of the timeout of this connection")
		at.Store(25)
		require.Equal(t, time.Second, c.Left(7))
		require.Zero(t, c.Left(8))
		require.Zero(t, c.Left(0))
		// The old connection's end is not that of the one in use.
		require.NoError(t, old.w.Close())
		_, up, _, _ := c.timing()
		require.True(t, up)
		require.NoError(t, r.w.Close())
		_, up, _, _ = c.timing()
		require.False(t, up)
		require.Positive(t, c.Left(7), "a connection that is gone does not end the session")
	})
}

// A session that was given in place of another one owes nothing to the proofs of that.
func TestAnotherSessionStartsItsOwnClock(t *testing.T) {
	at := handClock(t)
	c := NewContact()
	r := newWireRig(t, c)
	at.Store(10)
	r.handshake(0, 7, 6*time.Second)
	at.Store(50)
	r.write(requestFrame(1, opSync, appendString(nil, "/")))
	r.read(replyFrame(1, 5, 0, nil))
	at.Store(40) // its connect request went out before that
	r = newWireRig(t, c)
	r.handshake(7, 8, 6*time.Second)
	require.Equal(t, 40*time.Second, r.proven())
	require.Zero(t, c.Left(7))
}

// go-zookeeper hands over whole frames. Should anything else ever come, nothing is believed any more, while the bytes go through.
func TestWhatIsNotInFramesProvesNothing(t *testing.T) {
	at := handClock(t)
	for name, garble := range map[string]func(r *wireRig, frame []byte){
		"a frame in two writes": func(r *wireRig, frame []byte) { r.write(frame[:9]); r.write(frame[9:]) },
		"a short frame":         func(r *wireRig, frame []byte) { r.write(withLength([]byte("short"))); r.write(frame) },
		"an endless frame": func(r *wireRig, frame []byte) {
			r.write([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0})
			r.write(frame)
		},
	} {
		t.Run(name, func(t *testing.T) {
			at.Store(10)
			r := newWireRig(t, NewContact())
			r.handshake(0, 7, 6*time.Second)
			at.Store(20)
			sync := requestFrame(1, opSync, appendString(nil, "/"))
			garble(r, sync)
			r.read(replyFrame(1, 5, 0, nil))
			require.Equal(t, 10*time.Second, r.proven())
			at.Store(30)
			r.write(requestFrame(2, opSync, appendString(nil, "/")))
			r.read(replyFrame(2, 5, 0, nil))
			require.Equal(t, 10*time.Second, r.proven(), "nor later")
		})
	}
	at.Store(10)
	r := newWireRig(t, NewContact())
	r.handshake(0, 7, 6*time.Second)
	at.Store(20)
	r.write(requestFrame(1, opGetData, appendString(nil, "/")), requestFrame(2, opSync, appendString(nil, "/")))
	r.read(replyFrame(2, 5, 0, nil))
	require.Equal(t, 20*time.Second, r.proven(), "two frames in one write are frames")
}

func TestLeaseClock(t *testing.T) {
	base := time.Now()
	in := func(mono, awake time.Duration) instant { return instant{base.Add(mono), time.Hour + awake} }
	c := leaseClock{in(0, 0), 6 * time.Second}
	require.Equal(t, 4*time.Second, c.left(in(0, 0)))
	require.Equal(t, time.Second, c.left(in(3*time.Second, 3*time.Second)))
	require.Equal(t, -time.Second, c.left(in(5*time.Second, 5*time.Second)))
	require.Equal(t, -6*time.Second, c.left(in(time.Second, 10*time.Second)), "suspended time counts")
	require.Equal(t, 3*time.Second, c.left(in(time.Second, -time.Hour)), "a wall clock set back makes no lease longer")
	require.Zero(t, leaseClock{}.left(in(0, 0)))
	require.Zero(t, leaseClock{s: in(0, 0)}.left(in(0, 0)))
	require.Zero(t, leaseClock{t: time.Second}.left(in(0, 0)))
	require.Equal(t, time.Second, heartbeat(6*time.Second))
	require.Positive(t, readSuspendClock())
	before := readSuspendClock()
	eventually(t, time.Second, "the clock goes on", func() bool { return readSuspendClock() > before })
}

// A machine that was suspended wakes up with its leases ended, though Go's clock has hardly moved.
func TestSuspendedTimeEndsTheLease(t *testing.T) {
	var slept atomic.Int64
	setSuspendClock(t, func() time.Duration { return readSuspendClock() + time.Duration(slept.Load()) })
	e, r, p := connectShared(t, Config{})
	session := e.Epoch().Session
	e.Enter()
	defer e.Leave()
	e.Hold()
	defer e.Unhold()
	eventually(t, 5*time.Second, "it is proven", func() bool { return e.Left(session) > testTimeout/3 })
	p.Stall(zktest.Both) // nobody answers in the moment of waking up
	slept.Add(int64(testTimeout))
	require.LessOrEqual(t, e.Left(session), time.Duration(0))
	eventually(t, 5*time.Second, "it is told", func() bool { return r.count(fmt.Sprintf("clock %x", session)) > 0 })
	p.Stall(zktest.None)
	eventually(t, 10*time.Second, "it is proven again", func() bool { return e.Left(e.Epoch().Session) > 0 })
}

// While something depends on the clock a sync goes out every sixth of the timeout, and none when a write did.
func TestHeartbeat(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		f.make("/h")
		timeout := 6 * time.Second
		e, r := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial, Timeout: timeout})
		pass(10 * timeout)
		require.Empty(t, f.requests(opSync), "nothing depends on it")
		require.NotEmpty(t, f.requests(opPing))
		session := e.Epoch().Session
		require.LessOrEqual(t, e.Left(session), time.Duration(0), "pings prove nothing")
		require.Equal(t, Connected, e.State(), "but show that all is well")

		began := time.Now()
		e.Enter()
		pass(timeout)
		syncs := f.requests(opSync)
		require.Len(t, syncs, 7)
		for i, s := range syncs {
			require.Equal(t, time.Duration(i)*heartbeat(timeout), s.at.Sub(began))
		}
		e.Hold()
		for range 120 { // the sync of this instant has gone out; then a write in every half of a sixth
			do(t, e, func(c Conn) error { _, err := c.Set("/h", nil, -1); return err })
			pass(heartbeat(timeout) / 2)
		}
		require.Len(t, f.requests(opSync), 7, "writes will do")
		require.Positive(t, e.Left(session))
		for range 20 {
			do(t, e, func(c Conn) error { _, _, err := c.Get("/h"); return err })
			pass(heartbeat(timeout) / 2)
		}
		require.Len(t, f.requests(opSync), 17, "reads will not")
		e.Unhold()
		e.Leave()
		pass(timeout)
		n := len(f.requests(opSync))
		pass(10 * timeout)
		require.Len(t, f.requests(opSync), n)
		require.Equal(t, []string{"connected"}, r.told())
	})
}

// The clock runs out exactly two thirds of the timeout after the last proof, is told of once, and not while no lease depends on it.
func TestClockOut(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		timeout := 6 * time.Second
		e, r := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial, Timeout: timeout})
		var mute atomic.Bool
		f.setOnRequest(func(_ *fakeConn, r fakeRequest) bool { return mute.Load() && int32(r.op) != opPing }) // a follower without a leader
		session := e.Epoch().Session
		e.Enter()
		defer e.Leave()
		pass(heartbeat(timeout) * 2)
		mute.Store(true)
		told := fmt.Sprintf("clock %x", session)
		pass(timeout * 2)
		require.Zero(t, r.count(told), "there is a contender, no lease")
		mute.Store(false)
		f.cut()
		pass(heartbeat(timeout))
		e.Hold()
		defer e.Unhold()
		pass(timeout)
		require.Zero(t, r.count(told))
		_, _, clock, _ := e.contact.timing()
		mute.Store(true)
		end := clock.s.mono.Add(leaseSpan(timeout))
		pass(time.Until(end) - time.Millisecond)
		if _, _, now, _ := e.contact.timing(); now != clock { // a sync that was under way
			end = now.s.mono.Add(leaseSpan(timeout))
			pass(time.Until(end) - time.Millisecond)
		}
		require.Zero(t, r.count(told))
		require.Equal(t, Connected, e.State())
		pass(2 * time.Millisecond)
		n := r.count(told)
		require.Contains(t, []int{1, 2}, n, "by the clock, and by the tracker if it was first")
		require.Equal(t, Lost, e.State())
		require.True(t, e.Ready(), "the connection is there")
		pass(timeout)
		require.Equal(t, n, r.count(told))
		mute.Store(false)
		f.cut()
		pass(timeout)
		require.Equal(t, Connected, e.State())
		require.Equal(t, session, e.Epoch().Session)
		require.Equal(t, n, r.count(told))
	})
}

// The clock goes on while the tracker is held up, and while no request gets a place.
func TestClockOutDoesNotWaitForOthers(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		e, r := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
		session := e.Epoch().Session
		e.Enter()
		defer e.Leave()
		e.Hold()
		defer e.Unhold()
		f.setOnRequest(func(*fakeConn, fakeRequest) bool { return true })
		gate := make(chan struct{})
		e.tracker.Add(func() { <-gate })
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { _, _ = e.Do(ctx, func(c Conn) error { _, err := c.Sync("/"); return err }) })
		}
		pass(testTimeout)
		require.NotZero(t, r.count(fmt.Sprintf("clock %x", session)))
		close(gate)
		cancel()
		f.setOnRequest(nil)
		f.cut()
		wg.Wait()
	})
}

// The timeout is the one that the server grants.
func TestTimeoutIsTheNegotiatedOne(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		f.setTimeout(9 * time.Second)
		e, _ := newEngine(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial, Timeout: 30 * time.Second})
		require.Equal(t, 30*time.Second, e.Timeout())
		require.NoError(t, e.Start())
		t.Cleanup(func() { closeWithin(e, time.Second) })
		await(t, e)
		require.Equal(t, 9*time.Second, e.Timeout())
		require.Equal(t, 6*time.Second, e.Left(e.Epoch().Session))
		f.setTimeout(3 * time.Second)
		f.cut()
		pass(time.Second)
		require.Equal(t, 3*time.Second, e.Timeout())
	})
	// A real server grants no less than its minimum.
	e, _, _ := connectShared(t, Config{Timeout: 100 * time.Millisecond})
	require.Greater(t, e.Timeout(), 100*time.Millisecond)
}

// A black hole between client and server: the lease ends by the clock, though not a byte says that anything is wrong, and before the server ends the
// session. When only the way back is lost, the server goes on hearing of the client and ends nothing.
func TestLeaseEndsInABlackHole(t *testing.T) {
	t.Parallel()
	for _, d := range []zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.Both} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			e, r, p := connectShared(t, Config{})
			other, _, _ := connectShared(t, Config{Timeout: 10 * time.Second})
			session := e.Epoch().Session
			path := newPath(t)
			do(t, e, func(c Conn) error {
				_, err := c.Create(path, nil, zk.FlagEphemeral, world)
				return err
			})
			e.Enter()
			defer e.Leave()
			e.Hold()
			defer e.Unhold()
			p.BlackHole(d)
			told := func() bool { return r.count(fmt.Sprintf("clock %x", session)) > 0 }
			gone := func() bool {
				var ok bool
				do(t, other, func(c Conn) (err error) { ok, _, err = c.Exists(path); return err })
				return !ok
			}
			eventually(t, 4*testTimeout, "the clock runs out", func() bool {
				if gone() { // asked before the other: what is not over yet may not have gone
					require.LessOrEqual(t, e.Left(session), time.Duration(0), "gone at the server, and the lease goes on")
				}
				return told()
			})
			if d != zktest.ToClient {
				eventually(t, 4*testTimeout, "the server ends the session", gone)
			}
		})
	}
}
