// Zklock is the command of package zkrecipes.
//
//	zklock demo    three processes contend for one lock, one of them is killed
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// A command is one subcommand. Its run function returns a usageError for what the caller can mend by calling it otherwise.
type command struct {
	name, synopsis string
	hidden         bool
	run            func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

var commands = []command{
	{name: "demo", synopsis: "three worker processes contend for one lock, one holder is killed", run: runDemo},
	{name: "demo-worker", hidden: true, run: runWorker},
}

// A usageError is the caller's. It was printed already when its text is empty.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return exitUsage
	}
	if args[0] == "help" || args[0] == "-h" || args[0] == "-help" || args[0] == "--help" {
		usage(stdout)
		return exitOK
	}
	for _, c := range commands {
		if c.name != args[0] {
			continue
		}
		err := c.run(ctx, args[1:], stdout, stderr)
		var wrong usageError
		switch {
		case err == nil, errors.Is(err, flag.ErrHelp):
			return exitOK
		case errors.As(err, &wrong):
			if wrong.text != "" {
				fmt.Fprintf(stderr, "zklock %s: %s\n", c.name, wrong.text)
			}
			return exitUsage
		}
		fmt.Fprintf(stderr, "zklock %s: %v\n", c.name, err)
		return exitFailed
	}
	fmt.Fprintf(stderr, "zklock: no command %q\n", args[0])
	usage(stderr)
	return exitUsage
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "usage: zklock command [flags]\n\ncommands:")
	for _, c := range commands {
		if !c.hidden {
			fmt.Fprintf(w, "  %-8s %s\n", c.name, c.synopsis)
		}
	}
	fmt.Fprintln(w, "\nzklock command -h explains a command's flags.")
}

// parse parses a command's flags, which take no further arguments.
func parse(fs *flag.FlagSet, args []string, stderr io.Writer) error {
	fs.SetOutput(stderr)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{} // the flag set has said what
	}
	if fs.NArg() > 0 {
		return usageError{fmt.Sprintf("unexpected argument %q", fs.Arg(0))}
	}
	return nil
}
