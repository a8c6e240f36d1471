package zkrecipes

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/core"
)

// A hold is one owner's standing on one path, exclusive or shared; one owner may have both (see acquire). Everything in it is under Session.mu.
//
//	acquiring --grant--> held --last Release--> over
//	    |                  '--loss------------> over
//	    '--last joiner leaves, error, TryLock finds somebody--> over
//
// Only these steps end a phase, each in one critical section, so a grant and the departure of the last caller, or a release and a loss, cannot both
// happen. A hold that is over is out of the table: the same owner then starts anew at the tail.
type hold struct {
	s       *Session
	key     holdKey
	spec    *lockSpec
	seeker  seeker
	joiners *joiner // those who wait, who came last first
	leases  []*Lease
	limit   *holdLimit    // nil for none
	decided chan struct{} // closed when the phase is no longer acquiring; nil while nobody waits for that

	// Set by the grant, constant afterwards.
	stake *stake
	token Token

	last atomic.Pointer[Lease] // with whose release the stake was left; nil for none. Read without mu

	phase phase
	place int32 // what Trace.Waiting was last told

	// Room for one of each, which is all that most holds ever have.
	lease [1]*Lease
	first joiner
}

// A seeker obtains the znode of a hold: a contender, or a nest.
type seeker interface {
	cancel() // nobody waits any more; it must not block
	whoIsAhead() Participants
	joinable(try bool) bool // a further call, which may be one that does not wait for holders, can share in it
}

type phase uint8

const (
	acquiring phase = iota
	held
	over
)

// A joiner is one call that waits for a hold, for its one result; who sends that has taken it out of the hold under Session.mu.
type joiner struct {
	ctx    context.Context
	spec   *lockSpec
	places chan int // for Trace.Waiting; the latest
	done   chan struct{}
	result result  // set before done is closed
	next   *joiner // who came before; under Session.mu
}

// takeJoiners takes all joiners out of the hold, in the order in which they came; mu is held. Each is the caller's to send to; one that has been sent to may be
// anything else by then.
func (h *hold) takeJoiners() iter.Seq[*joiner] {
	var next *joiner
	for j := h.joiners; j != nil; {
		j, j.next, next = j.next, next, j
	}
	h.joiners = nil
	return func(yield func(*joiner) bool) {
		for next != nil {
			j := next
			next, j.next = j.next, nil
			if !yield(j) {
				return
			}
		}
	}
}

// drop takes out a joiner that waits no longer; false if it is not there, because something has been sent to it. mu is held.
func (h *hold) drop(j *joiner) bool {
	for at := &h.joiners; *at != nil; at = &(*at).next {
		if *at == j {
			*at, j.next = j.next, nil
			return true
		}
	}
	return false
}

func (j *joiner) send(r result) {
	j.result = r
	close(j.done)
}

type result struct {
	lease *Lease
	err   error
}

// standing returns the hold of a key, nil if there is none; mu is held. Mostly it is the one that this spec has started last.
func (s *Session) standing(key holdKey, spec *lockSpec) *hold {
	if h := spec.latest; h != nil && h.key == key {
		return h
	}
	return s.holds[key]
}

// newHold puts a hold that acquires into the table; mu is held.
func (s *Session) newHold(key holdKey, spec *lockSpec) *hold {
	h := &hold{s: s, key: key, spec: spec}
	s.holds[key] = h
	spec.latest = h
	return h
}

// startHold starts a hold that queues; mu is held.
func (s *Session) startHold(key holdKey, spec *lockSpec, try bool) *hold {
	h := s.newHold(key, spec)
	c := newContender(s.engine, &s.heirs, spec.dir, spec.marker, try, h)
	h.seeker = c
	c.wake()
	return h
}

// join is called with mu held.
func (h *hold) join(ctx context.Context, spec *lockSpec) *joiner {
	j := &h.first
	if j.done != nil { // others came, or it has left
		j = new(joiner)
	}
	*j = joiner{ctx: ctx, spec: spec, done: make(chan struct{})}
	if h.s.tracesWaiting {
		j.places = make(chan int, 1)
		if h.place > 0 { // known from before it came
			j.places <- int(h.place)
		}
	}
	j.next, h.joiners = h.joiners, j
	return j
}

