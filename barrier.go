package zkrecipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// A Barrier is a gate at which processes wait while it is set. It has no holder and no queue: anybody sets it, anybody removes it, and it stays set when the
// one that set it dies. It is immutable: share it freely.
//
// The layout is that of Curator's DistributedBarrier: the barrier is set while the persistent znode path exists. Its data is the owner (WithOwner,
// ContextWithOwner, or a made-up one) or WithData, for people to read.
type Barrier struct{ spec *lockSpec }

// NewBarrier describes the barrier at path. It touches no network and never fails: a bad argument shows as an *Error matching ErrInvalid from the first call.
// WithMaxHold is one, since nobody holds a barrier.
func NewBarrier(s *Session, path string, opts ...LockOption) *Barrier {
	return &Barrier{newBarrierSpec(s, path, opts)}
}

// newBarrierSpec is for what has members but no holders.
func newBarrierSpec(s *Session, path string, opts []LockOption) *lockSpec {
	spec := newLockSpec(s, path, "", opts)
	spec.cfg.label = true
	if spec.err == nil && spec.cfg.maxHold != 0 {
		spec.err = invalid("WithMaxHold(%v): nobody holds a barrier; bound the calls by their ctx", spec.cfg.maxHold)
	}
	return spec
}

// barrierTicket marks the znodes that make Set and Remove come into effect at most once.
const barrierTicket = "barrier"

// Path returns the path that the Barrier was made for, inside the namespace.
func (b *Barrier) Path() string { return b.spec.path }

// Set sets the barrier; parents are made as containers. It returns nil when the barrier is set, by this call or already.
//
// Errors are *Error: ErrInvalid, ErrClosed, those of ctx, and the server's, such as zk.ErrNoAuth. A call that has returned what the server says never comes
// into effect afterwards, also if its connection broke meanwhile. For that Set and Remove write an ephemeral znode `_c_<uuid>-barrier` beside path, which
// lasts no longer than they do. When ctx ends first, the barrier may be set, or be until that znode is gone, which is removed in the background: a moment
// later, at the latest with the session.
func (b *Barrier) Set(ctx context.Context) error {
	const op = "set barrier"
	return b.change(ctx, op, func(s *Session) error {
		key, err := s.identify(ctx, b.spec)
		if err != nil {
			return err
		}
		data := b.spec.data(key.owner)
		if len(data) > core.MaxData {
			return fmt.Errorf("%w: %d bytes, at most %d", core.ErrTooLarge, len(data), core.MaxData)
		}
		parent, _ := znode.Split(b.spec.dir)
		err = s.engine.Once(ctx, parent, barrierTicket, true, &zk.CreateRequest{Path: b.spec.dir, Data: data, Acl: s.engine.ACL()})
		if errors.Is(err, zk.ErrNodeExists) {
			return nil
		}
		return err
	})
}

// Remove removes the barrier, and lets everybody pass who waits. It returns nil when the barrier was set no more, by this call or before. Errors are as
// for Set.
func (b *Barrier) Remove(ctx context.Context) error {
	const op = "remove barrier"
	return b.change(ctx, op, func(s *Session) error {
		parent, _ := znode.Split(b.spec.dir)
		err := s.engine.Once(ctx, parent, barrierTicket, false, &zk.DeleteRequest{Path: b.spec.dir, Version: -1})
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		return err
	})
}

// change runs what Set and Remove do. It returns when ctx ends.
func (b *Barrier) change(ctx context.Context, op string, fn func(s *Session) error) error {
	s := b.spec.s
	if b.spec.err != nil {
		return &Error{Op: op, Path: b.spec.path, Err: b.spec.err}
	}
	if err := s.engine.Until(ctx, func() error { return fn(s) }); err != nil {
		return s.readError(ctx, op, b.spec.path, err)
	}
	return nil
}

// Wait waits until the barrier is not set: it returns nil if there was a moment since the call at which it was not, also when it never was, or when it is set
// again by now. That costs one sync and one read, one read more when the barrier is set, and one when it is removed.
//
// Errors are *Error: ErrInvalid, ErrClosed, those of ctx, and the server's, such as zk.ErrNoAuth. A lost connection or session is none.
func (b *Barrier) Wait(ctx context.Context) error {
	const op = "wait"
	if b.spec.err != nil {
		return &Error{Op: op, Path: b.spec.path, Err: b.spec.err}
	}
	e := b.spec.s.engine
	woken := make(chan struct{}, 1)
	sub := e.Watch(b.spec.dir, core.Data, func(core.Wake) {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	defer sub.Cancel()
	var seen sighting
	for {
		passed := false
		err := e.Until(ctx, func() (err error) {
			passed, err = seen.isGone(ctx, e, b.spec.dir, sub)
			return err
		})
		if err != nil {
			return b.spec.s.readError(ctx, op, b.spec.path, err)
		}
		if passed {
			return nil
		}
		select {
		case <-woken:
		case <-ctx.Done():
			return b.spec.s.readError(ctx, op, b.spec.path, ctx.Err())
		case <-e.Context().Done():
			return b.spec.s.readError(ctx, op, b.spec.path, ErrClosed)
		}
	}
}

// A sighting is what one Wait has seen of its barrier.
type sighting struct {
	synced core.Epoch // where what is read is as new as the call
	czxid  int64      // of the znode that was there then: a later one is another one
}

// isGone reports whether the znode did not exist at some moment since the first call, or else sets the watch. A server that lags behind may not know yet that
// it was created: on each connection the first read comes after a sync. What the watch of another Wait has found may be older than the call: the first
// read is one of its own.
func (v *sighting) isGone(ctx context.Context, e *core.Engine, path string, sub *core.Sub) (bool, error) {
	for {
		var err error
		var span core.Span
		if v.synced != e.Epoch() {
			span, err = e.Do(ctx, func(c core.Conn) error {
				_, err := c.Sync(path)
				return err
			})
			if err == nil && span.SameConn() {
				v.synced = span.After
			}
		}
		if err == nil {
			var stat *zk.Stat
			first := v.czxid == 0
			if first {
				span, err = e.Do(ctx, func(c core.Conn) (err error) {
					_, stat, err = c.Get(path)
					return err
				})
			} else {
				var node core.Node
				node, span, err = sub.Arm(ctx)
				stat = node.Stat
			}
			switch on := span.SameConn() && span.After == v.synced; {
			case on && err == nil && first:
				v.czxid = stat.Czxid
				continue
			case on && err == nil:
				return stat.Czxid > v.czxid, nil
			case on && errors.Is(err, zk.ErrNoNode):
				return true, nil
			case err == nil || errors.Is(err, zk.ErrNoNode):
				continue
			}
		}
		if ctx.Err() != nil || errors.Is(err, ErrClosed) || core.Classify(err) == core.Answered {
			return false, core.Explain(err)
		}
	}
}
