package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// The tables of a run with -growth.
const (
	tableLoad     = "load"
	tableServer   = "memory of a server"
	tableWaiters  = "waiters of one lock"
	tableSessions = "sessions of one process"
	tablePaths    = "lock paths of one session"
)

// The groups of their lines.
const (
	groupRaw        = "raw create and delete"
	groupForced     = "the same, with forceSync"
	groupFree       = "Lock and Release of a free lock"
	groupOneSession = "of one session"
	groupResting    = "at rest"
	groupOpen       = "opened"
	groupIdle       = "idle"
	groupHolding    = "holding a lock each"
	groupNew        = "taken, on new paths"
	groupHeld       = "held"
	groupBack       = "given back"
	groupAgain      = "again and again"
)

// What the projection takes from the tables.
const (
	writesPerSecond = "writes a second"
	cyclesPerSecond = "cycles a second"
	cpuOfCycle      = "µs of the server's processor for a cycle"
	znodeBytes      = "bytes for an ephemeral znode"
	watchBytes      = "bytes for a watch on it"
	toQueue         = "ms to queue"
	grantKB         = "kB to be granted and release"
	heapBytes       = "bytes of heap here"
	stackBytes      = "bytes of stack here"
	serverBytes     = "bytes of heap at the server"
	serverWatches   = "watches at the server"
	restByHour      = "requests of one, by the hour"
	newPathWrites   = "writes among them"
	pings           = "pings a second, of all"
	syncs           = "syncs a second, of all"
	serverShare     = "the server's processor, %"
)

func groupSpread(sessions int) string { return fmt.Sprintf("over %d sessions", sessions) }

// A growthReport is what a run with -growth has found. Only the goroutine of the run uses it.
type growthReport struct {
	about    about
	size     growthSizes
	samples  map[growthKey][]float64
	lines    []growthKey // without N, in the order in which they came
	without  []growthKey // tables and N that were begun, and have not all of their figures
	notes    []string
	failures []string
}

// A growthKey is what a figure is of.
type growthKey struct {
	table, group, what string
	n                  int
}

func newGrowthReport(a about, size growthSizes) *growthReport {
	return &growthReport{about: a, size: size, samples: make(map[growthKey][]float64)}
}

// add takes one sample. NaN is no figure.
func (r *growthReport) add(c growthCell, what string, value float64) {
	if math.IsNaN(value) {
		return
	}
	k := growthKey{table: c.table, group: c.group, what: what}
	if !slices.Contains(r.lines, k) {
		r.lines = append(r.lines, k)
	}
	k.n = c.n
	r.samples[k] = append(r.samples[k], value)
}

func (r *growthReport) fail(c growthCell, err error) {
	r.without = append(r.without, growthKey{table: c.table, n: c.n})
	r.failures = append(r.failures, fmt.Sprintf("%s: %v", c, err))
}

func (r *growthReport) note(c growthCell, text string) {
	r.without = append(r.without, growthKey{table: c.table, n: c.n})
	r.notes = append(r.notes, fmt.Sprintf("%s: %s", c, text))
}

// value is the median, and NaN when there is none.
func (r *growthReport) value(table, group, what string, n int) float64 {
	return median(r.samples[growthKey{table, group, what, n}])
}

// Each table has a few words: what it is of, and what its N are.
var growthTables = []struct{ name, n, of string }{
	{tableWaiters, "waiters", "Goroutines that wait for one lock, each with a Lock call of its own: how they come to wait, and how each is granted in its turn and gives it back at once.\n" +
		"*Here* is the process that they are all in. *At rest* is what waiting costs when nothing happens: a waiter looks again every 30 s to 34 s."},
	{tablePaths, "locks", "Locks of different paths, all held by one session; then given back; then taken and given back again and again, 16 at once. *New* is a path that was not there."},
	{tableSessions, "sessions", "Sessions in this process, first idle, then holding a lock each, watched for %v, with a timeout of %v."},
	{tableLoad, "calls at once", "Cycles of locks that nobody else wants, as many as there can be, 16 calls to a session. With forceSync a server waits for its disk, which it does not elsewhere here."},
	{tableServer, "znodes", "What it has more of in its heap, after a garbage collection, for znodes as waiters have, and a watch on each."},
}

// ns are the N of a table.
func (r *growthReport) ns(table string) (ns []int) {
	for k := range r.samples {
		if k.table == table && !slices.Contains(ns, k.n) {
			ns = append(ns, k.n)
		}
	}
	for _, k := range r.without {
		if k.table == table && !slices.Contains(ns, k.n) {
			ns = append(ns, k.n)
		}
	}
	slices.Sort(ns)
	return ns
}

