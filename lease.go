package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
)

// A Lease is one grant: of a lock, of permits, of leadership. It ends once, by Release or by loss. Its methods may be called by any goroutine at any
// time.
//
// A composite lease, of several permits or several locks, has Parts, each with a znode of its own. It has no znode itself: Node is empty, Token 0 and Check
// nil. Releasing a part that it needs releases it all.
type Lease struct {
	hold    *hold                    // nil for a composite
	group   *group                   // of a composite
	of      atomic.Pointer[[]*group] // the composites that it is a part of
	from    context.Context          // the acquiring ctx
	made    atomic.Pointer[leaseContext]
	granted time.Duration // since began; 0 when no hook wants to know
	end     atomic.Pointer[ending]
}

// began is a time with which others are compared.
var began = time.Now()

// An ending is why a lease is over.
type ending struct{ err error }

var released = &ending{ErrReleased}

// A leaseContext is made when it is first asked for: most leases of an owner that enters again never are.
type leaseContext struct {
	context.Context
	end context.CancelCauseFunc
}

// Token is a fencing token: it grows with every later grant of a path. It is the znode's czxid, the number of the transaction that created it.
type Token int64

type leaseKey struct{}

// newLease makes a lease. s is the Session whose hooks are called for it, nil for none.
func newLease(ctx context.Context, s *Session, h *hold) *Lease {
	l := &Lease{hold: h, from: ctx}
	if s != nil && s.tracesReleased {
		l.granted = time.Since(began)
	}
	return l
}

// LeaseFromContext returns the innermost lease from whose Context ctx descends; it may have ended.
func LeaseFromContext(ctx context.Context) (*Lease, bool) {
	l, ok := ctx.Value(leaseKey{}).(*Lease)
	return l, ok
}

// Context ends with this lease; context.Cause says why: ErrReleased or a *LostError. It carries the values of the acquiring ctx, not its cancellation.
// An acquisition of the same lock with it enters this lease's hold again; permits and leadership never do, each has its own.
func (l *Lease) Context() context.Context {
	c := l.made.Load()
	if c == nil {
		c = new(leaseContext)
		c.Context, c.end = context.WithCancelCause(context.WithValue(context.WithoutCancel(l.from), leaseKey{}, l))
		if !l.made.CompareAndSwap(nil, c) {
			c = l.made.Load()
		}
	}
	// Whoever ends the lease says so first, and then looks for a ctx; here it is the other way round, by every caller. So there is none that was given
	// away and goes on after that: if it was not there to be ended, its caller sees the end.
	if e := l.end.Load(); e != nil {
		c.end(e.err)
	}
	return c.Context
}

// Done is closed when the lease has ended. It is closed before anybody else can be granted when the session ends or cannot be confirmed any more; when
// somebody deletes the znode, as soon as the server tells.
func (l *Lease) Done() <-chan struct{} {
	l.ask()
	return l.Context().Done()
}

// Err is nil while the lease is held, then ErrReleased or a *LostError. It asks the lease clock and costs no request.
func (l *Lease) Err() error {
	if e := l.end.Load(); e != nil {
		return e.err
	}
	l.ask()
	if e := l.end.Load(); e != nil {
		return e.err
	}
	return nil
}

// ask asks the clocks whether the lease is still held, and ends it if not.
func (l *Lease) ask() {
	if l.group != nil {
		l.group.ask()
		return
	}
	l.hold.s.ask(l.hold)
}

// Token returns the fencing token of this grant. All leases of one hold have the same; a composite lease has none, 0.
func (l *Lease) Token() Token {
	if l.group != nil {
		return 0
	}
	return l.hold.token
}

// Check returns an operation for Conn.Multi that lets the transaction pass only while the znode of this grant exists: the guard for writes to
// ZooKeeper itself. It is nil for a composite lease, whose Parts have one each.
func (l *Lease) Check() *zk.CheckVersionRequest {
	if l.group != nil {
		return nil
	}
	return &zk.CheckVersionRequest{Path: l.hold.stake.node, Version: -1}
}

// Revoked is closed when somebody asked for the lease back, or for a part of it, as Curator's Revoker does. It is a request: the lease goes on until it is
// released.
func (l *Lease) Revoked() <-chan struct{} {
	if l.group != nil {
		return l.group.revoked
	}
	return l.hold.stake.revoked.channel()
}

// Path returns the recipe's path, inside the namespace; of a MultiLock those of its members, joined by commas.
func (l *Lease) Path() string {
	if l.group != nil {
		return l.group.path
	}
	return l.hold.spec.path
}

// Node returns the full path of this grant's znode, "" for a composite lease.
func (l *Lease) Node() string {
	if l.group != nil {
		return ""
	}
	return l.hold.stake.node
}

// Owner returns who holds it; of a composite lease, who holds the first part.
func (l *Lease) Owner() Owner {
	if l.group != nil {
		return l.group.parts[0].Owner()
	}
	return l.hold.key.owner
}

// Parts returns the lease itself, or the members of a composite lease.
func (l *Lease) Parts() []*Lease {
	if l.group != nil {
		return slices.Clone(l.group.parts)
	}
	return []*Lease{l}
}

// leaves are the leases with a znode: itself, or those of its parts.
func (l *Lease) leaves() (all []*Lease) {
	if l.group == nil {
		return []*Lease{l}
	}
	for _, p := range l.group.parts {
		all = append(all, p.leaves()...)
	}
	return all
}

