package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// A help is what a command prints about itself, around its flags.
type help struct {
	usage, text, examples string
}

// flags makes the flag set of a command.
func (h help) flags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.Usage = func() {
		fmt.Fprintf(fs.Output(), "usage: zklock %s\n\n%s\nexamples:\n%s\nflags:\n", h.usage, h.text, h.examples)
		fs.PrintDefaults()
	}
	return fs
}

// positive is the value of a flag with a duration above zero.
type positive time.Duration

func (p *positive) String() string {
	if *p == 0 {
		return ""
	}
	return time.Duration(*p).String()
}

func (p *positive) Set(s string) error {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return errors.New("want a duration such as 30s or 5m")
	case d <= 0:
		return errors.New("must be positive")
	}
	*p = positive(d)
	return nil
}

func positiveVar(fs *flag.FlagSet, name string, value time.Duration, usage string) *positive {
	p := positive(value)
	fs.Var(&p, name, usage)
	return &p
}

// parse parses a command's flags, which take no further arguments. Help that was asked for goes to stdout, and flag.ErrHelp is returned.
func parse(fs *flag.FlagSet, args []string, stdout io.Writer) error {
	rest, err := parseMixed(fs, args, stdout)
	if err == nil && len(rest) > 0 {
		return wrong("unexpected argument %q", rest[0])
	}
	return err
}

// parsePath parses the flags of a command that takes one path, before or behind them.
func parsePath(fs *flag.FlagSet, args []string, stdout io.Writer) (string, error) {
	rest, err := parseMixed(fs, args, stdout)
	if err != nil {
		return "", err
	}
	return onePath(rest)
}

// parseCommand parses PATH -- CMD..., with the flags before or behind the path.
func parseCommand(fs *flag.FlagSet, args []string, stdout io.Writer) (path string, argv []string, err error) {
	dashes := slices.Index(args, "--")
	before := args
	if dashes >= 0 {
		before, argv = args[:dashes], args[dashes+1:]
	}
	rest, err := parseMixed(fs, before, stdout)
	switch {
	case err != nil:
		return "", nil, err
	case dashes < 0:
		return "", nil, wrong("no -- before the command to run: zklock %s PATH -- CMD", fs.Name())
	case len(argv) == 0 || argv[0] == "":
		return "", nil, wrong("no command to run behind --")
	}
	path, err = onePath(rest)
	return path, argv, err
}

// onePath does not repeat what is too much: it could be a credential that lost its flag.
func onePath(args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", wrong("no path given: it begins with /, such as /locks/report")
	case len(args) > 1:
		return "", wrong("%d paths given, want one", len(args))
	case !strings.HasPrefix(args[0], "/"):
		return "", wrong("%q is no path: one begins with /, such as /locks/report", args[0])
	case path.Clean(args[0]) != args[0]:
		return "", wrong("%q is no path: one has no empty element, no . or .., and no / at its end", args[0])
	}
	return args[0], nil
}

func parseMixed(fs *flag.FlagSet, args []string, stdout io.Writer) (rest []string, err error) {
	explain := fs.Usage
	fs.Usage = func() {}
	fs.SetOutput(io.Discard) // the caller prints the error
	for len(args) > 0 {
		err := fs.Parse(args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			fs.SetOutput(stdout)
			if explain != nil {
				explain()
			}
			return nil, err
		case err != nil:
			return nil, usageError{err.Error()}
		case fs.NArg() == 0:
			return rest, nil
		case fs.NArg() < len(args) && args[len(args)-fs.NArg()-1] == "--":
			return append(rest, fs.Args()...), nil
		}
		rest = append(rest, fs.Arg(0))
		args = fs.Args()[1:]
	}
	return rest, nil
}

// given tells whether a flag was there at all.
func given(fs *flag.FlagSet, name string) (yes bool) {
	fs.Visit(func(f *flag.Flag) { yes = yes || f.Name == name })
	return yes
}
