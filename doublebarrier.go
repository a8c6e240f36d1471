package zkrecipes

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/core"
)

// A DoubleBarrier lets a number of members begin together and end together: Enter returns when so many are there, Leave when all that were inside are about to
// go. It is one member, has a state and is not copied: make one per member. It can be used again, round after round.
//
//	outside --Enter--> entering --the barrier opens--> inside --Leave--> leaving --all have left--> outside
//	                      '--ctx, error--> outside                          '--ctx, error--> outside
//
// The layout is that of Curator's DistributedDoubleBarrier: an ephemeral znode `<uuid>` under path for each member, another one for each Enter, and the
// persistent znode `ready` while the barrier is open. Their data differ: a member's is its owner, or WithData; those of ready are the names of the members
// inside, one in a line, by which each knows that it was counted, and a ready that a dead round left behind is told from an open barrier. Children of other
// forms are ignored.
//
// A member whose process dies counts until its session is over, beside the one that is started in its place: let the session timeout be shorter than a start
// takes.
//
// The znodes need more permissions than those of other recipes: whoever enters writes path's data (as they are) and those of its own znode and of ready.
type DoubleBarrier struct {
	spec    *lockSpec
	members int

	mu    sync.Mutex
	phase barrierPhase
	in    *entrant // while inside or leaving
	last  *entrant // of the last Enter
}

type barrierPhase string

const (
	outside  barrierPhase = ""
	entering barrierPhase = "entering"
	inside   barrierPhase = "inside"
	leaving  barrierPhase = "leaving"
)

// NewDoubleBarrier describes one member of a barrier at path that opens when so many members are there. All members name the same number. It touches no network
// and never fails: a bad argument shows as an *Error matching ErrInvalid from the first call.
func NewDoubleBarrier(s *Session, path string, members int, opts ...LockOption) *DoubleBarrier {
	b := &DoubleBarrier{spec: newBarrierSpec(s, path, opts), members: members}
	if b.spec.err == nil {
		switch most := maxMembers(b.spec.dir, 0); {
		case members < 1:
			b.spec.err = invalid("%d members, at least 1", members)
		case members > most:
			b.spec.err = invalid("%d members, at most %d at a path of this length: one transaction has to name them all", members, most)
		}
	}
	return b
}

// Path returns the path that the DoubleBarrier was made for, inside the namespace.
func (b *DoubleBarrier) Path() string { return b.spec.path }

// withdrawal is how long Enter and Leave, when their ctx has ended, wait for the server to say how things stand.
const withdrawal = 500 * time.Millisecond

// Enter waits until the barrier is open, and returns nil then: so many members were there at one moment, this one among them, or the barrier was open already
// and others are inside. More members than the number may enter one round.
//
// When ctx ends first this member is withdrawn, unless the barrier has opened with it meanwhile: then Enter returns nil after all. To learn which it is, it
// takes up to half a second; without an answer in that time the error says so, and the znode is removed in the background. The *Error matches ctx's error, and
// ErrNoConnection if there is no session. Other errors are ErrInvalid, also for an Enter while this member is not outside, ErrClosed, and the server's, such
// as zk.ErrNoAuth. A lost connection or session is none: the member goes on, or enters anew.
func (b *DoubleBarrier) Enter(ctx context.Context) error {
	const op = "enter"
	fail := func(err error) error { return &Error{Op: op, Path: b.spec.path, Err: err} }
	if b.spec.err != nil {
		return fail(b.spec.err)
	}
	s := b.spec.s
	key, err := s.identify(ctx, b.spec)
	if err != nil {
		return fail(err)
	}
	if ctx.Err() != nil {
		return fail(ended(ctx, s.noSession() != nil, s.engine.DialError(), nil, 0))
	}
	if err := b.step(outside, entering); err != nil {
		return fail(err)
	}
	m := newEntrant(s, b, key.owner)
	m.former, b.last = b.last, m
	settled, err := s.settle(ctx, func() error { return m.enter(ctx) }, m.leaveBehind)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil && settled {
		b.phase, b.in = inside, m
		return nil
	}
	b.phase = outside
	switch {
	case ctx.Err() != nil:
		text := fmt.Sprintf("%d of %d members are there: ", m.seen.Load(), b.members)
		if !settled || m.unsure {
			text = "it is not known whether the barrier has opened with this member, which is being removed: "
		}
		err = ended(ctx, s.noSession() != nil, s.engine.DialError(), nil, 0)
		return fail(also(text+plain(err), err))
	case !settled:
		err = ErrClosed
	}
	return callError(op, b.spec.path, err)
}

