package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// unanswered is how many times running the connection may drop under a create before its error is returned: a request that the server will not read
// costs the connection each time.
const unanswered = 3

// A Znode is one that was made here.
type Znode struct {
	Path    string
	Session int64
	Token   int64 // czxid; 0 when the reply was not seen
}

// Name is the last element of the path.
func (z Znode) Name() string {
	_, name := znode.Split(z.Path)
	return name
}

// Created is what a protected create made.
type Created struct {
	Znode
	List   Listing // from a list of the directory behind the create; without Names when there is none, or when it is of another epoch
	GaveUp bool    // with an error: a znode that may have been there, and been seen, was left to the reaper, which may be done with it by now
	Stray  int64   // of CreateOne: a session in which a create of this name was sent that was not answered, and may come into effect when this znode is gone
}

// A creation is what an attempt sends. It is not kept, so that it needs no place in the heap; for that dir is not in it.
type creation struct {
	size    int                                              // of the data,
	rest    int                                              // and of the paths that it sends
	list    bool                                             // list the directory right behind it
	one     bool                                             // all attempts make the same name
	send    func(c Conn, id string) (path string, err error) // one request; the name it makes carries id
	parents *[]string                                        // where dir and what is above it is noted when it was missing and has been made; nil to make nothing
}

// Create makes an ephemeral sequential znode `_c_<uuid>-<marker>NNNNNNNNNN` in dir, with a fresh UUID for every attempt, and lists dir right behind it,
// in the same round trip. Missing parents are made as containers. When it returns an error no node of it is left, or the reaper has it.
//
// States of an attempt: sent, then one of
//
//	answered, same session        -> made
//	answered, other session       -> the node may be the new session's: the reaper's; again
//	refused                       -> the error (NoNode: make the parents; again)
//	not sent                      -> again
//	unanswered                    -> abandoned; found by a synced list: adopted; else again, the abandoned id stays
func (e *Engine) Create(ctx context.Context, dir, marker string, data []byte) (Created, error) {
	return e.createIn(ctx, dir, creation{
		size: len(data), rest: len(dir) + nameLen, list: true,
		send: func(c Conn, id string) (string, error) {
			return c.Create(znode.ProtectedPath(dir, id, marker), data, zk.FlagEphemeral|zk.FlagSequence, e.cfg.ACL)
		},
	})
}

// CreateNamed makes an ephemeral znode in dir that is called by the name made of a fresh UUID, which must be the UUID itself or protected by it. Otherwise
// it is Create, without the list; and it returns zk.ErrNoNode where dir is missing, unless parents is set.
func (e *Engine) CreateNamed(ctx context.Context, dir string, parents bool, name func(id string) string, data []byte) (Created, error) {
	what := creation{
		size: len(data), rest: len(dir) + nameLen,
		send: func(c Conn, id string) (string, error) {
			return c.Create(znode.Join(dir, name(id)), data, zk.FlagEphemeral, e.cfg.ACL)
		},
	}
	if parents {
		return e.createIn(ctx, dir, what)
	}
	return e.create(ctx, dir, what)
}

// CreateOne is CreateNamed with the name of a UUID, for a znode that is counted: all attempts make the same name, so that never two of them are there. Whoever
// removes the znode calls Stray then.
//
// States of an attempt after one without an answer, beside those of Create:
//
//	unanswered, and a synced list does not show it -> again: it may land, before or instead of the next one
//	refused, the znode exists, of this session     -> adopted
//	refused, the znode exists, of another one      -> deleted; again
func (e *Engine) CreateOne(ctx context.Context, dir string, data []byte) (Created, error) {
	return e.createIn(ctx, dir, creation{
		size: len(data), rest: len(dir) + nameLen, one: true,
		send: func(c Conn, id string) (string, error) {
			return c.Create(znode.Join(dir, id), data, zk.FlagEphemeral, e.cfg.ACL)
		},
	})
}

// Stray sees to it that no znode of made's name comes back: it is called when that was let go, with the removal if there is one.
func (e *Engine) Stray(made Created, r *Removal) {
	if made.Stray == 0 {
		return
	}
	e.Making()
	if !e.goOn(func() {
		defer e.Made()
		if r != nil {
			select {
			case <-r.Done():
			case <-r.Refused(): // it is there, and owed: nothing of its name can come
				return
			case <-e.life.Done():
				return
			}
		}
		dir, name := znode.Split(made.Path)
		e.giveUp(e.claim(dir, idOf(name), made.Stray))
	}) {
		e.Made()
	}
}

