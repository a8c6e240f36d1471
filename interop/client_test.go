package interop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
)

// A client is one client of one library, with a session of its own. *Peer is one.
type client interface {
	Session() int64
	// Lock waits until it has that side of path, and returns its znode, empty where the library does not say.
	Lock(ctx context.Context, side Side, path string) (node string, err error)
	Release(ctx context.Context, side Side, path string) error
	Close(ctx context.Context) error
}

// A revoker is a client that asks for locks back, and hears when it is asked.
type revoker interface {
	MakeRevocable(ctx context.Context, side Side, path string) error
	AwaitRevocation(ctx context.Context) error
	AttemptRevoke(ctx context.Context, node string) error
}

// The libraries, as the tests call them.
const (
	ours            = "ours"
	zkLock          = "zk"              // go-zookeeper's
	curator         = "curator"         // Curator
	kazoo           = "kazoo"           // told to heed the others' znodes
	kazooOnCurators = "kazoo-curator's" // of peers/curator_names.py
)

// openIn opens a client of a library in a process.
func openIn(t testing.TB, p *Process, library string, servers []string, timeout time.Duration) client {
	t.Helper()
	c := p.OpenFor(t, servers, timeout)
	if library == kazooOnCurators {
		return onCurators{c}
	}
	return c
}

// openClient opens a client of a library: in this process, or in the one that the tests share.
func openClient(t testing.TB, library string, servers []string, timeout time.Duration) client {
	t.Helper()
	switch library {
	case ours, zkLock:
		c, err := openGo(library, servers, timeout, slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	case kazooOnCurators:
		return openIn(t, Shared(t, Kazoo), library, servers, timeout)
	default:
		return openIn(t, Shared(t, Kind(library)), library, servers, timeout)
	}
}

// onCurators is a kazoo peer on Curator's znodes.
type onCurators struct{ *Peer }

func (k onCurators) Lock(ctx context.Context, side Side, path string) (string, error) {
	return k.Peer.Lock(ctx, "curator-"+side, path)
}

func (k onCurators) Release(ctx context.Context, side Side, path string) error {
	return k.Peer.Release(ctx, "curator-"+side, path)
}

// openGo opens a client of one of the two libraries for Go.
func openGo(library string, servers []string, timeout time.Duration, log slog.Handler) (client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	switch library {
	case ours:
		s, err := zkrecipes.Dial(ctx, servers, zkrecipes.WithTimeout(timeout), zkrecipes.WithLogger(slog.New(log)))
		if err != nil {
			return nil, err
		}
		return newOurs(s), nil
	case zkLock:
		c, events, err := zk.Connect(servers, timeout, zk.WithLogInfo(false))
		if err != nil {
			return nil, err
		}
		for e := range events {
			if e.State == zk.StateHasSession {
				break
			}
		}
		return &zkClient{c: c, events: events, locks: make(map[string]*zk.Lock)}, nil
	}
	return nil, fmt.Errorf("no such library for Go: %q", library)
}

// zkClient is a client of zk.Lock.
type zkClient struct {
	c      *zk.Conn
	events <-chan zk.Event
	mu     sync.Mutex
	locks  map[string]*zk.Lock
	once   sync.Once
}

func (z *zkClient) Session() int64 { return z.c.SessionID() }

func (z *zkClient) Lock(_ context.Context, side Side, path string) (string, error) {
	if side != Mutex {
		return "", fmt.Errorf("zk.Lock is no %s", side)
	}
	z.mu.Lock()
	l := z.locks[path]
	if l == nil {
		l = zk.NewLock(z.c, path, zk.WorldACL(zk.PermAll))
		z.locks[path] = l
	}
	z.mu.Unlock()
	if err := l.Lock(); err != nil {
		return "", err
	}
	return "", nil // it does not say which znode is its own
}

func (z *zkClient) Release(_ context.Context, _ Side, path string) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.locks[path].Unlock()
}

// Close ends the session, and a Lock that waits with it.
func (z *zkClient) Close(context.Context) error {
	z.once.Do(func() {
		z.c.Close()
		for range z.events {
		}
	})
	return nil
}

// ourClient is one of this library.
type ourClient struct {
	s    *zkrecipes.Session
	mu   sync.Mutex
	held map[string]*held // by side and path
	last *zkrecipes.Lease
}

type held struct {
	lease *zkrecipes.Lease
	give  func(context.Context) error
}

func newOurs(s *zkrecipes.Session) *ourClient { return &ourClient{s: s, held: make(map[string]*held)} }

func (o *ourClient) Session() int64 { return o.s.ID() }

// lease is what Lock has granted and Release has not ended.
func (o *ourClient) lease(side Side, path string) *zkrecipes.Lease {
	o.mu.Lock()
	defer o.mu.Unlock()
	if h := o.held[string(side)+path]; h != nil {
		return h.lease
	}
	return nil
}

