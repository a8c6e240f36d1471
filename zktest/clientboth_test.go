package zktest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A seat is a client of go-zookeeper behind a proxy, and one past it, at one of two servers. It takes down what the client does: the states that it tells
// its callback and its channel, and what calls and watches say.
type seat struct {
	t     testing.TB
	addr  string
	proxy *zktest.Proxy
	admin *zk.Conn
	c     *zk.Conn

	mu      sync.Mutex
	told    []string // to the callback
	heard   []string // on the channel, from which the client leaves out what has no place there
	said    []string
	drained chan struct{}
}

// Sessions are long where they are not to expire, whatever the machine does meanwhile.
const (
	longSession   = 20 * time.Second
	silentSession = 6 * time.Second // the client takes two thirds of it for too long
	shortSession  = 2 * time.Second
)

func newSeat(t testing.TB, addr string) *seat {
	s := &seat{t: t, addr: addr, proxy: zktest.NewProxy(t, addr), drained: make(chan struct{})}
	var err error
	s.admin, _, err = zk.Connect([]string{addr}, 20*time.Second, zk.WithLogger(silent{}))
	require.NoError(t, err)
	t.Cleanup(s.admin.Close)
	return s
}

// connect starts the client.
func (s *seat) connect(timeout time.Duration) {
	c, events, err := zk.Connect([]string{s.proxy.Addr()}, timeout, zk.WithLogger(silent{}), zk.WithEventCallback(func(e zk.Event) {
		if e.Type == zk.EventSession {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.told = append(s.told, fmt.Sprint(e.State, " ", e.Err))
		}
	}))
	assert.NoError(s.t, err)
	s.c = c
	go func() {
		defer close(s.drained)
		for e := range events {
			if e.Type == zk.EventSession {
				s.mu.Lock()
				s.heard = append(s.heard, fmt.Sprint(e.State, " ", e.Err))
				s.mu.Unlock()
			}
		}
	}()
	s.until("StateHasSession", 1)
}

// until waits until the callback was told a state that often.
func (s *seat) until(state string, often int) {
	s.wait(fmt.Sprint(state, " ", often), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		n := 0
		for _, told := range s.told {
			if strings.HasPrefix(told, state+" ") {
				n++
			}
		}
		return n >= often
	})
}

// wait is not eventually, for it is not the test's goroutine that waits.
func (s *seat) wait(what string, cond func() bool) {
	for deadline := time.Now().Add(20 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.say("not within time: %s", what)
			return
		}
	}
}

func (s *seat) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

// result says what a call returned.
func (s *seat) result(name string, err error) {
	s.say("%s: %v", name, err)
}

// event says what a watch tells.
func (s *seat) event(name string, watch <-chan zk.Event) {
	select {
	case e, ok := <-watch:
		s.say("%s: %v %v %s %v %t", name, e.Type, e.State, e.Path, e.Err, ok)
	case <-time.After(20 * time.Second):
		s.say("%s: nothing", name)
	}
}

// quiet says that a watch has told nothing.
func (s *seat) quiet(name string, watch <-chan zk.Event) {
	select {
	case e := <-watch:
		s.say("%s: %v, too soon", name, e)
	default:
		s.say("%s: nothing yet", name)
	}
}

func (s *seat) close() {
	s.c.Close()
	<-s.drained
	_, err := s.c.Sync("/")
	s.result("after the close", err)
}

// hasOwn says whether an ephemeral of the client is there.
func (s *seat) there(path string) {
	ok, stat, err := s.admin.Exists(path)
	if !ok {
		s.say("%s: %t %v", path, ok, err)
		return
	}
	s.say("%s: %t %v version %d cversion %d, of the client %t", path, ok, err, stat.Version, stat.Cversion, stat.EphemeralOwner == s.c.SessionID())
}

func (s *seat) must(_ any, err error) { assert.NoError(s.t, err) }

// watched sets a watch of each kind.
func (s *seat) watched(path string) (data, exists, children, none <-chan zk.Event) {
	var err error
	_, _, data, err = s.c.GetW(path)
	s.result("GetW", err)
	_, _, exists, err = s.c.ExistsW(path)
	s.result("ExistsW", err)
	_, _, children, err = s.c.ChildrenW(path)
	s.result("ChildrenW", err)
	_, _, none, err = s.c.ExistsW(path + "/none")
	s.result("ExistsW of none", err)
	return data, exists, children, none
}

