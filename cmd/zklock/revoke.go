package main

import (
	"context"
	"fmt"
	"io"
	"path"

	"github.com/zkrecipes/zkrecipes"
)

var revokeText = help{
	usage: "revoke [flags] NODE",
	text: `Asks the holder, or waiter, whose znode is NODE to give its lock back: the last column of zklock status. A waiter learns of it when its turn has come.
It is a request, as by Curator's Revoker: a service that does not look goes on. zklock run and zklock leader pass it on to CMD with -revocable.
zklock break takes a lock away.
`,
	examples: `  zklock status /locks/report
  zklock revoke /locks/report/_c_6e9d3c66-4f0e-4bd5-a4c1-52a1cdd0e8b1-lock-0000000007
`,
}

// runRevoke is zklock revoke.
func runRevoke(ctx context.Context, args []string, stdout, _ io.Writer) error {
	var c connection
	fs := revokeText.flags("revoke")
	c.flags(fs)
	node, err := parsePath(fs, args, stdout)
	if err != nil {
		return err
	}
	session, err := c.look(ctx)
	if err != nil {
		return err
	}
	defer leave(session)
	p, found, err := c.participant(ctx, session, node)
	switch {
	case err != nil:
		return failure(err)
	case !found:
		return fmt.Errorf("%s is the znode of nobody who holds or waits, or of nobody any more; zklock status %s shows those there are", node, path.Dir(node))
	}
	if err := zkrecipes.Revoke(ctx, session, c.outside(node)); err != nil {
		return failure(err)
	}
	_, err = fmt.Fprintf(stdout, "asked %s to give %s back; zklock status %s shows whether it does\n", who(p), node, path.Dir(node))
	return err
}

// participant finds who has a znode.
func (c *connection) participant(ctx context.Context, s *zkrecipes.Session, node string) (p zkrecipes.Participant, found bool, err error) {
	if node == "/" {
		return p, false, nil
	}
	all, err := zkrecipes.Inspect(ctx, s, path.Dir(node))
	for _, each := range all {
		if c.inside(each.Node) == node {
			return each, true, nil
		}
	}
	return p, false, err
}

// who names a participant.
func who(p zkrecipes.Participant) string {
	return fmt.Sprintf("%s (session %s, token %d)", shown(string(p.Owner)), sessionID(p.Session), p.Token)
}
