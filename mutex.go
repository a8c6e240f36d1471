package zkrecipes

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// A Mutex is an immutable description of a lock: share it freely. It holds no lease and needs no closing; what a Lock call obtained is in its Lease.
// Any number of Mutex values on one path, in any process, are the same lock.
//
// The layout is that of Curator's InterProcessMutex: ephemeral sequential znodes `_c_<uuid>-lock-NNNNNNNNNN` under path, with the owner as data.
//
// Other clients on the path: InterProcessMutex and go-zookeeper's zk.Lock exclude it and are excluded by it. So does kazoo's Lock if it is made with
// extra_lock_patterns=("__rlock__", "lock-", "__WRIT__", "__READ__"): without it kazoo sees znodes of its own names only, and is granted beside others. Java's
// InterProcessReadWriteLock does not see a mutex on its path.
type Mutex struct{ spec *lockSpec }

// NewMutex describes the lock at path. It touches no network and never fails: a bad argument shows as an *Error matching ErrInvalid from the first call.
func NewMutex(s *Session, path string, opts ...LockOption) *Mutex {
	return &Mutex{newLockSpec(s, path, znode.LockName, opts)}
}

// Lock waits until the lock is granted, in the order of arrival, and returns the Lease. It waits through disconnects, keeping its place, and through the
// end of the session, when it queues again at the tail.
//
// When ctx ends first it returns at once an *Error that matches ctx's error, and ErrHeld or ErrNoConnection; the znode is removed in the background,
// also while disconnected. Errors that no waiting mends come back at once: ErrInvalid, ErrClosed, and those of the server, such as zk.ErrNoAuth. In
// either case nothing is left behind.
//
// ctx bounds the acquisition only. An owner that holds the lock already enters again; see Owner.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) { return m.spec.acquire(ctx, "lock", false) }

// TryLock takes the lock if nobody stands in the way, and returns an *Error matching ErrHeld otherwise, also when only a waiter does: nobody is
// overtaken. It waits for a session until ctx ends, never for holders. A lock that is visibly held costs one read and no write. The read may come from a
// follower that lags: a lock that was released elsewhere just now can still read as held.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.spec.acquire(ctx, "trylock", true)
}

// Participants returns the holder and the waiters, in queue order, as one server sees them now. A missing path has none.
func (m *Mutex) Participants(ctx context.Context) (Participants, error) {
	return m.spec.participants(ctx)
}

// Path returns the path as it was given to NewMutex.
func (m *Mutex) Path() string { return m.spec.path }
