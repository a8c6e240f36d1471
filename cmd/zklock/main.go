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

// A usageError is the caller's.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the clean-up after the first
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return exitUsage
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		usage(stdout)
		return exitOK
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.exitCode(c.run(ctx, args[1:], stdout, stderr), stderr)
		}
	}
	fmt.Fprintf(stderr, "zklock: no command %q\n", args[0])
	usage(stderr)
	return exitUsage
}

// exitCode tells what went wrong and what the process ends with.
func (c command) exitCode(err error, stderr io.Writer) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	fmt.Fprintf(stderr, "zklock %s: %v\n", c.name, err)
	if _, wrong := errors.AsType[usageError](err); wrong {
		fmt.Fprintf(stderr, "zklock %s -h explains the flags\n", c.name)
		return exitUsage
	}
	return exitFailed
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

// parse parses a command's flags, which take no further arguments. Help that was asked for goes to stdout, and flag.ErrHelp is returned.
func parse(fs *flag.FlagSet, args []string, stdout io.Writer) error {
	explain := fs.Usage
	fs.Usage = func() {}
	fs.SetOutput(io.Discard) // the caller prints the error
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fs.SetOutput(stdout)
		if explain != nil {
			explain()
		}
		return err
	case err != nil:
		return usageError{err.Error()}
	case fs.NArg() > 0:
		return usageError{fmt.Sprintf("unexpected argument %q", fs.Arg(0))}
	}
	return nil
}
