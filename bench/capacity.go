package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
)

// measured is what the projection takes from a run.
type measured struct {
	writes    float64 // a second, at most, of raw cycles
	cycles    float64 // a second, at most, of free locks
	newWrites float64 // to take a lock on a path that is not there
	cpuCycle  float64 // µs of a server's processor, of a free lock's cycle
	cpuPing   float64 // µs of a ping, with its share of what an idle server does
	cpuSync   float64 // µs of a sync
	znode     float64 // bytes at a server: an ephemeral znode,
	watch     float64 // a watch,
	path      float64 // a lock that is held: its container, its znode and its watch,
	session   float64 // a session
	again     float64 // requests of a waiter by the hour, while nothing happens
	heapHere  float64 // bytes in the process: a session,
	leaseHere float64 // a lease,
	waitHere  float64 // a waiter, with the goroutine that calls
	queueing  float64 // ms to queue behind longQueue others
	granting  float64 // kB of a grant there
	longQueue int
}

// measuredBy finds them, or says which are missing.
func measuredBy(r *growthReport) (m measured, err error) {
	size := r.size
	longest := func(table, group, what string, ns []int) (n int) { // of those that there is a figure of
		for _, k := range ns {
			if !math.IsNaN(r.value(table, group, what, k)) {
				n = max(n, k)
			}
		}
		return n
	}
	sessions, paths := longest(tableSessions, groupHolding, syncs, size.sessions), longest(tablePaths, groupNew, serverBytes, size.paths)
	waiters := longest(tableWaiters, groupSpread(size.spread), toQueue, size.waiters)
	most := func(group, what string) float64 {
		v := math.NaN()
		for _, n := range size.flights {
			if w := r.value(tableLoad, group, what, n); w > v || math.IsNaN(v) {
				v = w
			}
		}
		return v
	}
	of := func(table, group, what string, n int) float64 { return r.value(table, group, what, n) }
	idle, holding := of(tableSessions, groupIdle, serverShare, sessions)/100*1e6, of(tableSessions, groupHolding, serverShare, sessions)/100*1e6
	m = measured{
		writes: most(groupRaw, writesPerSecond), cycles: most(groupFree, cyclesPerSecond),
		newWrites: of(tablePaths, groupNew, newPathWrites, paths), cpuCycle: of(tableLoad, groupFree, cpuOfCycle, slices.Max(size.flights)),
		cpuPing: idle / of(tableSessions, groupIdle, pings, sessions), cpuSync: (holding - idle) / of(tableSessions, groupHolding, syncs, sessions),
		znode: of(tableServer, "", znodeBytes, size.sample), watch: of(tableServer, "", watchBytes, size.sample),
		path: of(tablePaths, groupNew, serverBytes, paths), session: of(tableSessions, groupOpen, serverBytes, sessions),
		again:    of(tableWaiters, groupResting, restByHour, slices.Max(size.resting)),
		heapHere: of(tableSessions, groupOpen, heapBytes, sessions), leaseHere: of(tablePaths, groupNew, heapBytes, paths),
		waitHere: of(tableWaiters, groupSpread(size.spread), heapBytes, waiters) + of(tableWaiters, groupSpread(size.spread), stackBytes, waiters),
		queueing: of(tableWaiters, groupSpread(size.spread), toQueue, waiters), longQueue: waiters,
		granting: of(tableWaiters, groupSpread(size.spread), grantKB, waiters),
	}
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"writes", m.writes}, {"cycles", m.cycles}, {"writes on a new path", m.newWrites}, {"processor of a cycle", m.cpuCycle}, {"processor of a ping", m.cpuPing},
		{"processor of a sync", m.cpuSync}, {"bytes of a znode", m.znode}, {"bytes of a watch", m.watch}, {"bytes of a path", m.path},
		{"bytes of a session", m.session}, {"requests at rest", m.again}, {"heap of a session", m.heapHere},
		{"heap of a lease", m.leaseHere}, {"heap of a waiter", m.waitHere}, {"queueing", m.queueing}, {"a grant", m.granting},
	} {
		if math.IsNaN(f.value) {
			err = fmt.Errorf("no figure for: %s; the projection needs all, of a server on this machine that tells mntr, and jcmd beside it", f.name)
		}
	}
	return m, err
}

// assumptions are what was not measured.
type assumptions struct {
	kept     float64 // the part of the writes a second that an ensemble with disks carries
	used     float64 // the part of what it carries that is planned for
	heap     float64 // bytes of a server's heap that are for what is here
	beats    float64 // the part of one processor that heartbeats may take
	timeout  float64 // seconds, of every session
	ownNode  int     // writes beside the library's own on a new path: the end of its container
	instance int     // of each service: one holds, the others wait
}

var assumed = assumptions{kept: 0.5, used: 0.5, heap: 512e6, beats: 0.1, timeout: 10, ownNode: 1, instance: 3}

