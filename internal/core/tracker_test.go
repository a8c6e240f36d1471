package core

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// Adding must not wait for what runs, however much is queued: the client calls back with its locks held.
func TestSerialNeverBlocksWhoAdds(t *testing.T) {
	s := NewSerial()
	gate := make(chan struct{})
	s.Add(func() { <-gate })
	var ran []int
	const n = 100_000
	added := make(chan struct{})
	go func() {
		defer close(added)
		for i := range n {
			s.Add(func() { ran = append(ran, i) })
		}
	}()
	select {
	case <-added:
	case <-time.After(30 * time.Second):
		t.Error("Add waits for the function that runs")
	}
	close(gate)
	<-added
	s.Stop()
	<-s.Done()
	require.Len(t, ran, n)
	require.True(t, slices.IsSorted(ran))
	require.False(t, s.Add(func() {}), "after Stop")
}

// While the tracker is held up, by whatever, the client goes on: requests are answered and the session is kept.
func TestClientGoesOnWhileTheTrackerIsHeldUp(t *testing.T) {
	e, r, p := connectShared(t, Config{})
	path := newPath(t)
	mk(t, e, path, "")
	session := e.Epoch().Session
	gate, held := make(chan struct{}), make(chan struct{})
	e.tracker.Add(func() { close(held); <-gate })
	<-held
	conn := owner(e).client.conn
	sub := e.Watch(path, Data, func(Wake) {})
	defer sub.Cancel()
	result := make(chan error, 1)
	go func() {
		// Sixty events, each of which the client calls back with: its own channel has six places, and drops what does not fit.
		for range 60 {
			if _, _, _, err := conn.GetW(path); err != nil {
				result <- err
				return
			}
			if _, err := conn.Set(path, nil, -1); err != nil {
				result <- err
				return
			}
		}
		result <- nil
	}()
	select {
	case err := <-result:
		require.NoError(t, err)
	case <-time.After(15 * time.Second):
		close(gate)
		t.Fatal("the client waits for the tracker")
	}
	p.Cut()
	eventually(t, 10*time.Second, "the client is back", func() bool { return conn.State() == zk.StateHasSession && e.Epoch().Conn > 1 })
	require.Empty(t, slices.DeleteFunc(r.told(), func(c string) bool { return c == "connected" }), "nothing was delivered yet")
	close(gate)
	eventually(t, 10*time.Second, "all is told", func() bool {
		return slices.Equal(r.told(), []string{"connected", "disconnected", "suspended", "connected"}) ||
			// The reconnect was complete before the loss was told, so there is no suspended state any more.
			slices.Equal(r.told(), []string{"connected", "disconnected"})
	})
	require.Equal(t, session, e.Epoch().Session)
	require.Equal(t, session, await(t, e).Session)
}

func TestExpiryIsTold(t *testing.T) {
	e, r, p := connectShared(t, Config{})
	first := e.Epoch()
	expire(t, p)
	eventually(t, 15*time.Second, "there is another session", func() bool { return e.Epoch().Session != first.Session && e.Ready() })
	require.Equal(t, 1, r.count(fmt.Sprintf("over %x", first.Session)))
	require.Greater(t, e.Epoch().Conn, first.Conn)
}

// Some servers give a client another session without ever saying that the old one has expired. Nor is it known then that it has: it is closed for
// certain, with its password, over another connection.
func TestSessionReplacedWithoutAWordIsALoss(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		var attached []fakeConnect
		var mu sync.Mutex
		replace := true
		var old int64
		f.setOnConnect(func(c *fakeConn, r fakeConnect) bool {
			mu.Lock()
			defer mu.Unlock()
			if r.session == 0 || r.session != old {
				return false
			}
			attached = append(attached, r)
			if !replace {
				return false
			}
			replace = false
			c.welcome(f.newSession(), r.timeout)
			return true
		})
		e, r := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
		pass(0)
		first := e.Epoch().Session
		mu.Lock()
		old = first
		mu.Unlock()
		f.mu.Lock()
		passwd := f.sessions[first]
		f.mu.Unlock()
		f.cut()
		pass(time.Second)
		second := await(t, e).Session
		require.NotEqual(t, first, second)
		require.Equal(t, []string{"connected", "disconnected", "suspended", fmt.Sprintf("over %x", first), "lost", "connected"}, r.told())
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, attached, 2, "once by the client, once to close it")
		require.Equal(t, passwd, attached[1].passwd[:16])
		require.False(t, f.lives(first), "the old session was closed")
		require.True(t, f.lives(second))
		require.Zero(t, e.Left(first))
		require.Positive(t, e.Left(second))
	})
}

// A loss is told before the state: a hook for the state finds the leases ended.
func TestLossIsToldBeforeTheState(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		e, r := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
		pass(0)
		session := e.Epoch().Session
		r.forget()
		f.expire(session)
		f.cut()
		pass(time.Second)
		told := r.told()
		over, lost := slices.Index(told, fmt.Sprintf("over %x", session)), slices.Index(told, "lost")
		require.True(t, over >= 0 && lost > over, "%v", told)

		e.Enter()
		e.Hold()
		defer e.Leave()
		defer e.Unhold()
		r.forget()
		session = e.Epoch().Session
		f.mu.Lock()
		f.closed = true // no new connection
		f.mu.Unlock()
		f.cut()
		pass(testTimeout)
		told = r.told()
		clock, lost := slices.Index(told, fmt.Sprintf("clock %x", session)), slices.Index(told, "lost")
		require.True(t, clock >= 0 && lost > clock, "%v", told)
	})
}

// States are told one after another, and Closed is the last.
func TestStatesAreToldInOrder(t *testing.T) {
	t.Parallel()
	slow, entered := make(chan struct{}), make(chan State, 100)
	r := &recorder{onState: func(s State) {
		entered <- s
		if s == Suspended {
			<-slow
		}
	}}
	e, _, p := connectShared(t, Config{Listener: r})
	p.Refuse(true)
	for s := range entered {
		if s == Suspended {
			break
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- closeWithin(e, 100*time.Millisecond) }()
	select {
	case <-e.ctx.Done():
	case <-time.After(10 * time.Second):
		t.Error("Close does not begin")
	}
	select {
	case s := <-entered:
		t.Errorf("%s is told while another state is being told", stateNames[s])
	case <-time.After(1500 * time.Millisecond): // longer than the client's part of Close
	}
	close(slow)
	<-closed
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Zero(t, r.nested)
	require.Equal(t, Closed, r.states[len(r.states)-1])
	require.Equal(t, Closed, e.State())
}

// The tracker may find the clock run out a moment before the clock's own goroutine does. Leases end first all the same.
func TestClockOutIsToldBeforeTheStateWhoeverSeesIt(t *testing.T) {
	at := handClock(t)
	e, r := newEngine(t, Config{Servers: []string{"zk:2181"}})
	w := newWireRig(t, e.contact)
	owner(e).client = &client{lane: w.w.lane}
	at.Store(10)
	w.handshake(0, 7, 6*time.Second)
	e.Hold()
	at.Store(20)
	e.tracker.Add(e.refreshState)
	eventually(t, 5*time.Second, "the state is told", func() bool { return r.count("lost") == 1 })
	require.Equal(t, []string{"clock 7", "lost"}, r.told())
	e.mu.Lock()
	owner(e).client = nil // there is nothing to close
	e.mu.Unlock()
	require.NoError(t, closeWithin(e, time.Second))
}