// Leave waits until all members inside are leaving, and returns nil then: none of this round is left. This member is outside then, and also after an error.
//
// When ctx ends first its znode is removed all the same, for which it takes up to half a second, and the *Error matches ctx's error; Ahead has those that are
// still inside. If its znode is gone before it leaves, because the session ended or somebody deleted it, the others may have left without it, and the *Error
// matches ErrLost. Other errors are ErrInvalid for a Leave of who is not inside, ErrClosed, and the server's.
func (b *DoubleBarrier) Leave(ctx context.Context) error {
	const op = "leave"
	fail := func(err error) error { return &Error{Op: op, Path: b.spec.path, Err: err} }
	if b.spec.err != nil {
		return fail(b.spec.err)
	}
	if err := b.step(inside, leaving); err != nil {
		return fail(err)
	}
	s, l := b.spec.s, newLeaver(b.in)
	settled, err := s.settle(ctx, func() error { return l.leave(ctx) }, func() {})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.phase, b.in = outside, nil
	switch {
	case err == nil && settled:
		return nil
	case ctx.Err() != nil:
		e := &Error{Op: op, Path: b.spec.path, Ahead: l.others()}
		err = ended(ctx, s.noSession() != nil, s.engine.DialError(), nil, 0)
		e.Err = also(fmt.Sprintf("%d others are inside: %s", len(e.Ahead), plain(err)), err)
		return e
	case !settled:
		err = ErrClosed
	}
	return callError(op, b.spec.path, err)
}

// step takes a step of the state machine.
func (b *DoubleBarrier) step(from, to barrierPhase) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.phase == from {
		b.phase = to
		return nil
	}
	switch b.phase {
	case outside:
		return invalid("this member is not inside: Enter first")
	case inside:
		return invalid("this member is inside: Leave first")
	}
	return invalid("this member is %s in another call; make a DoubleBarrier for each member", b.phase)
}

// settle runs fn, which goes on for a moment when ctx has ended, to learn how things stand. When that takes too long, or the Session is closed, settle
// returns false, and behind is called when fn has returned.
func (s *Session) settle(ctx context.Context, fn func() error, behind func()) (bool, error) {
	e := s.engine
	done := make(chan error)
	late := make(chan struct{})
	if !e.Go(func() {
		err := fn()
		select {
		case done <- err:
		case <-late:
			behind()
		}
	}) {
		return true, ErrClosed
	}
	defer close(late)
	select {
	case err := <-done:
		return true, err
	case <-e.Context().Done():
		return false, nil
	case <-ctx.Done():
	}
	grace := time.NewTimer(withdrawal)
	defer grace.Stop()
	select {
	case err := <-done:
		return true, err
	case <-e.Context().Done():
	case <-grace.C:
	}
	return false, nil
}

// maxMembers is how many members one transaction can name that checks each of them, and writes so much data of the directory's.
func maxMembers(dir string, data int) int {
	const (
		check = 4 + 1 + 4 + 4 + 4 // header, length of the path, version
		name  = 36 + 1            // in a path behind a slash, and in ready's data before a newline
	)
	return (core.MaxData - data - 2*len(dir)) / (check + len(dir) + name + name)
}
