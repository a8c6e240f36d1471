package zkrecipes

import (
	"context"
	"time"
)

// Trace is a set of optional hooks, for metrics, spans and logs. Lost and StateChanged run in order on a goroutine of the session's own, after the
// lease's Done is closed; a slow one delays later hooks and nothing else. The others run on the goroutine of the caller whose call they describe; Released of what
// is given back because another part of its composite lease has ended, as Lost.
//
// For several permits of a Semaphore the hooks are called once, with the lease that the caller gets. A MultiLock has no Session: the hooks of its members'
// Sessions are called for its members.
type Trace struct {
	// AcquireStart is called before anything is sent. The context it returns (nil: ctx) goes to the later hooks of this acquisition and, with its
	// values, into the lease's context.
	AcquireStart func(ctx context.Context, op, path string) context.Context
	// Waiting is called when the place in the queue is known and is not the first; again when it changed.
	Waiting func(ctx context.Context, op, path string, ahead int)
	// AcquireDone is called with the lease or the error that the call returns.
	AcquireDone func(ctx context.Context, op, path string, l *Lease, err error)
	// Released is called when a lease was given back, before its znode is known to be gone.
	Released func(l *Lease, held time.Duration)
	// Lost is called when a lease ended by loss.
	Lost func(l *Lease, err *LostError)
	// StateChanged is called for each change of the session's state.
	StateChanged func(s *Session, st State)
}
