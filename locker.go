package zkrecipes

import (
	"context"
	"errors"
)

// Locker is anything that grants a Lease.
type Locker interface {
	// Lock waits until the lease is granted or ctx ends.
	Lock(ctx context.Context) (*Lease, error)
	// TryLock returns ErrHeld at once if anybody stands in the way; ctx bounds the network.
	TryLock(ctx context.Context) (*Lease, error)
	// Path is what the Locker was made for, inside the namespace.
	Path() string
}

// Do runs fn while it holds l. The ctx that fn gets ends when the caller's ctx ends or when the lease does, with the reason as its context.Cause; it
// carries the lease (LeaseFromContext), so a nested Do on the same lock enters again.
//
// Do returns the error of the acquisition, or fn's error, joined with a *LostError (matching ErrLost) if the lease did not survive fn: then somebody
// else may have held the lock while fn still ran. The lease is released when fn returns or panics; that waits for the znode to be gone, for at most one
// session timeout, whatever the caller's ctx does.
func Do(ctx context.Context, l Locker, fn func(context.Context) error) error {
	lease, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

// TryDo is Do with TryLock: when somebody else holds l it returns an error matching ErrHeld at once, and fn does not run.
func TryDo(ctx context.Context, l Locker, fn func(context.Context) error) error {
	lease, err := l.TryLock(ctx)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

// during returns a ctx that ends with the lease or with ctx, with the reason as its cause, and has the lease's values.
func (l *Lease) during(ctx context.Context) (both context.Context, end context.CancelCauseFunc) {
	both, cancel := context.WithCancelCause(l.Context())
	stop := func() {}
	if deadline, ok := ctx.Deadline(); ok {
		both, stop = context.WithDeadlineCause(both, deadline, context.DeadlineExceeded)
	}
	detach := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return both, func(cause error) {
		cancel(cause)
		detach()
		stop()
	}
}

func (l *Lease) run(ctx context.Context, fn func(context.Context) error) (err error) {
	both, end := l.during(ctx)
	defer end(nil)
	defer func() {
		// Also when fn panics. What the caller has to know is whether the lease was there to the end; a release that could not be confirmed is
		// finished in the background.
		lost := l.Err()
		if rerr := l.Release(context.WithoutCancel(ctx)); rerr != nil && lost == nil && errors.Is(rerr, ErrLost) {
			lost = rerr
		}
		if errors.Is(lost, ErrLost) {
			err = errors.Join(err, lost)
		}
	}()
	return fn(both)
}