// endHold takes a hold out of the table; mu is held.
func (s *Session) endHold(h *hold) {
	h.decide(over)
	h.limit.drop(h)
	if s.holds[h.key] == h {
		delete(s.holds, h.key)
	}
	if h.spec.latest == h {
		h.spec.latest = nil
	}
}

// decide sets the phase of a hold that acquires no longer; mu is held.
func (h *hold) decide(p phase) {
	h.phase = p
	if h.decided != nil {
		close(h.decided)
		h.decided = nil
	}
}

// untilDecided is closed when an acquiring hold is decided; mu is held.
func (h *hold) untilDecided() <-chan struct{} {
	if h.decided == nil {
		h.decided = make(chan struct{})
	}
	return h.decided
}

// stand makes an acquiring hold one that is held, and wakes who waits for it; mu is held.
func (h *hold) stand(st *stake) {
	h.decide(held)
	h.stake = st
	st.holds = append(st.holds, h)
	h.s.engine.Hold()
	for j := range h.takeJoiners() {
		j.send(result{lease: h.grant(j.ctx, j.spec)})
	}
}

// grant makes a lease of a held hold; mu is held.
func (h *hold) grant(ctx context.Context, spec *lockSpec) *Lease {
	l := newLease(ctx, h.s, h)
	if h.leases == nil {
		h.leases = h.lease[:0]
	}
	h.leases = append(h.leases, l)
	if d := spec.cfg.maxHold; d > 0 {
		h.limited().tighten(d)
	}
	return l
}

// granted is the seeker's: its znode is first.
func (h *hold) granted(made core.Znode, own *core.Sub, revoked bool) verdict {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := h.stale(made.Session); v != grantTaken {
		return v
	}
	if h.token == 0 {
		h.token = Token(made.Token)
	}
	st := newStake(h, made, own)
	if revoked {
		st.revoke()
	}
	h.stand(st)
	return grantTaken
}

// stale tells what speaks against the grant of an acquiring hold in a session, grantTaken for nothing; mu is held.
func (h *hold) stale(session int64) verdict {
	if h.phase != acquiring || h.limit.passed() {
		return grantUnwanted
	}
	// Whatever ends leases is known to the engine before it is told here, under mu: a grant that does not see it will be told.
	if h.s.engine.Left(session) <= 0 || h.s.cfg.strict && !h.s.engine.Ready() {
		return grantStale
	}
	return grantTaken
}

// failed is the seeker's: it ends without a grant.
func (h *hold) failed(err error) {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.phase != acquiring {
		return
	}
	s.endHold(h)
	h.refuse(err)
}

// refuse sends every joiner the error; mu is held.
func (h *hold) refuse(err error) {
	for j := range h.takeJoiners() {
		j.send(result{err: err})
	}
}

// data is the contender's: what its znode says.
func (h *hold) data() []byte { return h.spec.data(h.key.owner) }

// waiting is the contender's: so many are in the way.
func (h *hold) waiting(ahead int) {
	if !h.s.tracesWaiting {
		return
	}
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.place == int32(ahead) {
		return
	}
	h.place = int32(ahead)
	for j := h.joiners; j != nil; j = j.next {
		select {
		case <-j.places:
		default:
		}
		j.places <- ahead
	}
}

// ownEvent is the subscription to an own znode, while waiting and while holding. It must not block. A call for a znode that was given up may still come.
func (h *hold) ownEvent(node string, w core.Wake) {
	h.s.mu.Lock()
	st, acquires := h.stake, h.phase == acquiring
	h.s.mu.Unlock()
	switch {
	case st != nil && st.node == node:
		st.event(w)
	case acquires:
		if c, ok := h.seeker.(*contender); ok {
			c.wake()
		}
	}
}

// look is the seeker's, after the grant.
func (h *hold) look() { h.stake.look() }

// proof tells what speaks against a held hold by the clocks, 0 for nothing; mu is held.
func (s *Session) proof(h *hold) LossReason {
	switch {
	case s.engine.Left(h.stake.session) <= 0:
		if s.engine.Over(h.stake.session) {
			return ReasonSessionExpired
		}
		return ReasonUnconfirmed
	case h.limit.passed():
		return ReasonHoldLimit
	}
	return 0
}

