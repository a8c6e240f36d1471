package zkrecipes

import (
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
)

// A stake is a znode that holds stand on: one hold, or a write hold and the read under it that shares its znode. Everything in it is under Session.mu.
//
// It ends when nobody stands on it and no read is being made beside it any more: then its znode is the reaper's, unless the server said that it is gone.
type stake struct {
	s       *Session
	node    string
	session int64
	labeled bool // its data are the owner
	own     *core.Sub
	holds   []*hold
	hold    [1]*hold // room for one
	nests   int      // reads that are being made beside it: its znode must not go before they are decided
	nested  bool     // a read may ever have been made beside it, which takes its place
	gone    bool     // somebody deleted the znode: whoever has made one of that name since owns it
	revoked lateChan // closed when somebody asked for it back

	ended   lateChan // closed with the stake; removal is set then, unless gone
	removal *core.Removal

	looking, again bool // the own znode is being read; once more
}

func newStake(h *hold, made core.Znode, own *core.Sub) *stake {
	st := &stake{s: h.s, node: made.Path, session: made.Session, labeled: !h.spec.cfg.hasData, own: own}
	st.holds = st.hold[:0]
	return st
}

// drop takes a hold off the stake, which may end it; mu is held.
func (st *stake) drop(h *hold) {
	st.holds = slices.DeleteFunc(st.holds, func(o *hold) bool { return o == h })
	st.settle()
}

// settle ends the stake if nothing needs it any more; mu is held.
func (st *stake) settle() {
	if len(st.holds) > 0 || st.nests > 0 {
		return
	}
	if st.ended.isClosed() {
		return
	}
	switch {
	case st.gone:
	case st.nested:
		st.removal = st.s.engine.Remove(st.node, st.session)
	default:
		st.removal = st.s.heirs.letGo(st.s.engine, st.node, st.session)
	}
	st.own.Cancel()
	st.ended.close()
}

// revoke notes that somebody asked for the znode back; mu is held.
func (st *stake) revoke() {
	if !st.revoked.close() {
		return
	}
	for _, h := range st.holds {
		for _, l := range h.leases {
			for _, g := range l.groups() {
				g.revoke()
			}
		}
	}
}

// event is the subscription to the znode, once it is held. It must not block.
func (st *stake) event(w core.Wake) {
	if w == core.Deleted {
		st.s.loseStake(st, ReasonNodeDeleted, nil)
		return
	}
	st.look()
}

// look reads the znode in the background and sets the watch on it.
func (st *stake) look() {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	switch {
	case len(st.holds) == 0:
	case st.looking:
		st.again = true
	default:
		st.looking = st.s.engine.GoTask(st)
	}
}

// Run is the Engine's: the read.
func (st *stake) Run() {
	s, e := st.s, st.s.engine
	for {
		s.mu.Lock()
		st.again = false
		s.mu.Unlock()
		node, span, err := st.own.Arm(e.Context())
		if e.Over(st.session) || errors.Is(err, zk.ErrNoNode) && span.SameSession() && span.After.Session == st.session {
			st.missing()
		}
		s.mu.Lock()
		if err == nil && asksBack(node) {
			st.revoke()
		}
		// After any other error there will be a new connection, and with it a call of event; if it came in the meantime, again is set.
		if !st.again || len(st.holds) == 0 {
			st.looking = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

// missing ends the stake's holds: the server has no such znode any more, because somebody deleted it or because its session is over.
func (st *stake) missing() {
	if st.s.engine.Over(st.session) {
		st.s.loseStake(st, ReasonSessionExpired, zk.ErrSessionExpired)
	} else {
		st.s.loseStake(st, ReasonNodeDeleted, nil)
	}
}

// asksBack reports whether a znode's data were replaced by the request to give it back.
func asksBack(n core.Node) bool {
	return string(n.Data) == revokeMessage && n.Stat != nil && n.Stat.Version > 0
}

// loseStake ends every hold on a stake by loss.
func (s *Session) loseStake(st *stake, reason LossReason, cause error) {
	s.mu.Lock()
	if reason == ReasonNodeDeleted {
		st.gone = true
	}
	tell := s.lose(reason, cause, st.holds...)
	s.mu.Unlock()
	tell()
}