// cycleWrites is how many writes Lock and Release are, on a path that is there: create and delete.
const cycleWrites = 2

// waiterWatches is how many watches a waiter has at most: on its own znode, and on the one before it. Neighbours of one session share them.
const waiterWatches = 2

// Heartbeats of a session in its timeout: the client's, and the library's while there is a lease or somebody waits.
const (
	pingsInTimeout = 3
	syncsInTimeout = 6
)

// carries is how many writes a second one ensemble is planned for.
func carries(m measured, a assumptions) float64 { return a.kept * a.used * m.writes }

// locks is how many locks a second these are, on paths that are there.
func locksPerSecond(m measured, a assumptions) float64 { return carries(m, a) / cycleWrites }

// writesOfNew is how many a cycle is on a path of its own: what Lock takes, the delete, and the container's end.
func writesOfNew(m measured, a assumptions) float64 { return m.newWrites + 1 + float64(a.ownNode) }

func newLocksPerSecond(m measured, a assumptions) float64 { return carries(m, a) / writesOfNew(m, a) }

// beats is the part of one processor of the leader that the heartbeats of so many sessions take.
func beats(m measured, a assumptions, sessions float64) float64 {
	return sessions / a.timeout * (pingsInTimeout*m.cpuPing + syncsInTimeout*m.cpuSync) / 1e6
}

// mostSessions is how many take what heartbeats may take.
func mostSessions(m measured, a assumptions) float64 { return a.beats / beats(m, a, 1) }

// memoryOf is what so much is at a server.
func memoryOf(m measured, sessions, held, waiters float64) float64 {
	return sessions*m.session + held*m.path + waiters*waiterBytesAtServer(m)
}

func waiterBytesAtServer(m measured) float64 { return m.znode + waiterWatches*m.watch }

// A fleet is so many services, with so many locks each, of which each is taken and given back so often.
type fleet struct {
	services, locks int
	every           float64 // seconds between two grants of one lock
}

func (f fleet) paths() float64                 { return float64(f.services * f.locks) }
func (f fleet) sessions(a assumptions) float64 { return float64(f.services * a.instance) }
func (f fleet) waiters(a assumptions) float64  { return f.paths() * float64(a.instance-1) }
func (f fleet) writes() float64                { return f.paths() / f.every * cycleWrites }
func (f fleet) memory(m measured, a assumptions) float64 {
	return memoryOf(m, f.sessions(a), f.paths(), f.waiters(a))
}

// ensembles is how many carry the fleet, and by what: writes, sessions, and memory.
func (f fleet) ensembles(m measured, a assumptions) (n int, by [3]float64) {
	by = [3]float64{f.writes() / carries(m, a), f.sessions(a) / mostSessions(m, a), f.memory(m, a) / a.heap}
	return int(math.Ceil(max(by[0], by[1], by[2]))), by
}

