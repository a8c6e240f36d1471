package main

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// known is easy to reckon with by hand.
var known = measured{
	writes: 20000, cycles: 4000, newWrites: 3, cpuCycle: 250, cpuPing: 60, cpuSync: 70, znode: 500, watch: 300, path: 1250, session: 3000, again: 180,
	heapHere: 2.5e6, leaseHere: 2000, waitHere: 8000, queueing: 1.5, granting: 24, longQueue: 1000,
}

func TestCapacity(t *testing.T) {
	a := assumptions{kept: 0.5, used: 0.4, heap: 100e6, beats: 0.1, timeout: 12, ownNode: 1, instance: 3}
	require.InDelta(t, 4000, carries(known, a), 1e-6)
	require.InDelta(t, 2000, locksPerSecond(known, a), 1e-6)
	require.InDelta(t, 5, writesOfNew(known, a), 1e-6)
	require.InDelta(t, 800, newLocksPerSecond(known, a), 1e-6)
	// 1200 sessions are 100 a second of each beat: 3*60 and 6*70 µs.
	require.InDelta(t, 100*600e-6, beats(known, a, 1200), 1e-9)
	require.InDelta(t, 2000, mostSessions(known, a), 1e-6)
	require.InDelta(t, 1100, waiterBytesAtServer(known), 1e-6)

	f := fleet{services: 100, locks: 10, every: 0.25}
	require.Equal(t, []float64{1000, 300, 2000}, []float64{f.paths(), f.sessions(a), f.waiters(a)})
	require.InDelta(t, 8000, f.writes(), 1e-6)
	require.InDelta(t, 300*3000+1000*1250+2000*1100, f.memory(known, a), 1e-6)
	n, by := f.ensembles(known, a)
	require.Equal(t, 2, n)
	require.InDeltaSlice(t, []float64{2, 0.15, 4.35e6 / 100e6}, by[:], 1e-9)
	f.every = 0.2
	n, _ = f.ensembles(known, a)
	require.Equal(t, 3, n, "it is rounded up")
	f.every = 1000
	n, by = f.ensembles(known, a)
	require.Equal(t, 1, n)
	require.Less(t, by[0], 0.01)
}

// grownSample has every figure that the projection takes.
func grownSample() *growthReport {
	size := growthSizes{waiters: []int{10, 1000, 5000}, spread: 10, resting: []int{100}, paths: []int{10, 2000}, sessions: []int{10, 1000}, flights: []int{1, 64}, sample: 4000, watched: 1, timeout: 1}
	r := newGrowthReport(about{Date: "2001-02-03", Server: "ZooKeeper 0", Versions: []string{"v"}, Machine: "one", Rounds: 1}, size)
	add := func(table, group string, n int, what string, values ...float64) {
		for _, v := range values {
			r.add(growthCell{table: table, group: group, n: n}, what, v)
		}
	}
	add(tableLoad, groupRaw, 1, writesPerSecond, 30000)
	add(tableLoad, groupRaw, 64, writesPerSecond, 20000)
	add(tableLoad, groupFree, 64, cyclesPerSecond, 4000)
	add(tableLoad, groupFree, 64, cpuOfCycle, 250)
	add(tableServer, "", 4000, znodeBytes, 500)
	add(tableServer, "", 4000, watchBytes, 300)
	for n, v := range map[int]float64{10: 0.5, 1000: 1.5} {
		add(tableWaiters, groupSpread(10), n, toQueue, v, v, 100*v)
		add(tableWaiters, groupSpread(10), n, heapBytes, 5000*v)
		add(tableWaiters, groupSpread(10), n, grantKB, 16*v)
		add(tableWaiters, groupSpread(10), n, stackBytes, 1000)
	}
	add(tableWaiters, groupResting, 100, restByHour, 180)
	add(tablePaths, groupNew, 2000, newPathWrites, 3)
	add(tablePaths, groupNew, 2000, serverBytes, 1250)
	add(tablePaths, groupNew, 2000, heapBytes, 2000)
	add(tableSessions, groupOpen, 1000, heapBytes, 2.5e6)
	add(tableSessions, groupIdle, 1000, serverShare, 3)
	add(tableSessions, groupIdle, 1000, pings, 500)
	add(tableSessions, groupHolding, 1000, serverShare, 10)
	add(tableSessions, groupHolding, 1000, syncs, 1000)
	add(tableSessions, groupOpen, 1000, serverBytes, 3000) // the first of its group, and yet not the last line
	return r
}

