package core

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// safetyCheck is how long a subscriber goes on before it gets a wake-up for nothing. No wait depends on it: it limits the harm of a fault that nobody thought
// of. It is up to a quarter longer, by chance and because the hub looks for those who are due only now and then: with a timer for each of them, ten thousand
// waiters have twenty thousand timers.
const (
	safetyCheck  = 30 * time.Second
	safetySpread = safetyCheck / 8
	safetySweep  = safetyCheck / 8
)

// Kind is the kind of a watch.
type Kind uint8

// The kinds of watch, by the read that sets them.
const (
	Data     Kind = iota // getData: leaves nothing behind on a missing node
	Children             // getChildren
	Presence             // exists: also on a missing node, where it stays until the node is created
)

// Wake says why a subscriber was woken. All but Deleted mean "look again".
type Wake int

const (
	// Changed: the node was created, or its data or children changed.
	Changed Wake = iota
	// Deleted: the server said that the node is gone.
	Deleted
	// Recheck: a new connection, or a session that ended; what was known is of another epoch.
	Recheck
	// Safety: nothing happened for a long time.
	Safety
)

type watchKey struct {
	path string
	kind Kind
}

// A hub keeps one outstanding watch for each (path, kind) and any number of subscribers to it.
//
// States of a watch: unarmed (no server watch is known on this connection), armed (a read on the current connection set it, and no event has come
// since). Only arm, called by a subscriber's goroutine, makes it armed; an event, or a new connection, makes it unarmed.
type hub struct {
	e     *Engine
	began time.Time
	mu    sync.Mutex
	m     map[watchKey]*watch
	sweep *time.Timer // for those who are due; nil while there is nobody
}

type watch struct {
	subs  []*Sub
	first [1]*Sub // room for one
	armed Epoch
	node  Node
	seen  uint32 // events so far: an arm during which one came is void

	arming  bool          // a read that is to set it is under way
	settled chan struct{} // closed when that has ended; nil while nobody waits for it

	unfollow chan struct{} // closed when nobody needs to read the channel of the last arm any more; nil when nobody does
}

// Node is what an arming read returned.
type Node struct {
	Data     []byte
	Children []string
	Stat     *zk.Stat // nil for a missing node (Presence)
}

// A Sub is one subscription. Its function runs on the engine's goroutine and must not block.
type Sub struct {
	hub  *hub
	path string
	fn   func(Wake)

	// Under hub.mu.
	due   time.Duration // for a Safety, since the hub began
	at    int32         // in watch.subs, -1 when it has been cancelled
	kind  Kind          // constant
	doubt bool          // since the last Safety nothing was asked: the next Arm asks the server even if a watch is outstanding
}

func newHub(e *Engine) *hub { return &hub{e: e, began: time.Now(), m: make(map[watchKey]*watch)} }

// Watch subscribes fn to a path; Arm sets the watch.
func (e *Engine) Watch(path string, kind Kind, fn func(Wake)) *Sub {
	h := e.hub
	s := &Sub{hub: h, path: path, kind: kind, fn: fn}
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.m[s.key()]
	if w == nil {
		w = new(watch)
		h.m[s.key()] = w
	}
	if len(w.subs) > 0 {
		s.path = w.subs[0].path // one and the same for all who wait for it
	}
	if w.subs == nil {
		w.subs = w.first[:0]
	}
	s.at, w.subs = int32(len(w.subs)), append(w.subs, s)
	s.postpone(time.Since(h.began))
	if h.sweep == nil {
		h.sweep = time.AfterFunc(safetySweep, h.wakeDue)
	}
	return s
}

// Path is what it was made for, in the same memory for all who have subscribed to it.
func (s *Sub) Path() string { return s.path }

// key names its watch.
func (s *Sub) key() watchKey { return watchKey{s.path, s.kind} }

// postpone sets the time of the next Safety; hub.mu is held.
func (s *Sub) postpone(now time.Duration) { s.due = now + safetyCheck + rand.N(safetySpread) }

