package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
)

var breakText = help{
	usage: "break [flags] PATH|NODE",
	text: `Deletes the znodes of all who hold the lock at PATH, or the one NODE, a holder's or waiter's (the last column of zklock status). A service on zkrecipes
is told that its lease is lost, a waiter queues again at the tail; others may not notice, and work beside the next holder.

On a terminal it shows what it would delete, and asks. Elsewhere it needs -yes. What it has deleted it prints.
`,
	examples: `  zklock break /locks/report
  zklock break -older-than 12h -yes /locks/report      # for cron
`,
}

// runBreak is zklock break.
func runBreak(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var c connection
	var yes bool
	fs := breakText.flags("break")
	c.flags(fs)
	older := positiveVar(fs, "older-than", 0, "only what has been there for this `time`")
	fs.BoolVar(&yes, "yes", false, "do not ask")
	arg, err := parsePath(fs, args, stdout)
	if err != nil {
		return err
	}
	if !yes && !isTerminal(os.Stdin) {
		return usageError{"standard input is no terminal on which to ask: -yes deletes without asking"}
	}
	session, err := c.look(ctx)
	if err != nil {
		return err
	}
	defer leave(session)
	chosen, err := c.choose(ctx, session, arg)
	if err != nil {
		return failure(err)
	}
	if len(chosen) == 0 {
		_, err := fmt.Fprintf(stdout, "nothing to delete: nobody holds %s, and it is the znode of nobody who does\n", arg)
		return err
	}
	var old zkrecipes.Participants
	for _, p := range chosen {
		if time.Since(p.Since) >= time.Duration(*older) {
			old = append(old, p)
		}
	}
	if len(old) == 0 {
		_, err := fmt.Fprintf(stdout, "nothing to delete: nothing of %s is older than %v\n", arg, older)
		return err
	}
	if !yes {
		for _, p := range old {
			fmt.Fprintf(stderr, "%s\n  of %s, for %s\n", c.inside(p.Node), who(p), age(time.Since(p.Since).Seconds()))
		}
		fmt.Fprintf(stderr, "Whoever has it may still be at work. Delete %s? [y/N] ", count(len(old)))
		if !confirmed(ctx, os.Stdin) {
			return errors.New("nothing was deleted")
		}
	}
	return c.delete(session, old, stdout)
}

func count(n int) string {
	if n == 1 {
		return "this znode"
	}
	return fmt.Sprintf("these %d znodes", n)
}

// choose finds what an argument names: a participant, or all holders at a path.
func (c *connection) choose(ctx context.Context, s *zkrecipes.Session, arg string) (zkrecipes.Participants, error) {
	p, found, err := c.participant(ctx, s, arg)
	if found {
		return zkrecipes.Participants{p}, nil
	}
	if err != nil && !errors.Is(err, zk.ErrNoAuth) { // who may not see the directory above may still see this one
		return nil, err
	}
	all, err := zkrecipes.Inspect(ctx, s, arg)
	return all.Holders(), err
}

// delete deletes znodes, each unless another has taken its name, and goes on when one cannot be.
func (c *connection) delete(s *zkrecipes.Session, ps zkrecipes.Participants, stdout io.Writer) error {
	var errs []error
	for _, p := range ps {
		node := c.inside(p.Node)
		ok, stat, err := s.Conn().Exists(p.Node)
		if err == nil && (!ok || stat.Czxid != int64(p.Token)) {
			err = zk.ErrNoNode
		}
		if err == nil {
			err = s.Conn().Delete(p.Node, -1)
		}
		switch {
		case errors.Is(err, zk.ErrNoNode):
			_, err = fmt.Fprintf(stdout, "gone already: %s of %s\n", node, who(p))
		case err == nil:
			_, err = fmt.Fprintf(stdout, "deleted: %s of %s, there for %s\n", node, who(p), age(time.Since(p.Since).Seconds()))
		default:
			err = failure(fmt.Errorf("%s: not deleted: %w", node, err))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// confirmed reads a yes. What ends ctx ends the question.
func confirmed(ctx context.Context, in io.Reader) bool {
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // an end of input is no
		answer <- line
	}()
	select {
	case line := <-answer:
		line = strings.ToLower(strings.TrimSpace(line))
		return line == "y" || line == "yes"
	case <-ctx.Done():
		return false
	}
}
