package zkrecipes

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
)

// A hold is one owner's standing on one path. Everything in it is under Session.mu.
//
//	acquiring --grant--> held --last Release--> over
//	    |                  '--loss------------> over
//	    '--last joiner leaves, error, TryLock finds somebody--> over
//
// Only these steps end a phase, each in one critical section, so a grant and the departure of the last caller, or a release and a loss, cannot both
// happen. A hold that is over is out of the table: the same owner then starts anew at the tail.
type hold struct {
	s         *Session
	key       holdKey
	spec      *lockSpec
	phase     phase
	contender *contender
	joiners   []*joiner
	leases    []*Lease
	decided   chan struct{} // closed when the phase is no longer acquiring

	// Set by the grant, constant afterwards.
	node    string
	session int64
	token   Token
	own     *core.Sub
	revoked chan struct{}

	limit    *time.Timer // of WithMaxHold
	deadline time.Time

	looking, again bool // the own znode is being read; once more
	place          int  // what Trace.Waiting was last told
}

type phase int

const (
	acquiring phase = iota
	held
	over
)

// A joiner is one call that waits for a hold. Its channel takes the one result; who sends it has taken it out of the hold under Session.mu.
type joiner struct {
	ctx    context.Context
	spec   *lockSpec
	outer  *Lease // the lease from which ctx descends
	hold   *hold
	result chan result
	places chan int // for Trace.Waiting; the latest
}

type result struct {
	lease *Lease
	err   error
}

// startHold is called with mu held.
func (s *Session) startHold(key holdKey, spec *lockSpec, try bool) *hold {
	data := []byte(key.owner)
	if spec.cfg.hasData {
		data = spec.cfg.data
	}
	h := &hold{s: s, key: key, spec: spec, decided: make(chan struct{}), revoked: make(chan struct{})}
	h.contender = newContender(s.engine, spec.dir, spec.marker, data, try, h)
	s.holds[key] = h
	h.contender.wake()
	return h
}

// join is called with mu held.
func (h *hold) join(ctx context.Context, spec *lockSpec, outer *Lease) *joiner {
	j := &joiner{ctx: ctx, spec: spec, outer: outer, hold: h, result: make(chan result, 1)}
	if h.s.tracesWaiting {
		j.places = make(chan int, 1)
		if h.place > 0 { // known from before it came
			j.places <- h.place
		}
	}
	h.joiners = append(h.joiners, j)
	return j
}

// endHold takes a hold out of the table; mu is held.
func (s *Session) endHold(h *hold) {
	if h.phase == acquiring {
		close(h.decided)
	}
	h.phase = over
	if s.holds[h.key] == h {
		delete(s.holds, h.key)
	}
}

// grant makes a lease of a held hold; mu is held.
func (h *hold) grant(ctx context.Context, spec *lockSpec, outer *Lease) *Lease {
	l := newLease(ctx, h, outer)
	h.leases = append(h.leases, l)
	if d := spec.cfg.maxHold; d > 0 {
		if end := time.Now().Add(d); h.limit == nil || end.Before(h.deadline) {
			if h.limit != nil {
				h.limit.Stop()
			}
			h.deadline = end
			h.limit = time.AfterFunc(d, func() { h.s.loseNow(h, ReasonHoldLimit, nil) })
		}
	}
	return l
}

// granted is the contender's: its znode is first.
func (h *hold) granted(made core.Created, own *core.Sub) verdict {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.phase != acquiring {
		return grantUnwanted
	}
	// Whatever ends leases is known to the engine before it is told here, under mu: a grant that does not see it will be told.
	if s.engine.Left(made.Session) <= 0 || s.cfg.strict && !s.engine.Ready() {
		return grantStale
	}
	h.phase = held
	h.node, h.session, h.token, h.own = made.Path, made.Session, Token(made.Token), own
	close(h.decided)
	s.engine.Hold()
	for _, j := range h.joiners {
		j.result <- result{lease: h.grant(j.ctx, j.spec, j.outer)}
	}
	h.joiners = nil
	return grantTaken
}

// failed is the contender's: it ends without a grant.
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
	for _, j := range h.joiners {
		j.result <- result{err: err}
	}
	h.joiners = nil
}

