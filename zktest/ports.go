package zktest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

const loopback = "127.0.0.1"

// Ports come from below the range that systems use for outgoing connections
// (from 32768 on Linux, from 49152 elsewhere). A port from within it would be
// taken by some client's outgoing connection while its server is down; worse, a
// client that dials such a port on loopback while nobody listens can be given
// that same port as its own and end up connected to itself.
const (
	firstPort  = 15000
	lastPort   = 32000
	blockPorts = 100
)

var errNoPort = errors.New("zktest: no free port on 127.0.0.1 between " +
	strconv.Itoa(firstPort) + " and " + strconv.Itoa(lastPort))

// portPool hands out ports of blocks that belong to this process. Listening on
// the first port of a block is what owns the block, so two test binaries that
// run at once never give out the same port, not even one whose server happens
// to be stopped. The guards stay open until the process ends.
type portPool struct {
	mu     sync.Mutex
	guards []net.Listener
	owned  []int // ports of the blocks, in turn
	next   int
	taken  map[int]bool
}

var pool = portPool{taken: map[int]bool{}}

// take returns a port that nobody in this process holds and that could be
// bound a moment ago. It stays taken until given back.
func (p *portPool) take() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for range p.owned {
			port := p.owned[p.next%len(p.owned)]
			p.next++
			if p.taken[port] || !bindable(port) {
				continue
			}
			p.taken[port] = true
			return port, nil
		}
		if err := p.grow(); err != nil {
			return 0, err
		}
	}
}

func (p *portPool) give(ports ...int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, port := range ports {
		delete(p.taken, port)
	}
}

// grow acquires another block.
func (p *portPool) grow() error {
	const blocks = (lastPort - firstPort) / blockPorts
	for _, b := range rand.Perm(blocks) {
		first := firstPort + b*blockPorts
		l, err := net.Listen("tcp4", hostPort(first))
		if err != nil {
			continue
		}
		p.guards = append(p.guards, l)
		p.next = len(p.owned)
		for port := first + 1; port < first+blockPorts; port++ {
			p.owned = append(p.owned, port)
		}
		return nil
	}
	return errNoPort
}

func bindable(port int) bool {
	l, err := net.Listen("tcp4", hostPort(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func hostPort(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// listen takes a port and listens on it.
func listen() (*net.TCPListener, int, error) {
	var last error
	for range 20 {
		port, err := pool.take()
		if err != nil {
			return nil, 0, err
		}
		l, err := net.Listen("tcp4", hostPort(port))
		if err == nil {
			return l.(*net.TCPListener), port, nil
		}
		pool.give(port)
		last = err
	}
	return nil, 0, fmt.Errorf("zktest: cannot listen on loopback: %w", last)
}
