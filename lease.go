package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
)

// A Lease is one grant: of a lock, of permits, of leadership. It ends once, by Release or by loss. Its methods may be called by any goroutine at any
// time.
type Lease struct {
	hold    *hold
	outer   *Lease // the lease from which the acquiring ctx descended
	ctx     context.Context
	cancel  context.CancelCauseFunc
	granted time.Time
	end     atomic.Pointer[ending]
	removal *core.Removal // of the znode, when this lease was the last of its hold; under Session.mu
}

// An ending is why a lease is over.
type ending struct{ err error }

// Token is a fencing token: it grows with every later grant of a path. It is the znode's czxid, the number of the transaction that created it.
type Token int64

type leaseKey struct{}

// newLease is called with Session.mu held.
func newLease(ctx context.Context, h *hold, outer *Lease) *Lease {
	l := &Lease{hold: h, outer: outer, granted: time.Now()}
	l.ctx, l.cancel = context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), leaseKey{}, l))
	return l
}

// LeaseFromContext returns the innermost lease from whose Context ctx descends; it may have ended.
func LeaseFromContext(ctx context.Context) (*Lease, bool) {
	l, ok := ctx.Value(leaseKey{}).(*Lease)
	return l, ok
}

// Context ends with this lease; context.Cause says why: ErrReleased or a *LostError. It carries the values of the acquiring ctx, not its cancellation.
// An acquisition of the same path with it enters this lease's hold again.
func (l *Lease) Context() context.Context { return l.ctx }

// Done is closed when the lease has ended. It is closed before anybody else can be granted when the session ends or cannot be confirmed any more; when
// somebody deletes the znode, as soon as the server tells.
func (l *Lease) Done() <-chan struct{} {
	l.hold.s.ask(l.hold)
	return l.ctx.Done()
}

// Err is nil while the lease is held, then ErrReleased or a *LostError. It asks the lease clock and costs no request.
func (l *Lease) Err() error {
	if e := l.end.Load(); e != nil {
		return e.err
	}
	l.hold.s.ask(l.hold)
	if e := l.end.Load(); e != nil {
		return e.err
	}
	return nil
}

// Token returns the fencing token of this grant. All leases of one hold have the same.
func (l *Lease) Token() Token { return l.hold.token }

// Check returns an operation for Conn.Multi that lets the transaction pass only while the znode of this grant exists: the guard for writes to
// ZooKeeper itself.
func (l *Lease) Check() *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: l.hold.node, Version: -1}
}

// Revoked is closed when somebody asked for the lease back, as Curator's Revoker does. It is a request: the lease goes on until it is released.
func (l *Lease) Revoked() <-chan struct{} { return l.hold.revoked }

// Path returns the recipe's path, inside the namespace.
func (l *Lease) Path() string { return l.hold.spec.path }

// Node returns the full path of this grant's znode.
func (l *Lease) Node() string { return l.hold.node }

// Owner returns who holds it.
func (l *Lease) Owner() Owner { return l.hold.key.owner }

// Parts returns the lease itself, or the members of a composite lease.
func (l *Lease) Parts() []*Lease { return []*Lease{l} }

// Release gives the lease back and waits until its znode is gone; the last lease of a hold takes the znode with it. It can only remove the znode of
// this very acquisition.
//
// It returns nil when the znode is gone, also when called again, and a *LostError (matching ErrLost) if the lease had been lost. When ctx ends first it
// returns an error matching ctx.Err(), and ErrNoConnection when there was no session: the lease is over all the same, and the znode is deleted in the
// background, by all means. When the server refuses to delete the znode its reason comes back, such as zk.ErrNoAuth. A ctx that has already ended still releases: use context.WithoutCancel(ctx) in a defer to wait for the outcome. It never
// waits longer than the session can live.
func (l *Lease) Release(ctx context.Context) error { return l.hold.s.release(ctx, l) }

// finish ends the lease; under Session.mu. The returned function closes Done.
func (l *Lease) finish(err error) (tell func()) {
	l.end.Store(&ending{err})
	return func() { l.cancel(err) }
}

// awaitRemoval waits until the znode is gone.
func (l *Lease) awaitRemoval(ctx context.Context, r *core.Removal) error {
	select {
	case <-r.Done():
		return l.removed(r)
	default:
	}
	s := l.hold.s
	limit := time.NewTimer(s.engine.Timeout())
	defer limit.Stop()
	var err error
	select {
	case <-r.Done():
		return l.removed(r)
	case <-r.Refused():
		err = fmt.Errorf("the server does not delete the znode, which stays until the session ends: %w", r.Refusal())
	case <-ctx.Done():
		text := "the znode is being deleted in the background: " + plain(context.Cause(ctx))
		err = also(text, ctx.Err(), context.Cause(ctx), s.noSession())
	case <-limit.C:
		err = also("no session with the ensemble; the znode is deleted when there is one, or ends with its session", ErrNoConnection)
	}
	return &Error{Op: "release", Path: l.Path(), Err: err}
}

func (l *Lease) removed(r *core.Removal) error {
	switch err := r.Err(); {
	case errors.Is(err, zk.ErrNoNode):
		// Somebody had deleted it while it was held, and the notice came after the release.
		return &LostError{Path: l.Path(), Reason: ReasonNodeDeleted}
	case errors.Is(err, core.ErrClosed):
		return &Error{Op: "release", Path: l.Path(), Err: err}
	}
	return nil
}