// capacityPage is docs/capacity.md.
func capacityPage(about about, m measured, a assumptions) []byte {
	var b bytes.Buffer
	say := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	line := func(what, formula, numbers, result string) {
		say("| %s | %s | %s | **%s** |\n", what, formula, numbers, result)
	}
	f := func(v float64) string { return figure(v) }
	count := func(v float64) string { return thousands(int(v)) }
	say(capacityHead, about.Date, about.Server, about.where(), strings.Join(about.Versions, ", "))

	say("\n## What was measured\n\n| | | |\n|---|---|---:|\n")
	for _, l := range []struct{ symbol, what, value string }{
		{"W", "writes a second, raw creates and deletes, at most", count(m.writes)},
		{"C", "locks taken and given back a second, at most: one server, its clients beside it", count(m.cycles)},
		{"c", "µs of the server's processor for such a cycle", f(m.cpuCycle)},
		{"p", "µs of it for a ping, with its share of what the server does anyhow", f(m.cpuPing)},
		{"s", "µs of it for a sync", f(m.cpuSync)},
		{"w", "writes that Lock sends on a path that is not there: a create in vain, the container, the create", f(m.newWrites)},
		{"Z", "bytes of a server's heap for an ephemeral znode", f(m.znode)},
		{"V", "bytes of it for a watch", f(m.watch)},
		{"P", "bytes of it for a lock that is held: container, znode, watch", f(m.path)},
		{"S", "bytes of it for a session", f(m.session)},
		{"r", "requests of a waiter by the hour, while nothing happens", f(m.again)},
	} {
		say("| *%s* | %s | %s |\n", l.symbol, l.what, l.value)
	}

	say(capacityAssumptions, f(a.kept), f(a.used), f(a.heap/1e6), f(a.beats*100), f(a.timeout))

	say("\n## What one ensemble carries\n\n| | formula | numbers | |\n|---|---|---|---:|\n")
	line("writes a second", "k · u · W", fmt.Sprintf("%s · %s · %s", f(a.kept), f(a.used), count(m.writes)), count(carries(m, a)))
	line("locks a second, on paths that are there", "k · u · W / 2", fmt.Sprintf("%s / 2", count(carries(m, a))), count(locksPerSecond(m, a)))
	line("locks a second, each on a new path", "k · u · W / (w + 2)", fmt.Sprintf("%s / (%s + 2)", count(carries(m, a)), f(m.newWrites)), count(newLocksPerSecond(m, a)))
	line("the leader's processor at that many locks, if it did all of their work: no more than 100 %", "L · c", fmt.Sprintf("%s · %s µs", count(locksPerSecond(m, a)), f(m.cpuCycle)),
		f(locksPerSecond(m, a)*m.cpuCycle/1e4)+" %")
	line("heartbeats of 1,000 sessions that hold or wait", "N · (3 + 6) / T", fmt.Sprintf("1,000 · 9 / %s s", f(a.timeout)), f(1000*9/a.timeout)+" a second")
	line("of these, syncs, which all go to the leader", "N · 6 / T", fmt.Sprintf("1,000 · 6 / %s s", f(a.timeout)), f(1000*6/a.timeout)+" a second")
	line("what these syncs take of one processor", "N · 6 · s / T", fmt.Sprintf("1,000 · 6 · %s µs / %s s", f(m.cpuSync), f(a.timeout)), f(1000*syncsInTimeout*m.cpuSync/a.timeout/1e4)+" %")
	line("what the pings take of it", "N · 3 · p / T", fmt.Sprintf("1,000 · 3 · %s µs / %s s", f(m.cpuPing), f(a.timeout)), f(1000*pingsInTimeout*m.cpuPing/a.timeout/1e4)+" %")
	line("sessions whose heartbeats take h", "h · T / (3 · p + 6 · s)", fmt.Sprintf("%s · %s s / (3 · %s µs + 6 · %s µs)", f(a.beats), f(a.timeout), f(m.cpuPing), f(m.cpuSync)),
		count(mostSessions(m, a)))
	line("bytes of a waiter at each server", "Z + 2 · V", fmt.Sprintf("%s + %s · %s", f(m.znode), f(waiterWatches), f(m.watch)), f(waiterBytesAtServer(m)))
	line("locks that can be held, by memory", "H / P", fmt.Sprintf("%s MB / %s", f(a.heap/1e6), f(m.path)), count(a.heap/m.path))
	line("waiters, by memory", "H / (Z + 2 · V)", fmt.Sprintf("%s MB / %s", f(a.heap/1e6), f(waiterBytesAtServer(m))), count(a.heap/waiterBytesAtServer(m)))
	line("requests of 1,000 waiters at rest", "N · r / 3600 s", fmt.Sprintf("1,000 · %s / 3600 s", f(m.again)), f(1000*m.again/3600)+" a second")
	say(capacityMeaning, thousands(m.longQueue), f(m.queueing), f(m.granting))

	say("\n## In the process\n\n| | measured | |\n|---|---:|---|\n")
	say("| a session | %s MB | nearly all of it go-zookeeper's buffers, of which only what was used is in memory |\n", f(m.heapHere/1e6))
	say("| a lease | %s kB | |\n", f(m.leaseHere/1e3))
	say("| a waiter | %s kB | with the goroutine that calls |\n", f(m.waitHere/1e3))

	say("%s", capacityShard)
	say("\n## An example\n")
	for _, e := range []fleet{{300, 20, 60}, {300, 20, 1}} {
		n, by := e.ensembles(m, a)
		say("\n%d services with %d locks each, in %d instances of which one holds a lock and the others wait for it; each lock goes on every %s s.\n\n", e.services, e.locks, a.instance, f(e.every))
		say("| | formula | numbers | | of one ensemble |\n|---|---|---|---:|---:|\n")
		row := func(what, formula, numbers, result string, share float64) {
			say("| %s | %s | %s | **%s** | %s |\n", what, formula, numbers, result, f(share*100)+" %")
		}
		row("writes a second", "services · locks / every · 2", fmt.Sprintf("%d · %d / %s · 2", e.services, e.locks, f(e.every)), count(e.writes()), by[0])
		row("sessions", "services · instances", fmt.Sprintf("%d · %d", e.services, a.instance), count(e.sessions(a)), by[1])
		row("MB at each server", "sessions · S + held · P + waiters · (Z + 2 · V)",
			fmt.Sprintf("%s · %s + %s · %s + %s · %s", count(e.sessions(a)), f(m.session), count(e.paths()), f(m.path), count(e.waiters(a)), f(waiterBytesAtServer(m))),
			f(e.memory(m, a)/1e6), by[2])
		say("\nWatches: %s · 1 + %s · %s = %s. Syncs: %s · 6 / %s s = %s a second. Waiters that look again: %s · %s / 3600 s = %s requests a second. **%d** %s.\n",
			count(e.paths()), count(e.waiters(a)), f(waiterWatches), count(e.paths()+e.waiters(a)*waiterWatches),
			count(e.sessions(a)), f(a.timeout), f(e.sessions(a)*syncsInTimeout/a.timeout), count(e.waiters(a)), f(m.again), f(e.waiters(a)*m.again/3600),
			n, plural(n, "ensemble carries it", "ensembles carry it, if the writes are spread evenly"))
	}
	say("%s", capacityTail)
	return b.Bytes()
}

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

