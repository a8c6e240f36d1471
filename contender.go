package zkrecipes

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// markers are the names of everything that may compete for a lock: Curator's mutex and read/write lock, go-zookeeper's Lock, kazoo's locks.
var markers = []string{znode.LockName, znode.WriteName, znode.ReadName, znode.KazooLock, znode.KazooRead}

// family are the names that compete with one of this marker.
func family(marker string) []string {
	if marker == znode.LatchName {
		return []string{marker}
	}
	return markers
}

// A contender is the queue algorithm: it makes a znode, waits until nothing is in its way, and offers the grant. It is one serial state machine. Its
// steps run on a goroutine only while there is something to do: an idle contender is a znode, two watches and nothing else.
//
//	nothing --create--> queued --list: nothing in the way--> offered --> granted
//	                      |  ^                                |  ^
//	                      v  '---stale clock or session-------'  |
//	                    waiting --the one in the way was deleted, or handed its place over-'
//	                    (on the nearest in the way and on the own znode; any other wake-up: look again)
//
//	queued, list without the own znode     -> nothing (again, at the tail)
//	any state, the session is another one  -> nothing (again, at the tail)
//	any state, cancelled or refused        -> over; the znode is the reaper's
//
// What requests may answer: create, see core.Engine.Create. List: NoNode is an empty directory; only a list requested after the create's reply proves
// that the own znode is gone. Arming reads: NoNode for the own znode means look again, never that a place may be given up; for the one in the way it is as its
// deletion, where that decides, else look again.
type contender struct {
	directory
	machine
	try      bool        // list first, create only if nothing is in the way, never wait
	revoked  bool        // of the running step
	ownWoken atomic.Bool // an event for the own znode came since its watch was last set
	doubt    atomic.Bool // nothing has happened for a long time since then

	marker string
	client client
	heirs  *heirs
	quit   quit // the ctx of all that it does

	// Of the running step alone.
	made  core.Znode // the own one; no Path for none
	own   *core.Sub
	pred  *predecessor // the nearest in the way
	alone core.Epoch   // where it is the only one in the way, see foresee
	heir  *heir        // the claim to the place of the nearest in the way, nil for none

	ahead aheadNote
}

// A predecessor is a znode in the way, and the subscription to it.
type predecessor struct {
	path    string
	sub     *core.Sub
	deleted atomic.Bool // the server said so
	called  atomic.Bool // it was let go by this Session, for a hand-over: the answer wakes, not the deletion
}

// is reports whether it is the znode of that name.
func (p *predecessor) is(name string) bool {
	_, own := znode.Split(p.path)
	return own == name
}

// A client is who a contender works for.
type client interface {
	data() []byte // of the znode
	// granted offers the grant of a znode that is first, with the subscription to it, and whether somebody has asked for it back already.
	granted(made core.Znode, own *core.Sub, revoked bool) verdict
	failed(err error)
	waiting(ahead int)
	ownEvent(node string, w core.Wake)
	look() // reads the own znode and sets the watch on it, in the background
}

// A verdict is the answer to an offered grant.
type verdict int

const (
	grantTaken    verdict = iota
	grantStale            // the session is another one, or its clock has run out
	grantUnwanted         // nobody waits any more
)

func newContender(e *core.Engine, hs *heirs, dir, marker string, try bool, cl client) *contender {
	e.Enter()
	return &contender{directory: directory{e, dir}, marker: marker, try: try, client: cl, heirs: hs}
}

func (c *contender) wake()     { c.machine.wake(c.e, c) }
func (c *contender) wakeHere() { c.machine.wakeHere(c) }
func (c *contender) Run()      { c.machine.run(c) }

// cancel ends a contender whose client has gone: its znode is removed as soon as the step under way has noticed.
func (c *contender) cancel() {
	c.quit.end()
	c.wake()
}

func (c *contender) idle()  { c.quit.rest() }
func (c *contender) ended() { c.quit.end() }

// queued reports whether there is an own znode.
func (c *contender) queued() bool { return c.made.Path != "" }

func (c *contender) joinable(try bool) bool { return !try && !c.try }

func (c *contender) whoIsAhead() Participants { return c.ahead.participants(c.dir) }

