package zkrecipes

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
)

// Conn is what the recipes call on a ZooKeeper connection; *zk.Conn has it. It never grows.
type Conn interface {
	Create(path string, data []byte, flags int32, acl []zk.ACL) (string, error)
	CreateContainer(path string, data []byte, flags int32, acl []zk.ACL) (string, error)
	CreateTTL(path string, data []byte, flags int32, acl []zk.ACL, ttl time.Duration) (string, error)
	Delete(path string, version int32) error
	Exists(path string) (bool, *zk.Stat, error)
	ExistsW(path string) (bool, *zk.Stat, <-chan zk.Event, error)
	Get(path string) ([]byte, *zk.Stat, error)
	GetW(path string) ([]byte, *zk.Stat, <-chan zk.Event, error)
	Set(path string, data []byte, version int32) (*zk.Stat, error)
	Children(path string) ([]string, *zk.Stat, error)
	ChildrenW(path string) ([]string, *zk.Stat, <-chan zk.Event, error)
	Multi(ops ...any) ([]zk.MultiResponse, error)
	Sync(path string) (string, error)
	State() zk.State
	SessionID() int64
}

var _ Conn = (*zk.Conn)(nil)

// Conn returns a stable forwarder to the connection, for everything that is not a recipe. Its paths are absolute. It stays valid when the Session
// replaces the client underneath. A call waits for a session for up to one session timeout and then returns zk.ErrNoServer; on a closed Session it
// returns zk.ErrConnectionClosed. At most a few requests are under way at a time, further ones wait.
func (s *Session) Conn() Conn { return forwarder{s} }

type forwarder struct{ s *Session }

// do runs fn on the client, translating the engine's errors into those that users of go-zookeeper know.
func (f forwarder) do(fn func(core.Conn) error) error {
	e := f.s.engine
	ctx, cancel := context.WithTimeout(context.Background(), e.Timeout())
	defer cancel()
	err := e.DoCaller(ctx, fn)
	switch {
	case errors.Is(err, core.ErrClosed):
		return zk.ErrConnectionClosed
	case errors.Is(err, context.DeadlineExceeded):
		return zk.ErrNoServer
	}
	return err
}

func (f forwarder) Create(path string, data []byte, flags int32, acl []zk.ACL) (made string, err error) {
	err = f.do(func(c core.Conn) (err error) { made, err = c.Create(path, data, flags, acl); return err })
	return made, err
}

func (f forwarder) CreateContainer(path string, data []byte, flags int32, acl []zk.ACL) (made string, err error) {
	err = f.do(func(c core.Conn) error {
		return f.s.engine.Unlooked(func() (err error) { made, err = c.CreateContainer(path, data, flags, acl); return err })
	})
	return made, err
}

func (f forwarder) CreateTTL(path string, data []byte, flags int32, acl []zk.ACL, ttl time.Duration) (made string, err error) {
	err = f.do(func(c core.Conn) error {
		return f.s.engine.Unlooked(func() (err error) { made, err = c.CreateTTL(path, data, flags, acl, ttl); return err })
	})
	return made, err
}

func (f forwarder) Delete(path string, version int32) error {
	return f.do(func(c core.Conn) error { return c.Delete(path, version) })
}

func (f forwarder) Exists(path string) (ok bool, stat *zk.Stat, err error) {
	err = f.do(func(c core.Conn) (err error) { ok, stat, err = c.Exists(path); return err })
	return ok, stat, err
}

func (f forwarder) ExistsW(path string) (ok bool, stat *zk.Stat, ch <-chan zk.Event, err error) {
	err = f.do(func(c core.Conn) (err error) { ok, stat, ch, err = c.ExistsW(path); return err })
	return ok, stat, ch, err
}

func (f forwarder) Get(path string) (data []byte, stat *zk.Stat, err error) {
	err = f.do(func(c core.Conn) (err error) { data, stat, err = c.Get(path); return err })
	return data, stat, err
}

func (f forwarder) GetW(path string) (data []byte, stat *zk.Stat, ch <-chan zk.Event, err error) {
	err = f.do(func(c core.Conn) (err error) { data, stat, ch, err = c.GetW(path); return err })
	return data, stat, ch, err
}

func (f forwarder) Set(path string, data []byte, version int32) (stat *zk.Stat, err error) {
	err = f.do(func(c core.Conn) (err error) { stat, err = c.Set(path, data, version); return err })
	return stat, err
}

func (f forwarder) Children(path string) (names []string, stat *zk.Stat, err error) {
	err = f.do(func(c core.Conn) (err error) { names, stat, err = c.Children(path); return err })
	return names, stat, err
}

func (f forwarder) ChildrenW(path string) (names []string, stat *zk.Stat, ch <-chan zk.Event, err error) {
	err = f.do(func(c core.Conn) (err error) { names, stat, ch, err = c.ChildrenW(path); return err })
	return names, stat, ch, err
}

func (f forwarder) Multi(ops ...any) (results []zk.MultiResponse, err error) {
	err = f.do(func(c core.Conn) (err error) { results, err = c.Multi(ops...); return err })
	return results, err
}

func (f forwarder) Sync(path string) (synced string, err error) {
	err = f.do(func(c core.Conn) (err error) { synced, err = c.Sync(path); return err })
	return synced, err
}

func (f forwarder) State() zk.State {
	if f.s.engine.Ready() {
		return zk.StateHasSession
	}
	return zk.StateDisconnected
}

func (f forwarder) SessionID() int64 { return f.s.ID() }