// ask asks the clocks whether a hold is still held, and ends it if not.
func (s *Session) ask(h *hold) {
	s.mu.Lock()
	tell := s.check(h)
	s.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// check ends a held hold against which the clocks speak; mu is held. It returns what is left to tell, nil if the hold goes on.
func (s *Session) check(h *hold) (tell func()) {
	if h.phase != held {
		return nil
	}
	switch reason := s.proof(h); reason {
	case 0:
		return nil
	case ReasonHoldLimit:
		return s.lose(reason, nil, h.limit.holds...)
	default:
		return s.lose(reason, nil, h)
	}
}

// loseNow ends a hold by loss, unless it is over.
func (s *Session) loseNow(h *hold, reason LossReason, cause error) {
	s.mu.Lock()
	tell := s.lose(reason, cause, h)
	s.mu.Unlock()
	tell()
}

// lose ends all leases of those holds that are held; mu is held. First of all their Done channels are closed, which runs no code of a user's; then their
// znodes, which may live on, are seen to. The returned function logs it and calls the hooks.
func (s *Session) lose(reason LossReason, cause error, hs ...*hold) (tell func()) {
	type loss struct {
		h      *hold
		err    *LostError
		leases []*Lease
	}
	var losses []loss
	for _, h := range slices.Clone(hs) {
		if h.phase != held {
			continue
		}
		s.endHold(h)
		l := loss{h, &LostError{Path: h.spec.path, Reason: reason, Err: cause}, h.leases}
		h.leases = nil
		for _, lease := range l.leases {
			lease.finish(l.err)
		}
		losses = append(losses, l)
	}
	for _, l := range losses {
		s.letGo(l.h)
	}
	return func() {
		level := slog.LevelWarn
		if reason == ReasonSessionClosed { // that was asked for
			level = slog.LevelInfo
		}
		for _, l := range losses {
			s.log.Log(context.Background(), level, "zkrecipes: lease lost",
				"path", l.h.spec.path, "owner", string(l.h.key.owner), "node", l.h.stake.node, "reason", reason.String())
			for _, lease := range l.leases {
				if !lease.inSemaphore() {
					s.lost(lease, l.err)
				}
			}
		}
	}
}

// letGo takes a hold that is over off its znode; once, by who ended it; mu is held.
func (s *Session) letGo(h *hold) {
	h.stake.drop(h)
	s.engine.Unhold()
	s.engine.Leave()
}

// give is Lease.Release, without the wait for the end of the znode.
func (s *Session) give(l *Lease, call hooker) {
	h := l.hold
	s.mu.Lock()
	tell := s.check(h)
	// Before the delete is sent: who works under the lease's ctx is told before the next one can be granted.
	given := l.finish(ErrReleased)
	if given {
		last := len(h.leases) - 1
		if h.leases[last] != l { // mostly who entered last leaves first
			i := slices.Index(h.leases, l)
			copy(h.leases[i:], h.leases[i+1:])
		}
		h.leases[last] = nil
		if h.leases = h.leases[:last]; last == 0 {
			s.endHold(h)
			s.letGo(h)
			if len(h.stake.holds) == 0 { // else the znode goes with the other hold on it
				h.last.Store(l)
			}
		}
	}
	s.mu.Unlock()
	if tell != nil {
		tell()
	}
	if given && !l.inSemaphore() {
		s.released(l, call)
	}
}

// released calls the hooks for a lease that was given back.
func (s *Session) released(l *Lease, call hooker) {
	for _, t := range s.cfg.trace {
		if t.Released != nil {
			call(s, func() { t.Released(l, time.Since(began)-l.granted) })
		}
	}
}

// lost calls the hooks for a lease that was lost.
func (s *Session) lost(l *Lease, err *LostError) {
	for _, t := range s.cfg.trace {
		if t.Lost != nil {
			s.hooks.Add(func() { t.Lost(l, err) })
		}
	}
}

// heldIn returns the holds that are held, all of them or those of one ZooKeeper session.
func (s *Session) heldIn(session int64) []*hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	var hs []*hold
	for _, h := range s.holds {
		if h.phase == held && (session == 0 || h.stake.session == session) {
			hs = append(hs, h)
		}
	}
	return hs
}
