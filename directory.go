package zkrecipes

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// A directory is where znodes queue, as one that queues there reads it.
type directory struct {
	e   *core.Engine
	dir string // absolute
}

// repeat reports whether a read that ended with err is to be repeated: it was not answered, and there is somebody to repeat it for.
func (d *directory) repeat(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, core.ErrClosed) && core.Classify(err) != core.Answered
}

// read makes a request that changes nothing, again until it is answered.
func (d *directory) read(ctx context.Context, fn func(core.Conn) error) (span core.Span, err error) {
	for {
		if span, err = d.e.Do(ctx, fn); err == nil || !d.repeat(ctx, err) {
			return span, err
		}
	}
}

// list reads the names; a missing directory is empty, which is not nil. Others may have got the same list: it is not to be changed.
func (d *directory) list(ctx context.Context) (core.Listing, error) {
	for {
		l, err := d.e.List(ctx, d.dir)
		switch {
		case err == nil && l.Names != nil:
			return l, nil
		case err == nil, errors.Is(err, zk.ErrNoNode):
			l.Names = []string{}
			return l, nil
		case !d.repeat(ctx, err):
			return l, err
		}
	}
}

// byCzxid is for a directory whose counter has reached its limit, where numbers repeat and run backwards: the order is that of the transactions that
// created the znodes, each of which has to be asked for. Those that have gone meanwhile are left out; all, when the session is another one than this.
func (d *directory) byCzxid(ctx context.Context, all []znode.Name, session int64) ([]znode.Name, error) {
	czxid := make(map[string]int64)
	for _, n := range all {
		stat, span, err := d.stat(ctx, znode.Join(d.dir, n.Raw))
		switch {
		case err != nil:
			return nil, err
		case !span.SameSession() || span.After.Session != session:
			return nil, nil
		case stat != nil:
			czxid[n.Raw] = stat.Czxid
		}
	}
	all = slices.DeleteFunc(all, func(n znode.Name) bool { return czxid[n.Raw] == 0 })
	slices.SortStableFunc(all, func(a, b znode.Name) int { return cmp.Compare(czxid[a.Raw], czxid[b.Raw]) })
	return all, nil
}

func (d *directory) stat(ctx context.Context, path string) (stat *zk.Stat, span core.Span, err error) {
	span, err = d.read(ctx, func(conn core.Conn) error {
		ok, found, err := conn.Exists(path)
		if stat = nil; ok {
			stat = found
		}
		return err
	})
	return stat, span, err
}
