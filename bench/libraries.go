package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
)

// A library is one way to take a lock.
type library struct {
	name string
	open func(ctx context.Context, at dialed) (client, error)

	locks bool // raw does not: nobody waits
	polls bool // who waits asks again and again, so nothing ever settles
	asks  int  // requests that a waiter of its makes at least before it waits

	outside bool // it runs in another process

	// Where it does not use the ZooKeeper of the run:
	server string
	wire   func(s *scope, server string) wire

	// hold starts a process that is to hold a lock; without it, that is this program once more.
	hold func(ctx context.Context, s *stand, path string) (holding, error)
}

// dialed is what a session is opened with.
type dialed struct {
	addr    string
	timeout time.Duration
	wire    wire // nil: nothing counts
}

// A client is one session.
type client interface {
	// locker is what one goroutine takes the lock at path with, and gives it back.
	locker(path string) locker
	close() error
}

// A crowd is a client whose goroutines, or threads, are not here: n of them take the lock and give it back.
type crowd interface {
	drain(ctx context.Context, path string, n int) error
}

type locker interface {
	lock(context.Context) error
	unlock(context.Context) error
}

const (
	ours   = "zkrecipes"
	raw    = "raw"
	zkLock = "zk.Lock"
)

func quickLibraries() []library {
	return []library{
		{name: raw, open: openRaw},
		{name: zkLock, open: openZKLock, locks: true, asks: 3},
		{name: ours, open: openOurs, locks: true, asks: 2},
	}
}

// ourClient is a session of this library.
type ourClient struct{ s *zkrecipes.Session }

func openOurs(ctx context.Context, at dialed) (client, error) {
	s, err := dialOurs(ctx, at)
	return ourClient{s}, err
}

func dialOurs(ctx context.Context, at dialed) (*zkrecipes.Session, error) {
	return zkrecipes.Dial(ctx, []string{at.addr}, zkrecipes.WithTimeout(at.timeout), zkrecipes.WithLogger(slog.New(slog.DiscardHandler)))
}

func (c ourClient) locker(path string) locker { return &ourLocker{l: zkrecipes.NewMutex(c.s, path)} }
func (c ourClient) close() error              { return c.s.Close() }

type ourLocker struct {
	l     zkrecipes.Locker
	lease *zkrecipes.Lease
}

func (l *ourLocker) lock(ctx context.Context) (err error) {
	l.lease, err = l.l.Lock(ctx)
	return err
}

func (l *ourLocker) unlock(ctx context.Context) error { return l.lease.Release(ctx) }

// dialRaw waits for a session of go-zookeeper's.
func dialRaw(ctx context.Context, at dialed) (*zk.Conn, error) {
	conn, events, err := zk.Connect([]string{at.addr}, at.timeout, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				go func() {
					for range events {
					}
				}()
				return conn, nil
			}
		case <-ctx.Done():
			conn.Close()
			return nil, context.Cause(ctx)
		}
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

var openACL = zk.WorldACL(zk.PermAll)

// makeParents makes dir and what is above it.
func makeParents(conn *zk.Conn, dir string) error {
	for i := range len(dir) {
		if i > 0 && dir[i] == '/' || i == len(dir)-1 {
			if _, err := conn.Create(strings.TrimSuffix(dir[:i+1], "/"), nil, 0, openACL); err != nil && !errors.Is(err, zk.ErrNodeExists) {
				return err
			}
		}
	}
	return nil
}

// removeAll removes a tree.
func removeAll(conn *zk.Conn, dir string) error {
	children, _, err := conn.Children(dir)
	if err != nil {
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		return err
	}
	for _, c := range children {
		err = cmp.Or(err, removeAll(conn, path.Join(dir, c)))
	}
	if derr := conn.Delete(dir, -1); !errors.Is(derr, zk.ErrNoNode) {
		err = cmp.Or(err, derr)
	}
	return err
}

// rawClient makes and deletes the znode, and waits for nobody.
type rawClient struct{ conn *zk.Conn }

func openRaw(ctx context.Context, at dialed) (client, error) {
	conn, err := dialRaw(ctx, at)
	return rawClient{conn}, err
}

func (c rawClient) locker(path string) locker { return &rawLocker{conn: c.conn, dir: path} }

func (c rawClient) close() error {
	c.conn.Close()
	return nil
}

type rawLocker struct {
	conn *zk.Conn
	dir  string
	node string
}

func (l *rawLocker) lock(context.Context) (err error) {
	l.node, err = l.create()
	if errors.Is(err, zk.ErrNoNode) {
		if err = makeParents(l.conn, l.dir); err == nil {
			l.node, err = l.create()
		}
	}
	return err
}

func (l *rawLocker) create() (string, error) {
	return l.conn.Create(l.dir+"/lock-", nil, zk.FlagEphemeral|zk.FlagSequence, openACL)
}

func (l *rawLocker) unlock(context.Context) error { return l.conn.Delete(l.node, -1) }

// sameCalls makes the calls that a free lock of this library makes, and nothing else.
type sameCalls struct{ rawLocker }

func (l *sameCalls) lock(ctx context.Context) error {
	if err := l.rawLocker.lock(ctx); err != nil {
		return err
	}
	if _, _, err := l.conn.Children(l.dir); err != nil {
		return err
	}
	_, _, _, err := l.conn.GetW(l.node)
	return err
}

// zkLockClient is go-zookeeper's own lock.
type zkLockClient struct{ rawClient }

func openZKLock(ctx context.Context, at dialed) (client, error) {
	conn, err := dialRaw(ctx, at)
	return zkLockClient{rawClient{conn}}, err
}

func (c zkLockClient) locker(path string) locker { return zkLocker{zk.NewLock(c.conn, path, openACL)} }

// A zkLocker waits without a ctx: the end of its connection ends it.
type zkLocker struct{ l *zk.Lock }

func (l zkLocker) lock(context.Context) error   { return l.l.Lock() }
func (l zkLocker) unlock(context.Context) error { return l.l.Unlock() }