// held stops a request on one side of the server, and returns when it has got there.
func (s *seat) held(when func(*zktest.Gate) zktest.Action, op zktest.Op, call func()) (wait func()) {
	gate := zktest.NewGate()
	s.proxy.OnRequest(zktest.Rule{Match: zktest.MatchOp(op), Times: 1, Do: when(gate)})
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	select {
	case <-gate.Reached():
	case <-time.After(20 * time.Second):
		s.say("%v did not come", op)
	}
	return func() { <-done }
}

// clientScenarios each use paths of their own.
var clientScenarios = map[string]func(s *seat, path string){
	"connect": func(s *seat, path string) {
		s.connect(longSession)
		s.must(s.c.Create(path, []byte("x"), 0, open))
		data, exists, children, none := s.watched(path)
		s.must(s.admin.Set(path, []byte("y"), -1))
		s.event("data", data)
		s.event("exists", exists)
		s.quiet("children", children)
		s.must(s.admin.Create(path+"/none", nil, 0, open))
		s.event("children", children)
		s.event("none", none)
		data, exists, children, none = s.watched(path)
		p, err := s.c.CreateProtectedEphemeralSequential(path+"/n-", nil, open)
		s.result("protected", err)
		s.event("children", children)
		_, err = s.c.Multi(&zk.DeleteRequest{Path: p, Version: 0}, &zk.CheckVersionRequest{Path: path, Version: 7})
		s.result("multi", err)
		_, err = s.c.Multi(&zk.DeleteRequest{Path: p, Version: 0}, &zk.SetDataRequest{Path: path, Data: nil, Version: 1})
		s.result("multi", err)
		s.event("data", data)
		s.event("exists", exists)
		s.result("delete", s.c.Delete(path, -1))
		s.result("auth", s.c.AddAuth("digest", []byte("u:p")))
		_, err = s.c.Create(path+"/mine", nil, zk.FlagEphemeral, zk.AuthACL(zk.PermAll))
		s.result("create", err)
		_, _, err = s.admin.Get(path + "/mine")
		s.result("not the admin's", err)
		s.close()
		s.event("none", none)
		s.there(path + "/mine")
	},
	"cut": func(s *seat, path string) {
		s.connect(longSession)
		s.must(s.c.Create(path, []byte("x"), 0, open))
		s.must(s.c.Create(path+"/e", nil, zk.FlagEphemeral, open))
		data, exists, children, none := s.watched(path)
		s.proxy.Refuse(true)
		s.proxy.Cut()
		s.until("StateDisconnected", 1)
		s.must(s.admin.Set(path, []byte("y"), -1))
		s.must(s.admin.Create(path+"/none", nil, 0, open))
		s.proxy.Refuse(false)
		s.until("StateHasSession", 2)
		s.event("data", data)
		s.event("exists", exists)
		s.event("children", children)
		s.event("none", none)
		data, exists, children, _ = s.watched(path)
		s.proxy.Cut()
		s.until("StateHasSession", 3)
		// A request before the watches are set again would race within the client.
		s.wait("watches set again", func() bool { return s.proxy.Counts().Requests[zktest.OpSetWatches] == 2 })
		s.must(s.c.Sync(path))
		s.quiet("data", data)
		s.must(s.admin.Set(path, []byte("z"), -1))
		s.event("data", data)
		s.event("exists", exists)
		s.must(s.admin.Create(path+"/kid", nil, 0, open))
		s.event("children", children)
		s.there(path + "/e")
		s.close()
	},
	"gone meanwhile": func(s *seat, path string) {
		s.connect(longSession)
		s.must(s.c.Create(path, []byte("x"), 0, open))
		s.must(s.c.Create(path+"-data", nil, 0, open)) // an event of one watch would do for the others of its path
		s.must(s.c.Create(path+"-children", nil, 0, open))
		data, exists, children, none := s.watched(path)
		_, _, onlyData, err := s.c.GetW(path + "-data")
		s.result("GetW", err)
		_, _, onlyChildren, err := s.c.ChildrenW(path + "-children")
		s.result("ChildrenW", err)
		s.proxy.Refuse(true)
		s.proxy.Cut()
		s.until("StateDisconnected", 1)
		for _, gone := range []string{path, path + "-data", path + "-children"} {
			s.must(nil, s.admin.Delete(gone, -1))
		}
		s.proxy.Refuse(false)
		s.until("StateHasSession", 2)
		s.event("data", data)
		s.event("exists", exists)
		s.event("children", children)
		s.event("only data", onlyData)
		s.event("only children", onlyChildren)
		s.must(s.c.Sync("/"))
		s.quiet("none", none)
		s.close()
		s.event("none", none)
	},
	"under way": func(s *seat, path string) {
		s.connect(silentSession) // which is as long as its end takes
		s.must(s.c.Create(path, []byte("x"), 0, open))
		for i, when := range []func(*zktest.Gate) zktest.Action{zktest.HoldRequest, zktest.HoldReply} {
			name := fmt.Sprint(path, "/", i)
			wait := s.held(when, zktest.OpCreate, func() {
				_, err := s.c.Create(name, nil, zk.FlagEphemeral, open)
				s.result("create", err)
			})
			s.proxy.Cut()
			wait()
			s.until("StateHasSession", i+2)
			s.there(name)
		}
		wait := s.held(zktest.HoldReply, zktest.OpMulti, func() {
			_, err := s.c.Multi(&zk.CreateRequest{Path: path + "/m", Acl: open}, &zk.SetDataRequest{Path: path, Version: -1})
			s.result("multi", err)
		})
		s.proxy.Cut()
		wait()
		s.until("StateHasSession", 4)
		s.there(path + "/m")
		wait = s.held(zktest.HoldReply, zktest.OpGetData, func() {
			_, _, watch, err := s.c.GetW(path)
			s.result("get", err)
			s.say("a watch %t", watch != nil)
		})
		s.close() // with a call under way
		wait()
		s.there(path + "/0")
		s.there(path + "/1")
	},
	"refused": func(s *seat, path string) {
		s.connect(longSession)
		s.must(s.c.Create(path, []byte("x"), 0, open))
		s.proxy.Refuse(true)
		s.proxy.Cut()
		s.until("StateDisconnected", 1)
		for range 2 {
			_, err := s.c.Create(path+"/e", nil, zk.FlagEphemeral, open)
			s.result("create", err)
		}
		s.proxy.Refuse(false)
		s.until("StateHasSession", 2)
		s.there(path + "/e")
		_, err := s.c.Create(path+"/e", nil, zk.FlagEphemeral, open)
		s.result("create", err)
		s.there(path + "/e")
		s.close()
		s.there(path + "/e")
	},
	"black hole": func(s *seat, path string) {
		s.connect(silentSession)
		s.must(s.c.Create(path, []byte("x"), 0, open))
		data, _, children, _ := s.watched(path)
		s.proxy.BlackHole(zktest.ToClient)
		_, err := s.c.Create(path+"/e", nil, zk.FlagEphemeral, open)
		s.result("create", err) // it was, but who knows
		s.proxy.BlackHole(zktest.None)
		s.until("StateHasSession", 2)
		s.event("children", children)
		s.there(path + "/e")
		s.must(s.admin.Set(path, nil, -1))
		s.event("data", data)
		s.close()
	},
	"expired from outside": func(s *seat, path string) {
		s.connect(longSession)
		s.must(s.c.Create(path, []byte("x"), 0, open))
		s.must(s.c.Create(path+"/e", nil, zk.FlagEphemeral, open))
		data, exists, children, none := s.watched(path + "/e")
		old := s.c.SessionID()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		s.must(nil, s.proxy.Expire(ctx))
		s.there(path + "/e")
		s.until("StateExpired", 1)
		s.until("StateHasSession", 2)
		for name, watch := range map[string]<-chan zk.Event{"data": data, "exists": exists, "children": children, "none": none} {
			select { // whether the notice of its own znode's end comes through is a matter of time
			case e := <-watch:
				if e.Type != zk.EventNodeDeleted {
					assert.Equal(s.t, zk.EventNotWatching, e.Type, name)
					assert.ErrorIs(s.t, e.Err, zk.ErrSessionExpired, name)
				}
			case <-time.After(20 * time.Second):
				s.say("%s: nothing", name)
			}
		}
		s.say("another session %t", s.c.SessionID() != old && old != 0)
		_, err := s.c.Create(path+"/e", nil, zk.FlagEphemeral, open)
		s.result("create", err)
		s.there(path + "/e")
		s.close()
	},
	"expired in silence": func(s *seat, path string) {
		s.connect(shortSession)
		s.must(s.c.Create(path, []byte("x"), 0, open))
		s.must(s.c.Create(path+"/e", nil, zk.FlagEphemeral, open))
		data, exists, children, none := s.watched(path)
		_, _, gone, err := s.admin.ExistsW(path + "/e")
		s.result("admin", err)
		s.proxy.BlackHole(zktest.Both)
		s.until("StateDisconnected", 1)
		s.proxy.Refuse(true) // how often it connects in vain would be a matter of time
		s.event("gone", gone)
		s.proxy.BlackHole(zktest.None)
		s.proxy.Refuse(false)
		s.until("StateExpired", 1)
		s.until("StateHasSession", 2)
		s.event("data", data)
		s.event("exists", exists)
		s.event("children", children)
		s.event("none", none)
		_, err = s.c.Create(path+"/e", nil, zk.FlagEphemeral, open)
		s.result("create", err)
		s.close()
		s.there(path + "/e")
	},
	"refused for who it says it is": func(s *seat, path string) {
		s.connect(longSession)
		s.result("auth", s.c.AddAuth("digest", []byte("u:p")))
		s.must(s.c.Create(path, []byte("x"), 0, zk.AuthACL(zk.PermAll)))
		s.must(s.c.Create(path+"/e", nil, zk.FlagEphemeral, open))
		s.proxy.Cut()
		s.until("StateHasSession", 2)
		_, _, err := s.c.Get(path) // it has said again who it is
		s.result("get", err)
		s.result("auth", s.c.AddAuth("nobody", []byte("x")))
		s.until("StateHasSession", 3)
		s.there(path + "/e")
		_, _, err = s.c.Get(path)
		s.result("get", err)
		s.close()
		s.there(path + "/e")
	},
	"too much": func(s *seat, path string) {
		s.connect(longSession)
		_, err := s.c.Create(path, make([]byte, 1<<20), 0, open)
		s.say("create: %t", errors.Is(err, zk.ErrConnectionClosed) || err != nil && !errors.Is(err, zk.ErrNoNode)) // or what the socket says
		s.until("StateHasSession", 2)
		_, _, err = s.c.Get(path)
		s.result("get", err)
		_, err = s.c.Create(path, []byte("x"), 9, open)
		s.result("flags", err)
		_, err = s.c.Create(path, []byte("x"), 0, nil)
		s.result("acl", err)
		_, err = s.c.CreateTTL(path, nil, zk.FlagTTL, open, time.Hour)
		s.result("ttl", err)
		_, err = s.c.CreateContainer(path+"/box", nil, zk.FlagContainer, open)
		s.result("container", err)
		_, err = s.c.IncrementalReconfig([]string{"server.9=x:1:2"}, nil, -1)
		s.result("reconfig", err)
		s.close()
	},
}