// step looks until there is nothing to do but wait (false) or the contender is over (true).
func (c *contender) step() (over bool) {
	var room [4]znode.Name // enough for a lock that few want
	for {
		epoch, err := c.e.Await(&c.quit)
		if err != nil {
			return c.end(err)
		}
		if c.queued() && c.made.Session != epoch.Session {
			c.leave()
		}
		next, undecided := c.inherits(epoch)
		if undecided {
			return false
		}
		if next || c.isNext(epoch) {
			if over, done := c.offer(); done {
				return over
			}
			continue
		}
		var l core.Listing
		if !c.queued() {
			if c.try {
				if held, err := c.occupied(); err != nil || held {
					return c.end(err)
				}
			}
			made, err := c.e.Create(&c.quit, c.dir, c.marker, c.client.data())
			if err != nil {
				return c.end(err)
			}
			c.made = made.Znode // nothing else is kept: the list grows with the queue
			c.own = c.watchOwn(made.Path)
			l = made.List
		}
		fresh := l.Names == nil // then the list is asked for here, after the create's reply
		if fresh {
			if l, err = c.list(&c.quit); err != nil {
				return c.end(err)
			}
			if !l.Span.SameSession() || l.Span.After.Session != c.made.Session {
				continue
			}
		}
		var listed core.Epoch
		if l.Span.SameConn() {
			listed = l.Span.After
		}
		c.e.Seen(c.dir, l.Names)
		p, err := c.place(l, room[:0])
		switch {
		case err != nil:
			return c.end(err)
		case !p.found:
			if fresh && c.e.Epoch().Session == c.made.Session { // somebody deleted it: it is gone for good, and so is the place
				c.forget()
			}
			continue
		case len(p.ahead) == 0:
			if over, done := c.offer(); done {
				return over
			}
			continue
		case c.try:
			c.ahead.note(p.ahead, core.Node{})
			return c.end(nil)
		}
		c.ahead.note(p.ahead, core.Node{}) // an error says who, also when the read of the nearest is not answered
		waiting, err := c.wait(p, listed)
		if err != nil {
			return c.end(err)
		}
		if waiting {
			return false
		}
	}
}

// watchOwn subscribes to the own znode.
func (c *contender) watchOwn(path string) *core.Sub {
	return c.e.Watch(path, core.Data, func(w core.Wake) {
		if w == core.Safety {
			c.doubt.Store(true)
		}
		c.ownWoken.Store(true)
		c.client.ownEvent(path, w)
	})
}

// offer offers the grant of the znode that is first. It is not done when the clock or the session was stale.
func (c *contender) offer() (over, done bool) {
	switch c.client.granted(c.made, c.own, c.revoked) {
	case grantTaken:
		c.unwatch()
		c.client.look()
		return true, true
	case grantUnwanted:
		return c.end(context.Canceled), true
	}
	c.e.Prove(&c.quit)
	return false, false
}

// foresee decides whether the deletion of the nearest in the way will be the grant, without another list. It is if a list that was answered on the connection
// on which both watches are set shows nobody else in the way: whoever comes later stands behind, but for a read under a write that its owner gives back first,
// which takes the place of that write, and which only readers may stand beside. Numbers have to tell the order, a wire the connections apart, and events have
// to come as the server sent them.
func (c *contender) foresee(p place, listed, watched core.Epoch) {
	last, _ := znode.Parse(p.ahead[len(p.ahead)-1].Raw, family(c.marker)...)
	leavesARead := last.Marker == znode.WriteName && c.marker != znode.ReadName
	if c.heirs.allowed() && len(p.ahead) == 1 && !p.byCzxid && !leavesARead && listed == watched && c.e.Ordered() {
		c.alone = watched
	}
}

// missed takes the answer that the one in the way was gone already. That is as good as the event: it came on the same connection as the list that showed it.
// But it may have overtaken an event for the own znode that the server sent before it, so it waits behind those. It reports false when the deletion does not
// decide anything.
func (c *contender) missed() (waiting bool) {
	if c.alone == (core.Epoch{}) {
		return false
	}
	pred := c.pred
	return c.e.Behind(func() {
		pred.deleted.Store(true)
		c.wake()
	})
}

// isNext reports whether the one in the way was deleted, and nothing is known to have befallen the own znode before.
func (c *contender) isNext(epoch core.Epoch) bool {
	return c.queued() && c.alone == epoch && c.pred != nil && c.pred.deleted.Load() && !c.ownWoken.Load() && c.e.Epoch() == epoch
}