func TestWhatTheProjectionTakes(t *testing.T) {
	r := grownSample()
	m, err := measuredBy(r)
	require.NoError(t, err)
	want := known
	want.writes, want.waitHere = 30000, 8500
	require.Equal(t, want, m, "the most of load, of the last N that there is")

	for k := range r.samples {
		less := grownSample()
		for other := range less.samples {
			if other.table == k.table && other.group == k.group && other.what == k.what {
				delete(less.samples, other)
			}
		}
		_, err := measuredBy(less)
		require.Error(t, err, "without %v", k)
		_, err = growthFiles(less)
		require.Error(t, err, "and no page has a hole")
	}
}

func TestCapacityPage(t *testing.T) {
	page := string(capacityPage(about{Date: "2001-02-03", Server: "ZooKeeper 0", Versions: []string{"at 1234567"}, Machine: "one", Load: "1.5"}, known, assumed))
	require.Contains(t, page, "2001-02-03, ZooKeeper 0, one, load average 1.5 at the start, at 1234567.")
	for _, line := range []string{
		"| locks a second, on paths that are there | k · u · W / 2 | 5,000 / 2 | **2,500** |",
		"| locks a second, each on a new path | k · u · W / (w + 2) | 5,000 / (3 + 2) | **1,000** |",
		"| of these, syncs, which all go to the leader | N · 6 / T | 1,000 · 6 / 10 s | **600 a second** |",
		"| what these syncs take of one processor | N · 6 · s / T | 1,000 · 6 · 70 µs / 10 s | **4.2 %** |",
		"| what the pings take of it | N · 3 · p / T | 1,000 · 3 · 60 µs / 10 s | **1.8 %** |",
		"| bytes of a waiter at each server | Z + 2 · V | 500 + 2 · 300 | **1100** |",
		"| writes a second | services · locks / every · 2 | 300 · 20 / 60 · 2 | **200** | 4 % |",
		"| writes a second | services · locks / every · 2 | 300 · 20 / 1 · 2 | **12,000** | 240 % |",
		"Watches: 6,000 · 1 + 12,000 · 2 = 30,000. Syncs: 900 · 6 / 10 s = 540 a second.",
		"**1** ensemble carries it.", "**3** ensembles carry it",
	} {
		require.Contains(t, page, line)
	}
	require.NotContains(t, page, "%!")
	require.NotContains(t, page, "NaN")
}

func TestGrowthPage(t *testing.T) {
	r := grownSample()
	r.note(growthCell{tableWaiters, groupSpread(10), 5000, nil}, "not all waited")
	r.fail(growthCell{tableServer, "", 4000, nil}, errors.New("broken"))
	all, err := growthFiles(r)
	require.NoError(t, err)
	require.Len(t, all, 2)
	page := string(all["growth.md"])
	for _, line := range []string{
		"## Waiters of one lock", "| | waiters | 10 | 100 | 1,000 | 5,000 |\n|---|---|---:|---:|---:|---:|",
		"| over 10 sessions | ms to queue | 0.5 |  | 1.5 |  |\n|  | bytes of heap here | 2500 |  | 7500 |  |",
		"| at rest | requests of one, by the hour |  | 180 |  |  |",
		"| opened | bytes of heap here | 2500000 |\n|  | bytes of heap at the server | 3000 |\n| idle |",
		"- waiters of one lock, over 10 sessions, 5000: not all waited", "- memory of a server, 4000: broken",
	} {
		require.Contains(t, page, line)
	}
	require.NotContains(t, page, "%!")

	var b strings.Builder
	require.NoError(t, r.json(&b))
	require.Contains(t, b.String(), `"measure": "ms to queue"`)
	require.Contains(t, b.String(), `"failures": [`)
}

func TestGrowthReportTakesNoHoles(t *testing.T) {
	r := newGrowthReport(about{}, growthSizes{})
	r.add(growthCell{table: tableServer, n: 1}, znodeBytes, math.NaN())
	require.Empty(t, r.lines)
	require.Empty(t, r.ns(tableServer))
	require.True(t, math.IsNaN(r.value(tableServer, "", znodeBytes, 1)))
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 123456: "123,456", 1234567: "1,234,567"} {
		require.Equal(t, want, thousands(n))
	}
}