// lastLease is what Lock has granted last.
func (o *ourClient) lastLease() *zkrecipes.Lease {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

func (o *ourClient) Lock(ctx context.Context, side Side, path string) (string, error) {
	h := new(held)
	var err error
	owner := zkrecipes.WithOwner(zkrecipes.Owner(fmt.Sprintf("ours-%x", o.s.ID()))) // the id of a leader
	switch side {
	case Latch:
		latch := zkrecipes.NewLeaderLatch(o.s, path, owner)
		running, stop := context.WithCancel(context.Background())
		over := make(chan error, 1)
		go func() { over <- latch.Run(running) }()
		if h.lease, err = latch.Await(ctx); err != nil {
			stop()
			return "", errors.Join(err, <-over)
		}
		h.give = func(ctx context.Context) error {
			stop()
			return errors.Join(<-over, o.awaitGone(ctx, h.lease.Node()))
		}
	case Selector:
		running, stop := context.WithCancel(context.Background())
		leads, end, over := make(chan *zkrecipes.Lease), make(chan struct{}), make(chan error, 1)
		go func() {
			over <- zkrecipes.NewLeaderSelector(o.s, path, owner, zkrecipes.WithoutRequeue()).Run(running, func(ctx context.Context) error {
				l, _ := zkrecipes.LeaseFromContext(ctx)
				select {
				case leads <- l:
				case <-ctx.Done():
				}
				select {
				case <-end:
				case <-ctx.Done(): // the session was closed
				}
				return nil
			})
		}()
		select {
		case h.lease = <-leads:
		case err = <-over:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			stop()
			return "", err
		}
		h.give = func(ctx context.Context) error {
			defer stop()
			close(end)
			return errors.Join(<-over, o.awaitGone(ctx, h.lease.Node()))
		}
	case Barrier:
		b := zkrecipes.NewBarrier(o.s, path, owner)
		err, h.give = b.Set(ctx), b.Remove
	case Gate:
		err = zkrecipes.NewBarrier(o.s, path).Wait(ctx)
		h.give = func(context.Context) error { return nil }
	case DoubleBarrier:
		b := zkrecipes.NewDoubleBarrier(o.s, path, 3, owner)
		err, h.give = b.Enter(ctx), b.Leave
	default:
		if w := o.lease(Writer, path); w != nil && side == Reader {
			ctx = w.Context() // reads under it
		}
		h.lease, err = ourSide(o.s, side, path)(ctx)
		if err == nil {
			h.give = h.lease.Release
		}
	}
	if err != nil {
		return "", err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held[string(side)+path] = h
	if h.lease == nil { // a barrier grants nothing
		return "", nil
	}
	o.last = h.lease
	return h.lease.Node(), nil
}

func (o *ourClient) Release(ctx context.Context, side Side, path string) error {
	o.mu.Lock()
	h := o.held[string(side)+path]
	delete(o.held, string(side)+path)
	o.mu.Unlock()
	return h.give(ctx)
}

// awaitGone waits for the znode of a leader that does not lead any more: it is being removed, and who looks meanwhile finds it.
func (o *ourClient) awaitGone(ctx context.Context, node string) error {
	return zkrecipes.NewWatcher(o.s, node).Gone(ctx)
}

func (o *ourClient) Close(context.Context) error { return o.s.Close() }

// MakeRevocable does nothing: every lease hears of requests.
func (o *ourClient) MakeRevocable(context.Context, Side, string) error { return nil }

// AwaitRevocation waits for a request to give back what Lock granted last.
func (o *ourClient) AwaitRevocation(ctx context.Context) error {
	select {
	case <-o.lastLease().Revoked():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("ours: no request to give back: %w", ctx.Err())
	}
}

func (o *ourClient) AttemptRevoke(ctx context.Context, node string) error {
	return zkrecipes.Revoke(ctx, o.s, node)
}

// ourSide takes a side of a path with this library.
func ourSide(s *zkrecipes.Session, side Side, path string) func(context.Context) (*zkrecipes.Lease, error) {
	switch rw := zkrecipes.NewRWLock(s, path); side {
	case Mutex:
		return zkrecipes.NewMutex(s, path).Lock
	case Reader:
		return rw.RLock
	case Writer:
		return rw.Lock
	case Semaphore:
		return zkrecipes.NewSemaphore(s, path, Permits).Locker(1).Lock
	case SemaphoreMutex:
		return zkrecipes.NewSemaphore(s, path, 1).Locker(1).Lock
	case MultiLock:
		return zkrecipes.NewMultiLock(zkrecipes.NewMutex(s, path+"/a"), zkrecipes.NewMutex(s, path+"/b")).Lock
	default:
		return func(context.Context) (*zkrecipes.Lease, error) { return nil, fmt.Errorf("no such side: %q", side) }
	}
}
