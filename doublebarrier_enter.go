package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// readyName is Curator's.
const readyName = "ready"

// A gathering is a double barrier's directory, as one member sees it.
//
// Who is inside is decided by transactions alone:
//
//	open    path's version is that of the list: +1, each member of the list is there at version 0, ready does not exist: created with their names
//	join    path's version, the member is there, one that it names is there, ready's version is that of the names: +1, with one name more
//	close   path's version, ready's version: deleted; with the znode of the last one inside, or a ticket
//	bury    path's version, ready's version, the member is there: deleted; none that it named before the list was in that
//
// A ticket is an ephemeral znode `_c_<uuid>-close` in ready, for whoever closes when its own znode has gone already, as when the last one inside has died: made
// before the look by which it closes, it tells this ready from that of a later round. path's version cannot, when path is a container that went meanwhile. Who
// deletes ready deletes the tickets of others as well.
//
// A member that withdraws first writes its own znode: from then on no opening counts it, so that what ready says then is final for it. path's version tells
// the rounds apart: ready's begins anew with each. That is why the list, which has it, is asked for before ready.
//
// A ready that names nobody is another client's, or somebody's who opens the barrier by hand: it lets everybody in, as in Curator.
type gathering struct {
	directory
	ctx   context.Context
	woken chan struct{}
}

func newGathering(s *Session, dir string) gathering {
	return gathering{directory: directory{s.engine, dir}, woken: make(chan struct{}, 1)}
}

func (g *gathering) watch(path string, kind core.Kind) *core.Sub {
	return g.e.Watch(path, kind, func(core.Wake) {
		select {
		case g.woken <- struct{}{}:
		default:
		}
	})
}

func (g *gathering) ready() string { return znode.Join(g.dir, readyName) }

// present lists the directory: the names of members, and its version.
func (g *gathering) present() (names []string, version int32, span core.Span, err error) {
	var all []string
	span, err = g.read(g.ctx, func(c core.Conn) error {
		found, stat, err := c.Children(g.dir)
		if err == nil {
			all, version = found, stat.Version
		}
		return err
	})
	if errors.Is(err, zk.ErrNoNode) { // a container that went with its last member
		err = nil
	}
	if err == nil {
		g.e.Seen(g.dir, all)
	}
	for _, name := range all {
		if znode.IsUUID(name) {
			names = append(names, name)
		}
	}
	return names, version, span, err
}

// ticketName marks a ticket.
const ticketName = "close"

// clearing is what deletes ready, with the tickets in it.
func (g *gathering) clearing(r *roll) (ops []any, err error) {
	if r.stat.NumChildren > 0 {
		var names []string
		_, err = g.read(g.ctx, func(c core.Conn) (err error) {
			names, _, err = c.Children(g.ready())
			return err
		})
		if err != nil && !errors.Is(err, zk.ErrNoNode) { // else the transaction will find out
			return nil, err
		}
		for _, name := range names {
			if id := znode.UUIDOf(name); id == "" || name != znode.Protected(id, ticketName) {
				return nil, fmt.Errorf("%s has a child %q, which no member made: it cannot be removed", g.ready(), name)
			}
			ops = append(ops, &zk.DeleteRequest{Path: znode.Join(g.ready(), name), Version: -1})
		}
	}
	return append(ops, &zk.DeleteRequest{Path: g.ready(), Version: r.stat.Version}), nil
}

// A roll is what ready says; nil for a missing one.
type roll struct {
	names []string // none: it is another client's
	data  []byte
	stat  *zk.Stat
}

