package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/interop"
	"github.com/zkrecipes/zkrecipes/zktest"
)

func main() {
	if role := os.Getenv(holderRole); role != "" {
		exit(hold(role))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exit(bench(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func exit(err error) {
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// bench is the command.
func bench(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	asJSON := flags.Bool("json", false, "print JSON with all samples instead of the table")
	write := flags.Bool("write", false, "write docs/speed.md, or docs/speed-full.md, and its pictures")
	full := flags.Bool("full", false, "measure Curator, kazoo, etcd and redsync as well, without -limit")
	growing := flags.Bool("growth", false, "measure how cost grows instead, and with -write write docs/growth.md and docs/capacity.md")
	only := flags.String("cells", "", "run only the cells whose names contain this `text`")
	docs := flags.String("docs", filepath.Join("..", "docs"), "the `folder` for -write")
	rounds := flags.Int("rounds", quick.rounds, "how many rounds")
	limit := flags.Duration("limit", quick.limit, "begin no round that may end later; 0: begin all")
	if err := flags.Parse(args); err != nil {
		return err
	}
	size := quick
	size.rounds, size.limit, size.only = *rounds, *limit, *only
	if *full {
		size.limit = 0
	}
	if *growing {
		size := wholeGrowth
		size.only = *only
		return benchGrowth(ctx, size, *asJSON, *write, *docs, stdout, stderr)
	}
	var rep *report
	err = inScope(ctx, "bench", wholeLimit, func(ctx context.Context, s *scope) {
		ensemble := zktest.Shared(s)
		libraries, versions := quickLibraries(), []string(nil)
		if *full {
			more, itsVersions := fullLibraries(ctx, s)
			libraries, versions = append(libraries, more...), itsVersions
		}
		rep, err = measure(ctx, ensemble, libraries, size, versions, stderr)
		s.must(err)
	})
	if err = errors.Join(err, interop.CloseShared(), zktest.CloseShared()); err != nil {
		return err
	}
	print := rep.markdown
	if *asJSON {
		print = rep.json
	}
	if err := print(stdout); err != nil {
		return err
	}
	for _, line := range rep.missed() {
		fmt.Fprintln(stderr, "not met:", line)
	}
	if !*write {
		return nil
	}
	name, target := "speed", "bench"
	if *full {
		name, target = "speed-full", "bench-full"
	}
	return writeDocs(rep, *docs, name, target)
}

func benchGrowth(ctx context.Context, size growthSizes, asJSON, write bool, docs string, stdout, stderr io.Writer) error {
	var rep *growthReport
	err := inScope(ctx, "growth", wholeLimit, func(ctx context.Context, s *scope) {
		var err error
		rep, err = measureGrowth(ctx, zktest.Shared(s), size, stderr)
		s.must(err)
	})
	if err = errors.Join(err, zktest.CloseShared()); err != nil {
		return err
	}
	print := rep.markdown
	if asJSON {
		print = rep.json
	}
	if err := print(stdout); err != nil || !write {
		return err
	}
	all, err := growthFiles(rep)
	if err != nil {
		return err
	}
	return writeFiles(all, docs)
}

// fullLibraries are what -full adds, on servers of their own where they need them, and what versions these are.
func fullLibraries(ctx context.Context, s *scope) ([]library, []string) {
	etcd, redis := etcdServer.start(ctx, s), redisServer.start(ctx, s)
	return []library{peerLibrary(interop.Curator), peerLibrary(interop.Kazoo), etcdLibrary(etcd), redsyncLibrary(redis)}, []string{
		strings.TrimPrefix(said(ctx, filepath.Join("..", "scripts", "peers")), "peers: "),
		said(ctx, etcdServer.command, "--version"), "its client " + dependency("go.etcd.io/etcd/client/v3"),
		said(ctx, redisServer.command, "--version"), "redsync " + dependency("github.com/go-redsync/redsync/v4"),
	}
}

func measure(ctx context.Context, ensemble *zktest.Ensemble, libraries []library, size sizes, versions []string, log io.Writer) (*report, error) {
	a := newAbout(ctx, ensemble)
	a.Versions = append(a.Versions, versions...)
	r := &run{
		size: size, libraries: libraries, zookeeper: ensemble.Addrs()[0], log: log,
		report: newReport(a, libraries, size),
	}
	return r.report, r.all(ctx)
}

// files are what a report writes, by name; target is the one of make that it comes from.
func files(r *report, name, target string) (map[string][]byte, error) {
	bytesFile, timeFile := name+"-drain-bytes.svg", name+"-drain-time.svg"
	var page bytes.Buffer
	fmt.Fprintf(&page, pageHead, target)
	if err := r.markdown(&page); err != nil {
		return nil, err
	}
	fmt.Fprintf(&page, pageTail, bytesFile, timeFile, r.size.readers)
	if slices.Contains(r.libraries, etcdName) {
		page.WriteString(pageFull)
	}
	return map[string][]byte{
		name + ".md": page.Bytes(),
		bytesFile: chart{
			title: "Drain of N waiters of one session", x: "N", y: "kB between session and server", series: r.series(curveBytes),
		}.svg(),
		timeFile: chart{
			title: "Drain of N waiters of one session", x: "N", y: "ms from the first release to the last", series: r.series(curveTime),
		}.svg(),
	}, nil
}

func writeDocs(r *report, dir, name, target string) error {
	all, err := files(r, name, target)
	if err != nil {
		return err
	}
	return writeFiles(all, dir)
}

func writeFiles(all map[string][]byte, dir string) error {
	for name, content := range all {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

const pageHead = `# Speed

This page is written by a run: ` + "`make %s BENCHFLAGS=-write`" + `. All columns are of that one run, on one server, and the libraries took turns in each round. [speed.md](speed.md) has what a
minute or three give, [speed-full.md](speed-full.md) the other libraries as well.

`

const pageTail = `
What is counted is counted at the wire: requests without pings and connects, bytes in both directions with all of these. Round trips are the slope of the
time over the delay of the wire, at two delays. Times are those of the machine named above, and of what else it did; take their ratios.

- *free lock*: Lock and Release of a lock that nobody else wants. *raw* makes and deletes the znode, and nothing else.
- *contended*: one goroutine in each session takes the lock again and again.
- *drain*: N goroutines of one session wait for a lock that the session holds; from the first release until the last has given it back. *raw* makes the same
  requests for as many znodes, and gets the same notices, with nobody who waits.
- *readers behind a writer*: %[3]d readers, a session each; all that its one release costs them and the writer.
- *memory*: what stays in the heap, and of goroutines, beside the caller's own.
- *failover*: processes that hold the lock are killed, and end in an orderly way; until the next one has it.

![bytes over N](%[1]s)

![time over N](%[2]s)
`

const pageFull = `
Curator and kazoo run in processes of their own: what the lines to these take is in their times, not in their counts. etcd and redsync have servers of their
own, in memory. A waiter of etcd's has an etcd session of its own, on one connection, and its heartbeats count as requests. redsync has no queue: who waits
asks again after a random pause, and a lock ends by its timeout, whether its holder lives or not.
`
