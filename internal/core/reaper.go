package core

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// reapers is how many deletes are under way at once.
const reapers = 6

// A Removal is a znode that has to go, or that may yet appear and then has to go. It is kept until a server has said that the node is gone, or that the
// session it belongs to is over.
//
// States: claimed (a create with this id was not answered, and its caller looks for the node: it may yet be used), unknown (the caller has given up: look
// for it, again after every reconnect, and in every list that is read anyway; a list without it proves nothing, because the create may land later),
// known (the name is known: delete it), resolved.
type Removal struct {
	rp *reaper
	debtKey
	next, prev *Removal // others of its directory

	name    string // "" while unknown
	session int64  // the node's owner, as far as is known

	done chan struct{}
	err  error // set before done is closed

	claimed bool
	since   time.Time // when its caller gave it up
	looked  time.Time // when a list was asked for that did not show it

	busy  bool // a request for it is under way; the reaper's
	tried bool // a delete of it was sent without an answer

	refused chan struct{} // closed when the server has refused,
	why     error         // for this reason

	heir *Heir // who takes its place, until somebody goes to tell it; under reaper.mu
}

// Done is closed when the node is known to be gone.
func (r *Removal) Done() <-chan struct{} { return r.done }

// Err is nil when the node was deleted or went with the session on Close, zk.ErrNoNode when somebody else had deleted it before, zk.ErrSessionExpired
// when its session ended first, and ErrClosed when the engine was closed and the end of the session not confirmed. It may be called once Done is
// closed.
func (r *Removal) Err() error { return r.err }

// Refused is closed when the server has refused to delete the node. It is tried again after each reconnect, but may well stay until its session ends.
func (r *Removal) Refused() <-chan struct{} { return r.refused }

// Refusal is the server's reason. It may be called once Refused is closed.
func (r *Removal) Refusal() error { return r.why }

// A debtKey names a znode that has to go.
type debtKey struct {
	dir string
	id  string // its name, or the id in that while it is unknown
}

type reaper struct {
	e    *Engine
	mu   sync.Mutex
	owed map[debtKey]*Removal
	dirs map[string]*Removal // the first of each directory
	over map[int64]bool      // sessions that are over for certain
	runs bool                // a sweep is under way
	more bool                // another one is due
	end  bool
	gone error // what is left ends with this
}

func newReaper(e *Engine) *reaper {
	return &reaper{e: e, owed: make(map[debtKey]*Removal), dirs: make(map[string]*Removal), over: make(map[int64]bool)}
}

// Remove deletes a znode of the given session for certain, however long that takes, and returns at once.
func (e *Engine) Remove(path string, session int64) *Removal {
	return e.reaper.add(e.reaper.known(path, session))
}

// known returns the removal of a znode whose name is known.
func (rp *reaper) known(path string, session int64) *Removal {
	dir, name := znode.Split(path)
	r := rp.unknown(dir, idOf(name), session)
	r.name = name
	return r
}

func (rp *reaper) unknown(dir, id string, session int64) *Removal {
	return &Removal{rp: rp, debtKey: debtKey{dir, id}, session: session, done: make(chan struct{}), refused: make(chan struct{})}
}

// claim notes that a create with this id was not answered and that its caller looks for the node, to use it. Until adopt or giveUp the node is one like
// others: nobody deletes it, and who finds it ahead waits behind it. If it could be passed over now and adopted afterwards, two would hold.
func (e *Engine) claim(dir, id string, session int64) *Removal {
	r := e.reaper.unknown(dir, id, session)
	r.claimed = true
	r = e.reaper.add(r)
	e.reaper.mu.Lock()
	defer e.reaper.mu.Unlock()
	r.session = session // of one with several attempts the last: the others' are over before
	return r
}

// adopt ends a claim: the node was found and is used. It reports false when the session that made it is over.
func (e *Engine) adopt(r *Removal) bool {
	e.reaper.mu.Lock()
	defer e.reaper.mu.Unlock()
	if !r.claimed || e.reaper.owed[r.debtKey] != r {
		return false
	}
	e.reaper.forget(r, nil)
	return true
}

// giveUp ends a claim: the node is not wanted any more, if there is one. It is looked for at once, since the reconnect after which that would have been
// done may be over, and lists in which it stood may have been read.
func (e *Engine) giveUp(r *Removal) {
	e.reaper.mu.Lock()
	r.claimed, r.since = false, time.Now()
	e.reaper.mu.Unlock()
	e.reaper.kick()
}

// Leaving is what is on its way out of a directory at one moment.
type Leaving map[string]struct{}

