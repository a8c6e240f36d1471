package zkrecipes

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// An RWLock is a shared and exclusive lock: any number of readers hold it together, a writer alone. Its own methods are the exclusive side, so that it is a
// Locker; RLocker is the shared side. Like a Mutex it is an immutable description: share it freely.
//
// Arrival decides: a reader waits for the nearest writer before it, a writer for whoever is before it. So neither side starves, and a reader that comes
// while a writer waits waits behind that writer.
//
// One owner (see Owner) may enter again and may read under its write lease; the write lease can then be released first, and the read goes on with nobody
// in between: a downgrade. The other way round, write under a read lease, is refused with ErrUpgrade: two readers that both tried would wait for each other
// for ever. A read lease that was taken under a write lease has that one's Token.
//
// The layout is that of Curator's InterProcessReadWriteLock: ephemeral sequential znodes `_c_<uuid>-__WRIT__NNNNNNNNNN` and `_c_<uuid>-__READ__NNNNNNNNNN`
// under path, with the owner as data; a read under a write lease takes the writer's number, as in Curator since 5.5. A Mutex on the same path counts as a
// writer, and one owner may hold it as such; a read under it shares its znode, which then goes with the last of both.
//
// Other clients on the path: an InterProcessReadWriteLock excludes it and is excluded by it, but Curator before 5.5 downgrades at the tail of the queue, where
// a writer that waits already comes first while the reader goes on. An InterProcessMutex does not see its znodes: do not put both on one path. kazoo's
// WriteLock and ReadLock see them with extra_lock_patterns=("lock-", "__WRIT__", "__READ__"), a reader without the last; without it they do not. kazoo's
// ReadLock (2.8) waits for any writer in the queue, also for one that waits behind it, and then both wait for ever.
type RWLock struct{ write, read *lockSpec }

// NewRWLock describes the lock at path. It touches no network and never fails: a bad argument shows as an *Error matching ErrInvalid from the first call.
func NewRWLock(s *Session, path string, opts ...LockOption) *RWLock {
	return &RWLock{newLockSpec(s, path, znode.WriteName, opts), newLockSpec(s, path, znode.ReadName, opts)}
}

// Lock waits until nobody else reads or writes, and returns the write Lease. It is Mutex.Lock in everything else. An owner that only reads gets an *Error
// matching ErrUpgrade at once.
func (l *RWLock) Lock(ctx context.Context) (*Lease, error) {
	return l.write.acquire(ctx, "lock", false)
}

// TryLock takes the write lock if nobody stands in the way, as Mutex.TryLock does, and returns an *Error matching ErrHeld otherwise; ErrUpgrade as Lock.
func (l *RWLock) TryLock(ctx context.Context) (*Lease, error) {
	return l.write.acquire(ctx, "trylock", true)
}

// RLock waits until no writer is before it, and returns the read Lease. Its waiting, its errors and what it leaves behind are those of Mutex.Lock; the
// Ahead of its Error has writers only.
//
// An owner that holds the write lease reads at once, and one that reads already enters again, also when a writer waits: it could wait for itself else.
func (l *RWLock) RLock(ctx context.Context) (*Lease, error) {
	return l.read.acquire(ctx, "rlock", false)
}

// TryRLock takes the read lock if no writer stands in the way, and returns an *Error matching ErrHeld otherwise, also when that writer only waits: nobody
// is overtaken. It waits for a session until ctx ends, never for holders.
func (l *RWLock) TryRLock(ctx context.Context) (*Lease, error) {
	return l.read.acquire(ctx, "tryrlock", true)
}

// RLocker returns the shared side as a Locker, for Do and TryDo.
func (l *RWLock) RLocker() Locker { return rlocker{l} }

// Participants returns the holders and the waiters, in queue order, as one server sees them now. A missing path has none. The Token of a read under a
// write lease is its znode's, not the writer's that its Lease has.
func (l *RWLock) Participants(ctx context.Context) (Participants, error) {
	return l.write.participants(ctx)
}

// Path returns the path as it was given to NewRWLock.
func (l *RWLock) Path() string { return l.write.path }

type rlocker struct{ l *RWLock }

func (r rlocker) Lock(ctx context.Context) (*Lease, error)    { return r.l.RLock(ctx) }
func (r rlocker) TryLock(ctx context.Context) (*Lease, error) { return r.l.TryRLock(ctx) }
func (r rlocker) Path() string                                { return r.l.Path() }

var (
	_ Locker = (*Mutex)(nil)
	_ Locker = (*RWLock)(nil)
)
