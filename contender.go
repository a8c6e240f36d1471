package zkrecipes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// markers are the names of everything that may compete on one path: Curator's mutex and read/write lock, go-zookeeper's Lock, kazoo's locks.
var markers = []string{znode.LockName, znode.WriteName, znode.ReadName, znode.KazooLock, znode.KazooRead}

// A contender is the queue algorithm: it makes a znode, waits until nothing is in its way, and offers the grant. It is one serial state machine. Its
// steps run on a goroutine only while there is something to do: an idle contender is a znode, two watches and nothing else.
//
//	nothing --create--> queued --list: nothing in the way--> offered --> granted
//	                      |  ^                                  |
//	                      v  '---stale clock or session---------'
//	                    waiting (on the nearest in the way and on the own znode; any wake-up: look again)
//
//	queued, list without the own znode     -> nothing (again, at the tail)
//	any state, the session is another one  -> nothing (again, at the tail)
//	any state, cancelled or refused        -> over; the znode is the reaper's
//
// What requests may answer: create, see core.Engine.Create. List: NoNode is an empty directory; only a list requested after the create's reply proves
// that the own znode is gone. Arming reads: NoNode means look again, never that a place may be given up.
type contender struct {
	e      *core.Engine
	dir    string
	marker string
	data   []byte
	try    bool // list first, create only if nothing is in the way, never wait
	client client
	ctx    context.Context // ends with cancel
	stop   context.CancelFunc

	// Of the running step alone.
	made     *core.Created
	own      *core.Sub
	pred     *core.Sub // on the nearest in the way,
	predName string    // which is this one

	mu      sync.Mutex
	running bool
	again   bool
	over    bool
	ahead   Participants // as last seen, nearest first
}

// A client is who a contender works for.
type client interface {
	// granted offers the grant of a znode that is first, with the subscription to it.
	granted(made core.Created, own *core.Sub) verdict
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

func newContender(e *core.Engine, dir, marker string, data []byte, try bool, cl client) *contender {
	c := &contender{e: e, dir: dir, marker: marker, data: data, try: try, client: cl}
	c.ctx, c.stop = context.WithCancel(e.Context())
	e.Enter()
	return c
}

// wake asks for a step; it never blocks.
func (c *contender) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.again = true
	if !c.running && !c.over {
		c.running = c.e.Go(c.run)
	}
}

// cancel ends a contender whose client has gone: its znode is removed as soon as the step under way has noticed.
func (c *contender) cancel() {
	c.stop()
	c.wake()
}

func (c *contender) whoIsAhead() Participants {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead
}

func (c *contender) run() {
	for {
		c.mu.Lock()
		c.again = false
		c.mu.Unlock()
		over := c.step()
		c.mu.Lock()
		if over || !c.again {
			c.over, c.running = over, false
			c.mu.Unlock()
			if over {
				c.stop()
			}
			return
		}
		c.mu.Unlock()
	}
}

