package zkrecipes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"
)

// A MultiLock holds several locks in one lease: all of its members (NewMultiLock) or more than half of them (NewMajorityLock). It is an immutable
// description and a Locker, so it can be shared freely and be a member itself. It has no znodes of its own.
//
// Its Lease is a composite: Parts are the leases of the members that are held, in the order in which they were taken. It is lost when too few of them are
// left, at the moment when that one is, and what is left is given back.
type MultiLock struct {
	members  []Locker
	need     int
	path     string
	timeout  time.Duration // of a member, 0 for its share
	majority bool
	err      error
}

// NewMultiLock makes one lock of its members: all of them or none. It touches no network and never fails: no members, or one that is nil, show as an *Error
// matching ErrInvalid from the first call.
//
// Members are taken in the order of their absolute paths, whatever order they are given in, so two groups that share members never wait for each other;
// among equal paths, which are locks of different ensembles or different kinds, in the order given: list these alike everywhere. A member that is
// given twice is taken once: by the same Session at the same path, of a reader and a writer the writer, of a semaphore's Lockers the one with most
// permits. The members of a MultiLock that is a member are taken as if they were given here; a majority lock that is a member is taken at the place of its
// first path, with all of its own, so that groups with one may come to wait for each other: give these a ctx with a deadline. Two Sessions of one ensemble
// exclude each other: do not name one path through both.
func NewMultiLock(lockers ...Locker) *MultiLock {
	m := newMultiLock(lockers, flat)
	m.need = len(m.members)
	return m
}

// NewMajorityLock makes a lock that is held while more than half of its members are: RedLock's idea, on sessions of ensembles that fail independently, with
// leases that are told in time. It survives the loss of a minority of the ensembles. Members should be locks that one can hold: of semaphores with more
// permits more than that many may hold a majority. They are ordered, and duplicates removed, as NewMultiLock does; a MultiLock is one member.
//
// Each member is tried, in order, for its share of the time that ctx leaves: what remains by the number of members left, or three seconds when ctx has no
// deadline; see WithMemberTimeout. When more than half are held each of the rest is tried without waiting, for a tenth of a second at most. When the
// majority is missed all is given back, and Lock tries again after a short random pause until ctx ends.
func NewMajorityLock(lockers ...Locker) *MultiLock {
	m := newMultiLock(lockers, slices.Clone[[]Locker])
	m.majority, m.need = true, len(m.members)/2+1
	return m
}

// WithMemberTimeout returns a majority lock like m that tries each member for d at most, and for no longer than ctx lasts. It is for ensembles of which
// one may be down: waiting for that one costs d each time. A NewMultiLock needs all of its members and has no use for it.
func (m *MultiLock) WithMemberTimeout(d time.Duration) *MultiLock {
	o := *m
	switch {
	case m.err != nil:
	case !m.majority:
		o.err = invalid("WithMemberTimeout is for NewMajorityLock; ctx bounds a NewMultiLock, for all of its members together")
	case d <= 0:
		o.err = invalid("WithMemberTimeout(%v)", d)
	}
	o.timeout = d
	return &o
}

const (
	memberTimeout = 3 * time.Second        // of a majority lock's member, when ctx has no deadline
	extraTimeout  = 100 * time.Millisecond // of a member beyond the majority
	memberPause   = 200 * time.Millisecond // at most, before a majority is tried for again
)

func newMultiLock(lockers []Locker, flat func([]Locker) []Locker) *MultiLock {
	m := new(MultiLock)
	if len(lockers) == 0 {
		m.err = invalid("a MultiLock without members")
		return m
	}
	for i, l := range lockers {
		if l == nil || reflect.ValueOf(l).Kind() == reflect.Pointer && reflect.ValueOf(l).IsNil() {
			m.err = invalid("member %d of a MultiLock is nil", i)
			return m
		}
	}
	m.members = distinct(flat(lockers))
	slices.SortStableFunc(m.members, func(a, b Locker) int { return cmp.Compare(absolute(a), absolute(b)) })
	var paths []string
	for _, l := range m.members {
		paths = append(paths, l.Path())
		if inner, ok := l.(*MultiLock); ok && m.err == nil {
			m.err = inner.err
		}
	}
	m.path = strings.Join(paths, ",")
	return m
}

