package zkrecipes

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// A group is what makes a composite lease of others: it is held while at least need of its parts are. When too few are left it ends at once, in the same
// step as the part whose end it is, and what is left of it is given back in the background. It has no lock: whoever ends the lease has won.
type group struct {
	lease   *Lease
	path    string
	parts   []*Lease // in the order in which they were taken
	need    int
	s       *Session      // of a semaphore, whose hooks know the group and not its parts
	revoked chan struct{} // closed when somebody asked for a part back
	once    sync.Once
}

// newGroup makes a composite lease. A part that has ended meanwhile counts as any later end.
func newGroup(ctx context.Context, s *Session, path string, parts []*Lease, need int) *Lease {
	l := newLease(ctx, s, nil)
	g := &group{lease: l, path: path, parts: parts, need: need, s: s, revoked: make(chan struct{})}
	l.group = g
	for _, p := range parts {
		p.join(g)
	}
	for _, p := range parts {
		if p.end.Load() != nil {
			g.partEnded(p)
		}
		select {
		case <-p.Revoked():
			g.revoke()
		default:
		}
	}
	return l
}

// inSemaphore reports whether the lease is one of several permits of another one, which the hooks are called for.
func (l *Lease) inSemaphore() bool {
	return slices.ContainsFunc(l.groups(), func(g *group) bool { return g.s != nil })
}

func (g *group) ask() {
	for _, p := range g.parts {
		p.ask()
	}
}

// partEnded is called by whoever ends a part, at times with its Session's mu held.
func (g *group) partEnded(part *Lease) {
	left := 0
	for _, p := range g.parts {
		if p.end.Load() == nil {
			left++
		}
	}
	if left >= g.need {
		return
	}
	if !g.endBy(part.end.Load().err) || left == 0 {
		return
	}
	// Each Session has a lock of its own, and one of them is held here. A Session that is closing ends its parts itself.
	for _, leaf := range g.lease.leaves() {
		if leaf.hold.s.engine.Go(func() { giveBack(g.parts, queueHook) }) {
			return
		}
	}
}

// endBy ends the group by the end of a part, which may be its release; false if it had ended before.
func (g *group) endBy(err error) bool {
	if err == ErrReleased {
		if !g.lease.finish(ErrReleased) {
			return false
		}
		if g.s != nil {
			g.s.released(g.lease, queueHook)
		}
		return true
	}
	lost := g.lostBy(err)
	if !g.lease.finish(lost) {
		return false
	}
	if g.s != nil {
		g.s.lost(g.lease, lost)
	}
	return true
}

// whole are the composites that are held of which the lease is a part at last, or itself.
func (l *Lease) whole() (all []*Lease) {
	for _, g := range l.groups() {
		if g.lease.end.Load() == nil {
			all = append(all, g.lease.whole()...)
		}
	}
	if all == nil {
		return []*Lease{l}
	}
	return all
}

// lostBy is the loss of the group by that of a part.
func (g *group) lostBy(err error) *LostError {
	lost := &LostError{Path: g.path, Reason: ReasonNodeDeleted, Err: err}
	if why, ok := errors.AsType[*LostError](err); ok {
		lost.Reason = why.Reason
	}
	return lost
}

func (g *group) revoke() {
	g.once.Do(func() { close(g.revoked) })
	for _, up := range g.lease.groups() {
		up.revoke()
	}
}

func (g *group) give(call hooker) {
	g.ask()
	released := g.lease.finish(ErrReleased)
	giveBack(g.parts, call)
	if released && g.s != nil {
		g.s.released(g.lease, call)
	}
}

func giveBack(parts []*Lease, call hooker) {
	for i := len(parts) - 1; i >= 0; i-- {
		parts[i].give(call)
	}
}

// gone waits for all parts. That one was lost which the group could do without is no error.
func (g *group) gone(ctx context.Context, limit <-chan struct{}) error {
	if err := g.lease.end.Load().err; err != ErrReleased {
		return err
	}
	var first, loss error
	lost := 0
	for i := len(g.parts) - 1; i >= 0; i-- {
		switch err := g.parts[i].gone(ctx, limit); {
		case errors.Is(err, ErrLost):
			lost++
			loss = err
		case err != nil && first == nil:
			first = err
		}
	}
	if len(g.parts)-lost < g.need {
		return g.lostBy(loss)
	}
	return first
}