// inherits reports whether the place of the one right before was handed over, and nothing is known to have befallen the own znode; or that this is not
// decided yet: then the answer wakes this contender. A claim that is decided, or that nobody has called, is at an end with it.
func (c *contender) inherits(epoch core.Epoch) (next, undecided bool) {
	h := c.heir
	if h == nil {
		return false, false
	}
	state := c.heirs.settle(h)
	if state == heirCalled && !c.doubt.Load() {
		return false, true
	}
	c.disclaim()
	return state == heirHanded && h.epoch == epoch && !c.ownWoken.Load(), false
}

// claims lets the place of the nearest in the way be handed over, if that is exclusive and was shown right before this one by a list that was answered on
// the connection on which the watches are set.
func (c *contender) claims(p place, listed, watched core.Epoch) {
	last, ok := znode.Parse(p.ahead[len(p.ahead)-1].Raw, family(c.marker)...)
	if !ok || !last.Exclusive() && last.Marker != znode.LatchName || c.marker == znode.ReadName || p.byCzxid || listed != watched {
		return
	}
	c.heir = &heir{node: c.made.Path, epoch: watched, by: c, pred: c.pred}
	c.heirs.claim(c.heir)
}

// disclaim ends the claim, whatever has become of it.
func (c *contender) disclaim() {
	if c.heir != nil {
		c.heirs.withdraw(c.heir)
		c.heir.pred.called.Store(false) // for who goes on with the subscription; the answer wakes it in any case, and its list passes over what is on its way out
		c.heir = nil
	}
}

// end leaves the queue and tells the client: the error, or with none that somebody stands in the way.
func (c *contender) end(err error) bool {
	r := c.leave()
	if err == nil {
		if r != nil { // what a TryLock wrote blocks others until it is gone
			select {
			case <-r.Done():
			case <-c.quit.Done():
			case <-r.Refused(): // which was logged
			}
		}
		err = &Error{Ahead: c.whoIsAhead(), Err: ErrHeld}
	}
	c.e.Leave()
	c.client.failed(err)
	return true
}

// leave gives the own znode to the reaper.
func (c *contender) leave() (r *core.Removal) {
	if c.queued() {
		c.disclaim() // before others can pass over the znode
		r = c.e.Remove(c.made.Path, c.made.Session)
		c.forget()
	}
	return r
}

// forget drops the own znode, which is gone or somebody else's care.
func (c *contender) forget() {
	c.disclaim()
	c.unwatch()
	c.own.Cancel()
	c.made, c.own, c.revoked = core.Znode{}, nil, false
}

func (c *contender) unwatch() {
	if c.pred != nil {
		c.pred.sub.Cancel()
	}
	c.pred, c.alone = nil, core.Epoch{}
}

// occupied is the look of a TryLock before it writes anything: one read.
func (c *contender) occupied() (bool, error) {
	l, err := c.list(&c.quit)
	if err != nil {
		return false, err
	}
	c.e.Seen(c.dir, l.Names)
	all := c.competitors(l, "", nil)
	znode.SortBySeq(all)
	in := c.inTheWay(all)
	if len(in) > 0 {
		c.ahead.note(in, core.Node{})
	}
	return len(in) > 0, nil
}

// A place is where the own znode stands.
type place struct {
	found   bool
	ahead   []znode.Name // those in the way, the last one nearest
	byCzxid bool         // numbers do not tell the order
}

// competitors parses a list, into all, and drops what does not compete: foreign names, and znodes that are on their way out.
func (c *contender) competitors(l core.Listing, own string, all []znode.Name) []znode.Name {
	for _, raw := range l.Names {
		if n, ok := znode.Parse(raw, family(c.marker)...); ok && (raw == own || !l.Leaving.Has(raw)) {
			all = append(all, n)
		}
	}
	return all
}

// inTheWay returns those of what stands before this contender that it has to wait for.
func (c *contender) inTheWay(before []znode.Name) []znode.Name {
	if c.marker != znode.ReadName {
		return before
	}
	var in []znode.Name // before may be others', too
	for _, n := range before {
		if n.Exclusive() {
			in = append(in, n)
		}
	}
	return in
}

// A lineup is what a list shows of those who compete.
type lineup struct {
	all     []znode.Name // by their numbers, in any order if these do not tell it
	byCzxid bool         // they do not
}