// flat replaces members that need all of theirs by these.
func flat(lockers []Locker) (all []Locker) {
	for _, l := range lockers {
		if m, ok := l.(*MultiLock); ok && !m.majority && m.err == nil {
			all = append(all, m.members...)
		} else {
			all = append(all, l)
		}
	}
	return all
}

// A memberKey is what a member takes.
type memberKey struct {
	s         *Session
	dir       string
	semaphore bool
	other     any // of a Locker that is not ours
}

// keyOf tells what a member takes, and how much of it.
func keyOf(l Locker) (key memberKey, amount int) {
	of := func(spec *lockSpec, amount int) (memberKey, int) {
		return memberKey{s: spec.s, dir: spec.dir}, amount
	}
	switch l := l.(type) {
	case *Mutex:
		return of(l.spec, 2)
	case *RWLock:
		return of(l.write, 2)
	case rlocker:
		return of(l.l.read, 1)
	case permitLocker:
		key, n := of(l.m.spec, l.n)
		key.semaphore = true
		return key, n
	}
	if reflect.ValueOf(l).Comparable() {
		return memberKey{other: l}, 0
	}
	return memberKey{other: new(byte)}, 0 // nothing is equal to it
}

// distinct takes of equal members the one that takes most.
func distinct(lockers []Locker) (all []Locker) {
	at := make(map[memberKey]int)
	for _, l := range lockers {
		key, amount := keyOf(l)
		i, known := at[key]
		if !known {
			at[key] = len(all)
			all = append(all, l)
		} else if _, before := keyOf(all[i]); amount > before {
			all[i] = l
		}
	}
	return all
}

// absolute is the path by which members are ordered: without the namespaces of their Sessions, which need not be the same everywhere.
func absolute(l Locker) string {
	if key, _ := keyOf(l); key.dir != "" {
		return key.dir
	}
	return l.Path()
}

// Path returns the members' paths in the order in which they are taken, joined by commas.
func (m *MultiLock) Path() string { return m.path }

// Lock takes the members one after the other, within one ctx for all, and returns one Lease for them. When one cannot be had those taken are given back, in
// reverse order, and the *Error of that one is in the chain of the error returned, with its Ahead. When one is lost while another is waited for, all are
// given back and taken anew.
func (m *MultiLock) Lock(ctx context.Context) (*Lease, error) { return m.acquire(ctx, "lock", false) }

// TryLock takes the members if nobody stands in the way of any, or of more than half of them, and returns an *Error matching ErrHeld otherwise.
func (m *MultiLock) TryLock(ctx context.Context) (*Lease, error) {
	return m.acquire(ctx, "trylock", true)
}

func (m *MultiLock) acquire(ctx context.Context, op string, try bool) (*Lease, error) {
	if m.err != nil {
		return nil, &Error{Op: op, Path: m.path, Err: m.err}
	}
	for {
		parts, err := m.take(ctx, try)
		if err == nil {
			l := newGroup(ctx, nil, m.path, parts, m.need)
			if err = l.Err(); err == nil {
				return l, nil
			}
			l.give(callHook) // lost in between
		}
		giveBack(parts, callHook)
		if try {
			awaitGone(ctx, parts)
			return nil, m.failure(ctx, op, err)
		}
		if !m.mends(err) {
			return nil, m.failure(ctx, op, err)
		}
		m.rest(ctx)
		if ctx.Err() != nil {
			return nil, m.failure(ctx, op, err)
		}
	}
}

// errMemberLost is why a wait for a member ended: one that had been taken before was lost.
var errMemberLost = errors.New("a member was lost while another one was waited for")

