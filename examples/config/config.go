package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
)

// A Config is what all instances of a service go by.
type Config struct {
	Workers int    `json:"workers"`
	Banner  string `json:"banner"`
}

func (c Config) check() error {
	if c.Workers < 1 {
		return fmt.Errorf("workers: %d, at least 1", c.Workers)
	}
	return nil
}

// A Follower has the newest configuration that it could use.
type Follower struct {
	Watcher *zkrecipes.Watcher
	Note    func(format string, args ...any)

	current atomic.Pointer[Config]
}

// Config costs no request. It is nil before the first one has come.
func (f *Follower) Config() *Config { return f.current.Load() }

// Run follows until ctx ends, through lost connections and sessions. What cannot be used is noted, and the last good one stays.
func (f *Follower) Run(ctx context.Context) error {
	for znode, err := range f.Watcher.Data(ctx) {
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if !znode.Exists() {
			f.Note("there is no configuration at %s", znode.Path)
			continue
		}
		c := new(Config)
		if err := errors.Join(json.Unmarshal(znode.Data, c), c.check()); err != nil {
			f.Note("version %d is not used: %v", znode.Stat.Version, err)
			continue
		}
		f.current.Store(c)
		f.Note("version %d: %+v", znode.Stat.Version, *c)
	}
	return nil
}

// An Editor changes it.
type Editor struct {
	Session *zkrecipes.Session
	Lock    *zkrecipes.Mutex
	Znode   string // absolute
}

// Edit is alone while change looks at the configuration and thinks, and what it writes is refused if somebody else has written all the same: when the lease was
// lost meanwhile, or by somebody who asks for no lock.
func (e *Editor) Edit(ctx context.Context, change func(*Config) error) error {
	return zkrecipes.Do(ctx, e.Lock, func(ctx context.Context) error {
		lease, _ := zkrecipes.LeaseFromContext(ctx)
		c := Config{Workers: 1}
		data, stat, err := e.Session.Conn().Get(e.Znode)
		missing := errors.Is(err, zk.ErrNoNode)
		switch {
		case missing:
		case err != nil:
			return err
		default:
			if err := json.Unmarshal(data, &c); err != nil {
				return err
			}
		}
		if err := errors.Join(change(&c), c.check()); err != nil {
			return err
		}
		if data, err = json.Marshal(c); err != nil {
			return err
		}
		var write any = &zk.CreateRequest{Path: e.Znode, Data: data, Acl: zk.WorldACL(zk.PermAll)}
		if !missing {
			write = &zk.SetDataRequest{Path: e.Znode, Data: data, Version: stat.Version}
		}
		_, err = e.Session.Conn().Multi(lease.Check(), write)
		return err
	})
}
