package zkrecipes

import (
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/core"
)

// A hand-over inside a Session: when a lock's holder gives its znode up, and right behind it stands a waiter of the same Session, one transaction deletes
// the one and checks that the other exists. Its success is the waiter's grant; nobody lists.
//
// Why the waiter is first then. A list that showed it had the holder's znode directly before it. Nothing comes in between later, since numbers grow, nor
// before the holder, who was granted because nothing was there: but for a read that an owner makes under its write lease, which takes the write's number. So
// a write znode beside which a read was ever made is not handed over; nor is anything where numbers do not tell the order. The znode of a mutex is shared
// by the reads under it, and goes with the last of both. Only exclusive is handed to exclusive: a reader does not wait for its neighbour, nor one alone.
//
// The alternative, to delete and to take "no event for the own znode came before the answer" for its existence, saves bytes, but is only as good as the order
// in which events and answers are handed on.

// An heir is a waiter's claim to be handed the place of the znode right before it.
//
//	waiting --that znode is let go--> called --the transaction succeeded--> handed: the waiter is first
//	   |                                |'------anything else-----------> refused: look again
//	   '---------the waiter is woken, --'---over, or in doubt-----------> withdrawn
//
// waiting becomes called by who lets the znode go, with Session.mu held, after every lease on it has ended; called becomes handed or refused by the answer,
// through the reaper, which owes the znode before it sends anything; withdrawn is the waiter's own step, and final: whatever the answer says then is void.
// A waiter whose claim is called waits for nothing else, so it does not list when the server tells it of the deletion. It goes by the answer only if its own
// watch has told nothing and the epoch is still that of its list and its watches; and the grant asks the clock, as every grant.
type heir struct {
	node  string // the own znode
	epoch core.Epoch
	by    *contender
	pred  *predecessor // the one right before it
	state heirState
}

type heirState int

const (
	heirWaiting heirState = iota
	heirCalled
	heirHanded
	heirRefused
	heirWithdrawn
)

// heirs are the claims that are open, by the znode right before. Its mu is taken last of all.
type heirs struct {
	mu  sync.Mutex
	off bool // no shortcut is taken: every grant is by a list
	m   map[string]*heir
}

// allowed reports whether a grant may do without a list.
func (hs *heirs) allowed() bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return !hs.off
}

// claim enters a claim.
func (hs *heirs) claim(h *heir) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if !hs.off {
		hs.m[h.pred.path] = h
	}
}

// end lets nothing be handed over any more.
func (hs *heirs) end() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.off = true
	clear(hs.m)
}

// call takes the claim to a znode of a session that is let go; nil if there is none.
func (hs *heirs) call(node string, session int64) *heir {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.m[node]
	if h == nil || h.epoch.Session != session {
		return nil
	}
	delete(hs.m, node)
	h.state = heirCalled
	h.pred.called.Store(true)
	return h
}

// told takes the answer to a claim that was called.
func (hs *heirs) told(h *heir, handed bool) {
	hs.mu.Lock()
	if h.state == heirCalled {
		h.state = heirRefused
		if handed {
			h.state = heirHanded
		}
	}
	hs.mu.Unlock()
	if handed {
		h.by.wakeHere()
	} else {
		h.by.wake() // there may be requests to make, and Session.mu to be held
	}
}

// settle returns the state of a claim. Unless it is called, the claim is at an end with that: it is withdrawn if it was waiting.
func (hs *heirs) settle(h *heir) heirState {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h.state == heirWaiting {
		hs.drop(h)
	}
	return h.state
}

// withdraw ends a claim, whatever its state.
func (hs *heirs) withdraw(h *heir) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.drop(h)
}

// drop is called with mu held.
func (hs *heirs) drop(h *heir) {
	if hs.m[h.pred.path] == h {
		delete(hs.m, h.pred.path)
	}
	h.state = heirWithdrawn
}

// letGo gives the znode of a holder to the reaper, and its place to the heir, if there is one. It must be first in its queue, every lease on it must have
// ended, and nothing may have been left in its place.
func (hs *heirs) letGo(e *core.Engine, node string, session int64) *core.Removal {
	h := hs.call(node, session)
	if h == nil {
		return e.Remove(node, session)
	}
	return e.HandOver(node, session, core.Heir{Path: h.node, Epoch: h.epoch, Told: func(handed bool) { hs.told(h, handed) }})
}
