package zkrecipes

import (
	"context"
	"encoding/binary"
	"errors"
	"math"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// A Semaphore gives out a limited number of permits. Like a Mutex it is an immutable description: share it freely. Any number of Semaphore values on one
// path, in any process, are the same semaphore; they have to agree on the number of permits, which is not stored, unless they follow it at a znode
// (NewCountedSemaphore).
//
// Whoever waits is served in the order of arrival, also behind one that wants more permits than are free. There is no re-entry: an owner (see Owner) is a
// label here, and each Acquire gets permits of its own.
//
// The layout is that of Curator's InterProcessSemaphoreV2: ephemeral sequential znodes `leases/_c_<uuid>-lease-NNNNNNNNNN` under path, one for each permit,
// with the owner as data, of which as many hold as there are permits, in the order of their numbers; and a queue of
// `locks/_c_<uuid>-lock-NNNNNNNNNN`, whose first makes its leases and waits for them. Both clients respect each other's. One permit and Locker(1) is
// Curator's InterProcessSemaphoreMutex. Children of other forms count for nothing here, but Curator counts all that is in leases.
//
// Curator takes several permits one after the other and keeps those it has while it waits for the next: two of its clients can wait for each other so, or
// one of them and an Acquire of several here. With one permit per call, or with deadlines, nobody does.
type Semaphore struct {
	spec    *lockSpec
	permits int
	counted string // absolute path of the count, "" for a fixed number

	countPath string // as the caller gave it
}

// NewSemaphore describes the semaphore at path with so many permits. It touches no network and never fails: a bad argument shows as an *Error matching
// ErrInvalid from the first call.
func NewSemaphore(s *Session, path string, permits int, opts ...LockOption) *Semaphore {
	m := &Semaphore{spec: newLockSpec(s, path, znode.LeaseName, opts), permits: permits}
	m.spec.cfg.label = true
	if m.spec.err == nil && permits < 1 {
		m.spec.err = invalid("a semaphore of %d permits: at least one", permits)
	}
	return m
}

// NewCountedSemaphore describes the semaphore at path whose number of permits is what the znode at countPath says: four bytes, big-endian, as Curator's
// SharedCount writes them. It is followed live: whoever waits is granted as soon as a greater number allows it; a smaller one takes nothing from those who
// hold, and lets nobody in before enough of them have gone. With a number of zero or less nobody is let in.
//
// A missing count, or one of another size, ends a call with an *Error matching ErrInvalid.
func NewCountedSemaphore(s *Session, path, countPath string, opts ...LockOption) *Semaphore {
	m := &Semaphore{spec: newLockSpec(s, path, znode.LeaseName, opts), countPath: countPath}
	m.spec.cfg.label = true
	if m.spec.err == nil {
		m.counted, m.spec.err = s.abs(countPath)
	}
	return m
}

// Acquire waits until n permits are granted, all of them or none, and returns one Lease for them. For n of one it is the permit's own; for more it is a
// composite, with a part for each. Its waiting, its errors and what it leaves behind are those of Mutex.Lock: when ctx ends first it returns at once an
// *Error that matches ctx's error, and ErrHeld or ErrNoConnection.
//
// An n below one, or above the fixed number of permits, is an *Error matching ErrInvalid. Above a number that is followed it waits.
func (m *Semaphore) Acquire(ctx context.Context, n int) (*Lease, error) {
	return m.acquire(ctx, "acquire", n, false)
}

// TryAcquire takes n permits if they are free and nobody waits for them, and returns an *Error matching ErrHeld otherwise. It waits for a session until
// ctx ends, never for permits. When too few are visibly free that costs reads and no write. Of two that want several at the same moment both may be refused.
func (m *Semaphore) TryAcquire(ctx context.Context, n int) (*Lease, error) {
	return m.acquire(ctx, "tryacquire", n, true)
}

// Locker returns the taking of n permits as a Locker, for Do, TryDo and MultiLock.
func (m *Semaphore) Locker(n int) Locker { return permitLocker{m, n} }

// Participants returns one entry for each permit that is held or waited for, and behind them those who have not come so far, as one server sees them now.
func (m *Semaphore) Participants(ctx context.Context) (Participants, error) {
	return m.participants(ctx)
}

// Path returns the path as it was given to NewSemaphore.
func (m *Semaphore) Path() string { return m.spec.path }

type permitLocker struct {
	m *Semaphore
	n int
}

func (l permitLocker) Lock(ctx context.Context) (*Lease, error)    { return l.m.Acquire(ctx, l.n) }
func (l permitLocker) TryLock(ctx context.Context) (*Lease, error) { return l.m.TryAcquire(ctx, l.n) }
func (l permitLocker) Path() string                                { return l.m.Path() }

func (m *Semaphore) acquire(ctx context.Context, op string, n int, try bool) (*Lease, error) {
	return m.spec.traced(ctx, op, func(ctx context.Context) (*Lease, error) { return m.take(ctx, op, n, try) })
}

func (m *Semaphore) take(ctx context.Context, op string, n int, try bool) (*Lease, error) {
	s, spec := m.spec.s, m.spec
	fail := func(err error) (*Lease, error) { return nil, callError(op, spec.path, err) }
	switch {
	case spec.err != nil:
		return fail(spec.err)
	case n < 1:
		return fail(invalid("%d permits: at least one", n))
	case n > math.MaxInt32:
		return fail(invalid("%d permits: a count has four bytes", n))
	case m.counted == "" && n > m.permits:
		return fail(invalid("%d permits of a semaphore that has %d", n, m.permits))
	}
	key, err := s.identify(ctx, spec)
	if err != nil {
		return fail(err)
	}
	if ctx.Err() != nil {
		return fail(ended(ctx, s.noSession() != nil, s.engine.DialError(), nil, 0))
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fail(ErrClosed)
	}
	h := s.newHold(key, spec)
	h.limit = &holdLimit{s: s, holds: []*hold{h}}
	p := newPermits(m, h, n, try)
	h.seeker = p
	j := h.join(ctx, spec)
	p.wake()
	s.mu.Unlock()
	return s.wait(ctx, op, h, j)
}

// parse reads the count, a SharedCount of Curator's.
func (m *Semaphore) parse(data []byte) (int, error) {
	if len(data) != 4 {
		return 0, invalid("the count at %s has %d bytes, where a number has four, big-endian", m.countPath, len(data))
	}
	return int(int32(binary.BigEndian.Uint32(data))), nil
}

// noCount says what to do about a count that is not there.
func (m *Semaphore) noCount(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return invalid("there is no count at %s: create it with four bytes, the number of permits, big-endian", m.countPath)
	}
	return err
}

// participants reads the two directories of a semaphore.
func (m *Semaphore) participants(ctx context.Context) (Participants, error) {
	const op = "participants"
	s, spec := m.spec.s, m.spec
	if spec.err != nil {
		return nil, &Error{Op: op, Path: spec.path, Err: spec.err}
	}
	limit := m.permits
	if m.counted != "" {
		data, _, err := core.Read(ctx, s.engine, func(c core.Conn) ([]byte, error) {
			data, _, err := c.Get(m.counted)
			return data, err
		})
		if err == nil {
			limit, err = m.parse(data)
		}
		if err != nil {
			return nil, s.readError(ctx, op, spec.path, m.noCount(err))
		}
	}
	ps, err := s.inspectSemaphore(ctx, spec.dir, max(limit, 0))
	if err != nil {
		return nil, s.readError(ctx, op, spec.path, err)
	}
	return spec.withoutData(ps), nil
}