func (g *gathering) roll() (r *roll, err error) {
	_, err = g.read(g.ctx, func(c core.Conn) error {
		data, stat, err := c.Get(g.ready())
		r = &roll{data: data, stat: stat}
		return err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r.names = rollNames(r.data)
	return r, nil
}

// rollNames reads ready's data: names of members, one in a line.
func rollNames(data []byte) []string {
	names := strings.Split(string(data), "\n")
	for _, name := range names {
		if !znode.IsUUID(name) {
			return nil
		}
	}
	return names
}

// has reports whether a member with that name is inside.
func (r *roll) has(name string) bool { return r.names == nil || slices.Contains(r.names, name) }

// among returns one of those inside that is in a list, "" for none.
func (r *roll) among(names []string) string {
	if i := slices.IndexFunc(r.names, func(name string) bool { return slices.Contains(names, name) }); i >= 0 {
		return r.names[i]
	}
	return ""
}

// transact sends a transaction once. Without an error, ok tells that it was made; else it was not, or nobody knows, and the caller looks again.
func (g *gathering) transact(ops ...any) (ok bool, failed int, err error) {
	var answers []zk.MultiResponse
	_, err = g.e.Do(g.ctx, func(c core.Conn) (err error) {
		answers, err = c.Multi(ops...)
		return err
	})
	failed = core.FailedOp(answers)
	switch {
	case err == nil:
		return true, -1, nil
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNotEmpty):
		return false, failed, nil
	case g.repeat(g.ctx, err):
		return false, -1, nil
	case failed >= 0:
		return false, failed, fmt.Errorf("%s: %w", opPath(ops[failed]), core.Explain(err))
	}
	return false, -1, core.Explain(err)
}

func opPath(op any) string {
	switch op := op.(type) {
	case *zk.CreateRequest:
		return op.Path
	case *zk.SetDataRequest:
		return op.Path
	case *zk.DeleteRequest:
		return op.Path
	case *zk.CheckVersionRequest:
		return op.Path
	}
	return ""
}

// An entrant is what one Enter makes: a member with a znode. It is used by one goroutine at a time.
type entrant struct {
	gathering
	s       *Session
	spec    *lockSpec
	members int
	data    []byte
	former  *entrant     // that of the same DoubleBarrier before this one, until its znode has gone
	made    core.Created // the own znode; constant once it is inside
	own     *core.Sub    // while it looks for its place
	gate    *core.Sub    // ready
	unfit   []string     // members that no opening of its own counts; they may be inside
	seen    atomic.Int64 // how many members it saw last
	crew    []string     // who was inside when it came in; nil if that names nobody
	foreign int64        // czxid of the ready by which it came in, if that names nobody
	unsure  bool         // ctx has ended, and it is not known whether an opening has counted it

	going   sync.Once
	left    chan struct{} // closed when its znode was let go,
	removal *core.Removal // by this, if it had one
	gone    bool          // it has gone already
}

func newEntrant(s *Session, b *DoubleBarrier, owner Owner) *entrant {
	return &entrant{
		gathering: newGathering(s, b.spec.dir), s: s, spec: b.spec, members: b.members, data: b.spec.data(owner), left: make(chan struct{}),
	}
}

// name is that of the own znode.
func (m *entrant) name() string { return m.made.Name() }

// enter gets inside, or leaves nothing behind. When ctx ends it finds out which of the two it is, and has no bound for that but the life of the engine.
func (m *entrant) enter(ctx context.Context) (err error) {
	m.ctx = ctx
	in := false
	m.e.Making() // as long as there may be a znode of which the Session does not know
	defer m.e.Made()
	m.gate = m.watch(m.ready(), core.Presence)
	defer func() {
		m.gate.Cancel()
		if in {
			in, err = m.stay(), ErrClosed
		}
		if in {
			m.own.Cancel()
			err = nil
		} else {
			m.leaveBehind()
		}
	}()
	for {
		if m.made.Path == "" {
			if err := m.follow(); err != nil {
				return err
			}
			made, err := m.e.CreateOne(ctx, m.dir, m.data)
			if err != nil {
				// What was not answered, or came too late, may be there, or has been. To ask now what is being removed would miss what is gone by now.
				m.unsure = made.GaveUp
				return err
			}
			m.made, m.own = made, m.watch(made.Path, core.Data)
		}
		in, err = m.look()
		switch {
		case in:
			return nil
		case ctx.Err() != nil && m.made.Path == "":
			return ctx.Err()
		case ctx.Err() != nil:
			in, err = m.withdraw()
			if m.unsure = err != nil; !m.unsure {
				err = ctx.Err()
			}
			return err
		case err != nil:
			return err
		case m.made.Path == "":
			continue
		}
		select {
		case <-m.woken:
		case <-ctx.Done():
		case <-m.e.Context().Done():
			return ErrClosed
		}
	}
}

// stay lets the Session know of a member inside; false when it is closed.
func (m *entrant) stay() bool {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.s.closed {
		return false
	}
	m.s.inside[m] = struct{}{}
	return true
}

// leaveBehind gives up what there is, once.
func (m *entrant) leaveBehind() {
	m.going.Do(func() {
		m.s.mu.Lock()
		delete(m.s.inside, m)
		m.s.mu.Unlock()
		if m.made.Path != "" && !m.gone {
			m.own.Cancel()
			m.removal = m.e.Remove(m.made.Path, m.made.Session)
		}
		m.e.Stray(m.made, m.removal)
		close(m.left)
	})
}

// follow waits until the znodes have gone that this member had before: whoever sees them beside the next one counts it twice.
func (m *entrant) follow() error {
	for ; m.former != nil; m.former = m.former.former {
		select {
		case <-m.former.left:
		case <-m.ctx.Done():
			return m.ctx.Err()
		case <-m.e.Context().Done():
			return ErrClosed
		}
		if err := m.removed(m.former.removal); err != nil {
			return err
		}
	}
	return m.removed(m.removal)
}

// removed waits until a znode has gone.
func (g *gathering) removed(r *core.Removal) error {
	if r == nil {
		return nil
	}
	select {
	case <-r.Done():
		return nil
	case <-r.Refused():
		return r.Refusal()
	case <-g.ctx.Done():
		return g.ctx.Err()
	case <-g.e.Context().Done():
		return ErrClosed
	}
}

// lost forgets the own znode, which is not there any more or not worth anything.
func (m *entrant) lost() {
	m.own.Cancel()
	m.removal = m.e.Remove(m.made.Path, m.made.Session)
	m.e.Stray(m.made, m.removal)
	m.made = core.Created{}
}

// withdraw takes the member out when ctx has ended, and reports whether it is inside after all.
func (m *entrant) withdraw() (in bool, err error) {
	m.ctx = m.e.Context()
	_, err = m.read(m.ctx, func(c core.Conn) error { // again when it is not answered: any further version will do
		_, err := c.Set(m.made.Path, m.data, -1)
		return err
	})
	switch {
	case err == nil:
	case errors.Is(err, zk.ErrNoNode): // lost
		return false, nil
	default:
		return false, core.Explain(err)
	}
	for again := true; ; { // what a watch says may be older than that answer: ready is read
		if in, again, err = m.pass(); !again || in || err != nil {
			return in, err
		}
	}
}

// look finds out whether the member is inside, and opens the barrier if it can. Otherwise the watches are set; or the own znode is lost, and made empty.
func (m *entrant) look() (in bool, err error) {
	for {
		there, err := m.arm()
		if err != nil || m.made.Path == "" {
			return false, err
		}
		again := true
		if there {
			in, _, err = m.pass()
		} else {
			in, again, err = m.open()
		}
		if in || err != nil || !again {
			return in, err
		}
	}
}

// arm watches the own znode and ready, and reports whether ready is there. An own znode that somebody has changed is lost: no opening counts it.
func (m *entrant) arm() (there bool, err error) {
	for {
		own, at, err := m.own.Arm(m.ctx)
		if errors.Is(err, zk.ErrNoNode) || err == nil && (at.After.Session != m.made.Session || own.Stat.Version != 0) {
			m.lost()
			return false, nil
		}
		if err == nil {
			var ready core.Node
			var span core.Span
			ready, span, err = m.gate.Arm(m.ctx)
			if err == nil && span == at {
				return ready.Stat != nil, nil
			}
		}
		if err != nil && !m.repeat(m.ctx, err) {
			return false, core.Explain(err)
		}
	}
}

// pass goes through the open barrier: as one that was counted, or as one that comes late. Without in, again tells that ready is there, or was when it was read
// first: it may be another one by now, or one that a dead round has left behind, and that is gone now. It is not told of a member whose own znode has gone: of
// that the watch tells, and who withdraws is out.
func (m *entrant) pass() (in, again bool, err error) {
	r, err := m.roll()
	if err != nil || r == nil {
		return false, false, err
	}
	if !r.has(m.name()) {
		names, version, err := m.candidates()
		if err != nil {
			return false, false, err
		}
		before := r.stat
		if r, err = m.roll(); err != nil || r == nil {
			return false, true, err
		}
		if !r.has(m.name()) {
			known := &zk.CheckVersionRequest{Path: m.dir, Version: version}
			inside := r.among(names)
			if inside == "" {
				if r.stat.Czxid != before.Czxid || r.stat.Version != before.Version { // who joined meanwhile may be newer than the list
					return false, true, nil
				}
				ops, err := m.clearing(r)
				if err != nil {
					return false, false, err
				}
				ops = append(ops, known, &zk.CheckVersionRequest{Path: m.made.Path, Version: -1})
				_, failed, err := m.transact(ops...)
				return false, failed != len(ops)-1, err
			}
			data := append(slices.Clip(r.data), "\n"+m.name()...)
			if len(data)+4*len(m.dir) > core.MaxData {
				return false, false, fmt.Errorf("%s names %d members, and there is no room for one more", m.ready(), len(r.names))
			}
			m.crew = r.names
			in, failed, err := m.transact(known, &zk.SetDataRequest{Path: m.ready(), Data: data, Version: r.stat.Version},
				&zk.CheckVersionRequest{Path: m.made.Path, Version: -1}, &zk.CheckVersionRequest{Path: znode.Join(m.dir, inside), Version: -1})
			if failed == 3 { // the list was older than its end; the next one is not
				m.e.Prove(m.ctx)
			}
			return in, failed != 2, err
		}
	}
	if m.crew = r.names; m.crew == nil {
		m.foreign = r.stat.Czxid
	}
	return true, false, nil
}

// candidates lists who may be counted or be inside: not what is on its way out, of earlier calls in this Session.
func (m *entrant) candidates() (names []string, version int32, err error) {
	going := m.e.Leaving(m.dir)
	names, version, _, err = m.present()
	return slices.DeleteFunc(names, going.Has), version, err
}

// open opens the barrier if so many members are there. Without in, again tells that something was in the way that is worth another look.
func (m *entrant) open() (in, again bool, err error) {
	names, version, err := m.candidates()
	if err != nil {
		return false, false, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(m.unfit, name) })
	m.seen.Store(int64(len(names)))
	if len(names) < m.members {
		return false, false, nil
	}
	var data []byte
	var stat *zk.Stat
	_, err = m.read(m.ctx, func(c core.Conn) (err error) {
		data, stat, err = c.Get(m.dir)
		return err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode) || err == nil && stat.Version != version:
		return false, true, nil
	case err != nil:
		return false, false, err
	}
	most := maxMembers(m.dir, len(data))
	if most < m.members {
		return false, false, fmt.Errorf("%w: %s has %d bytes, which leaves room for %d members in one transaction", core.ErrTooLarge, m.dir, len(data), max(most, 0))
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == m.name() })
	names = append([]string{m.name()}, names[:min(len(names), most-1)]...)
	ops := []any{&zk.SetDataRequest{Path: m.dir, Data: data, Version: version}}
	for _, name := range names {
		ops = append(ops, &zk.CheckVersionRequest{Path: znode.Join(m.dir, name), Version: 0})
	}
	m.crew = names
	ops = append(ops, &zk.CreateRequest{Path: m.ready(), Data: []byte(strings.Join(names, "\n")), Acl: m.e.ACL()})
	in, failed, err := m.transact(ops...)
	if !in && err == nil && failed > 1 && failed <= len(names) {
		// It withdraws, or has gone; should it come back, it opens by itself. When this one is not fit, arm sees to it.
		m.unfit = append(m.unfit, names[failed-1])
	}
	return in, true, err
}
