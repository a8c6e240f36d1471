package core

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// endSession returns nil only when a server has said that the session is over: what is owed for it is forgotten then.
func TestEndSession(t *testing.T) {
	server := zktest.Shared(t).Server(0)
	e, _, p := connectShared(t, Config{})
	id, passwd, timeout := e.contact.identity()
	end := func(r route, session int64, passwd []byte) error {
		return r.endSession(within(t, 5*time.Second), session, passwd, timeout)
	}
	r := route{servers: newServerList([]string{"127.0.0.1:1", server.Addr()})}
	for range 4 { // in whatever order they are tried
		require.NoError(t, end(r, 0, nil), "a server serves")
	}
	p.Refuse(true)
	eventually(t, 5*time.Second, "it is cut off", func() bool { return !e.Ready() })
	require.Contains(t, word(t, server, "dump"), sessionID(id))
	require.ErrorContains(t, end(route{servers: newServerList([]string{"127.0.0.1:1"})}, id, passwd), "127.0.0.1:1")
	require.NoError(t, end(r, id, passwd))
	eventually(t, 5*time.Second, "the server has forgotten it", func() bool { return !strings.Contains(word(t, server, "dump"), sessionID(id)) })
	require.NoError(t, end(r, id, passwd), "over already")
}

func TestEndSessionBelievesOnlyAnAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		session int64
		prepare func(f *fake)
		want    string // "" is nil
	}{
		"closed":            {0x1001, func(*fake) {}, ""},
		"unknown":           {99, func(*fake) {}, ""},
		"is there a server": {0, func(*fake) {}, ""},
		"a server without sessions": {0, func(f *fake) {
			f.setOnConnect(func(c *fakeConn, _ fakeConnect) bool { c.welcome(0, 0); return true })
		}, "no session given"},
		"no answer to the handshake": {0x1001, func(f *fake) {
			f.setOnConnect(func(c *fakeConn, _ fakeConnect) bool { <-c.done; return true })
		}, "timeout"},
		"no answer to the close": {0x1001, func(f *fake) { f.setOnRequest(func(*fakeConn, fakeRequest) bool { return true }) }, "timeout"},
		"cut instead of an answer": {0x1001, func(f *fake) {
			f.setOnRequest(func(c *fakeConn, _ fakeRequest) bool { c.close(); return true })
		}, "EOF"},
		"refused": {0x1001, func(f *fake) {
			f.setOnRequest(func(c *fakeConn, r fakeRequest) bool { c.reply(r.xid, 0, -127, nil); return true })
		}, "-127"},
		"expired meanwhile": {0x1001, func(f *fake) {
			f.setOnRequest(func(c *fakeConn, r fakeRequest) bool { c.reply(r.xid, 0, -112, nil); return true })
		}, ""},
		"an event first": {0x1001, func(f *fake) {
			f.setOnRequest(func(c *fakeConn, r fakeRequest) bool { c.event(1, "/x"); return false })
		}, ""},
		"no ZooKeeper": {0x1001, func(f *fake) {
			f.setOnConnect(func(c *fakeConn, _ fakeConnect) bool { c.send(withLength([]byte("hello"))); return true })
		}, "protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f := newFake(t)
				id := f.newSession()
				f.mu.Lock()
				passwd := []byte(f.sessions[id])
				f.mu.Unlock()
				tt.prepare(f)
				began := time.Now()
				r := route{servers: newServerList([]string{"zk:2181"}), dial: f.Dial}
				err := r.endSession(context.Background(), tt.session, passwd, 3*time.Second)
				if tt.want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, tt.want)
				}
				require.LessOrEqual(t, time.Since(began), connectTimeout+time.Second)
				if name == "closed" {
					require.False(t, f.lives(id))
				}
				f.cut()
			})
		})
	}
}

// Close asks over another connection when its own request was not answered with yes, and says so when nobody could be told.
func TestCloseConfirmsTheEndOfTheSession(t *testing.T) {
	for name, tt := range map[string]struct {
		refuse int32 // closes to refuse
		err    bool
	}{"answered": {0, false}, "refused once": {1, false}, "refused": {100, true}} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f := newFake(t)
				e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
				pass(0)
				session := e.Epoch().Session
				var left atomic.Int32
				left.Store(tt.refuse)
				f.setOnRequest(func(c *fakeConn, r fakeRequest) bool {
					if int32(r.op) != opClose || left.Add(-1) < 0 {
						return false
					}
					c.reply(r.xid, 0, -127, nil)
					return true
				})
				err := closeWithin(e, time.Second)
				require.Equal(t, tt.err, err != nil, "%v", err)
				if tt.err {
					require.True(t, strings.Contains(err.Error(), sessionID(session)))
				}
				require.Equal(t, tt.err, f.lives(session))
			})
		})
	}
}
