package zkrecipes

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
)

// A Watcher follows one znode across reconnects and sessions. It is immutable: share it freely. It creates nothing.
type Watcher struct {
	s    *Session
	path string
	dir  string // absolute
	err  error
}

// NewWatcher describes the znode at path. It touches no network and never fails: a bad argument shows as an *Error matching ErrInvalid from the first
// call.
func NewWatcher(s *Session, path string) *Watcher {
	w := &Watcher{s: s, path: path}
	if s == nil {
		w.err = invalid("no Session")
	} else {
		w.dir, w.err = s.abs(path)
	}
	return w
}

// A Znode is what a Watcher saw. A missing one has neither data nor Stat.
type Znode struct {
	Path string // inside the namespace
	Data []byte
	Stat *zk.Stat
}

// Exists reports whether the znode is there.
func (n Znode) Exists() bool { return n.Stat != nil }

// Data yields the znode as it is, then the latest after each change; changes that follow one another quickly may be seen as one. A missing znode is a
// value, not an error. An error ends the loop: ctx's, ErrClosed, or the server's, such as zk.ErrNoAuth.
func (w *Watcher) Data(ctx context.Context) iter.Seq2[Znode, error] {
	return func(yield func(Znode, error) bool) {
		first, last := true, Znode{}
		for n, err := range w.follow(ctx, core.Data) {
			if err != nil {
				yield(Znode{Path: w.path}, err)
				return
			}
			z := Znode{Path: w.path, Data: slices.Clone(n.Data)} // what was read may be shared with others
			if n.Stat != nil {
				stat := *n.Stat
				z.Stat = &stat
			}
			if !first && sameVersion(last.Stat, z.Stat) {
				continue
			}
			first, last = false, z
			if !yield(z, nil) {
				return
			}
		}
	}
}

func sameVersion(a, b *zk.Stat) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Czxid == b.Czxid && a.Mzxid == b.Mzxid
}

// Children yields the names of the znode's children, sorted, then the latest after each change. A missing znode yields nil, one without children an
// empty slice. An error ends the loop, as in Data.
func (w *Watcher) Children(ctx context.Context) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		var last []string
		first := true
		for n, err := range w.follow(ctx, core.Children) {
			if err != nil {
				yield(nil, err)
				return
			}
			var names []string
			if n.Stat != nil {
				names = append([]string{}, n.Children...)
				slices.Sort(names)
			}
			if !first && (last == nil) == (names == nil) && slices.Equal(last, names) {
				continue
			}
			first, last = false, names
			if !yield(slices.Clone(names), nil) {
				return
			}
		}
	}
}

// Gone waits until the znode does not exist: nil then, else an *Error: ctx's error, ErrClosed, or the server's.
func (w *Watcher) Gone(ctx context.Context) error {
	for n, err := range w.follow(ctx, core.Data) {
		if err != nil {
			return err
		}
		if n.Stat == nil {
			return nil
		}
	}
	return nil
}

// follow yields what each read found, whether it changed or not. The reads that set the watches are what is yielded, and the subscriptions stand before
// them, so no change is lost.
func (w *Watcher) follow(ctx context.Context, kind core.Kind) iter.Seq2[core.Node, error] {
	return func(yield func(core.Node, error) bool) {
		fail := func(err error) {
			if ctx.Err() != nil {
				err = ended(ctx, w.s.noSession() != nil, w.s.engine.DialError(), nil, 0)
			}
			yield(core.Node{}, callError("watch", w.path, err))
		}
		if w.err != nil {
			yield(core.Node{}, &Error{Op: "watch", Path: w.path, Err: w.err})
			return
		}
		e := w.s.engine
		woken := make(chan struct{}, 1)
		wake := func(core.Wake) {
			select {
			case woken <- struct{}{}:
			default:
			}
		}
		sub := e.Watch(w.dir, kind, wake)
		defer sub.Cancel()
		var presence *core.Sub // set while the node is missing
		defer func() {
			if presence != nil {
				presence.Cancel()
			}
		}()
		for {
			n, err := w.arm(ctx, sub)
			if errors.Is(err, zk.ErrNoNode) {
				if presence == nil {
					presence = e.Watch(w.dir, core.Presence, wake)
				}
				if n, err = w.arm(ctx, presence); err == nil && n.Stat != nil {
					continue // it has come
				}
			}
			if err != nil {
				fail(err)
				return
			}
			if n.Stat != nil && presence != nil {
				presence.Cancel()
				presence = nil
			}
			if !yield(n, nil) {
				return
			}
			select {
			case <-woken:
			case <-ctx.Done():
				fail(ctx.Err())
				return
			case <-e.Context().Done():
				fail(ErrClosed)
				return
			}
		}
	}
}

// arm sets the watch and reads, until the server answers or ctx ends.
func (w *Watcher) arm(ctx context.Context, sub *core.Sub) (core.Node, error) {
	read := make(chan core.Node, 1)
	err := w.s.engine.Until(ctx, func() error {
		for {
			n, span, err := sub.Arm(ctx)
			if err == nil && !span.SameConn() {
				continue // the watch may be of a connection that is over
			}
			if err == nil || ctx.Err() != nil || errors.Is(err, core.ErrClosed) || core.Classify(err) == core.Answered {
				read <- n
				return err
			}
		}
	})
	if err != nil {
		return core.Node{}, err
	}
	return <-read, nil
}