const capacityHead = `# What one ensemble carries

How many locks, waiters and sessions an ensemble has room for, with the arithmetic. What is measured is of the run that wrote this page and [growth.md](growth.md):
%[1]s, %[2]s, %[3]s, %[4]s. What is assumed stands below it, with letters of its own.

For your servers: ` + "`ZKTEST_REAL=addr ZKTEST_SERVERS=host:port make bench-growth`" + ` measures on some that run already and are for tests only. Put its figures in place of these,
and your assumptions.
`

const capacityAssumptions = `
## What is assumed

None of these was measured.

- *k* = %s: the part of *W* that an ensemble of three carries, with networks between its servers and disks that it waits for. A write goes through the leader, and to the log of a
  majority, before it is answered. Servers write what has come meanwhile at once, so a disk makes each write slower before it makes them fewer: growth.md has what forceSync
  did to one server on this disk. More servers carry more reads and sessions, and fewer writes.
- *u* = %s: the part of what it carries that is planned for. The rest is for bursts, an election, a server that is down.
- *H* = %s MB: the part of a server's heap that is for what is counted here. All servers hold all znodes; a watch and a session's connection are on one of
  them, and are counted here as if all of them were on the same.
- *h* = %s %% of one processor of the leader: what heartbeats may take. It is a budget, and no limit. Pings are answered by the server that a session is on, and are
  counted here as if that were always the leader.
- *T* = %s s: the session timeout of all.

A server that is not for tests has both compilers of its JVM and needs less of its processors for a request than measured here.
`

const capacityMeaning = `
- **A write is what costs most.** A lock that is taken and given back is two, on whatever server its session is, and two reads, which that server answers by itself.
  So it is when others wait: the release of one and the create of the next to come, with one or two reads more.
- **Heartbeats grow with the sessions, not with the locks.** A session that holds or waits for anything sends a sync every T/6; one that does not only its client's pings, every T/3.
  Twice the timeout is half of both. A sync goes to the leader whatever server the session is on, is not written to a log, and waits for the writes before it.
- **A queue costs by its length.** Each of %[1]s waiters over some sessions took %[2]s ms to queue, most of it the processor's here, which reads lists of all of them; and a
  grant took %[3]s kB, since most go from one session to another, and the next one then lists. growth.md has how that grows. A waiter at rest looks again now and then, which is
  another list. A queue of thousands wants to be several paths, and so several queues, on the same ensemble.
`

const capacityShard = `
## When to take several ensembles

One is enough until one of these is passed.

| passed | what to do first | what several ensembles do |
|---|---|---|
| writes a second > k · u · W | faster disks for the logs; fewer, longer leases; locks that are kept instead of taken anew | each has its part of the paths: so many fewer writes |
| sessions > h · T / (3 · p + 6 · s) | a longer timeout; one session for a process, which any number of goroutines share | **nothing, if each process has a session with each of them**: its heartbeats go to all. Only where a process needs one ensemble alone does each have its part of the sessions |
| sessions · S + held · P + waiters · (Z + 2 · V) > H | a larger heap; with it its pauses grow, and sessions end in long ones | each has its part of the paths |
| the waiters of one path in the thousands | several paths | nothing: one path is on one ensemble |
| what one process takes of its own processor | fewer waiters in it: growth.md | nothing |

The number of ensembles is the greatest of the three quotients, rounded up. Then:

- The path decides on the ensemble, by a rule that all programs have in common, those in Java too: two that disagree both hold the lock. While the rule changes, who has
  the new one takes both locks, until nobody has the old one.
- Tokens of different ensembles do not compare. A resource that has seen the tokens of one takes those of another only after it was told to begin anew.
- What is guarded by ` + "`Lease.Check`" + ` has to be on the lock's own ensemble.
`

const capacityTail = `
## What was not measured

Ensembles of three, networks, and other disks. Elections, and what comes after one: every session comes back at once and names all of its watches. The end of many sessions at once:
a write for each, whatever it held, and a wake-up for each lock. Snapshots. TLS. A JVM with a large heap, and its pauses. More than a run's length: what is in the tables is of seconds.
`
