package core

import (
	"context"
	"sync"
)

// A Listing is what a directory was found to hold. Several callers may have got it: nobody changes it.
type Listing struct {
	Names   []string
	Leaving Leaving // what was on its way out before it was asked for
	Span    Span
	Memo    *Memo // nil where only one caller got it
}

// A Memo is what is worked out once of a list that several callers got.
type Memo struct {
	mu   sync.Mutex
	done bool
	key  any
	of   any
}

// Of returns what the first call with this key made, which nobody changes. Without a Memo, and for a key other than the first one, it makes it each time.
func (m *Memo) Of(key any, make func() any) any {
	if m == nil {
		return make()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.done {
		m.done, m.key, m.of = true, key, make()
	}
	if m.key != key {
		return make()
	}
	return m.of
}

// lists lets those who want a list of the same directory at the same time share one. One request for a directory is under way; who comes meanwhile waits for
// the next, which is sent after all who share in it have asked, so that it is as new to each of them as one of its own.
//
// The caller whose turn it is sends the request, on its own goroutine and for as long as its ctx lasts. When that ends first the others ask anew.
type lists struct {
	e  *Engine
	mu sync.Mutex
	m  map[string]*sharedList // for each directory of which a list is under way, the one that is not sent yet, nil for none
}

type sharedList struct {
	callers int           // who still wait
	turn    chan struct{} // holds the right to send it; nil where it was taken by the first caller,
	done    chan struct{} // and this one while nobody has joined that; closed with
	listing Listing
	err     error
	void    bool // it was not sent, because the ctx of who was to send it has ended
}

func newLists(e *Engine) *lists { return &lists{e: e, m: make(map[string]*sharedList)} }

// List lists a directory. The request is sent after the call has begun. The error is that of the request, zk.ErrNoNode for a missing directory.
func (e *Engine) List(ctx context.Context, dir string) (Listing, error) {
	ls := e.lists
	for {
		l, mine := ls.join(dir)
		if mine {
			ls.send(ctx, dir, l)
		} else {
			select {
			case <-l.turn:
				ls.send(ctx, dir, l)
			case <-l.done:
			case <-ctx.Done():
				ls.leave(dir, l)
				return Listing{}, ctx.Err()
			}
		}
		if !l.void || ctx.Err() != nil {
			return l.listing, l.err
		}
	}
}

// join returns the list to wait for; it is the caller's to send if there is no request for the directory.
func (ls *lists) join(dir string) (l *sharedList, mine bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l, busy := ls.m[dir]
	if l == nil {
		l = new(sharedList)
		ls.m[dir] = l
		if busy {
			l.turn = make(chan struct{}, 1)
		}
	}
	if busy && l.done == nil {
		l.done = make(chan struct{})
	}
	l.callers++
	return l, !busy
}

// send makes the request for everybody who has joined until it goes out.
func (ls *lists) send(ctx context.Context, dir string, l *sharedList) {
	sent := false
	var span Span
	span, l.err = ls.e.Do(ctx, func(c Conn) (err error) {
		sent = true
		ls.shut(dir, l)
		l.listing.Leaving = ls.e.Leaving(dir)
		l.listing.Names, _, err = c.Children(dir)
		return err
	})
	l.listing.Span, l.void = span, !sent && ctx.Err() != nil
	ls.shut(dir, l)
	if l.done != nil { // which nobody makes any more
		l.listing.Memo = new(Memo)
		close(l.done)
	}
	ls.pass(dir)
}

// shut lets nobody join a list any more.
func (ls *lists) shut(dir string, l *sharedList) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.m[dir] == l {
		ls.m[dir] = nil
	}
}

// pass gives the turn to the next list, if anybody waits for one.
func (ls *lists) pass(dir string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if next := ls.m[dir]; next != nil {
		next.turn <- struct{}{}
	} else {
		delete(ls.m, dir)
	}
}

// leave is for a caller whose ctx has ended. The last one takes the list along, and passes the turn on if that had come.
func (ls *lists) leave(dir string, l *sharedList) {
	ls.mu.Lock()
	l.callers--
	last := l.callers == 0
	if last && ls.m[dir] == l {
		ls.m[dir] = nil
	}
	ls.mu.Unlock()
	if last {
		select {
		case <-l.turn:
			ls.pass(dir)
		default:
		}
	}
}
