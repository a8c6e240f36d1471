package core

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A server that takes connections and answers none, or not to the end, is given up after a third of the timeout, and the next one tried. The client
// alone would wait for seven timeouts, and for the rest of an answer for ever.
func TestHungHandshakeIsGivenUp(t *testing.T) {
	for name, hang := range map[string]func(c *fakeConn){
		"no answer":      func(c *fakeConn) {},
		"length only":    func(c *fakeConn) { c.send([]byte{0, 0, 0, 36}) },
		"half an answer": func(c *fakeConn) { c.send(connectReplyFrame(7, time.Second, "0123456789abcdef")[:20]) },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f := newFake(t)
				var hung atomic.Value
				hung.Store("")
				f.setOnConnect(func(c *fakeConn, r fakeConnect) bool {
					if c.addr != hung.Load() {
						return false
					}
					hang(c)
					<-c.done
					return true
				})
				e, _ := connect(t, Config{Servers: []string{"zk1:2181", "zk2:2181"}, Dialer: f.Dial, Timeout: 6 * time.Second})
				pass(0)
				first := e.Epoch()
				for i := range 4 {
					hung.Store([]string{"zk1:2181", "zk2:2181"}[i%2])
					f.cut()
					began := time.Now()
					epoch := await(t, e)
					for ; epoch.Conn == first.Conn+uint64(i); epoch = await(t, e) { // the loss was not seen yet
						pass(0)
					}
					require.LessOrEqual(t, time.Since(began), 2*time.Second+backoff)
					require.Equal(t, first.Session, epoch.Session)
					dialed := f.dialed()
					require.NotEqual(t, hung.Load(), dialed[len(dialed)-1].addr)
				}
			})
		})
	}
	virtual(t, func(t *testing.T) { // before the first session, with the timeout that was asked for
		f := newFake(t)
		f.setOnConnect(func(c *fakeConn, r fakeConnect) bool {
			if c.n > 0 {
				return false
			}
			<-c.done
			return true
		})
		began := time.Now()
		e, _ := connect(t, Config{Servers: []string{"zk1:2181"}, Dialer: f.Dial, Timeout: 6 * time.Second})
		require.LessOrEqual(t, time.Since(began), 2*time.Second+3*backoff)
		require.NoError(t, e.DialError(), "forgotten with the session")
	})
}

// A reconnect costs no pause, also when there is only one server. The client alone sleeps for a second, and fails what is queued.
func TestReconnectIsImmediate(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: f.Dial})
		for i := range 5 {
			pass(2 * time.Second) // a session that stood
			conn := e.Epoch().Conn
			f.cut()
			pass(0)
			require.True(t, e.Ready(), i)
			require.Equal(t, conn+1, e.Epoch().Conn)
		}
		require.Len(t, f.dialed(), 6)
	})
}

// While nobody answers, the first lap of the list goes without a pause, the next ones with growing ones of our own, and only then is the client told
// that the list wrapped.
func TestPausesOfTheHostProvider(t *testing.T) {
	for _, n := range []int{1, 3} {
		var servers []string
		for i := range n {
			servers = append(servers, fmt.Sprintf("zk%d:2181", i))
		}
		l := newLane(context.Background(), route{servers: newServerList(servers)}, NewContact(), nil)
		h := newHostProvider(l)
		require.NoError(t, h.Init(nil))
		require.Equal(t, n, h.Len())
		lap := func() (order []string, wrapped bool, pause time.Duration) {
			for i := range n {
				s, w := h.Next()
				order = append(order, s)
				if i > 0 {
					require.False(t, w)
					require.Zero(t, l.pause)
				} else {
					wrapped, pause = w, l.pause
				}
			}
			return order, wrapped, pause
		}
		order, wrapped, pause := lap()
		require.False(t, wrapped)
		require.Zero(t, pause)
		require.ElementsMatch(t, servers, order)
		for i := 1; i < firstLaps; i++ {
			again, wrapped, pause := lap()
			require.False(t, wrapped)
			require.Equal(t, order, again)
			require.GreaterOrEqual(t, pause, backoff<<i/2)
			require.Less(t, pause, backoff<<i*3/2)
		}
		for range 5 {
			_, wrapped, pause := lap()
			require.True(t, wrapped)
			require.Less(t, pause, maxJitter)
		}
		h.Next()
		h.Connected() // with that one; the next lap starts behind it
		s, wrapped := h.Next()
		require.False(t, wrapped)
		require.Zero(t, l.pause)
		require.Equal(t, order[1%n], s)
		l.poison()
		_, wrapped = h.Next()
		require.False(t, wrapped, "it is to come to the lane first")
		l.letGo()
		_, wrapped = h.Next()
		require.True(t, wrapped, "a client without a way must empty its queue")
	}
}