// Through go-zookeeper the server of this process cannot be told from the real one either: the client goes through the same states, its calls fail with the
// same errors, and its watches tell the same, when its connection is cut, refused or silent, when its session expires, and when it is closed.
func TestClientOnBoth(t *testing.T) {
	addrs := []string{zktest.Start(t).Addrs()[0], zktest.NewServer(t).Addr()}
	seats := make(map[string][]*seat)
	var wg sync.WaitGroup
	for name, run := range clientScenarios {
		path := "/" + strings.ReplaceAll(name, " ", "-")
		for _, addr := range addrs {
			s := newSeat(t, addr)
			seats[name] = append(seats[name], s)
			wg.Go(func() { run(s, path) })
		}
	}
	wg.Wait()
	for name, both := range seats {
		theirs, ours := both[0], both[1]
		for what, lines := range map[string][2][]string{"calls": {theirs.said, ours.said}, "callback": {theirs.told, ours.told}} {
			if what != "calls" { // how often it tries to connect is a matter of time
				lines = [2][]string{slices.Compact(slices.Clone(lines[0])), slices.Compact(slices.Clone(lines[1]))}
			}
			require.Equal(t, strings.Join(lines[0], "\n"), strings.Join(lines[1], "\n"), "%s: %s: real, here", name, what)
			t.Logf("%s: %s: %s", name, what, strings.Join(lines[0], "; "))
		}
		for _, s := range both {
			require.Equal(t, s.told[:3], s.heard[:3], "%s: what there is room for", name)
			require.True(t, inOrder(s.heard, s.told), "%s: the channel has %q, the callback %q", name, s.heard, s.told)
		}
	}
}

// inOrder reports whether all of some is among others, in that order.
func inOrder(some, others []string) bool {
	for _, other := range others {
		if len(some) > 0 && some[0] == other {
			some = some[1:]
		}
	}
	return len(some) == 0
}