// Leaving returns the znodes of dir that are on their way out, behind which nobody should wait. It must be asked before the list is asked for to which it
// is applied: a znode that a holder leaves behind is let go only after everything that was to take its place was made, and a list that is older does not
// show that yet.
func (e *Engine) Leaving(dir string) (l Leaving) {
	e.reaper.mu.Lock()
	defer e.reaper.mu.Unlock()
	for r := e.reaper.dirs[dir]; r != nil; r = r.next {
		if !r.claimed {
			if l == nil {
				l = make(Leaving)
			}
			l[r.id] = struct{}{}
		}
	}
	return l
}

// Has reports whether the znode of that name is one of them.
func (l Leaving) Has(name string) bool {
	if len(l) == 0 {
		return false
	}
	_, ok := l[idOf(name)]
	return ok
}

// idOf is the id in a znode's name: the UUID of a protected one, else the name itself, which in a double barrier is a UUID.
func idOf(name string) string {
	if id := znode.UUIDOf(name); id != "" {
		return id
	}
	return name
}

// Seen takes a list of a directory and sees to it that nodes in it whose create was abandoned are deleted.
func (e *Engine) Seen(dir string, names []string) {
	rp := e.reaper
	rp.mu.Lock()
	found := false
	if rp.dirs[dir] != nil {
		for _, name := range names {
			if r := rp.owed[debtKey{dir, idOf(name)}]; r != nil && r.name == "" && !r.claimed {
				r.name = name
				found = true
			}
		}
	}
	rp.mu.Unlock()
	if found {
		rp.kick()
	}
}

// Owing returns how many removals are not resolved.
func (e *Engine) Owing() int {
	e.reaper.mu.Lock()
	defer e.reaper.mu.Unlock()
	return len(e.reaper.owed)
}

func (rp *reaper) add(r *Removal) *Removal {
	rp.mu.Lock()
	if old := rp.owed[r.debtKey]; old != nil {
		if old.name == "" {
			old.name = r.name
		}
		r = old
	} else if rp.end || rp.over[r.session] {
		r.err = zk.ErrSessionExpired
		if rp.end {
			r.err = rp.gone
		}
		close(r.done)
		rp.mu.Unlock()
		rp.tellHeir(r, false)
		return r
	} else {
		rp.owe(r)
	}
	known := r.name != "" && !r.busy
	if known {
		r.busy = true
	}
	rp.mu.Unlock()
	if known && !rp.e.goOnTask(r) {
		rp.mu.Lock()
		r.busy = false
		rp.mu.Unlock()
		rp.tellHeir(r, false)
	}
	return r
}

// owe enters r; mu is held.
func (rp *reaper) owe(r *Removal) {
	rp.owed[r.debtKey] = r
	if r.next = rp.dirs[r.dir]; r.next != nil {
		r.next.prev = r
	}
	rp.dirs[r.dir] = r
}

