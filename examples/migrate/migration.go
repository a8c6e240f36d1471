package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
)

// A Step is one change. It may be done more than once: by a holder that was lost in the middle of it, or after it and before it was marked, and by the next.
type Step struct {
	Name string
	Do   func(ctx context.Context, token zkrecipes.Token) error
}

// A Migration brings something up to date, once for a whole fleet.
type Migration struct {
	Session *zkrecipes.Session
	Lock    zkrecipes.Locker
	Marker  string // absolute path of a znode, beside the lock: how many steps are done
	Steps   []Step
}

var errNewer = errors.New("more steps are done than this program knows: it is an old version")

// Run returns nil when all steps are done, by this process or by others. An instance of a service calls it before it serves.
func (m *Migration) Run(ctx context.Context) error {
	return zkrecipes.Do(ctx, m.Lock, func(ctx context.Context) error {
		lease, _ := zkrecipes.LeaseFromContext(ctx)
		done, stat, err := m.done()
		if err != nil {
			return err
		}
		if done > len(m.Steps) {
			return errNewer
		}
		for i := done; i < len(m.Steps); i++ {
			if err := m.Steps[i].Do(ctx, lease.Token()); err != nil {
				return fmt.Errorf("step %d, %s: %w", i+1, m.Steps[i].Name, err)
			}
			if stat, err = m.mark(lease, i+1, stat); err != nil {
				return fmt.Errorf("step %d, %s, is done and not marked: %w", i+1, m.Steps[i].Name, err)
			}
		}
		return nil
	})
}

// done needs no sync: the server that has told that the last holder's lock is gone has what that one wrote.
func (m *Migration) done() (int, *zk.Stat, error) {
	data, stat, err := m.Session.Conn().Get(m.Marker)
	if errors.Is(err, zk.ErrNoNode) {
		return 0, nil, nil
	}
	if err != nil {
		return 0, nil, err
	}
	n, err := strconv.Atoi(string(data))
	return n, stat, err
}

// mark is refused by the server when the lease is no more: a holder that was lost cannot mark a step that the next one is at.
func (m *Migration) mark(lease *zkrecipes.Lease, n int, was *zk.Stat) (*zk.Stat, error) {
	data := []byte(strconv.Itoa(n))
	if was == nil {
		_, err := m.Session.Conn().Multi(lease.Check(), &zk.CreateRequest{Path: m.Marker, Data: data, Acl: zk.WorldACL(zk.PermAll)})
		return &zk.Stat{}, err
	}
	answers, err := m.Session.Conn().Multi(lease.Check(), &zk.SetDataRequest{Path: m.Marker, Data: data, Version: was.Version})
	if err != nil {
		return nil, err
	}
	return answers[1].Stat, nil
}