// take takes members in order, at least as many as are needed. With an error it returns those it has.
func (m *MultiLock) take(ctx context.Context, try bool) (parts []*Lease, err error) {
	wait, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var errs []error
	for i, l := range m.members {
		enough := len(parts) >= m.need
		part, err := m.takeOne(wait, l, len(m.members)-i, try || enough, enough)
		if err == nil {
			parts = append(parts, part)
			if !m.majority { // which may do without that one
				defer context.AfterFunc(part.Context(), func() { cancel(errMemberLost) })()
			}
			continue
		}
		if context.Cause(wait) == errMemberLost {
			for _, p := range parts {
				if lost := p.Err(); lost != nil {
					return parts, also(plain(errMemberLost)+": "+plain(lost), errMemberLost, lost)
				}
			}
		}
		if errs = append(errs, err); len(m.members)-len(errs) < m.need {
			return parts, errors.Join(errs...)
		}
	}
	return parts, nil
}

// errShareOver tells that a member of a majority lock was tried for its share of the time.
var errShareOver = errors.New("the member's share of the time is over")

// takeOne takes one member, of so many that are left; an extra one beyond the majority is not waited for.
func (m *MultiLock) takeOne(ctx context.Context, l Locker, left int, try, extra bool) (*Lease, error) {
	call := l.Lock
	if try {
		call = l.TryLock
	}
	if !m.majority {
		return call(ctx)
	}
	d := memberTimeout
	if end, ok := ctx.Deadline(); ok {
		d = time.Until(end) / time.Duration(left)
	}
	if m.timeout > 0 {
		d = m.timeout
	}
	if extra {
		d = min(d, extraTimeout)
	}
	share, cancel := context.WithTimeoutCause(ctx, d, errShareOver)
	defer cancel()
	lease, err := call(share)
	if err == nil || ctx.Err() != nil || share.Err() == nil {
		return lease, err
	}
	// The caller's ctx goes on: that of a share is no error of the caller's.
	e := &Error{Op: "lock", Path: l.Path(), Err: also(plain(err), errShareOver)}
	for _, known := range []error{ErrHeld, ErrNoConnection} {
		if errors.Is(err, known) {
			e.Err = also(plain(err), errShareOver, known)
		}
	}
	if member, ok := errors.AsType[*Error](err); ok {
		e.Ahead = member.Ahead
	}
	return nil, e
}

// mends reports whether another attempt may end otherwise. A group that needs all of its members has waited for each for as long as there was time; unless one
// was lost meanwhile, but for one whose WithMaxHold is too short for the wait. A majority may be had later, unless too many members are out of question.
func (m *MultiLock) mends(err error) bool {
	if lost, ok := errors.AsType[*LostError](err); ok {
		return lost.Reason != ReasonHoldLimit && lost.Reason != ReasonSessionClosed
	}
	if !m.majority {
		return false
	}
	hope := len(m.members)
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			if !errors.Is(err, ErrHeld) && !errors.Is(err, ErrNoConnection) && !errors.Is(err, errShareOver) {
				hope--
			}
		}
	}
	return hope >= m.need
}

// rest pauses before the next attempt: two that hold one member each shall not meet again and again.
func (m *MultiLock) rest(ctx context.Context) {
	timer := time.NewTimer(rand.N(memberPause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// awaitGone waits until what a trial has taken stands in nobody's way.
func awaitGone(ctx context.Context, parts []*Lease) {
	for i := len(parts) - 1; i >= 0; i-- {
		_ = parts[i].awaitGone(ctx) // the reaper's
	}
}

// failure is the error of a call: what kept it from a member, or from so many that no majority is left.
func (m *MultiLock) failure(ctx context.Context, op string, err error) error {
	causes := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		causes = joined.Unwrap()
	}
	var texts []string
	for _, err := range causes {
		texts = append(texts, plain(err))
	}
	text := strings.Join(texts, "; ")
	if m.majority {
		text = fmt.Sprintf("%d of %d members are needed: %s", m.need, len(m.members), text)
	}
	if ctx.Err() != nil {
		if !errors.Is(err, ctx.Err()) {
			text += ": " + plain(context.Cause(ctx))
		}
		causes = append(causes, ctx.Err(), context.Cause(ctx))
	}
	e := &Error{Op: op, Path: m.path, Err: also(text, causes...)}
	if member, ok := errors.AsType[*Error](err); ok {
		e.Ahead = member.Ahead
	}
	return e
}

var _ Locker = (*MultiLock)(nil)
