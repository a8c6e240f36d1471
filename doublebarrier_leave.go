package zkrecipes

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// A leaver is one Leave. As in Curator, the first of those inside, by name, stays until it is alone, and the others, whose znodes go at once, wait for it; so
// each waits for one znode only. It takes ready along, in one transaction, so that nobody finds an open barrier without members.
type leaver struct {
	gathering
	m       *entrant
	removal *core.Removal // of the own znode, once it goes
	ticket  *core.Created // in ready, if it wants to close without its own znode

	sub      *core.Sub // to the member for which it waits
	on       string
	gate     *core.Sub   // to ready, while the last one inside has gone and it has not
	patience *time.Timer // for that
	overdue  bool        // which has ended

	mu    sync.Mutex
	round []string // the others inside that it knows of
}

// courtesy is how long ready may outlive the last one inside before others close. Curator's last one deletes its znode, and then ready, which fails when there is
// a ticket in it; ours does both at once, unless it dies.
const courtesy = 250 * time.Millisecond

func newLeaver(m *entrant) *leaver {
	return &leaver{gathering: newGathering(m.s, m.dir), m: m}
}

// others returns who was inside when it last looked.
func (l *leaver) others() (ps Participants) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range l.round {
		ps = append(ps, Participant{Node: znode.Join(l.dir, name)})
	}
	return ps
}

// leave waits until the round is over. In any case the own znode goes.
func (l *leaver) leave(ctx context.Context) error {
	l.ctx = ctx
	defer l.m.leaveBehind()
	defer l.unwatch()
	defer l.giveUpClosing()
	for first := true; ; first = false {
		done, err := l.look(first)
		if done {
			l.ctx = ctx
			return l.gone(ctx.Done())
		}
		if err == nil {
			var late <-chan time.Time
			if l.patience != nil {
				late = l.patience.C
			}
			select {
			case <-l.woken:
				continue
			case <-late:
				l.overdue = true
				continue
			case <-ctx.Done():
			case <-l.e.Context().Done():
				return ErrClosed
			}
		}
		if ctx.Err() == nil {
			return err
		}
		l.remove()
		if err := l.gone(nil); err != nil {
			return err
		}
		return ctx.Err()
	}
}

// remove lets the own znode go.
func (l *leaver) remove() {
	if l.removal == nil {
		l.removal = l.e.Remove(l.m.made.Path, l.m.made.Session)
	}
}

// gone waits until the own znode has gone: by its removal, or it went with ready.
func (l *leaver) gone(until <-chan struct{}) error {
	if l.removal == nil {
		l.m.gone = true
		return nil
	}
	select {
	case <-l.removal.Done():
		l.m.gone = true
		return nil
	case <-l.removal.Refused():
		return l.removal.Refusal()
	case <-until:
		return l.ctx.Err()
	case <-l.e.Context().Done():
		return ErrClosed
	}
}

// look finds out who of the round is left, and does what this one has to do. Unless it is done, the watch on who keeps it is set.
func (l *leaver) look(first bool) (done bool, err error) {
	me := l.m.name()
	for {
		names, version, span, err := l.present()
		if err != nil {
			return false, err
		}
		r, err := l.roll()
		if err != nil {
			return false, err
		}
		there := slices.Contains(names, me)
		switch {
		case first && (!there || span.After.Session != l.m.made.Session):
			return false, l.lost()
		case !there:
			l.remove()
		}
		first = false
		mine := r != nil && r.has(me) && (r.names != nil || r.stat.Czxid == l.m.foreign)
		round := l.left(names, r, mine)
		switch {
		case len(round) > 0:
			l.giveUpClosing()
			slices.Sort(round)
			keeper := round[0]
			if l.removal == nil && me < keeper {
				keeper = round[len(round)-1]
			}
			armed, err := l.await(keeper)
			if err != nil {
				return false, err
			}
			if !armed {
				continue
			}
			if me > round[0] {
				l.remove()
			}
			return false, nil
		case mine && l.removal != nil && !l.overdue:
			armed, err := l.awaitReady()
			if err != nil {
				return false, err
			}
			if armed {
				return false, nil
			}
		case mine && l.removal != nil && (l.ticket == nil || l.ticket.Session != span.After.Session):
			if err := l.takeTicket(); err != nil {
				return false, err
			}
		case mine:
			// Who has come in between the list and ready is not in that list. In another session a server may be behind of what ready said. It is not noted who
			// is there now: that may be the next round, and ready is of the one before.
			now, _, at, err := l.present()
			if err != nil {
				return false, err
			}
			if at.After.Session != span.After.Session || slices.ContainsFunc(now, func(name string) bool { return name != l.m.name() && r.has(name) }) {
				continue
			}
			ops, err := l.clearing(r)
			if err != nil {
				return false, err
			}
			if l.ticket != nil && !slices.ContainsFunc(ops, func(op any) bool { return opPath(op) == l.ticket.Path }) {
				l.ticket = nil // somebody has deleted it
				continue
			}
			ops = append(ops, &zk.CheckVersionRequest{Path: l.dir, Version: version})
			if l.removal == nil {
				ops = append(ops, &zk.DeleteRequest{Path: l.m.made.Path, Version: -1})
			}
			if done, _, err := l.transact(ops...); done || err != nil {
				return done, err
			}
		default:
			l.remove()
			return true, nil
		}
	}
}

