package zkrecipes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// Mode is the way in which a participant holds or wants to hold.
type Mode int

// The modes.
const (
	ModeExclusive Mode = iota // nobody else may hold
	ModeShared                // other shared ones may hold too
)

func (m Mode) String() string {
	if m == ModeShared {
		return "shared"
	}
	return "exclusive"
}

// A Participant is one znode in the queue of a lock.
type Participant struct {
	Node     string // absolute path of its znode
	Owner    Owner  // what its data says; empty once revoked or with WithData. Only Session proves who it is
	Data     []byte
	Session  int64
	Since    time.Time // when it was created, by the server's clock
	Token    Token
	Mode     Mode
	Holding  bool
	Position int // in the queue, from 0
}

// Participants is one snapshot in queue order.
type Participants []Participant

// Holders returns those who hold.
func (p Participants) Holders() Participants { return p.filter(true) }

// Waiters returns those who wait.
func (p Participants) Waiters() Participants { return p.filter(false) }

func (p Participants) filter(holding bool) Participants {
	return slices.DeleteFunc(slices.Clone(p), func(q Participant) bool { return q.Holding != holding })
}

// fill takes what a read of the znode returned.
func (p *Participant) fill(data []byte, stat *zk.Stat) {
	p.Data, p.Session, p.Token, p.Since = data, stat.EphemeralOwner, Token(stat.Czxid), time.UnixMilli(stat.Ctime)
	if o := Owner(data); o.check() == nil {
		p.Owner = o
	}
}

// participants reads a lock's queue.
func (spec *lockSpec) participants(ctx context.Context) (Participants, error) {
	const op = "participants"
	if spec.err != nil {
		return nil, &Error{Op: op, Path: spec.path, Err: spec.err}
	}
	names, err := spec.s.list(ctx, spec.dir)
	if err != nil {
		return nil, spec.s.readError(ctx, op, spec.path, err)
	}
	ps, err := spec.s.readQueue(ctx, spec.dir, names, family(spec.marker))
	if err != nil {
		return nil, spec.s.readError(ctx, op, spec.path, err)
	}
	return spec.withoutData(ps), nil
}

// Inspect returns who holds and who waits at any recipe's path, whoever made the znodes: the locks of this package, of Curator, of go-zookeeper (zk.Lock)
// and of kazoo, and beside them Curator's leader latches and the leases of its semaphores. Holding and Position are counted for each of these three alone,
// and for all the locks together, as this package does: other clients do not see all of each other's znodes (see Mutex, RWLock). At a semaphore's path, which has its znodes in the directories leases and locks, the leases come first.
//
// It is one look, as Mutex.Participants: a list and a read of each znode, as one server sees them. Owner is what the data say; other clients put
// other things there. Children of other forms are ignored, and a missing path has no participants. Errors are *Error: ErrInvalid, ErrClosed, those of ctx,
// and the server's, such as zk.ErrNoAuth.
func Inspect(ctx context.Context, s *Session, path string) (Participants, error) {
	const op = "inspect"
	if s == nil {
		return nil, &Error{Op: op, Path: path, Err: invalid("no Session")}
	}
	dir, err := s.abs(path)
	if err != nil {
		return nil, &Error{Op: op, Path: path, Err: err}
	}
	ps, err := s.inspect(ctx, dir)
	if err != nil {
		return nil, s.readError(ctx, op, path, err)
	}
	return ps, nil
}