// A session that is cut as soon as it stands costs a growing pause: without it a client makes hundreds of connections a second.
func TestSessionsThatAreCutAtOnceDoNotSpin(t *testing.T) {
	for _, n := range []int{1, 3} {
		virtual(t, func(t *testing.T) {
			f := newFake(t)
			f.setOnConnect(func(c *fakeConn, r fakeConnect) bool {
				if r.session == 0 {
					c.welcome(f.newSession(), r.timeout)
				} else {
					c.welcome(r.session, r.timeout)
				}
				c.close()
				return true
			})
			servers := []string{"zk1:2181", "zk2:2181", "zk3:2181"}[:n]
			start(t, Config{Servers: servers, Dialer: f.Dial})
			pass(3 * time.Second)
			require.Less(t, len(f.dialed()), 30)
			require.Greater(t, len(f.dialed()), 5)
		})
	}
	virtual(t, func(t *testing.T) { // nor do servers that hang up before
		f := newFake(t)
		f.setOnConnect(func(c *fakeConn, r fakeConnect) bool { c.close(); return true })
		start(t, Config{Servers: []string{"zk1:2181", "zk2:2181"}, Dialer: f.Dial})
		pass(5 * time.Second)
		require.Less(t, len(f.dialed()), 30)
		require.Greater(t, len(f.dialed()), 8)
	})
}

// A dns is a resolver with one name, zk.test, whose addresses a test changes.
type dns struct {
	mu      sync.Mutex
	addrs   []net.IP
	queries int
}

func newDNS(t *testing.T, addrs ...net.IP) *dns {
	d := &dns{addrs: addrs}
	old := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		theirs, ours := net.Pipe()
		go d.serve(ours)
		return theirs, nil
	}}
	t.Cleanup(func() { net.DefaultResolver = old })
	return d
}

// serve answers as over TCP: what is no net.PacketConn is one for the resolver.
func (d *dns) serve(c net.Conn) {
	defer c.Close()
	for {
		head := make([]byte, 2)
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		q := make([]byte, binary.BigEndian.Uint16(head))
		if _, err := io.ReadFull(c, q); err != nil || len(q) < 12 {
			return
		}
		end := 12
		for end < len(q) && q[end] != 0 {
			end += int(q[end]) + 1
		}
		end += 1 + 4
		question := q[12:end]
		kind := binary.BigEndian.Uint16(question[len(question)-4:])
		d.mu.Lock()
		var answers []byte
		n := 0
		if kind == 1 { // A
			d.queries++
			for _, ip := range d.addrs {
				answers = append(answers, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
				answers = append(answers, ip.To4()...)
				n++
			}
		}
		d.mu.Unlock()
		r := append([]byte(nil), q[0], q[1], 0x81, 0x80, 0, 1, 0, byte(n), 0, 0, 0, 0)
		r = append(append(r, question...), answers...)
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(r))), r...)); err != nil {
			return
		}
	}
}

func (d *dns) set(addrs ...net.IP) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addrs = addrs
}

func (d *dns) asked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queries
}

// A name is looked up at every connect, so that servers may move.
func TestNamesAreResolvedAnew(t *testing.T) {
	d := newDNS(t, net.IPv4(127, 0, 0, 1))
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	_, port, err := net.SplitHostPort(p.Addr())
	require.NoError(t, err)
	e, _ := connect(t, Config{Servers: []string{net.JoinHostPort("zk.test", port)}})
	for range 3 {
		asked, conn := d.asked(), e.Epoch().Conn
		p.Cut()
		eventually(t, 5*time.Second, "the client is back", func() bool { return e.Ready() && e.Epoch().Conn > conn })
		require.Greater(t, d.asked(), asked)
	}
	// The server moves away: nothing is found where it was, until the name says so.
	d.set()
	p.Cut()
	eventually(t, 5*time.Second, "the name is not found", func() bool {
		err := e.DialError()
		return err != nil && strings.Contains(err.Error(), "no such host")
	})
	d.set(net.IPv4(127, 0, 0, 1))
	await(t, e)

	// Each connect takes the next one of a name's addresses.
	d.set(net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2), net.IPv4(127, 0, 0, 3))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	_, closed, _ := net.SplitHostPort(l.Addr().String())
	s := newServerList([]string{net.JoinHostPort("zk.test", closed)})
	tried := make(map[string]int)
	for range 6 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := s.dialOne(ctx, "tcp", s.names[0])
		cancel()
		var op *net.OpError
		require.True(t, errors.As(err, &op), "%v", err)
		host, _, err := net.SplitHostPort(op.Addr.String())
		require.NoError(t, err)
		tried[host]++
	}
	require.Equal(t, map[string]int{"127.0.0.1": 2, "127.0.0.2": 2, "127.0.0.3": 2}, tried)
}

