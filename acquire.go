package zkrecipes

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// A lockSpec is what a recipe asks the contender for.
type lockSpec struct {
	s      *Session
	path   string // as the caller gave it
	dir    string // absolute
	marker string
	cfg    lockConfig
	err    error // of the constructor's arguments

	latest *hold // the last one that it started, if that is in the Session's table; under Session.mu
}

func newLockSpec(s *Session, path, marker string, opts []LockOption) *lockSpec {
	var cfg lockConfig
	for _, o := range opts {
		if o != nil {
			o.applyLock(&cfg)
		}
	}
	return newSpec(s, path, marker, cfg)
}

func newSpec(s *Session, path, marker string, cfg lockConfig) *lockSpec {
	spec := &lockSpec{s: s, path: path, marker: marker, cfg: cfg}
	if s == nil {
		spec.err = invalid("no Session")
		return spec
	}
	if spec.dir, spec.err = s.abs(path); spec.err != nil {
		return spec
	}
	switch {
	case spec.cfg.owner != nil && spec.cfg.owner.check() != nil:
		spec.err = spec.cfg.owner.check()
	case spec.cfg.maxHold < 0:
		spec.err = invalid("WithMaxHold(%v)", spec.cfg.maxHold)
	case len(spec.cfg.data) > core.MaxData:
		spec.err = invalid("WithData of %d bytes, at most %d", len(spec.cfg.data), core.MaxData)
	case spec.dir == "/zookeeper" || strings.HasPrefix(spec.dir, "/zookeeper/"):
		spec.err = invalid("%s belongs to the server", spec.dir)
	}
	return spec
}

// shared reports whether it is the read side of a lock.
func (spec *lockSpec) shared() bool { return spec.marker == znode.ReadName }

// data is what the znode of an owner says.
func (spec *lockSpec) data(o Owner) []byte {
	if spec.cfg.hasData {
		return spec.cfg.data
	}
	return []byte(o)
}

// withoutData takes the owners out of participants whose znodes say something else, which is nobody's business.
func (spec *lockSpec) withoutData(ps Participants) Participants {
	if len(spec.cfg.data) > 0 {
		for i := range ps {
			ps[i].Owner = ""
		}
	}
	return ps
}

// reenters is the session whose owners may enter again, 0 for none.
func (spec *lockSpec) reenters() int64 {
	if spec.cfg.label {
		return 0
	}
	return spec.s.ID()
}

// acquire is Lock and TryLock of every lock.
//
// What an owner's call finds is its own standing on the path, by mode:
//
//	it asks for | nothing held | acquiring that mode | acquiring the other | write held         | read held alone
//	write       | queue        | join                | wait, look again    | enter again        | ErrUpgrade
//	read        | queue        | join                | wait, look again    | nest, enter again  | enter again
//
// So two modes of one owner never queue at once, and a reader never waits behind its own writer. A call that may not wait for holders gets ErrHeld
// wherever the answer depends on a call of the same owner that does.
func (spec *lockSpec) acquire(ctx context.Context, op string, try bool) (*Lease, error) {
	return spec.traced(ctx, op, func(ctx context.Context) (*Lease, error) { return spec.s.acquireOne(ctx, op, spec, try) })
}

// traced runs an acquisition between the hooks for its beginning and its end.
func (spec *lockSpec) traced(ctx context.Context, op string, acquire func(context.Context) (*Lease, error)) (l *Lease, err error) {
	s := spec.s
	if s == nil {
		return nil, &Error{Op: op, Path: spec.path, Err: spec.err}
	}
	for _, t := range s.cfg.trace {
		if t.AcquireStart != nil {
			if c := t.AcquireStart(ctx, op, spec.path); c != nil {
				ctx = c
			}
		}
	}
	l, err = acquire(ctx)
	for _, t := range s.cfg.trace {
		if t.AcquireDone != nil {
			t.AcquireDone(ctx, op, spec.path, l, err)
		}
	}
	return l, err
}

func (s *Session) acquireOne(ctx context.Context, op string, spec *lockSpec, try bool) (*Lease, error) {
	fail := func(err error) (*Lease, error) { return nil, callError(op, spec.path, err) }
	if spec.err != nil {
		return fail(spec.err)
	}
	key, err := s.identify(ctx, spec)
	if err != nil {
		return fail(err)
	}
	for {
		if ctx.Err() != nil {
			return fail(ended(ctx, s.noSession() != nil, s.engine.DialError(), nil, 0))
		}
		s.mu.Lock()
		e := s.enter(ctx, key, spec, try)
		s.mu.Unlock()
		switch {
		case e.err != nil:
			return fail(e.err)
		case e.lease != nil:
			return e.lease, nil
		case e.joiner != nil:
			if l, err := s.wait(ctx, op, e.first, e.joiner); err != errQueue {
				return l, err
			}
		case e.tell != nil:
			e.tell()
		default:
			select {
			case <-e.decided:
			case <-ctx.Done():
				return nil, s.endedBehind(ctx, op, spec, e.first)
			}
		}
	}
}

