package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// A printer prints the lines of a demo: the time, who, and what. Its methods must not run at once.
type printer struct {
	out    io.Writer
	start  time.Time
	colour bool
}

func newPrinter(out io.Writer) *printer {
	p := &printer{out: out}
	p.colour = coloured(out)
	return p
}

// coloured tells whether colours go with what is written to out: on a terminal, unless its user wants none (no-color.org).
func coloured(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(f)
}

// begin starts the clock.
func (p *printer) begin() { p.start = time.Now() }

// colours of what deserves one.
var colours = map[string]string{"HOLDS": "32", "KILLED": "31", "LOST": "33", "BROKEN": "31"}

func (p *printer) line(who, verb, format string, args ...any) {
	padded := fmt.Sprintf("%-6s", verb)
	if c := colours[verb]; p.colour && c != "" {
		padded = "\x1b[" + c + "m" + padded + "\x1b[0m"
	}
	fmt.Fprintf(p.out, "%7.2f s  %s  %s  %s\n", time.Since(p.start).Seconds(), who, padded, fmt.Sprintf(format, args...))
}

func (p *printer) end(format string, args ...any) {
	fmt.Fprintf(p.out, "\nok: "+format+"\n", args...)
}
