package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
)

// A Job is work that is to be done once in each period, by whoever of the fleet comes first.
type Job struct {
	Session *zkrecipes.Session
	Lock    *zkrecipes.Mutex
	Marker  string // absolute path of a znode, beside the lock: the last period that was done
	Every   time.Duration
	Work    func(ctx context.Context, token zkrecipes.Token) error
}

// Why the work was left to others.
var (
	errBusy = errors.New("another host is at it")
	errDone = errors.New("it was done in this period")
)

// Run does the work, unless another host is at it or has done it: then it returns errBusy or errDone. A Work that fails is not marked as done, so the
// next host that comes does it.
func (j *Job) Run(ctx context.Context, now time.Time) error {
	period := now.UTC().Truncate(j.Every).Format(time.RFC3339) // sorts as the times do
	err := zkrecipes.TryDo(ctx, j.Lock, func(ctx context.Context) error {
		// The lock alone would not do: a host whose clock is late comes when the first has finished.
		last, stat, err := j.last()
		if err != nil {
			return err
		}
		if last >= period {
			return errDone
		}
		lease, _ := zkrecipes.LeaseFromContext(ctx)
		if err := j.Work(ctx, lease.Token()); err != nil {
			return err
		}
		return j.mark(lease, period, stat)
	})
	if errors.Is(err, zkrecipes.ErrHeld) {
		return errBusy
	}
	return err
}

// last needs no sync: the server that has told that the last holder's lock is gone has what that one wrote.
func (j *Job) last() (string, *zk.Stat, error) {
	data, stat, err := j.Session.Conn().Get(j.Marker)
	if errors.Is(err, zk.ErrNoNode) {
		return "", nil, nil
	}
	return string(data), stat, err
}

// mark is refused by the server when the lease is no more.
func (j *Job) mark(lease *zkrecipes.Lease, period string, was *zk.Stat) error {
	var write any = &zk.CreateRequest{Path: j.Marker, Data: []byte(period), Acl: zk.WorldACL(zk.PermAll)}
	if was != nil {
		write = &zk.SetDataRequest{Path: j.Marker, Data: []byte(period), Version: was.Version}
	}
	_, err := j.Session.Conn().Multi(lease.Check(), write)
	return err
}
