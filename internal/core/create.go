package core

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// unanswered is how many times running the connection may drop under a create before its error is returned: a request that the server will not read
// costs the connection each time.
const unanswered = 3

// Created is a znode that a protected create made.
type Created struct {
	Path    string
	Name    string
	Session int64
	Token   int64    // czxid; 0 when the reply was not seen
	List    []string // children of the directory, from a list behind the create; nil when there is none, or when it is of another epoch
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
	if len(data) > MaxData {
		return Created{}, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), MaxData)
	}
	var parents []string
	made, err := e.create(ctx, dir, marker, data, &parents)
	if err != nil && len(parents) > 0 {
		// The server removes a container when it has become empty, but not one that never had a child.
		e.Go(func() { e.removeEmpty(parents) })
	}
	return made, err
}

func (e *Engine) create(ctx context.Context, dir, marker string, data []byte, parents *[]string) (Created, error) {
	drops := 0
	for {
		epoch, err := e.Await(ctx)
		if err != nil {
			return Created{}, err
		}
		id := znode.NewUUID()
		made, span, err := e.createOnce(ctx, dir, id, marker, data)
		if span.Before == (Epoch{}) && err != nil {
			return Created{}, err // nothing was tried
		}
		if span.Before.Session == 0 {
			span.Before = epoch
		}
		switch {
		case err == nil && span.SameSession():
			return made, nil
		case err == nil:
			e.Remove(made.Path, span.After.Session)
			continue
		case errors.Is(err, zk.ErrNoNode):
			drops = 0
			if err := e.makeParents(ctx, dir, parents); err != nil {
				return Created{}, err
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
			if class != Ambiguous || ctx.Err() != nil {
				e.giveUp(lost)
			} else {
				found, ok, ferr := e.recover(ctx, dir, id, lost)
				if ok {
					return found, nil
				}
				e.giveUp(lost)
				if ferr != nil {
					return Created{}, ferr
				}
				if drops++; drops >= unanswered {
					return Created{}, fmt.Errorf("connection lost %d times running by creating a znode with %d bytes of data: %w", drops, len(data), err)
				}
				continue
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

func (e *Engine) createOnce(ctx context.Context, dir, id, marker string, data []byte) (made Created, span Span, err error) {
	type list struct {
		names []string
		span  Span
	}
	t := e.contact.tap(id)
	listed := make(chan *list, 1)
	over := make(chan struct{})
	if !e.Go(func() {
		// A list sent before the create's bytes are out would be executed before it, and be of no use.
		select {
		case <-t.sent:
		case <-over:
			listed <- nil
			return
		}
		var l list
		var err error
		l.span, err = e.Do(ctx, func(c Conn) (err error) {
			l.names, _, err = c.Children(dir)
			return err
		})
		if err != nil {
			listed <- nil
			return
		}
		listed <- &l
	}) {
		e.contact.untap(id)
		return made, span, ErrClosed
	}
	span, err = e.Do(ctx, func(c Conn) (err error) {
		made.Path, err = c.Create(znode.Join(dir, znode.Protected(id, marker)), data, zk.FlagEphemeral|zk.FlagSequence, e.cfg.ACL)
		return err
	})
	made.Token = e.contact.untap(id)
	close(over)
	if err != nil {
		return made, span, err
	}
	_, made.Name = znode.Split(made.Path)
	made.Session = span.After.Session
	if l := <-listed; l != nil && l.span.SameConn() && l.span.After == span.After {
		made.List = l.names
	}
	return made, span, nil
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
			if znode.UUIDOf(n) == id {
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
			return Created{Path: path, Name: name, Session: epoch.Session, Token: stat.Czxid}, true, nil
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
		_, err := e.Do(e.ctx, func(c Conn) error { return c.Delete(dir, -1) })
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
		_, err := c.CreateContainer(path, nil, zk.FlagContainer, e.cfg.ACL)
		return err
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