// endedBehind is the error of a call whose ctx ended while h was looking for its place.
func (s *Session) endedBehind(ctx context.Context, op string, spec *lockSpec, h *hold) *Error {
	ahead := spec.withoutData(h.seeker.whoIsAhead())
	return &Error{Op: op, Path: spec.path, Ahead: ahead, Err: ended(ctx, s.noSession() != nil, s.engine.DialError(), ahead, spec.reenters())}
}

// An entry is what a call found: one of these.
type entry struct {
	lease  *Lease
	joiner *joiner // of first
	err    error
	tell   func() // a loss to be told before the next look

	first   *hold           // without a joiner: wait until it is decided, and look again
	decided <-chan struct{} // then
}

// enter looks at the owner's standing and takes the step that the table of acquire has for it; mu is held. ctx may be of a type of the caller's own, whose code
// runs under no lock of ours: it is only kept.
func (s *Session) enter(ctx context.Context, key holdKey, spec *lockSpec, try bool) (e entry) {
	if s.closed {
		e.err = ErrClosed
		return e
	}
	h := s.standing(key, spec)
	if h != nil && h.phase == held {
		if e.tell = s.check(h); e.tell == nil {
			e.lease = h.grant(ctx, spec)
		}
		return e
	}
	other := s.holds[key.other()]
	if other != nil {
		if e.tell = s.check(other); e.tell != nil {
			return e
		}
	}
	acquires := h
	if h == nil && other != nil && other.phase == acquiring {
		acquires = other
	}
	switch {
	case h != nil && h.seeker.joinable(try):
		e.first, e.joiner = h, h.join(ctx, spec)
	case acquires != nil && try:
		e.err = also("held by another owner: an earlier call of the same owner is still waiting", ErrHeld)
	case acquires != nil: // the other mode, or a TryLock, which may be refused, as this call must not be
		e.first, e.decided = acquires, acquires.untilDecided()
	case other != nil && !key.shared:
		e.err = also(strconv.Quote(string(key.owner))+" holds a read lease: release it first, or take the write lock before the read lock", ErrUpgrade)
	case other != nil:
		if h = s.startUnder(other, key, spec); h.phase == held {
			e.lease = h.grant(ctx, spec)
		} else {
			e.first, e.joiner = h, h.join(ctx, spec)
		}
	default:
		h = s.startHold(key, spec, try)
		e.first, e.joiner = h, h.join(ctx, spec)
	}
	return e
}

// wait waits for the result of a joiner of h.
func (s *Session) wait(ctx context.Context, op string, h *hold, j *joiner) (*Lease, error) {
	for {
		select {
		case <-j.done:
			return s.outcome(op, j)
		case ahead := <-j.places:
			for _, t := range s.cfg.trace {
				if t.Waiting != nil {
					t.Waiting(ctx, op, j.spec.path, ahead)
				}
			}
		case <-ctx.Done():
			s.mu.Lock()
			if !h.drop(j) { // the result is on its way, and what was granted is the caller's
				s.mu.Unlock()
				<-j.done
				return s.outcome(op, j)
			}
			if h.joiners == nil {
				s.endHold(h)
				h.seeker.cancel()
			}
			s.mu.Unlock()
			return nil, s.endedBehind(ctx, op, j.spec, h)
		}
	}
}

func (s *Session) outcome(op string, j *joiner) (*Lease, error) {
	r := j.result
	if e, ok := r.err.(*Error); ok { // the contender's, which knows who is ahead but not who asked
		return nil, s.heldError(op, j.spec, e.Ahead)
	}
	if r.err == errQueue {
		return nil, errQueue
	}
	if r.err != nil {
		return nil, callError(op, j.spec.path, r.err)
	}
	return r.lease, nil
}

// heldError is a TryLock's: somebody stands in the way. It asks nobody who that is, but knows its own.
func (s *Session) heldError(op string, spec *lockSpec, ahead Participants) *Error {
	ahead = slices.Clone(ahead)
	s.mu.Lock()
	for _, h := range s.holds {
		if len(ahead) > 0 && h.phase == held && h.stake.node == ahead[0].Node {
			ahead[0].Owner, ahead[0].Session, ahead[0].Token = h.key.owner, h.stake.session, h.token
		}
	}
	s.mu.Unlock()
	ahead = spec.withoutData(ahead)
	return &Error{Op: op, Path: spec.path, Ahead: ahead, Err: also(heldText(ahead, spec.reenters()), ErrHeld)}
}