// forget resolves r; mu is held.
func (rp *reaper) forget(r *Removal, err error) {
	if rp.owed[r.debtKey] != r {
		return
	}
	delete(rp.owed, r.debtKey)
	switch {
	case r.prev != nil:
		r.prev.next = r.next
	case r.next != nil:
		rp.dirs[r.dir] = r.next
	default:
		delete(rp.dirs, r.dir)
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.next, r.prev = nil, nil
	r.err = err
	close(r.done)
}

// Run is the Engine's.
func (r *Removal) Run() { r.rp.delete(r) }

// delete makes one attempt, and further ones as long as the connection is merely replaced.
func (rp *reaper) delete(r *Removal) {
	again := true
	if heir := rp.takeHeir(r); heir != nil {
		again = rp.deleteFor(r, heir)
	}
	for again {
		select {
		case <-r.done:
			return
		default:
		}
		_, err := rp.e.do(rp.e.life, rp.e.life, func(c Conn) error {
			select {
			case <-r.done: // while it waited for a session: the one that comes is not the node's, and the name may be somebody else's by now
				return nil
			default:
			}
			return c.Delete(znode.Join(r.dir, r.name), -1)
		})
		again = rp.answered(r, err)
	}
}

// answered takes the outcome of an attempt, and reports whether another one is due.
func (rp *reaper) answered(r *Removal, err error) (again bool) {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	select {
	case <-r.done:
		return false
	default:
	}
	switch {
	case err == nil, errors.Is(err, zk.ErrNoNode) && r.tried:
		rp.forget(r, nil)
	case errors.Is(err, zk.ErrNoNode):
		rp.forget(r, zk.ErrNoNode)
	case errors.Is(err, ErrClosed), rp.end:
		r.busy = false
	case Classify(err) == Answered && MayHaveApplied(err): // something broke on the server, nobody knows when
		r.tried = true
		rp.mu.Unlock()
		select {
		case <-r.done:
		case <-rp.e.life.Done():
		case <-time.After(jitter(5 * backoff)):
		}
		rp.mu.Lock()
		return true
	case Classify(err) == Answered:
		if r.why == nil {
			r.why = Explain(err)
			close(r.refused)
			rp.e.cfg.Logger.Error("zkrecipes: a znode cannot be deleted; it stays until the session ends",
				"path", znode.Join(r.dir, r.name), "err", r.why)
		}
		r.busy = false // again after the next reconnect
	default:
		r.tried = r.tried || MayHaveApplied(err)
		return true
	}
	return false
}

// looked notes that a synced list, asked for at that time, has shown what it shows.
func (rp *reaper) looked(dir string, at time.Time) {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	for r := rp.dirs[dir]; r != nil; r = r.next {
		if r.name == "" && !r.claimed && r.since.Before(at) {
			r.looked = at
		}
	}
}

// A debt is what a reaper still has to do.
type debt struct {
	known   int // znodes whose name is known, or whose caller still looks for them
	refused int // those of them that the server has refused to delete
	why     error
	unknown int // creates without an answer
	unseen  int // those of them that were not looked for since
}

func (rp *reaper) owes(since time.Time) (d debt) {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	for _, r := range rp.owed {
		switch {
		case r.name == "" && !r.claimed:
			d.unknown++
			if r.looked.Before(since) {
				d.unseen++
			}
			continue
		case r.why != nil:
			d.refused++
			d.why = r.why
		}
		d.known++
	}
	return d
}

// settle drops the creates without an answer that are so old that nothing of them can come any more, and were looked for after that.
func (rp *reaper) settle(age time.Duration) {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	for _, r := range rp.owed {
		if r.name == "" && !r.claimed && r.looked.After(r.since.Add(age)) {
			rp.forget(r, nil)
		}
	}
}

// kick starts a sweep over everything that is owed.
func (rp *reaper) kick() {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	rp.more = true
	if rp.runs || len(rp.owed) == 0 {
		return
	}
	rp.runs = true
	if !rp.e.goOn(rp.sweep) {
		rp.runs = false
	}
}

func (rp *reaper) sweep() {
	places := make(chan struct{}, reapers)
	var wg sync.WaitGroup
	for {
		rp.mu.Lock()
		if !rp.more || rp.end {
			rp.runs = false
			rp.mu.Unlock()
			break
		}
		rp.more = false
		var known []*Removal
		var dirs []string
		for dir, first := range rp.dirs {
			search := false
			for r := first; r != nil; r = r.next {
				switch {
				case r.claimed:
				case r.name == "":
					search = true
				case !r.busy:
					r.busy = true
					known = append(known, r)
				}
			}
			if search {
				dirs = append(dirs, dir)
			}
		}
		rp.mu.Unlock()
		for _, r := range known {
			places <- struct{}{}
			wg.Go(func() {
				defer func() { <-places }()
				rp.delete(r)
			})
		}
		for _, dir := range dirs {
			began := time.Now()
			if names, _, err := rp.e.syncedChildren(rp.e.life, rp.e.life, dir); err == nil {
				rp.e.Seen(dir, names)
				rp.looked(dir, began)
			}
		}
	}
	wg.Wait()
}

// sessionOver resolves what was owed for a session, or, when its end is not certain, keeps it: the next session may delete it too.
func (rp *reaper) sessionOver(session int64, certain bool) {
	if !certain {
		return
	}
	rp.mu.Lock()
	defer rp.mu.Unlock()
	rp.over[session] = true
	for _, r := range rp.owed {
		if r.session == session {
			rp.forget(r, zk.ErrSessionExpired)
		}
	}
}

func (rp *reaper) close(err error) {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	rp.end, rp.gone = true, err
	for _, r := range rp.owed {
		rp.forget(r, err)
	}
}

// SyncedChildren lists a directory as it was when the call began or later: a sync and the list, both answered on one connection. A missing directory is
// an empty one.
//
// Where no wire sees the connection, a reconnect between the two may go unseen. It does no harm: the client had the answer to the sync by then and no
// server takes it on that has not seen as much.
func (e *Engine) SyncedChildren(ctx context.Context, dir string) ([]string, Epoch, error) {
	return e.syncedChildren(ctx, e.ctx, dir)
}

func (e *Engine) syncedChildren(ctx, until context.Context, dir string) ([]string, Epoch, error) {
	for {
		before, err := e.do(ctx, until, func(c Conn) error {
			_, err := c.Sync(dir)
			return err
		})
		if err == nil {
			var names []string
			var after Span
			after, err = e.do(ctx, until, func(c Conn) (err error) {
				names, _, err = c.Children(dir)
				return err
			})
			if errors.Is(err, zk.ErrNoNode) {
				err = nil
			}
			if err == nil && before.SameConn() && after.SameConn() && before.After == after.Before {
				return names, after.After, nil
			}
			if err == nil {
				continue
			}
		}
		if ctx.Err() != nil || errors.Is(err, ErrClosed) || Classify(err) == Answered {
			return nil, Epoch{}, err
		}
	}
}
