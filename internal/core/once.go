package core

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// Once makes one change, an operation of Multi, that comes into effect at most once in a session, and never after it was given up: the transaction takes a
// znode along, the ticket `_c_<uuid>-<marker>` in dir, that was made for it. Without that, a request whose answer was lost could come into effect after a
// later one that undid it, even one of another client.
//
// It returns nil when the change was made, and the server's error when it was refused; there is no ticket then. When ctx ends, the change may have been
// made, or be until the ticket, which the reaper has then, is gone. A missing dir is zk.ErrNoNode, or, if parents is set, which is for a create, made as
// containers.
//
// States: no ticket, then one, sent with it, then
//
//	answered              -> made
//	refused, the change   -> the error; for want of a parent: the ticket is gone with it, a new one
//	refused, the ticket   -> made by an earlier attempt, if there was one in the ticket's session; else the session or somebody took it: a new ticket
//	unanswered            -> sent again; in another session with a new ticket
func (e *Engine) Once(ctx context.Context, dir, marker string, parents bool, change any) error {
	if made, ok := change.(*zk.CreateRequest); ok {
		if err := e.fits(creation{size: len(made.Data), rest: len(made.Path) + len(dir) + nameLen}); err != nil {
			return err
		}
	}
	e.Making()
	defer e.Made()
	for {
		ticket, err := e.CreateNamed(ctx, dir, parents, func(id string) string { return znode.Protected(id, marker) }, nil)
		if err != nil {
			return err
		}
		done, spent, err := e.spend(ctx, ticket, parents, change)
		if !spent {
			r := e.Remove(ticket.Path, ticket.Session)
			if err != nil { // what was refused now may have been sent before, and is on its way somewhere
				select {
				case <-r.Done():
				case <-r.Refused():
				case <-ctx.Done():
				case <-e.ctx.Done():
				}
			}
		}
		if done || err != nil {
			return err
		}
	}
}

// spend sends the change with its ticket until that is decided. Without done and an error the ticket is worth nothing.
func (e *Engine) spend(ctx context.Context, ticket Created, parents bool, change any) (done, spent bool, err error) {
	for tried := false; ; tried = true {
		var answers []zk.MultiResponse
		span, err := e.Do(ctx, func(c Conn) (err error) {
			answers, err = c.Multi(change, &zk.DeleteRequest{Path: ticket.Path, Version: -1})
			return err
		})
		same := span.SameSession() && span.After.Session == ticket.Session
		switch {
		case err == nil:
			return true, true, nil
		case FailedOp(answers) == 1 && errors.Is(err, zk.ErrNoNode):
			return same && tried, true, nil
		case FailedOp(answers) == 0 && errors.Is(err, zk.ErrNoNode) && parents: // a container that went with the session of the ticket, or by hand
			return false, true, nil
		case ctx.Err() != nil, errors.Is(err, ErrClosed), Classify(err) == Answered:
			return false, false, Explain(err)
		case !same && span.After != (Epoch{}):
			return false, false, nil
		}
	}
}

// FailedOp returns which operation of a transaction the server refused, -1 when it does not say.
func FailedOp(answers []zk.MultiResponse) int {
	for i, a := range answers {
		if a.Error != nil {
			return i
		}
	}
	return -1
}