// createIn makes a znode in a directory that may be missing.
func (e *Engine) createIn(ctx context.Context, dir string, what creation) (Created, error) {
	var parents []string
	what.parents = &parents
	made, err := e.create(ctx, dir, what)
	if err != nil && len(parents) > 0 {
		// The server removes a container when it has become empty, but not one that never had a child.
		empty := parents
		e.Making()
		if !e.goOn(func() { defer e.Made(); e.removeEmpty(empty) }) {
			e.Made()
		}
	}
	return made, err
}

// CreateBeside makes an ephemeral znode `_c_<uuid>-<name>` beside the one at path, in one transaction with the proof that this one still exists. It
// returns zk.ErrNoNode when it does not: a server that has answered so never makes the znode, however late the request. Otherwise it is Create, without
// the list; Token is the new znode's own.
func (e *Engine) CreateBeside(ctx context.Context, path, name string, data []byte) (Created, error) {
	dir, _ := znode.Split(path)
	return e.create(ctx, dir, creation{
		size: len(data), rest: 2 * (len(dir) + nameLen),
		send: func(c Conn, id string) (string, error) {
			made := znode.ProtectedPath(dir, id, name)
			_, err := c.Multi(
				&zk.CheckVersionRequest{Path: path, Version: -1},
				&zk.CreateRequest{Path: made, Data: data, Acl: e.cfg.ACL, Flags: zk.FlagEphemeral},
			)
			return made, err
		},
	})
}

func (e *Engine) create(ctx context.Context, dir string, what creation) (made Created, err error) {
	if err := e.fits(what); err != nil {
		return Created{}, err
	}
	e.Making()
	defer e.Made()
	gaveUp := false
	id, drops := "", 0
	var owed *Removal  // the claim to the one name, once a create of it was not answered
	var strays []int64 // the sessions of such creates, but of those that came into effect
	landed := func(session int64) {
		if i := slices.Index(strays, session); i >= 0 {
			strays = slices.Delete(strays, i, i+1)
		}
	}
	defer func() {
		switch last := len(strays) - 1; {
		case err != nil && last >= 0:
			made.GaveUp = true
			e.giveUp(e.claim(dir, id, strays[last]))
		case err != nil:
			made.GaveUp = gaveUp
		default:
			if owed != nil {
				e.adopt(owed)
			}
			if last >= 0 {
				made.Stray = strays[last]
			}
		}
	}()
	for {
		epoch, err := e.Await(ctx)
		if err != nil {
			return Created{}, err
		}
		if id == "" || !what.one {
			id = znode.NewUUID()
		}
		made, span, err := e.createOnce(ctx, dir, what, id)
		if span.Before == (Epoch{}) && err != nil {
			return Created{}, err // nothing was tried
		}
		if span.Before.Session == 0 {
			span.Before = epoch
		}
		switch {
		case err == nil && span.SameSession():
			ok, err := e.stamp(ctx, &made)
			if ok {
				return made, nil
			}
			gaveUp = true
			if err := cmp.Or(err, e.drop(ctx, what.one, made.Path, made.Session)); err != nil {
				return Created{}, err
			}
			continue
		case err == nil:
			gaveUp = true
			if err := e.drop(ctx, what.one, made.Path, span.After.Session); err != nil {
				return Created{}, err
			}
			continue
		case errors.Is(err, zk.ErrNoNode):
			if what.parents == nil {
				return Created{}, zk.ErrNoNode
			}
			drops = 0
			if err := e.makeParents(ctx, dir, what.parents); err != nil {
				return Created{}, err
			}
			continue
		case owed != nil && errors.Is(err, zk.ErrNodeExists):
			found, owner, err := e.takeOne(ctx, dir, id, owed)
			landed(owner)
			if found.Path != "" || err != nil {
				return found, err
			}
			continue
		}
		class := Classify(err)
		if MayHaveApplied(err) || errors.Is(err, ErrClosed) {
			session := span.After.Session
			if session == 0 {
				session = span.Before.Session
			}
			lost := e.claim(dir, id, session)
			if what.one {
				owed, strays = lost, append(strays, session)
			}
			switch goesOn := ctx.Err() == nil; {
			case class == Ambiguous && goesOn:
				found, ok, ferr := e.recover(ctx, dir, id, lost)
				if ok {
					landed(found.Session)
					return found, nil
				}
				if !what.one {
					gaveUp = true
					e.giveUp(lost)
				}
				if ferr != nil {
					return Created{}, ferr
				}
				if drops++; drops >= unanswered {
					return Created{}, fmt.Errorf("connection lost %d times running by creating a znode with %d bytes of data: %w", drops, what.size, err)
				}
				continue
			case what.one && goesOn && class != Answered && !errors.Is(err, ErrClosed): // again, with the same name
			default:
				gaveUp = true
				e.giveUp(lost)
				strays = nil
			}
		}
		if class == Answered {
			return Created{}, Explain(err)
		}
		if errors.Is(err, ErrClosed) || ctx.Err() != nil {
			return Created{}, err
		}
	}
}