// Release gives the lease back and waits until its znode is gone; the last lease of a hold takes the znode with it. It can only remove the znode of
// this very acquisition.
//
// It returns nil when the znode is gone, also when called again, and a *LostError (matching ErrLost) if the lease had been lost. When ctx ends first it
// returns an error matching ctx.Err(), and ErrNoConnection when there was no session: the lease is over all the same, and the znode is deleted in the
// background, by all means. When the server refuses to delete the znode its reason comes back, such as zk.ErrNoAuth. A ctx that has already ended still releases: use context.WithoutCancel(ctx) in a defer to wait for the outcome. It never
// waits longer than the session can live.
//
// The parts of a composite lease are given back in reverse order, all of them whatever becomes of one; the first error is returned.
func (l *Lease) Release(ctx context.Context) error {
	l.give(callHook)
	return l.awaitGone(ctx)
}

// A hooker calls a hook of a Session: on the goroutine of the caller whose call it describes, or on the Session's own.
type hooker func(s *Session, hook func())

func callHook(_ *Session, hook func())  { hook() }
func queueHook(s *Session, hook func()) { s.hooks.Add(hook) }

// give gives the lease back and waits for nothing.
func (l *Lease) give(call hooker) {
	if l.group != nil {
		l.group.give(call)
		return
	}
	l.hold.s.give(l, call)
}

// awaitGone waits for the outcome of give, for no longer than the sessions can live.
func (l *Lease) awaitGone(ctx context.Context) error {
	if l.group == nil {
		switch err := l.end.Load().err; {
		case err != ErrReleased:
			return err
		case l.leaving() == nil:
			return nil
		}
	}
	over := make(chan struct{})
	limit := time.AfterFunc(l.longest(), func() { close(over) })
	defer limit.Stop()
	return l.gone(ctx, over)
}

// longest is how long one of its sessions can live.
func (l *Lease) longest() (d time.Duration) {
	if l.group == nil {
		return l.hold.s.engine.Timeout()
	}
	for _, p := range l.group.parts {
		d = max(d, p.longest())
	}
	return d
}

// gone waits for the outcome of give until limit is closed.
func (l *Lease) gone(ctx context.Context, limit <-chan struct{}) error {
	if l.group != nil {
		return l.group.gone(ctx, limit)
	}
	if err := l.end.Load().err; err != ErrReleased {
		return err
	}
	return l.awaitEnd(ctx, limit, l.leaving())
}

// leaving is the stake on which the lease was the last; nil if it was not. It is asked behind give, which has been in the step that decided it, or behind it.
func (l *Lease) leaving() *stake {
	if l.hold.last.Load() != l {
		return nil
	}
	return l.hold.stake
}

// finish ends the lease and closes Done, which runs no code of a user's; false if it had ended before. Under Session.mu, but for a composite.
func (l *Lease) finish(err error) bool {
	e := released
	if err != ErrReleased {
		e = &ending{err}
	}
	if !l.end.CompareAndSwap(nil, e) {
		return false
	}
	if c := l.made.Load(); c != nil {
		c.end(err)
	}
	for _, g := range l.groups() {
		g.partEnded(l)
	}
	return true
}

// groups are the composites that the lease is a part of: one, unless a Locker of the user's gives the same lease to several.
func (l *Lease) groups() []*group {
	if of := l.of.Load(); of != nil {
		return *of
	}
	return nil
}

func (l *Lease) join(g *group) {
	for {
		old := l.of.Load()
		all := append(slices.Clone(l.groups()), g)
		if l.of.CompareAndSwap(old, &all) {
			return
		}
	}
}

// awaitEnd waits until the znode on which the lease stood last is gone; nil for one on which others stand.
func (l *Lease) awaitEnd(ctx context.Context, limit <-chan struct{}, st *stake) error {
	if st == nil {
		return nil
	}
	// What has happened counts more than a ctx that has ended.
	if !st.ended.isClosed() {
		select {
		case <-st.ended.channel():
		case <-ctx.Done(): // a read that is being made beside it keeps it
			return l.unfinished(ctx)
		case <-limit:
			return l.unfinished(context.Background())
		}
	}
	r := st.removal
	if r == nil {
		return &LostError{Path: l.Path(), Reason: ReasonNodeDeleted}
	}
	select {
	case <-r.Done():
		return l.removed(r)
	default:
	}
	select {
	case <-r.Done():
		return l.removed(r)
	case <-r.Refused():
		err := fmt.Errorf("the server does not delete the znode, which stays until the session ends: %w", r.Refusal())
		return &Error{Op: "release", Path: l.Path(), Err: err}
	case <-ctx.Done():
		return l.unfinished(ctx)
	case <-limit:
		return l.unfinished(context.Background())
	}
}

// unfinished is the error of a Release that cannot wait any longer: because ctx has ended, or because the session must have.
func (l *Lease) unfinished(ctx context.Context) error {
	err := also("no session with the ensemble; the znode is deleted when there is one, or ends with its session", ErrNoConnection)
	if ctx.Err() != nil {
		text := "the znode is being deleted in the background: " + plain(context.Cause(ctx))
		err = also(text, ctx.Err(), context.Cause(ctx), l.hold.s.noSession())
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