// wakeDue gives a Safety to all who are due for one.
func (h *hub) wakeDue() {
	var due []*Sub
	h.mu.Lock()
	if h.sweep == nil { // closed
		h.mu.Unlock()
		return
	}
	now, some := time.Since(h.began), false
	for _, w := range h.m {
		for _, s := range w.subs {
			some = true
			if s.due <= now {
				s.doubt = true
				s.postpone(now)
				due = append(due, s)
			}
		}
	}
	if some {
		h.sweep.Reset(safetySweep)
	} else {
		h.sweep = nil
	}
	h.mu.Unlock()
	for _, s := range due {
		s.fn(Safety)
	}
}

// Cancel ends the subscription; a call of its function may still be under way. The server's watch stays until it fires: it cannot be taken back.
func (s *Sub) Cancel() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	w := s.hub.m[s.key()]
	if w == nil || s.at < 0 {
		return
	}
	last := len(w.subs) - 1
	w.subs[s.at] = w.subs[last]
	w.subs[s.at].at = s.at
	w.subs[last] = nil
	w.subs, s.at = w.subs[:last], -1
	if len(w.subs) == 0 && w.armed == (Epoch{}) {
		s.hub.drop(s.key(), w)
	}
}

// drop forgets a watch; mu is held.
func (h *hub) drop(key watchKey, w *watch) {
	delete(h.m, key)
	if w.unfollow != nil {
		close(w.unfollow)
		w.unfollow = nil
	}
}

// Arm makes sure that a watch is outstanding on the current connection and returns what its read found. When one is already, no request is made, but
// for a first look after Safety, which asks the server.
//
// Where no wire sees the connection, a watch may be taken for armed that was set before a reconnect. It does no harm: the client sets it again, and its
// event comes. What a reader is given meanwhile is as old as if the event were on its way, and nothing is granted on it. The error is zk.ErrNoNode
// for a missing node (Data, Children), or that of the read.
func (s *Sub) Arm(ctx context.Context) (Node, Span, error) {
	h := s.hub
	h.mu.Lock()
	w, joined, epoch := s.look()
	for w != nil && !joined && w.arming { // somebody's read may set the watch for this one, too
		if w.settled == nil {
			w.settled = make(chan struct{})
		}
		settled := w.settled
		h.mu.Unlock()
		select {
		case <-settled:
		case <-ctx.Done():
			return Node{}, Span{}, ctx.Err()
		}
		h.mu.Lock()
		w, joined, epoch = s.look()
	}
	if w == nil { // cancelled, or ended by Close
		h.mu.Unlock()
		if h.e.ctx.Err() != nil {
			return Node{}, Span{}, ErrClosed
		}
		return Node{}, Span{}, context.Canceled
	}
	if joined && !s.doubt {
		node := w.node
		h.mu.Unlock()
		return node, Span{epoch, epoch}, nil
	}
	s.doubt = false
	seen := w.seen
	w.arming = w.arming || !joined
	h.mu.Unlock()

	var node Node
	var events <-chan zk.Event
	span, err := h.e.Do(ctx, func(c Conn) (err error) {
		node, events, err = s.read(c, !joined)
		return err
	})
	h.mu.Lock()
	if events != nil && h.m[s.key()] == w && !h.e.source.callsBack() {
		h.follow(s.key(), w, events, span.Before.Session)
	}
	switch {
	case w.seen != seen || h.m[s.key()] != w:
	case joined && errors.Is(err, zk.ErrNoNode): // its event was lost: nobody shall be given what it found
		w.armed, w.node = Epoch{}, Node{}
	case err == nil && span.SameConn() && (!joined || w.armed == span.After):
		w.armed, w.node = span.After, node
	}
	if !joined {
		w.arming = false
		if w.settled != nil {
			close(w.settled)
			w.settled = nil
		}
	}
	h.mu.Unlock()
	return node, span, err
}

// look returns the subscription's watch, nil if it was cancelled, and whether it is armed on the connection of the epoch; mu is held.
func (s *Sub) look() (w *watch, joined bool, epoch Epoch) {
	epoch = s.hub.e.Epoch()
	w = s.hub.m[s.key()]
	if w == nil || s.at < 0 { // others may follow the path
		return nil, false, epoch
	}
	return w, w.armed == epoch && epoch.Session != 0 && s.hub.e.Ready(), epoch
}

