package zkrecipes

import (
	"context"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/core"
)

// A lockSpec is what a recipe asks the contender for.
type lockSpec struct {
	s      *Session
	path   string // as the caller gave it
	dir    string // absolute
	marker string
	cfg    lockConfig
	err    error // of the constructor's arguments
}

func newLockSpec(s *Session, path, marker string, opts []LockOption) *lockSpec {
	spec := &lockSpec{s: s, path: path, marker: marker}
	for _, o := range opts {
		if o != nil {
			o.applyLock(&spec.cfg)
		}
	}
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

// acquire is Lock and TryLock of every recipe.
func (spec *lockSpec) acquire(ctx context.Context, op string, try bool) (l *Lease, err error) {
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
	l, err = s.acquireOne(ctx, op, spec, try)
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
	outer, _ := LeaseFromContext(ctx) // here, because ctx may be of a type of the caller's own, whose code runs under no lock of ours
	for {
		if ctx.Err() != nil {
			return fail(ended(ctx, s.noSession() != nil, s.engine.DialError(), nil, 0))
		}
		s.mu.Lock()
		h := s.holds[key]
		switch {
		case s.closed:
			s.mu.Unlock()
			return fail(ErrClosed)
		case h == nil:
			j := s.startHold(key, spec, try).join(ctx, spec, outer)
			s.mu.Unlock()
			return s.wait(ctx, op, j)
		case h.phase == held:
			if loss := s.proof(h); loss != 0 {
				tell := s.lose(h, loss, nil)
				s.mu.Unlock()
				tell()
				continue
			}
			l := h.grant(ctx, spec, outer)
			s.mu.Unlock()
			return l, nil
		case try:
			s.mu.Unlock()
			return fail(also("held by another owner: an earlier call of the same owner is still waiting", ErrHeld))
		case !h.contender.try:
			j := h.join(ctx, spec, outer)
			s.mu.Unlock()
			return s.wait(ctx, op, j)
		}
		// A TryLock of the same owner is under way. It may be refused, which a Lock must not be.
		decided := h.decided
		s.mu.Unlock()
		select {
		case <-decided:
		case <-ctx.Done():
		}
	}
}

// wait waits for the result of a joiner.
func (s *Session) wait(ctx context.Context, op string, j *joiner) (*Lease, error) {
	h := j.hold
	for {
		select {
		case r := <-j.result:
			return j.take(op, r)
		case ahead := <-j.places:
			for _, t := range s.cfg.trace {
				if t.Waiting != nil {
					t.Waiting(ctx, op, j.spec.path, ahead)
				}
			}
		case <-ctx.Done():
			s.mu.Lock()
			i := slices.Index(h.joiners, j)
			if i < 0 { // the result is on its way, and what was granted is the caller's
				s.mu.Unlock()
				return j.take(op, <-j.result)
			}
			h.joiners = slices.Delete(h.joiners, i, i+1)
			if len(h.joiners) == 0 {
				s.endHold(h)
				h.contender.cancel()
			}
			s.mu.Unlock()
			ahead := h.contender.whoIsAhead()
			err := ended(ctx, s.noSession() != nil, s.engine.DialError(), ahead, s.ID())
			return nil, &Error{Op: op, Path: j.spec.path, Ahead: ahead, Err: err}
		}
	}
}

func (j *joiner) take(op string, r result) (*Lease, error) {
	if e, ok := r.err.(*Error); ok { // the contender's, which knows who is ahead but not who asked
		return nil, j.hold.s.heldError(op, j.spec.path, e.Ahead)
	}
	if r.err != nil {
		return nil, callError(op, j.spec.path, r.err)
	}
	return r.lease, nil
}

// heldError is a TryLock's: somebody stands in the way. It asks nobody who that is, but knows its own.
func (s *Session) heldError(op, path string, ahead Participants) *Error {
	ahead = slices.Clone(ahead)
	s.mu.Lock()
	for _, h := range s.holds {
		if h.phase == held && h.node == ahead[0].Node {
			ahead[0].Owner, ahead[0].Session, ahead[0].Token = h.key.owner, h.session, h.token
		}
	}
	s.mu.Unlock()
	return &Error{Op: op, Path: path, Ahead: ahead, Err: also(heldText(ahead, s.ID()), ErrHeld)}
}