func TestServerNames(t *testing.T) {
	for in, want := range map[string]string{
		"zk": "zk:2181", "zk:2182": "zk:2182", "10.0.0.1": "10.0.0.1:2181", "::1": "[::1]:2181", "[::1]": "[::1]:2181", "[::1]:2182": "[::1]:2182",
	} {
		require.Equal(t, want, withPort(in))
	}
}

// The error of a server that was not reached names it, and says what its last attempt met with.
func TestDialErrors(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		f.setOnDial(func(addr string) error {
			if strings.HasPrefix(addr, "zk1") {
				return errors.New("connection refused")
			}
			return fmt.Errorf("dial tcp %s: no route", addr)
		})
		e, _ := start(t, Config{Servers: []string{"zk1", "zk2"}, Dialer: f.Dial})
		pass(time.Second)
		require.EqualError(t, e.DialError(), "zk1:2181: connection refused\ndial tcp zk2:2181: no route")
		f.setOnDial(func(addr string) error {
			if strings.HasPrefix(addr, "zk1") {
				return errors.New("connection refused")
			}
			return nil
		})
		await(t, e)
		require.NoError(t, e.DialError())
	})
	// Something answers that is no ZooKeeper.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			c.Close()
		}
	}()
	e, _ := start(t, Config{Servers: []string{l.Addr().String()}})
	eventually(t, 10*time.Second, "it says so", func() bool { return e.DialError() != nil })
	require.ErrorContains(t, e.DialError(), l.Addr().String())
}

// Nothing of a closed engine is left: no socket, no session, no znode, whatever it was in the middle of.
func TestCloseLeavesNoSession(t *testing.T) {
	const timeout = 1200 * time.Millisecond
	server := zktest.Shared(t).Server(0)
	states := map[string]func(e *Engine, p *zktest.Proxy){
		"connected":  func(*Engine, *zktest.Proxy) {},
		"cut":        func(_ *Engine, p *zktest.Proxy) { p.Refuse(true) },
		"black hole": func(_ *Engine, p *zktest.Proxy) { p.BlackHole(zktest.Both) },
		"in a handshake": func(e *Engine, p *zktest.Proxy) {
			n := p.Counts().Requests[zktest.OpConnect]
			p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpConnect), Do: zktest.HoldReply(zktest.NewGate())})
			p.Cut()
			eventually(t, 5*time.Second, "it is in a handshake", func() bool { return p.Counts().Requests[zktest.OpConnect] > n && !e.Ready() })
		},
		"connect request under way": func(e *Engine, p *zktest.Proxy) {
			p.Stall(zktest.Both)
			p.Cut()
			eventually(t, 5*time.Second, "it is cut off", func() bool { return !e.Ready() })
		},
	}
	for name, prepare := range states {
		t.Run(name, func(t *testing.T) {
			e, _, p := connectShared(t, Config{Timeout: timeout})
			other, _, _ := connectShared(t, Config{})
			session := e.Epoch().Session
			path := newPath(t)
			mk(t, e, path, "")
			ephemeral := func(c Conn) error {
				_, err := c.Create(path+"/e", nil, zk.FlagEphemeral|zk.FlagSequence, world)
				return err
			}
			do(t, e, ephemeral)
			prepare(e, p)
			var wg sync.WaitGroup
			for range 30 { // what waits must not be executed later
				wg.Go(func() { _, _ = e.Do(context.Background(), ephemeral) })
			}
			began := time.Now()
			err := closeWithin(e, 100*time.Millisecond)
			require.Less(t, time.Since(began), 4*time.Second)
			wg.Wait()
			if name == "connected" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, sessionID(session))
			}
			p.BlackHole(zktest.None)
			p.Stall(zktest.None)
			p.Refuse(false)
			p.ResetCounters()
			id := sessionID(session)
			// The server goes on counting a connection that another one took the session from until that times out; what matters is the session.
			listed := func(w string) bool {
				sessions, _, _ := strings.Cut(word(t, server, w), "Connections dump:")
				return strings.Contains(sessions, id)
			}
			eventually(t, timeout+3*time.Second, "the session is over", func() bool { return !listed("dump") && !listed("cons") })
			var names []string
			do(t, other, func(c Conn) (err error) { names, _, err = c.Children(path); return err })
			require.Empty(t, names)
			require.Zero(t, p.Counts().Total(), "nothing was sent after Close")
		})
	}
}