// waiting is the contender's: so many are in the way.
func (h *hold) waiting(ahead int) {
	if !h.s.tracesWaiting {
		return
	}
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.place == ahead {
		return
	}
	h.place = ahead
	for _, j := range h.joiners {
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
	ph, stale := h.phase, h.phase == held && node != h.node
	h.s.mu.Unlock()
	if stale {
		return
	}
	switch {
	case ph == acquiring:
		h.contender.wake()
	case ph == held && w == core.Deleted:
		h.s.loseNow(h, ReasonNodeDeleted, nil)
	case ph == held:
		h.look()
	}
}

// look reads the own znode of a held lease in the background and sets the watch on it.
func (h *hold) look() {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.looking {
		h.again = true
		return
	}
	h.looking = h.s.engine.Go(h.readOwn)
}

func (h *hold) readOwn() {
	s, e := h.s, h.s.engine
	for {
		s.mu.Lock()
		h.again = false
		s.mu.Unlock()
		node, span, err := h.own.Arm(e.Context())
		switch {
		case s.engine.Over(h.session):
			s.loseNow(h, ReasonSessionExpired, zk.ErrSessionExpired)
		case errors.Is(err, zk.ErrNoNode) && span.SameSession() && span.After.Session == h.session:
			s.loseNow(h, ReasonNodeDeleted, nil)
		}
		s.mu.Lock()
		if err == nil && string(node.Data) == revokeMessage && node.Stat.Version > 0 {
			select {
			case <-h.revoked:
			default:
				close(h.revoked)
			}
		}
		// After any other error there will be a new connection, and with it a call of ownEvent; if it came in the meantime, again is set.
		if !h.again || h.phase != held {
			h.looking = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

// proof tells what speaks against a held hold by the clocks, 0 for nothing; mu is held.
func (s *Session) proof(h *hold) LossReason {
	switch {
	case s.engine.Left(h.session) <= 0:
		if s.engine.Over(h.session) {
			return ReasonSessionExpired
		}
		return ReasonUnconfirmed
	case h.limit != nil && !time.Now().Before(h.deadline):
		return ReasonHoldLimit
	}
	return 0
}

// ask asks the clocks whether a hold is still held, and ends it if not.
func (s *Session) ask(h *hold) {
	s.mu.Lock()
	tell := func() {}
	if h.phase == held {
		if loss := s.proof(h); loss != 0 {
			tell = s.lose(h, loss, nil)
		}
	}
	s.mu.Unlock()
	tell()
}

// loseNow ends a hold by loss, unless it is over.
func (s *Session) loseNow(h *hold, reason LossReason, cause error) {
	s.mu.Lock()
	tell := s.lose(h, reason, cause)
	s.mu.Unlock()
	tell()
}

// lose ends all leases of a held hold; mu is held. The returned function closes their Done channels first, then sees to the znode, which may live on.
func (s *Session) lose(h *hold, reason LossReason, cause error) (tell func()) {
	if h.phase != held {
		return func() {}
	}
	s.endHold(h)
	lost := &LostError{Path: h.spec.path, Reason: reason, Err: cause}
	leases := h.leases
	h.leases = nil
	var tells []func()
	for _, l := range leases {
		tells = append(tells, l.finish(lost))
	}
	return func() {
		for _, t := range tells {
			t()
		}
		if reason != ReasonNodeDeleted { // whoever has made one of that name since owns it
			s.engine.Remove(h.node, h.session)
		}
		h.close()
		level := slog.LevelWarn
		if reason == ReasonSessionClosed { // that was asked for
			level = slog.LevelInfo
		}
		s.log.Log(context.Background(), level, "zkrecipes: lease lost", "path", h.spec.path, "owner", string(h.key.owner), "node", h.node, "reason", reason.String())
		for _, t := range s.cfg.trace {
			if t.Lost != nil {
				for _, l := range leases {
					s.hooks.Add(func() { t.Lost(l, lost) })
				}
			}
		}
	}
}

// close lets go of what a held hold used; once, by who ended it.
func (h *hold) close() {
	h.own.Cancel()
	if h.limit != nil {
		h.limit.Stop()
	}
	h.s.engine.Unhold()
	h.s.engine.Leave()
}

// release is Lease.Release.
func (s *Session) release(ctx context.Context, l *Lease) error {
	h := l.hold
	s.ask(h)
	s.mu.Lock()
	if e := l.end.Load(); e != nil {
		r := l.removal
		s.mu.Unlock()
		switch {
		case e.err != ErrReleased:
			return e.err
		case r != nil:
			return l.awaitRemoval(ctx, r)
		}
		return nil
	}
	tell := l.finish(ErrReleased)
	h.leases = slices.DeleteFunc(h.leases, func(o *Lease) bool { return o == l })
	last := len(h.leases) == 0
	// Before the delete is sent: who works under the lease's ctx is told before the next one can be granted. Closing Done runs no code of a user's.
	tell()
	if last {
		s.endHold(h)
		l.removal = s.engine.Remove(h.node, h.session)
	}
	s.mu.Unlock()
	for _, t := range s.cfg.trace {
		if t.Released != nil {
			t.Released(l, time.Since(l.granted))
		}
	}
	if !last {
		return nil
	}
	h.close()
	return l.awaitRemoval(ctx, l.removal)
}

// heldIn returns the holds that are held, all of them or those of one ZooKeeper session.
func (s *Session) heldIn(session int64) []*hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	var hs []*hold
	for _, h := range s.holds {
		if h.phase == held && (session == 0 || h.session == session) {
			hs = append(hs, h)
		}
	}
	return hs
}