// thousands writes a count as it is read.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// linesOf are the lines of a table, those of a group together.
func (r *growthReport) linesOf(table string) (lines []growthKey) {
	var groups []string
	for _, l := range r.lines {
		if l.table == table {
			lines = append(lines, l)
			groups = append(groups, l.group)
		}
	}
	slices.SortStableFunc(lines, func(a, b growthKey) int { return slices.Index(groups, a.group) - slices.Index(groups, b.group) })
	return lines
}

// markdown writes the tables.
func (r *growthReport) markdown(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n", r.about)
	for _, t := range growthTables {
		ns := r.ns(t.name)
		if len(ns) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s%s\n\n", string(t.name[0]-'a'+'A'), t.name[1:])
		of := t.of
		if t.name == tableSessions {
			of = fmt.Sprintf(of, r.size.watched, r.size.timeout)
		}
		fmt.Fprintf(&b, "%s\n\n| | %s |", of, t.n)
		for _, n := range ns {
			fmt.Fprintf(&b, " %s |", thousands(n))
		}
		b.WriteString("\n|---|---|")
		for range ns {
			b.WriteString("---:|")
		}
		b.WriteString("\n")
		last := ""
		for _, l := range r.linesOf(t.name) {
			group := l.group
			if group == last {
				group = ""
			}
			last = l.group
			fmt.Fprintf(&b, "| %s | %s |", group, l.what)
			for _, n := range ns {
				fmt.Fprintf(&b, " %s |", figure(r.value(l.table, l.group, l.what, n)))
			}
			b.WriteString("\n")
		}
	}
	for _, list := range []struct {
		title string
		lines []string
	}{{"Not to the end", r.notes}, {"Failed", r.failures}} {
		if len(list.lines) > 0 {
			fmt.Fprintf(&b, "\n%s:\n\n", list.title)
			for _, l := range list.lines {
				fmt.Fprintf(&b, "- %s\n", l)
			}
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// json writes all of it, with the samples.
func (r *growthReport) json(w io.Writer) error {
	type value struct {
		N       int      `json:"n"`
		Median  number   `json:"median"`
		Samples []number `json:"samples"`
	}
	type line struct {
		Table   string  `json:"table"`
		Group   string  `json:"group,omitempty"`
		Measure string  `json:"measure"`
		Values  []value `json:"values"`
	}
	out := struct {
		About    about    `json:"about"`
		Lines    []line   `json:"lines"`
		Notes    []string `json:"notes,omitempty"`
		Failures []string `json:"failures,omitempty"`
	}{About: r.about, Notes: r.notes, Failures: r.failures}
	for _, k := range r.lines {
		l := line{Table: k.table, Group: k.group, Measure: k.what}
		for _, n := range r.ns(k.table) {
			k.n = n
			if samples := r.samples[k]; len(samples) > 0 {
				v := value{N: n, Median: number(median(samples))}
				for _, s := range samples {
					v.Samples = append(v.Samples, number(s))
				}
				l.Values = append(l.Values, v)
			}
		}
		out.Lines = append(out.Lines, l)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

// growthFiles are what a report writes, by name.
func growthFiles(r *growthReport) (map[string][]byte, error) {
	var page bytes.Buffer
	page.WriteString(growthHead)
	if err := r.markdown(&page); err != nil {
		return nil, err
	}
	page.WriteString(growthTail)
	m, err := measuredBy(r)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"growth.md": page.Bytes(), "capacity.md": capacityPage(r.about, m, assumed)}, nil
}

const growthHead = `# How cost grows

This page is written by a run: ` + "`make bench-growth BENCHFLAGS=-write`" + `, which takes some eight minutes. [capacity.md](capacity.md), written by the same run, projects from it what one
ensemble carries. [speed.md](speed.md) compares with other libraries.

`

const growthTail = `
Requests and bytes are counted in this process, at the connections: requests without pings and connects, syncs among them; bytes in both directions with all of these.
The time to queue is seen every 20 ms only, for all together. Memory is what a garbage collection leaves, and beside few of something what is there once counts for much: so are the figures of 1 and 10 to be read. At the server it
is given from 1,000 on. Times of processors are what Linux says of both processes. All times are those of the machine named above, on which the server and its clients
share the processors, and of what else it did.

The server is one for tests: standalone, with a heap of 256 MB, the first of the JVM's compilers only, a tick of 200 ms, a look for empty containers every second, and
no wait for its disk but where forceSync is named. An ensemble of three, networks between them, and their disks were not measured.
`