// When Close returns the sockets are closed, however long the client would have gone on to wait for an answer.
func TestCloseClosesTheSockets(t *testing.T) {
	for name, silence := range map[string]func(f *fake){
		"connected": func(*fake) {},
		"silent":    func(f *fake) { f.setOnRequest(func(*fakeConn, fakeRequest) bool { return true }) },
		"full":      func(f *fake) { f.setOnRequest(func(c *fakeConn, _ fakeRequest) bool { <-c.done; return true }) },
		"in a handshake": func(f *fake) {
			f.setOnConnect(func(c *fakeConn, _ fakeConnect) bool { <-c.done; return true })
			f.cut()
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f := newFake(t)
				var sockets atomic.Int32
				e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Timeout: time.Minute, Dialer: func(network, addr string, d time.Duration) (net.Conn, error) {
					c, err := f.Dial(network, addr, d)
					if err == nil {
						sockets.Add(1)
						c = &countedConn{Conn: c, open: &sockets}
					}
					return c, err
				}})
				silence(f)
				pass(10 * time.Millisecond)
				require.NotZero(t, sockets.Load())
				var wg sync.WaitGroup
				for range 30 {
					wg.Go(func() {
						_, _ = e.Do(context.Background(), func(c Conn) error { _, _, err := c.Get("/"); return err })
					})
				}
				pass(10 * time.Millisecond)
				began := time.Now()
				_ = closeWithin(e, time.Second)
				require.LessOrEqual(t, time.Since(began), 3*time.Second)
				require.Zero(t, sockets.Load())
				wg.Wait()
			})
		})
	}
}

// The client drops the socket of a session that has expired for the garbage collector to find.
func TestSocketOfAnExpiredSessionIsClosed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		var sockets atomic.Int32
		e, _ := connect(t, Config{Servers: []string{"zk:2181"}, Dialer: func(network, addr string, d time.Duration) (net.Conn, error) {
			c, err := f.Dial(network, addr, d)
			if err == nil {
				sockets.Add(1)
				c = &countedConn{Conn: c, open: &sockets}
			}
			return c, err
		}})
		for range 3 {
			first := e.Epoch().Session
			f.expire(first)
			f.cut()
			pass(5 * time.Second)
			require.NotEqual(t, first, await(t, e).Session)
			require.EqualValues(t, 1, sockets.Load())
		}
	})
}

// A countedConn is counted until it is closed.
type countedConn struct {
	net.Conn
	open *atomic.Int32
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// What a server accepts goes out, however large, and what it sends is taken.
// Reports: CURATOR-690, apache/helix #962, ZOOKEEPER-706, go-zookeeper/zk #166.
func TestLargeRequestsAndReplies(t *testing.T) {
	e, _, _ := connectShared(t, Config{Timeout: 10 * time.Second})
	dir := newPath(t)
	mk(t, e, dir, "")
	epoch := e.Epoch()
	const children = 5000
	name := strings.Repeat("n", 60)
	for i := 0; i < children; i += 500 {
		var ops []any
		for n := i; n < i+500; n++ {
			ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("%s/%s%05d", dir, name, n), Acl: world})
		}
		do(t, e, func(c Conn) error { _, err := c.Multi(ops...); return err })
	}
	var names []string
	do(t, e, func(c Conn) (err error) { names, _, err = c.Children(dir); return err })
	require.Len(t, names, children)
	data := make([]byte, MaxData)
	do(t, e, func(c Conn) error { _, err := c.Set(dir, data, -1); return err })
	var got []byte
	do(t, e, func(c Conn) (err error) { got, _, err = c.Get(dir); return err })
	require.Len(t, got, MaxData)
	require.Equal(t, epoch, e.Epoch())
}
