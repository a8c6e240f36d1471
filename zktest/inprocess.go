package zktest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// A Server is a ZooKeeper in this process, for tests: one server, with its tree in memory, that speaks the protocol of ZooKeeper 3.8 to any client. It
// needs neither Java nor a network, and its faults are methods.
//
// Clients reach it by TCP at [Server.Addr], or by pipes from [Server.Dialer]. Within a testing/synctest bubble take the Dialer, and make the Server in
// the bubble: session timeouts then pass in virtual time.
//
// It never decides what is right: where it differs from a real server, it is wrong. What it does not do is listed in the package's documentation.
//
// All methods may be called by any goroutine.
type Server struct {
	tick      time.Duration
	reapEvery time.Duration
	maxFrame  int64
	began     time.Time

	mu       sync.Mutex
	tree     *tree
	watches  *watches
	zxid     int64 // of the last transaction
	given    int64 // the last that was given to one, which may have come to nothing
	sessions map[int64]*memSession
	lastID   int64
	peers    map[*peer]struct{}
	listener net.Listener
	addr     string
	stopped  bool
	closed   bool
	faults   []*fault
	delay    time.Duration
	cuts     []*cut
	counts   Counts
	sooner   chan struct{} // has a token when the clock may have to ring sooner
	over     chan struct{} // closed by Close

	wg sync.WaitGroup
}

// maxSession is the longest session of a Server and of a launched one.
const maxSession = 60 * time.Second

// Where the counter of zxids and the session ids of a Server begin: an epoch of a leader, and a server's number.
const (
	firstZxid    = 1 << 32
	firstSession = 0x1000000000000
)

// containerCheck is how often empty containers and znodes whose time is over are looked for.
const containerCheck = time.Second

// NewServer makes a server that lives as long as the test; in a testing/synctest bubble three virtual minutes longer, in which what is left of closed clients
// comes to its end. Of the options [TickTime] is understood; another one fails the test.
func NewServer(tb TB, opts ...Option) *Server {
	tb.Helper()
	s, err := LaunchServer(opts...)
	if err != nil {
		tb.Fatalf("%v", err)
		return nil
	}
	tb.Cleanup(func() {
		if inBubble() {
			time.Sleep(afterlife)
		}
		s.Close()
	})
	return s
}

// afterlife is how long, in virtual time, a server outlives the test that it was made for. A bubble whose function has returned stands still, and fails when
// anybody in it waits for a moment: a client of go-zookeeper's that was closed without a connection does for a second, and a Session on such a client for
// twice its timeout and half a minute, as long as anything of it may yet come into effect.
const afterlife = 2*maxSession + time.Minute

var processBegan = time.Now()

// inBubble reports whether time is that of a testing/synctest bubble, which begins in the year 2000.
func inBubble() bool { return time.Now().UnixNano() < processBegan.UnixNano() }

// LaunchServer makes a server outside of a test. The caller must Close it. It returns an error for every option but [TickTime].
func LaunchServer(opts ...Option) (*Server, error) {
	set, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	if set.servers != 1 || len(set.properties) > 0 || len(set.system) > 0 {
		return nil, errors.New("zktest: a server in this process takes TickTime only")
	}
	return newServer(set), nil
}

func newServer(set *settings) *Server {
	s := &Server{
		tick: set.tick, reapEvery: set.reap, maxFrame: 1<<20 - 1, began: time.Now(), tree: newTree(), watches: newWatches(), zxid: firstZxid, given: firstZxid, lastID: firstSession,
		sessions: make(map[int64]*memSession), peers: make(map[*peer]struct{}), sooner: make(chan struct{}, 1), over: make(chan struct{}),
	}
	s.counts.Requests = make(map[Op]int)
	s.wg.Go(s.clock)
	return s
}

// Close ends all connections and stops the server for good. It waits until nothing of it runs any more.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		s.shut()
		close(s.over)
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// shut ends the listener and all connections; mu is held.
func (s *Server) shut() {
	s.stopped = true
	if s.listener != nil {
		s.listener.Close()
		s.listener = nil
	}
	for p := range s.peers {
		p.hangUp()
	}
}

// Addr returns the TCP address, host:port, where the server listens from the first call on. It panics where no port of loopback can be had.
func (s *Server) Addr() string {
	addr, err := s.open()
	if err != nil {
		panic(fmt.Sprintf("zktest: %v", err))
	}
	return addr
}

// open makes the server listen, if it does not yet.
func (s *Server) open() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr == "" && !s.closed {
		if err := s.listen("127.0.0.1:0"); err != nil {
			return "", err
		}
		if s.stopped {
			s.listener.Close()
			s.listener = nil
		}
	}
	return s.addr, nil
}

// listen is called with mu held.
func (s *Server) listen(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	s.listener, s.addr = l, l.Addr().String()
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.serve(c, nil)
		}
	})
	return nil
}

// Dialer returns a zk.Dialer whose connections are pipes within this process. The address does not matter. Give each client one of its own: what comes
// from one Dialer is one machine to [Server.Partition].
func (s *Server) Dialer() func(network, address string, timeout time.Duration) (net.Conn, error) {
	from := new(machine)
	return func(network, address string, _ time.Duration) (net.Conn, error) {
		client, server := net.Pipe()
		if !s.serve(server, from) {
			client.Close()
			return nil, &net.OpError{Op: "dial", Net: network, Err: &os.SyscallError{Syscall: "connect", Err: errors.New("connection refused")}}
		}
		return client, nil
	}
}

// A machine is where connections of one Dialer come from.
type machine struct{ _ byte } // of a size, so that two are not one

// serve takes a connection on; false when the server does not run.
func (s *Server) serve(c net.Conn, from *machine) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		c.Close()
		return false
	}
	p := newPeer(s, c, from)
	s.peers[p] = struct{}{}
	s.wg.Go(p.read)
	s.wg.Go(p.write)
	return true
}

// now is the server's clock, in ms.
func (s *Server) now() int64 { return time.Now().UnixMilli() }

// begin starts a write; mu is held.
func (s *Server) begin() *txn {
	s.given++
	s.zxid = s.given
	return &txn{zxid: s.zxid, now: s.now()}
}

// commit tells the watches of a write; mu is held.
func (s *Server) commit(tx *txn) {
	for _, c := range tx.changes {
		s.watches.tell(c)
	}
}

// reply puts a frame into the queue of a connection; mu is held.
func (s *Server) reply(p *peer, op Op, path string, body []byte) {
	f := outFrame{op: op, path: path, bytes: encodeFrame(body)}
	s.counts.ToClient += int64(len(f.bytes))
	if op == OpEvent {
		s.counts.Events++
	}
	s.arrange(&f)
	p.send(f)
}

// replyHeader is the front of each reply.
func replyHeader(xid int32, zxid int64, err code) *encoder {
	var e encoder
	e.int32(xid)
	e.int64(zxid)
	e.int32(int32(err))
	return &e
}