// sorting lets as many contenders take a list of their own apart at once as there are processors: each needs memory that grows with it.
var sorting = make(chan struct{}, runtime.GOMAXPROCS(0))

// lineup takes a list apart, in room if there is enough. Those who share a list share the lineup, which is not to be changed: else each of ten thousand that come
// at once would sort all of them.
func (c *contender) lineup(l core.Listing, room []znode.Name) lineup {
	own := c.made.Name()
	if l.Memo == nil || l.Leaving.Has(own) {
		sorting <- struct{}{}
		defer func() { <-sorting }()
		return lineupOf(c.competitors(l, own, room))
	}
	return l.Memo.Of(c.marker == znode.LatchName, func() any {
		return lineupOf(c.competitors(l, "", make([]znode.Name, 0, len(l.Names))))
	}).(lineup)
}

func lineupOf(all []znode.Name) lineup {
	if slices.ContainsFunc(all, func(n znode.Name) bool { return znode.Exhausted(n.Seq) }) {
		return lineup{all, true}
	}
	znode.SortBySeq(all)
	return lineup{all, false}
}

func (c *contender) place(l core.Listing, room []znode.Name) (place, error) {
	q := c.lineup(l, room)
	all, byCzxid := q.all, q.byCzxid
	if byCzxid {
		var err error
		if all, err = c.byCzxid(&c.quit, slices.Clone(all), c.made.Session); err != nil {
			return place{}, err
		}
	}
	own := c.made.Name()
	i := slices.IndexFunc(all, func(n znode.Name) bool { return n.Raw == own })
	if i < 0 {
		return place{}, nil
	}
	before := all[:i]
	if own := all[i]; byCzxid && own.Exclusive() && !znode.Exhausted(own.Seq) {
		// A read that took its owner's place as a writer was created later than those who wait, and stands before them by its number.
		for _, n := range all[i+1:] {
			if !n.Exclusive() && !znode.Exhausted(n.Seq) && n.Seq < own.Seq {
				before = append(before[:len(before):len(before)], n)
			}
		}
	}
	return place{true, c.inTheWay(before), byCzxid}, nil
}

// wait sets the watches on the own znode and on the nearest in the way. It reports false when there is reason to look again at once. No event is lost
// in between: the subscriptions stand before the reads that set the watches. listed is where the list was answered.
func (c *contender) wait(p place, listed core.Epoch) (bool, error) {
	ahead := p.ahead
	nearest := ahead[len(ahead)-1].Raw
	if c.pred == nil || !c.pred.is(nearest) {
		c.unwatch()
		pred := new(predecessor)
		pred.sub = c.e.Watch(znode.Join(c.dir, nearest), core.Data, func(w core.Wake) {
			switch {
			case w == core.Deleted:
				pred.deleted.Store(true)
				if pred.called.Load() {
					return
				}
			case w == core.Safety:
				c.doubt.Store(true)
			}
			c.wake()
		})
		pred.path = pred.sub.Path() // which may be the one that the waiter before this has
		c.pred = pred
	}
	c.alone = core.Epoch{}
	c.ownWoken.Store(false)
	c.doubt.Store(false)
	type armed struct {
		node core.Node
		span core.Span
		err  error
	}
	mine := make(chan armed, 1)
	own := c.own
	if !c.e.Go(func() {
		node, span, err := own.Arm(&c.quit)
		mine <- armed{node, span, err}
	}) {
		return false, core.ErrClosed
	}
	node, span, err := c.pred.sub.Arm(&c.quit)
	theirs, ours := armed{node, span, err}, <-mine
	c.revoked = c.revoked || ours.err == nil && asksBack(ours.node)
	for _, a := range []armed{theirs, ours} {
		if a.err != nil && !errors.Is(a.err, zk.ErrNoNode) && !c.repeat(&c.quit, a.err) {
			return false, a.err
		}
	}
	missing := errors.Is(theirs.err, zk.ErrNoNode)
	if theirs.err != nil && !missing || ours.err != nil || !span.SameConn() || ours.span != span {
		return false, nil
	}
	c.foresee(p, listed, span.After)
	if missing {
		return c.missed(), nil
	}
	c.ahead.note(ahead, node)
	c.claims(p, listed, span.After)
	c.client.waiting(len(ahead))
	return true, nil
}
