// Zklock is the command of package zkrecipes.
//
//	zklock run     hold a lock while a command runs
//	zklock leader  keep a command running on exactly one host
//	zklock status  show who holds and who waits
//	zklock tree    show the znodes below a path
//	zklock revoke  ask a holder to give its lock back
//	zklock break   delete a holder's znode
//	zklock demo    three processes contend for one lock, one of them is killed
//
// docs/zklock.md is its manual.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// A command is one subcommand. Its run function returns a usageError for what the caller can mend by calling it otherwise.
type command struct {
	name, synopsis string
	hidden         bool
	ownSignals     bool // it hears signals itself: ctx does not end with them
	failed         int  // its exit code when something went wrong that has no code of its own
	run            func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

var commands = []command{
	{name: "run", synopsis: "hold a lock while a command runs", ownSignals: true, failed: exitOurs, run: runRun},
	{name: "leader", synopsis: "keep a command running on exactly one host", ownSignals: true, failed: exitOurs, run: runLeader},
	{name: "status", synopsis: "show who holds and who waits, also of Curator's and kazoo's locks", failed: exitFailed, run: runStatus},
	{name: "tree", synopsis: "show the znodes below a path", failed: exitFailed, run: runTree},
	{name: "revoke", synopsis: "ask a holder to give its lock back", failed: exitFailed, run: runRevoke},
	{name: "break", synopsis: "delete the znode of a holder that is stuck", failed: exitFailed, run: runBreak},
	{name: "demo", synopsis: "three worker processes contend for one lock, one holder is killed", failed: exitFailed, run: runDemo},
	{name: "demo-worker", hidden: true, failed: exitFailed, run: runWorker},
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return exitUsage
	}
	name, args := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		if len(args) == 0 {
			usage(stdout)
			return exitOK
		}
		name, args = args[0], []string{"-h"}
	}
	for _, c := range commands {
		if c.name == name {
			ctx := context.Background()
			if !c.ownSignals {
				var stop func()
				ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
				context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the clean-up after the first
			}
			return c.exitCode(c.run(ctx, args, stdout, stderr), stderr)
		}
	}
	fmt.Fprintf(stderr, "zklock: no command %q\n", name)
	usage(stderr)
	return exitUsage
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "usage: zklock command [flags] [arguments]\n\ncommands:")
	for _, c := range commands {
		if !c.hidden {
			fmt.Fprintf(w, "  %-8s %s\n", c.name, c.synopsis)
		}
	}
	fmt.Fprintln(w, "\nzklock help command explains a command's flags.")
}
