package interop

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// sessionTimeout is that of the peers of tests. No test waits for it to pass.
const sessionTimeout = 20 * time.Second

// Side is what of a path a peer takes.
type Side string

// The sides, by the verbs that take them.
const (
	Mutex  Side = "lock"  // Curator's InterProcessMutex, kazoo's Lock
	Reader Side = "rlock" // the read side of Curator's InterProcessReadWriteLock, kazoo's ReadLock
	Writer Side = "wlock" // the write side, kazoo's WriteLock

	// Of Curator's peers alone.
	Semaphore      Side = "semaphore"      // one permit of an InterProcessSemaphoreV2 of Permits
	SemaphoreMutex Side = "semaphoremutex" // InterProcessSemaphoreMutex
	MultiLock      Side = "multilock"      // InterProcessMultiLock of two mutexes, a and b below the path
	Latch          Side = "latch"          // LeaderLatch; its id is the peer's name
	Selector       Side = "selector"       // LeaderSelector; its id is the peer's name
	Barrier        Side = "barrier"        // DistributedBarrier, kazoo's Barrier: Lock sets it, Release removes it
	Gate           Side = "gate"           // of the same: Lock waits until it is removed
	DoubleBarrier  Side = "doublebarrier"  // one of three members of a DistributedDoubleBarrier: Lock enters, Release leaves

	// Of kazoo's peers alone.
	PlainMutex    Side = "plain-lock"    // kazoo's Lock as it comes, which heeds its own znodes only
	CuratorMutex  Side = "curator-lock"  // kazoo's on Curator's znodes; see peers/curator_names.py
	CuratorReader Side = "curator-rlock" // of the same
	CuratorWriter Side = "curator-wlock" // of the same
)

// Permits is how many a Semaphore has.
const Permits = 2

// A Peer is one client of another library, with a session and a thread of its own. Its calls run one after the other, in the order of their arrival,
// but for Close and Drain. They return an error with what the client said, or when ctx is done, or after 30 s if that has no deadline.
type Peer struct {
	p       *Process
	name    string
	session int64
	events  chan string
}

var peerCount atomic.Int64

// Open opens a client in the process, with a session on servers. It is closed with the test.
func (p *Process) Open(tb zktest.TB, servers []string) *Peer {
	tb.Helper()
	return p.OpenFor(tb, servers, sessionTimeout)
}

// OpenFor is Open with a session that ends so long after its client has died.
func (p *Process) OpenFor(tb zktest.TB, servers []string, timeout time.Duration) *Peer {
	tb.Helper()
	peer, err := p.open(servers, timeout)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		if p.ended() == nil {
			if err := peer.Close(context.Background()); err != nil && !errors.Is(err, errClosed) {
				tb.Errorf("%v", err)
			}
		}
	})
	return peer
}

func (p *Process) open(servers []string, timeout time.Duration) (*Peer, error) {
	peer := &Peer{p: p, name: fmt.Sprintf("%s-%d", p.kind, peerCount.Add(1)), events: make(chan string, 16)}
	p.mu.Lock()
	p.peers[peer.name] = peer
	p.mu.Unlock()
	id, err := p.call(context.Background(), peer.name, "open", strings.Join(servers, ","), strconv.FormatInt(timeout.Milliseconds(), 10))
	if err == nil {
		peer.session, err = strconv.ParseInt(id, 10, 64)
	}
	return peer, err
}

var errClosed = errors.New("closed already")

// Session is the id of the client's ZooKeeper session.
func (p *Peer) Session() int64 { return p.session }

// Lock waits until the client has taken that side of path, and returns its znode, empty where the library does not say.
func (p *Peer) Lock(ctx context.Context, side Side, path string) (node string, err error) {
	return p.call(ctx, string(side), path)
}

// Release gives back what Lock took.
func (p *Peer) Release(ctx context.Context, side Side, path string) error {
	_, err := p.call(ctx, "release", string(side), path)
	return err
}

// TryFor is Lock that gives up by its own clock after d; false when it has. Mutexes only.
func (p *Peer) TryFor(ctx context.Context, side Side, path string, d time.Duration) (granted bool, err error) {
	said, err := p.call(ctx, "tries", string(side), path, strconv.FormatInt(d.Milliseconds(), 10))
	return said == "granted", err
}

// Holds is what the client's lock says of itself without a request, and the states of the connection that the client has told, in their order. Mutexes only.
func (p *Peer) Holds(ctx context.Context, side Side, path string) (holds bool, states []string, err error) {
	said, err := p.call(ctx, "holds", string(side), path)
	word, told, _ := strings.Cut(said, " ")
	return word == "yes", strings.Split(told, ","), err
}

// Drain has so many threads of the client take the mutex at path and give it back, each with a lock object of its own, and returns when all have. It does not
// wait for other calls of the Peer.
func (p *Peer) Drain(ctx context.Context, path string, waiters int) error {
	_, err := p.call(ctx, "drain", path, strconv.Itoa(waiters))
	return err
}

// MakeRevocable lets the client's next Lock of that side hear of requests to give it back; see AwaitRevocation. Curator only.
func (p *Peer) MakeRevocable(ctx context.Context, side Side, path string) error {
	_, err := p.call(ctx, "revocable", string(side), path)
	return err
}

// AwaitRevocation waits until the client's listener was told that somebody wants back what MakeRevocable announced.
func (p *Peer) AwaitRevocation(ctx context.Context) error {
	select {
	case event := <-p.events:
		if event != "revoked" {
			return fmt.Errorf("%s: event %q", p.name, event)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: no request to give back: %w", p.name, ctx.Err())
	case <-p.p.done:
		return p.p.ended()
	}
}

// AttemptRevoke is Curator's Revoker.
func (p *Peer) AttemptRevoke(ctx context.Context, node string) error {
	_, err := p.call(ctx, "attemptrevoke", node)
	return err
}

// Participants are what Curator counts as that side's, in its order: the znodes of a lock, the names of a semaphore's permits, the ids of a latch or a
// selector, of which the leader's ends with ",leads".
func (p *Peer) Participants(ctx context.Context, side Side, path string) ([]string, error) {
	words, err := p.call(ctx, "participants", string(side), path)
	return strings.Fields(words), err
}

// Contenders are the data of the znodes that kazoo counts as that side's, in its order.
func (p *Peer) Contenders(ctx context.Context, side Side, path string) ([]string, error) {
	words, err := p.call(ctx, "contenders", string(side), path)
	return strings.Fields(words), err
}

// Version is that of the client's library.
func (p *Peer) Version(ctx context.Context) (string, error) { return p.call(ctx, "version") }

// Close closes the client's session; a call that waits gets an error.
func (p *Peer) Close(ctx context.Context) error {
	p.p.mu.Lock()
	open := p.p.peers[p.name] == p
	delete(p.p.peers, p.name)
	p.p.mu.Unlock()
	if !open {
		return errClosed
	}
	_, err := p.call(ctx, "close")
	return err
}

func (p *Peer) call(ctx context.Context, words ...string) (string, error) {
	return p.p.call(ctx, p.name, words...)
}
