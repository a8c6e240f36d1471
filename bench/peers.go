package main

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/interop"
)

// peerLibrary is another client of ZooKeeper, in a process of its own that all its sessions share. What its lines take is in its times, not in its counts.
func peerLibrary(kind interop.Kind) library {
	return library{
		name: string(kind), locks: true, outside: true, asks: 3,
		open: func(_ context.Context, at dialed) (client, error) {
			return openPeer(at, func(s *scope) *interop.Process { return interop.Shared(s, kind) })
		},
		hold: func(ctx context.Context, s *stand, path string) (holding, error) {
			h := &peerHolder{path: path}
			c, err := openPeer(dialed{addr: s.server(), timeout: s.run.size.timeout}, func(own *scope) *interop.Process {
				h.process = interop.Start(own, kind)
				return h.process
			})
			h.client = c
			return h, err
		},
	}
}

// A peerClient is one peer, and the scope that it is closed with.
type peerClient struct {
	peer *interop.Peer
	s    *scope
}

func openPeer(at dialed, process func(*scope) *interop.Process) (*peerClient, error) {
	c := &peerClient{s: &scope{}}
	opened := make(chan struct{})
	go func() { // for what Fatalf ends
		defer close(opened)
		c.peer = process(c.s).OpenFor(c.s, []string{at.addr}, at.timeout)
	}()
	<-opened
	if c.peer == nil {
		return nil, c.close()
	}
	return c, nil
}

func (c *peerClient) close() error {
	c.s.close()
	return errors.Join(c.s.errs...)
}

func (c *peerClient) locker(path string) locker { return &peerLocker{c.peer, path} }

func (c *peerClient) drain(ctx context.Context, path string, n int) error {
	return c.peer.Drain(ctx, path, n)
}

type peerLocker struct {
	peer *interop.Peer
	path string
}

func (l *peerLocker) lock(ctx context.Context) error {
	_, err := l.peer.Lock(ctx, interop.Mutex, l.path)
	return err
}

func (l *peerLocker) unlock(ctx context.Context) error {
	return l.peer.Release(ctx, interop.Mutex, l.path)
}

// A peerHolder is a process with one peer in it.
type peerHolder struct {
	process *interop.Process
	client  *peerClient
	path    string
}

func (h *peerHolder) held(ctx context.Context) error { return h.client.locker(h.path).lock(ctx) }
func (h *peerHolder) leave() error                   { return h.client.peer.Close(context.Background()) }
func (h *peerHolder) kill()                          { h.process.Kill() }

func (h *peerHolder) end() {
	h.kill()
	_ = h.client.close() // of a process that has ended
}