// drop removes a znode that was made and is of no use, and waits until it has gone where the next attempt makes its name again.
func (e *Engine) drop(ctx context.Context, wait bool, path string, session int64) error {
	r := e.Remove(path, session)
	if !wait {
		return nil
	}
	select {
	case <-r.Done():
		return nil
	case <-r.Refused():
		return r.Refusal()
	case <-ctx.Done():
		return ctx.Err()
	case <-e.ctx.Done():
		return ErrClosed
	}
}

// takeOne takes the znode that an attempt without an answer made, of which it returns the session, or deletes it if that is another one. Without an error and
// a path it has gone.
func (e *Engine) takeOne(ctx context.Context, dir, id string, owed *Removal) (made Created, owner int64, err error) {
	path := znode.Join(dir, id)
	var there bool
	var stat *zk.Stat
	span, err := e.Do(ctx, func(c Conn) (err error) {
		there, stat, err = c.Exists(path)
		return err
	})
	switch {
	case err != nil && (ctx.Err() != nil || errors.Is(err, ErrClosed) || Classify(err) == Answered):
		return Created{}, 0, Explain(err)
	case err != nil, !there, !span.SameSession():
		return Created{}, 0, nil
	case stat.EphemeralOwner == span.After.Session:
		return Created{Znode: Znode{path, span.After.Session, stat.Czxid}}, span.After.Session, nil
	}
	e.adopt(owed) // it is not looked for any more, but deleted
	return Created{}, stat.EphemeralOwner, e.drop(ctx, true, path, stat.EphemeralOwner)
}

// nameLen is more than the longest name that is made here; headroom is what MaxData leaves of the server's limit, less headers.
const (
	nameLen  = 70
	headroom = 1<<10 - 1<<7
)

// fits returns an error for what the server would answer by dropping the connection.
func (e *Engine) fits(what creation) error {
	if what.size > MaxData {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, what.size, MaxData)
	}
	rest := what.rest
	for _, a := range e.cfg.ACL {
		rest += 12 + len(a.Scheme) + len(a.ID)
	}
	if what.size+rest > MaxData+headroom {
		return fmt.Errorf("%w: %d bytes, and %d of paths and ACL", ErrTooLarge, what.size, rest)
	}
	return nil
}

func (e *Engine) createOnce(ctx context.Context, dir string, what creation, id string) (made Created, span Span, err error) {
	b := &behind{e: e, ctx: ctx, dir: dir}
	e.contact.tap(id, &b.tap)
	list := what.list && e.contact.wired // without wires nobody sees when the create's bytes are out, nor on which connection a list was answered
	if list {
		b.listed.Add(1)
		if !e.GoTask(b) {
			e.contact.untap(id)
			return made, span, ErrClosed
		}
	}
	span, err = e.Do(ctx, func(c Conn) (err error) {
		made.Path, err = what.send(c, id)
		return err
	})
	made.Token = e.contact.untap(id)
	b.tap.end(tapOver)
	if err != nil {
		return made, span, err
	}
	made.Session = span.After.Session
	if !list {
		return made, span, nil
	}
	b.listed.Wait()
	if l := b.list; l.Span.SameConn() && l.Span.After == span.After {
		made.List = l
	}
	return made, span, nil
}

// behind lists the directory of a create right behind it.
type behind struct {
	e      *Engine
	ctx    context.Context
	dir    string
	tap    tap // of the create
	listed sync.WaitGroup
	list   Listing // what it was when that is over; zero if there is none
}

// Run is the Engine's. A list sent before the create's bytes are out would be executed before it, and be of no use.
func (b *behind) Run() {
	defer b.listed.Done()
	if !b.tap.wasSent() {
		return
	}
	if l, err := b.e.List(b.ctx, b.dir); err == nil {
		b.list = l
	}
}