// step looks until there is nothing to do but wait (false) or the contender is over (true).
func (c *contender) step() (over bool) {
	for {
		epoch, err := c.e.Await(c.ctx)
		if err != nil {
			return c.end(err)
		}
		if c.made != nil && c.made.Session != epoch.Session {
			c.leave()
		}
		var names []string
		if c.made == nil {
			if c.try {
				if held, err := c.occupied(); err != nil || held {
					return c.end(err)
				}
			}
			made, err := c.e.Create(c.ctx, c.dir, c.marker, c.data)
			if err != nil {
				return c.end(err)
			}
			c.made = &made
			c.own = c.e.Watch(made.Path, core.Data, func(w core.Wake) { c.client.ownEvent(made.Path, w) })
			names = made.List
		}
		fresh := names == nil // a list asked for now is asked for after the create's reply
		if fresh {
			var span core.Span
			names, span, err = c.list()
			if err != nil {
				return c.end(err)
			}
			if !span.SameSession() || span.After.Session != c.made.Session {
				continue
			}
		}
		c.e.Seen(c.dir, names)
		p, err := c.place(names)
		switch {
		case err != nil:
			return c.end(err)
		case !p.found:
			if fresh && c.e.Epoch().Session == c.made.Session { // somebody deleted it: it is gone for good, and so is the place
				c.forget()
			}
			continue
		case len(p.ahead) == 0:
			switch c.client.granted(*c.made, c.own) {
			case grantTaken:
				c.unwatch()
				c.client.look()
				return true
			case grantUnwanted:
				return c.end(context.Canceled)
			case grantStale:
				c.e.Prove(c.ctx)
			}
			continue
		case c.try:
			c.note(p.ahead, core.Node{})
			return c.end(nil)
		}
		c.note(p.ahead, core.Node{}) // an error says who, also when the read of the nearest is not answered
		waiting, err := c.wait(p.ahead)
		if err != nil {
			return c.end(err)
		}
		if waiting {
			return false
		}
	}
}