// read makes the read of the subscription's kind, with a watch or without: every watch that is set costs the client memory until it fires.
func (s *Sub) read(c Conn, watch bool) (n Node, events <-chan zk.Event, err error) {
	path, ok := s.path, true
	switch {
	case s.kind == Data && watch:
		n.Data, n.Stat, events, err = c.GetW(path)
	case s.kind == Data:
		n.Data, n.Stat, err = c.Get(path)
	case s.kind == Children && watch:
		n.Children, n.Stat, events, err = c.ChildrenW(path)
	case s.kind == Children:
		n.Children, n.Stat, err = c.Children(path)
	case watch:
		ok, n.Stat, events, err = c.ExistsW(path)
	default:
		ok, n.Stat, err = c.Exists(path)
	}
	if !ok {
		n.Stat = nil
	}
	return n, events, err
}

// follow reads the channel of a watch where events are not called back, on a goroutine that ends with the event, with the client, with Close, or when
// the watch was set anew: what the last channel would have said is older than the read that set the new one. mu is held.
func (h *hub) follow(key watchKey, w *watch, events <-chan zk.Event, session int64) {
	if w.unfollow != nil {
		close(w.unfollow)
	}
	stop := make(chan struct{})
	w.unfollow = stop
	h.e.Go(func() {
		select {
		case ev, ok := <-events:
			if !ok {
				ev = zk.Event{Type: zk.EventNotWatching}
			}
			h.e.tracker.Add(func() { h.followed(key, stop, ev, session) })
		case <-stop:
		case <-h.e.ctx.Done():
		}
	})
}

// followed takes the event of a watch that was followed until stop. It runs on the tracker.
func (h *hub) followed(key watchKey, stop chan struct{}, ev zk.Event, session int64) {
	if ev.Type == zk.EventNotWatching {
		h.e.source.notWatching(session, ev.Err)
	}
	h.mu.Lock()
	var subs []*Sub
	if w := h.m[key]; w != nil && w.unfollow == stop {
		w.unfollow = nil
		subs = h.fire(key)
	}
	h.mu.Unlock()
	wake := Changed
	switch ev.Type {
	case zk.EventNodeDeleted:
		wake = Deleted
	case zk.EventNotWatching:
		wake = Recheck
	}
	for _, s := range subs {
		s.fn(wake)
	}
}

// dispatch takes a watch event. It runs on the tracker.
func (h *hub) dispatch(ev zk.Event) {
	wake := Changed
	kinds := []Kind{Data, Presence}
	switch ev.Type {
	case zk.EventNodeDeleted:
		wake, kinds = Deleted, []Kind{Data, Children, Presence}
	case zk.EventNodeChildrenChanged:
		kinds = []Kind{Children}
	case zk.EventNotWatching:
		wake, kinds = Recheck, []Kind{Data, Children, Presence}
	}
	var subs []*Sub
	h.mu.Lock()
	for _, k := range kinds {
		subs = append(subs, h.fire(watchKey{ev.Path, k})...)
	}
	h.mu.Unlock()
	for _, s := range subs {
		s.fn(wake)
	}
}

// fire is called with mu held.
func (h *hub) fire(key watchKey) []*Sub {
	w := h.m[key]
	if w == nil {
		return nil
	}
	w.seen++
	w.armed, w.node = Epoch{}, Node{}
	if len(w.subs) == 0 {
		h.drop(key, w)
		return nil
	}
	return slices.Clone(w.subs)
}

// recheck wakes everybody.
func (h *hub) recheck(wake Wake) {
	var subs []*Sub
	h.mu.Lock()
	for key := range h.m {
		subs = append(subs, h.fire(key)...)
	}
	h.mu.Unlock()
	for _, s := range subs {
		s.fn(wake)
	}
}

// close ends all subscriptions; a contender that waited when the engine was closed never cancels its own.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sweep != nil {
		h.sweep.Stop()
		h.sweep = nil
	}
	for _, w := range h.m {
		for _, s := range w.subs {
			s.at = -1
		}
	}
	clear(h.m)
}

// Watched returns how many paths have a subscriber or an outstanding watch.
func (e *Engine) Watched() int {
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	return len(e.hub.m)
}