// stamp learns the token of a znode that was made, from its Stat where no wire saw the reply. It reports false when the znode is not there any more, or
// the session is another one.
func (e *Engine) stamp(ctx context.Context, made *Created) (bool, error) {
	if made.Token != 0 {
		return true, nil
	}
	for {
		var ok bool
		var stat *zk.Stat
		span, err := e.Do(ctx, func(c Conn) (err error) {
			ok, stat, err = c.Exists(made.Path)
			return err
		})
		switch {
		case err == nil && ok && span.SameSession() && span.After.Session == made.Session && stat.EphemeralOwner == made.Session:
			made.Token = stat.Czxid
			return true, nil
		case err == nil:
			return false, nil
		case ctx.Err() != nil, errors.Is(err, ErrClosed), Classify(err) == Answered:
			return false, Explain(err)
		}
	}
}

// recover looks for the node of an unanswered create, which the caller has claimed. Without an error ok is false when it was not found.
func (e *Engine) recover(ctx context.Context, dir, id string, lost *Removal) (Created, bool, error) {
	for {
		names, epoch, err := e.SyncedChildren(ctx, dir)
		if err != nil {
			return Created{}, false, err
		}
		var name string
		for _, n := range names {
			if idOf(n) == id {
				name = n
			}
		}
		if name == "" {
			return Created{}, false, nil
		}
		path := znode.Join(dir, name)
		var stat *zk.Stat
		var ok bool
		span, err := e.Do(ctx, func(c Conn) (err error) {
			ok, stat, err = c.Exists(path)
			return err
		})
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, ErrClosed) || Classify(err) == Answered {
				return Created{}, false, err
			}
			continue
		}
		if !span.SameConn() || span.After.Session != epoch.Session {
			continue
		}
		if ok && stat.EphemeralOwner == epoch.Session && e.adopt(lost) {
			return Created{Znode: Znode{path, epoch.Session, stat.Czxid}}, true, nil
		}
		return Created{}, false, nil // of another session, or gone again: the reaper sees to it
	}
}

// makeParents makes dir and what is missing above it, as containers, which the server removes again when they have become empty; as persistent nodes on
// a server that has no containers. It adds what it made to parents, topmost first.
func (e *Engine) makeParents(ctx context.Context, dir string, parents *[]string) error {
	missing := []string{dir}
	for len(missing) > 0 {
		path := missing[len(missing)-1]
		err := e.makeParent(ctx, path)
		parent, _ := znode.Split(path)
		switch {
		case err == nil:
			*parents = append(*parents, path)
			missing = missing[:len(missing)-1]
		case errors.Is(err, zk.ErrNodeExists):
			missing = missing[:len(missing)-1]
		case errors.Is(err, zk.ErrNoNode) && path != "/":
			missing = append(missing, parent)
		case errors.Is(err, zk.ErrNoAuth) && e.exists(ctx, path):
			missing = missing[:len(missing)-1] // somebody with more rights was faster
		case ctx.Err() != nil, errors.Is(err, ErrClosed), Classify(err) == Answered:
			return fmt.Errorf("parent %s: %w", path, Explain(err))
		}
	}
	return nil
}

// removeEmpty deletes directories that this call made and did not use, if nobody else uses them.
func (e *Engine) removeEmpty(dirs []string) {
	for _, dir := range slices.Backward(dirs) {
		_, err := e.do(e.life, e.life, func(c Conn) error { return c.Delete(dir, -1) })
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return
		}
	}
}

func (e *Engine) makeParent(ctx context.Context, path string) error {
	if e.noConts.Load() {
		_, err := e.Do(ctx, func(c Conn) error {
			_, err := c.Create(path, nil, 0, e.cfg.ACL)
			return err
		})
		return err
	}
	_, err := e.Do(ctx, func(c Conn) error {
		return e.Unlooked(func() error {
			_, err := c.CreateContainer(path, nil, zk.FlagContainer, e.cfg.ACL)
			return err
		})
	})
	if code, ok := Code(err); ok && code == codeUnimplemented {
		if !e.noConts.Swap(true) {
			e.cfg.Logger.Warn("zkrecipes: this server has no container znodes; lock directories are persistent and stay when they are empty")
		}
		return e.makeParent(ctx, path)
	}
	return err
}

func (e *Engine) exists(ctx context.Context, path string) (ok bool) {
	_, err := e.Do(ctx, func(c Conn) (err error) {
		ok, _, err = c.Exists(path)
		return err
	})
	return err == nil && ok
}