// end leaves the queue and tells the client: the error, or with none that somebody stands in the way.
func (c *contender) end(err error) bool {
	r := c.leave()
	if err == nil {
		if r != nil { // what a TryLock wrote blocks others until it is gone
			select {
			case <-r.Done():
			case <-c.ctx.Done():
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
	if c.made != nil {
		r = c.e.Remove(c.made.Path, c.made.Session)
		c.forget()
	}
	return r
}

// forget drops the own znode, which is gone or somebody else's care.
func (c *contender) forget() {
	c.unwatch()
	c.own.Cancel()
	c.made, c.own = nil, nil
}

func (c *contender) unwatch() {
	if c.pred != nil {
		c.pred.Cancel()
	}
	c.pred, c.predName = nil, ""
}

// repeat reports whether a read that ended with err is to be repeated: it was not answered, and there is somebody to repeat it for.
func (c *contender) repeat(err error) bool {
	return c.ctx.Err() == nil && !errors.Is(err, core.ErrClosed) && core.Classify(err) != core.Answered
}

// list reads the directory; a missing one is empty, which is not nil.
func (c *contender) list() (names []string, span core.Span, err error) {
	for {
		span, err = c.e.Do(c.ctx, func(conn core.Conn) (err error) {
			names, _, err = conn.Children(c.dir)
			return err
		})
		if err == nil && names != nil {
			return names, span, nil
		}
		if err == nil || errors.Is(err, zk.ErrNoNode) {
			return []string{}, span, nil
		}
		if !c.repeat(err) {
			return nil, span, err
		}
	}
}

// occupied is the look of a TryLock before it writes anything: one read.
func (c *contender) occupied() (bool, error) {
	names, _, err := c.list()
	if err != nil {
		return false, err
	}
	c.e.Seen(c.dir, names)
	all := c.competitors(names, "")
	znode.SortBySeq(all)
	in := c.inTheWay(all)
	if len(in) > 0 {
		c.note(in, core.Node{})
	}
	return len(in) > 0, nil
}

// A place is where the own znode stands.
type place struct {
	found bool
	ahead []znode.Name // those in the way, the last one nearest
}

// competitors parses a list and drops what does not compete: foreign names, and znodes that are on their way out.
func (c *contender) competitors(names []string, own string) []znode.Name {
	var all []znode.Name
	for _, raw := range names {
		if n, ok := znode.Parse(raw, markers...); ok && (raw == own || !c.e.Leaving(c.dir, raw)) {
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
	return slices.DeleteFunc(before, func(n znode.Name) bool { return !n.Exclusive() })
}

func (c *contender) place(names []string) (place, error) {
	all := c.competitors(names, c.made.Name)
	if slices.ContainsFunc(all, func(n znode.Name) bool { return znode.Exhausted(n.Seq) }) {
		var err error
		if all, err = c.sortByCzxid(all); err != nil {
			return place{}, err
		}
	} else {
		znode.SortBySeq(all)
	}
	i := slices.IndexFunc(all, func(n znode.Name) bool { return n.Raw == c.made.Name })
	if i < 0 {
		return place{}, nil
	}
	return place{true, c.inTheWay(all[:i])}, nil
}

// sortByCzxid is for a directory whose counter has reached its limit, where numbers repeat and run backwards: the order is that of the transactions
// that created the znodes, each of which has to be asked for. Those that have gone meanwhile are left out; all, when the session is another one.
func (c *contender) sortByCzxid(all []znode.Name) ([]znode.Name, error) {
	czxid := make(map[string]int64)
	for _, n := range all {
		stat, span, err := c.stat(znode.Join(c.dir, n.Raw))
		switch {
		case err != nil:
			return nil, err
		case !span.SameSession() || span.After.Session != c.made.Session:
			return nil, nil
		case stat != nil:
			czxid[n.Raw] = stat.Czxid
		}
	}
	all = slices.DeleteFunc(all, func(n znode.Name) bool { return czxid[n.Raw] == 0 })
	slices.SortStableFunc(all, func(a, b znode.Name) int { return cmp.Compare(czxid[a.Raw], czxid[b.Raw]) })
	return all, nil
}

func (c *contender) stat(path string) (*zk.Stat, core.Span, error) {
	for {
		var ok bool
		var stat *zk.Stat
		span, err := c.e.Do(c.ctx, func(conn core.Conn) (err error) {
			ok, stat, err = conn.Exists(path)
			return err
		})
		if err == nil && !ok {
			return nil, span, nil
		}
		if err == nil || !c.repeat(err) {
			return stat, span, err
		}
	}
}

// wait sets the watches on the own znode and on the nearest in the way. It reports false when there is reason to look again at once. No event is lost
// in between: the subscriptions stand before the reads that set the watches.
func (c *contender) wait(ahead []znode.Name) (bool, error) {
	nearest := ahead[len(ahead)-1].Raw
	if c.predName != nearest {
		c.unwatch()
		c.pred, c.predName = c.e.Watch(znode.Join(c.dir, nearest), core.Data, func(core.Wake) { c.wake() }), nearest
	}
	type armed struct {
		span core.Span
		err  error
	}
	mine := make(chan armed, 1)
	own := c.own
	if !c.e.Go(func() {
		_, span, err := own.Arm(c.ctx)
		mine <- armed{span, err}
	}) {
		return false, core.ErrClosed
	}
	node, span, err := c.pred.Arm(c.ctx)
	theirs, ours := armed{span, err}, <-mine
	for _, a := range []armed{theirs, ours} {
		if a.err != nil && !errors.Is(a.err, zk.ErrNoNode) && !c.repeat(a.err) {
			return false, a.err
		}
	}
	if theirs.err != nil || ours.err != nil || !span.SameConn() || ours.span != span {
		return false, nil
	}
	c.note(ahead, node)
	c.client.waiting(len(ahead))
	return true, nil
}

// note remembers who is ahead, for the error of a wait that ends without a grant. The nearest is read when its watch is set; before that, without a
// Stat, what is known of it stays.
func (c *contender) note(ahead []znode.Name, nearest core.Node) {
	ps := make(Participants, 0, len(ahead))
	for i, n := range slices.Backward(ahead) {
		p := Participant{Node: znode.Join(c.dir, n.Raw), Position: i}
		if !n.Exclusive() {
			p.Mode = ModeShared
		}
		if len(ps) == 0 && nearest.Stat != nil {
			p.fill(nearest.Data, nearest.Stat)
		}
		ps = append(ps, p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if nearest.Stat == nil && len(c.ahead) > 0 && c.ahead[0].Node == ps[0].Node {
		known := c.ahead[0]
		known.Position = ps[0].Position
		ps[0] = known
	}
	c.ahead = ps
}
