package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
)

var treeText = help{
	usage: "tree [flags] PATH",
	text: `Shows PATH and the znodes below it: what kind each is, the session that an ephemeral one ends with, the size of its data and their version.
A server does not tell containers from other persistent znodes. What it lets nobody read is shown as such, and does not end the command.
`,
	examples: `  zklock tree /locks
  zklock tree -depth 1 /
`,
}

// runTree is zklock tree.
func runTree(ctx context.Context, args []string, stdout, _ io.Writer) error {
	var c connection
	var depth int
	fs := treeText.flags("tree")
	c.flags(fs)
	fs.IntVar(&depth, "depth", 0, "show only so many `levels` below PATH (default: all)")
	path, err := parsePath(fs, args, stdout)
	if err != nil {
		return err
	}
	if depth < 0 || depth == 0 && given(fs, "depth") {
		return wrong("-depth %d: at least 1", depth)
	}
	session, err := c.look(ctx)
	if err != nil {
		return err
	}
	defer leave(session)
	w := &walk{ctx: ctx, conn: session.Conn(), depth: depth}
	w.table.add("ZNODE", "TYPE", "SESSION", "DATA", "VERSION")
	found, err := w.znode(c.outside(path), path, 0)
	switch {
	case err != nil:
		return failure(err)
	case !found:
		return fmt.Errorf("%s does not exist", path)
	}
	return w.table.print(stdout)
}

// A walk goes through a tree, which may change under it.
type walk struct {
	ctx   context.Context
	conn  zkrecipes.Conn
	depth int // 0: no limit
	table table
}

// znode adds a znode and what is below it. One that has gone meanwhile is none.
func (w *walk) znode(path, name string, level int) (found bool, err error) {
	if err := context.Cause(w.ctx); err != nil {
		return false, err
	}
	data, stat, err := w.conn.Get(path)
	shownName := strings.Repeat("  ", level) + shown(name)
	children := true
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return false, nil
	case errors.Is(err, zk.ErrNoAuth):
		w.table.add(shownName, "no permission to read", "-", "-", "-")
	case err != nil:
		return false, fmt.Errorf("%s: %w", path, err)
	default:
		kind, session := "persistent", "-"
		if stat.EphemeralOwner != 0 {
			kind, session = "ephemeral", sessionID(stat.EphemeralOwner)
		}
		if sequential(name) {
			kind += " sequential"
		}
		w.table.add(shownName, kind, session, strconv.Itoa(len(data)), strconv.Itoa(int(stat.Version)))
		children = stat.NumChildren > 0
	}
	if !children || w.depth > 0 && level == w.depth {
		return true, nil
	}
	names, _, err := w.conn.Children(path)
	switch {
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNoAuth):
		return true, nil
	case err != nil:
		return true, fmt.Errorf("%s: %w", path, err)
	}
	slices.Sort(names)
	for _, name := range names {
		if _, err := w.znode(strings.TrimSuffix(path, "/")+"/"+name, name, level+1); err != nil {
			return true, err
		}
	}
	return true, nil
}

// sequential tells whether a name ends with a number of ten digits, which is all that a sequential znode shows of it.
func sequential(name string) bool {
	if len(name) < 10 {
		return false
	}
	for _, r := range name[len(name)-10:] {
		if r < '0' || r > '9' {
			return false
		}
	}
	return true
}