func (s *Session) inspect(ctx context.Context, dir string) (ps Participants, err error) {
	names, err := s.list(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, kind := range [][]string{markers, {znode.LatchName}, {znode.LeaseName}} {
		found, err := s.readQueue(ctx, dir, names, kind)
		if err != nil {
			return nil, err
		}
		ps = append(ps, found...)
	}
	if !slices.Contains(names, leasesDir) {
		return ps, nil
	}
	permits, err := s.inspectSemaphore(ctx, dir, -1)
	return append(ps, permits...), err
}

// inspectSemaphore reads the two directories of a semaphore; its limit is negative where it is not known.
func (s *Session) inspectSemaphore(ctx context.Context, dir string, limit int) (Participants, error) {
	var parts [2]Participants
	for i, part := range []struct{ dir, marker string }{{leasesDir, znode.LeaseName}, {locksDir, znode.LockName}} {
		at := znode.Join(dir, part.dir)
		names, err := s.list(ctx, at)
		if err != nil {
			return nil, err
		}
		if parts[i], err = s.readQueue(ctx, at, names, []string{part.marker}); err != nil {
			return nil, err
		}
	}
	return semaphore(parts[0], parts[1], limit), nil
}

// The directories of Curator's InterProcessSemaphoreV2.
const (
	leasesDir = "leases"
	locksDir  = "locks"
)

// semaphore makes one queue of a semaphore's two directories. The first limit leases hold. Who is first in locks makes its leases before it knows whether
// permits are free, holds none of them before it has all, and leaves locks then: until then it waits in both. That is how one that waits is told; where the
// limit is not known, by that alone.
func semaphore(leases, locks Participants, limit int) Participants {
	first := func(l Participant) bool {
		return len(locks) > 0 && l.Session == locks[0].Session && l.Token > locks[0].Token
	}
	waits := limit < 0 && slices.ContainsFunc(leases, first) || limit >= 0 && slices.ContainsFunc(leases[min(limit, len(leases)):], first)
	for i, l := range leases {
		if waits && first(l) || limit >= 0 && i >= limit {
			leases[i].Holding = false
		}
	}
	if waits {
		locks = locks[1:]
	}
	for i := range locks {
		locks[i].Holding = false
		locks[i].Position = len(leases) + i
	}
	return append(leases, locks...)
}

// readError is the error of a call that only reads.
func (s *Session) readError(ctx context.Context, op, path string, err error) error {
	if ctx.Err() != nil {
		err = ended(ctx, s.noSession() != nil, s.engine.DialError(), nil, 0)
	}
	return callError(op, path, err)
}

// list reads the names in a directory; a missing one is empty.
func (s *Session) list(ctx context.Context, dir string) ([]string, error) {
	names, _, err := core.Read(ctx, s.engine, func(c core.Conn) ([]string, error) {
		names, _, err := c.Children(dir)
		return names, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err == nil {
		s.engine.Seen(dir, names)
	}
	return names, err
}

// readers is how many znodes of a queue are read at once.
const readers = 8

// readQueue reads the znodes of one family among names, and ranks them.
func (s *Session) readQueue(ctx context.Context, dir string, names, family []string) (Participants, error) {
	var queue []member
	for _, raw := range names {
		if n, ok := znode.Parse(raw, family...); ok {
			queue = append(queue, member{name: n, p: Participant{Node: znode.Join(dir, raw)}})
		}
	}
	errs := make([]error, len(queue))
	var wg sync.WaitGroup
	places := make(chan struct{}, readers)
	for i := range queue {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			m := &queue[i]
			_, _, errs[i] = core.Read(ctx, s.engine, func(c core.Conn) (none struct{}, err error) {
				data, stat, err := c.Get(m.p.Node)
				if err == nil {
					m.p.fill(data, stat)
				}
				return none, err
			})
		})
	}
	wg.Wait()
	for i := len(queue) - 1; i >= 0; i-- {
		switch {
		case errors.Is(errs[i], zk.ErrNoNode): // gone since
			queue = slices.Delete(queue, i, i+1)
		case errs[i] != nil:
			return nil, errs[i]
		}
	}
	ps := rank(queue)
	s.labelOwn(ps)
	return ps, nil
}

type member struct {
	name znode.Name
	p    Participant
}

// rank puts the members of one family into the order of their queue, and finds who holds: nobody exclusive with a lower number before it. A reader that
// took its owner's number as a writer has the same one, and holds beside it.
func rank(queue []member) (ps Participants) {
	byCzxid := slices.ContainsFunc(queue, func(m member) bool { return znode.Exhausted(m.name.Seq) })
	slices.SortFunc(queue, func(a, b member) int {
		if byCzxid {
			return cmp.Compare(a.p.Token, b.p.Token)
		}
		return cmp.Or(cmp.Compare(a.name.Seq, b.name.Seq), cmp.Compare(a.p.Token, b.p.Token))
	})
	var blocker, first *znode.Name // the first exclusive one, and the first of all
	before := func(a, b *znode.Name) bool { return a != nil && (byCzxid || a.Seq < b.Seq) }
	for i := range queue {
		n, p := &queue[i].name, &queue[i].p
		p.Position = i
		switch n.Marker {
		case znode.LeaseName:
			p.Mode, p.Holding = ModeShared, true
		case znode.ReadName, znode.KazooRead:
			p.Mode, p.Holding = ModeShared, !before(blocker, n)
		default:
			p.Holding = !before(first, n)
			if blocker == nil {
				blocker = n
			}
		}
		if first == nil {
			first = n
		}
		ps = append(ps, *p)
	}
	return ps
}

// labelOwn corrects the owners of this session's own holds, whose data may be no owner.
func (s *Session) labelOwn(ps Participants) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := make(map[string]*stake)
	for _, h := range s.holds {
		if h.phase == held {
			own[h.stake.node] = h.stake
		}
	}
	for i := range ps {
		if st := own[ps[i].Node]; st != nil && !st.labeled {
			ps[i].Owner = ""
		}
	}
}

// Revoke asks the holder or waiter whose znode is node (absolute, as Participant.Node) to give it back. It is Curator's Revoker: the znode's data become
// `__REVOKE__`, which closes Lease.Revoked of a holder here, and calls the listener of a revocable lock of Curator's. Whether and when it gives the lock
// back is its own decision. A waiter here learns of it with its lease.
//
// It returns nil when the request is written, also when the znode has gone meanwhile. Errors are *Error: ErrInvalid for what is no lock's znode, and for
// kazoo's, which know no such request; ErrClosed; those of ctx; and the server's, such as zk.ErrNoAuth. After an error of ctx it may still be written.
func Revoke(ctx context.Context, s *Session, node string) error {
	const op = "revoke"
	fail := func(format string, args ...any) error {
		return &Error{Op: op, Path: node, Err: invalid(format, args...)}
	}
	if s == nil {
		return fail("no Session")
	}
	if err := znode.Validate(node); err != nil {
		return fail("%w", err)
	}
	_, raw := znode.Split(node)
	if _, ok := znode.Parse(raw, znode.KazooLock, znode.KazooRead); ok {
		return fail("%s is a znode of kazoo's, which knows no request to give a lock back", raw)
	}
	if _, ok := znode.Parse(raw, znode.LockName, znode.WriteName, znode.ReadName); !ok {
		return fail("%s is no lock's znode; take Node of a Participant", raw)
	}
	_, _, err := core.Read(ctx, s.engine, func(c core.Conn) (*zk.Stat, error) { return c.Set(node, []byte(revokeMessage), -1) })
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return s.readError(ctx, op, node, err)
	}
	return nil
}