// takeTicket makes a ticket, if ready is still there; what is looked at afterwards is of that one.
func (l *leaver) takeTicket() error {
	if l.ticket != nil { // of a session that is over
		l.e.Remove(l.ticket.Path, l.ticket.Session)
		l.ticket = nil
	}
	made, err := l.e.CreateNamed(l.ctx, l.ready(), false, func(id string) string { return znode.Protected(id, ticketName) }, nil)
	switch {
	case err == nil:
		l.ticket = &made
	case !errors.Is(err, zk.ErrNoNode):
		return err
	}
	return nil
}

// left is who of the round is there. As long as ready is the round's, that is who it names, also those who came late; or everybody, when it names nobody.
// After that nobody is added: who comes is of another round. If somebody took ready away before the first look, it is who was inside when this one came in.
func (l *leaver) left(names []string, r *roll, mine bool) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.round
	switch {
	case mine && r.names != nil:
		known = r.names
	case l.round == nil && l.m.crew != nil:
		known = l.m.crew
	case mine, l.round == nil:
		known = names
	}
	one := make(map[string]bool, len(known))
	for _, name := range known {
		one[name] = name != l.m.name()
	}
	l.round = slices.DeleteFunc(append([]string{}, names...), func(name string) bool { return !one[name] })
	return slices.Clone(l.round)
}

// await watches the znode of a member; it is not armed when that has gone.
func (l *leaver) await(name string) (armed bool, err error) {
	if l.on != name {
		l.unwatch()
		l.sub, l.on = l.watch(znode.Join(l.dir, name), core.Data), name
	}
	return l.arm(l.sub)
}

// awaitReady waits until ready has gone, for as long as courtesy demands.
func (l *leaver) awaitReady() (armed bool, err error) {
	if l.gate == nil {
		l.gate, l.patience = l.watch(l.ready(), core.Data), time.NewTimer(courtesy)
	}
	return l.arm(l.gate)
}

func (l *leaver) arm(sub *core.Sub) (armed bool, err error) {
	_, span, err := sub.Arm(l.ctx)
	switch {
	case err == nil:
		return span.SameConn(), nil
	case errors.Is(err, zk.ErrNoNode), l.repeat(l.ctx, err):
		return false, nil
	}
	return false, core.Explain(err)
}

func (l *leaver) unwatch() {
	if l.sub != nil {
		l.sub.Cancel()
	}
}

// giveUpClosing takes back what was made to close.
func (l *leaver) giveUpClosing() {
	if l.ticket != nil {
		l.e.Remove(l.ticket.Path, l.ticket.Session)
	}
	if l.gate != nil {
		l.gate.Cancel()
		l.patience.Stop()
	}
	l.ticket, l.gate, l.patience, l.overdue = nil, nil, nil, false
}

// lost is the error of one that was no member any more when it wanted to leave.
func (l *leaver) lost() error {
	reason, cause := ReasonNodeDeleted, error(nil)
	if l.e.Over(l.m.made.Session) {
		reason, cause = ReasonSessionExpired, zk.ErrSessionExpired
	}
	return &LostError{Path: l.m.spec.path, Reason: reason, Err: cause}
}
