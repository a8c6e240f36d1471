package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

const (
	etcdName    = "etcd"
	redsyncName = "redsync"
)

// etcdLibrary is etcd's concurrency.Mutex. One of its sessions holds a lock once, whoever asks, so each locker has a session of its own, on one connection.
func etcdLibrary(server string) library {
	return library{name: etcdName, open: openEtcd, locks: true, asks: 4, server: server, wire: newStretch}
}

type etcdClient struct {
	c   *clientv3.Client
	ttl int // seconds

	mu       sync.Mutex
	sessions []*concurrency.Session
}

func openEtcd(ctx context.Context, at dialed) (client, error) {
	w, _ := at.wire.(*stretch)
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://" + at.addr}, DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				w.ask(false)
				return invoke(ctx, method, req, reply, cc, opts...)
			}),
			grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				s, err := open(ctx, desc, cc, method, opts...)
				return countedStream{s, w, method == "/etcdserverpb.Lease/LeaseKeepAlive"}, err
			}),
		},
	})
	if err != nil {
		return nil, err
	}
	// It connects with its first request.
	if _, err := c.Get(ctx, "none"); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &etcdClient{c: c, ttl: int(at.timeout.Seconds())}, nil
}

// A countedStream counts what the client sends, such as the beginnings and ends of watches.
type countedStream struct {
	grpc.ClientStream
	w         *stretch
	heartbeat bool
}

func (s countedStream) SendMsg(m any) error {
	s.w.ask(s.heartbeat)
	return s.ClientStream.SendMsg(m)
}

func (c *etcdClient) locker(path string) locker { return &etcdLocker{c: c, path: path} }

func (c *etcdClient) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sessions {
		_ = s.Close() // its lease ends by itself otherwise
	}
	c.sessions = nil
	if err := c.c.Close(); !errors.Is(err, context.Canceled) { // which is how it says that it was closed
		return err
	}
	return nil
}

type etcdLocker struct {
	c    *etcdClient
	path string
	m    *concurrency.Mutex // made by the first lock
}

func (l *etcdLocker) lock(ctx context.Context) error {
	if l.m == nil {
		s, err := concurrency.NewSession(l.c.c, concurrency.WithTTL(l.c.ttl))
		if err != nil {
			return err
		}
		l.c.mu.Lock()
		l.c.sessions = append(l.c.sessions, s)
		l.c.mu.Unlock()
		l.m = concurrency.NewMutex(s, l.path)
	}
	return l.m.Lock(ctx)
}

func (l *etcdLocker) unlock(ctx context.Context) error { return l.m.Unlock(ctx) }

// redsyncLibrary is redsync on one Redis. Its locks end by their own timeout, alive or not, and who waits asks again after a random pause.
func redsyncLibrary(server string) library {
	return library{name: redsyncName, open: openRedsync, locks: true, polls: true, server: server, wire: newStretch}
}

type redsyncClient struct {
	c      *redis.Client
	sync   *redsync.Redsync
	expiry time.Duration

	mu   sync.Mutex
	held map[*redsync.Mutex]bool
}

func openRedsync(ctx context.Context, at dialed) (client, error) {
	w, _ := at.wire.(*stretch)
	c := redis.NewClient(&redis.Options{Addr: at.addr, PoolSize: 16, DisableIdentity: true})
	c.AddHook(commands{w})
	if err := c.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &redsyncClient{c: c, sync: redsync.New(goredis.NewPool(c)), expiry: at.timeout, held: make(map[*redsync.Mutex]bool)}, nil
}

// commands counts them.
type commands struct{ w *stretch }

func (commands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.w.ask(false)
		return next(ctx, cmd)
	}
}

func (h commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for range cmds {
			h.w.ask(false)
		}
		return next(ctx, cmds)
	}
}

func (c *redsyncClient) locker(path string) locker {
	const forever = 1 << 30
	return &redsyncLocker{c, c.sync.NewMutex(path, redsync.WithExpiry(c.expiry), redsync.WithTries(forever))}
}

// close gives back what is held: no session of its own ends with the connection.
func (c *redsyncClient) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m := range c.held {
		_, _ = m.Unlock()
	}
	return c.c.Close()
}

type redsyncLocker struct {
	c *redsyncClient
	m *redsync.Mutex
}

func (l *redsyncLocker) lock(ctx context.Context) error {
	err := l.m.LockContext(ctx)
	if err == nil {
		l.c.mu.Lock()
		l.c.held[l.m] = true
		l.c.mu.Unlock()
	}
	return err
}

func (l *redsyncLocker) unlock(ctx context.Context) error {
	l.c.mu.Lock()
	delete(l.c.held, l.m)
	l.c.mu.Unlock()
	_, err := l.m.UnlockContext(ctx)
	return err
}
