package main

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// tiny shows that every cell works, and nothing about speed.
var tiny = sizes{
	rounds: 1, cycles: 10, near: time.Millisecond, far: 10 * time.Millisecond, stretched: 4, sessions: []int{2}, grants: 10, heats: 1, heatGrants: 4, waiters: []int{5, 20},
	readers: 5, tries: 5, reentries: 100, held: 10, killed: 1, timeout: 3 * time.Second,
}

func TestEveryCellHasItsFigures(t *testing.T) {
	rep, err := measure(t.Context(), zktest.Shared(t), quickLibraries(), tiny, nil, t.Output())
	require.NoError(t, err)
	require.Empty(t, rep.failures)
	only := map[string][]string{
		freeRead: {ours}, readersBehind: {ours}, failedTry: {ours}, reentry: {ours}, freeLock: {raw, "zk.Lock", ours},
	}
	for _, row := range rep.rows {
		want := []string{"zk.Lock", ours}
		if libraries, ok := only[row.cell]; ok {
			want = libraries
		}
		switch {
		case row.what == sameAllocations:
			want = []string{ours}
		case row.cell == drains && row.what != exponentBytes && row.what != exponentTime:
			want = append(want, raw)
		}
		for _, library := range rep.libraries {
			n := len(rep.samples[sampled{row.cell, row.what, library}])
			require.Equal(t, slices.Contains(want, library), n > 0, "%s, %s of %s: %d samples", row.cell, row.what, library, n)
		}
	}

	// What does not depend on the machine.
	value := func(cell, what, library string) float64 {
		i := slices.IndexFunc(rep.rows, func(r row) bool { return r.cell == cell && r.what == what })
		return rep.value(rep.rows[i], library)
	}
	require.Equal(t, 2.0, value(freeLock, perRequests, raw))
	require.Equal(t, 3.0, value(freeLock, perRequests, "zk.Lock"))
	requests := value(freeLock, perRequests, ours)
	require.True(t, requests >= 3 && requests <= 5, "%v: the read that sets the own watch may come too late, a list too early", requests)
	require.Equal(t, 1.0, value(failedTry, perRequests, ours))
	require.Zero(t, value(failedTry, perWrites, ours))
	require.Less(t, value(reentry, perRequests, ours), 0.05, "no more than a heartbeat")
	require.GreaterOrEqual(t, value(drains, drainRequests(20), "zk.Lock"), 2.0)
	require.InDelta(t, 1, value(failover, failoverSlowest, ours), 0.8)

	all, err := files(rep, "speed", "bench")
	require.NoError(t, err)
	require.Len(t, all, 3)
	for _, name := range []string{"speed-drain-bytes.svg", "speed-drain-time.svg"} {
		require.Contains(t, string(all["speed.md"]), "("+name+")")
		curves, _ := drawn(t, all[name])
		require.Len(t, curves, 2, name)
	}
	require.Contains(t, string(all["speed.md"]), "5 readers")
	require.NotContains(t, string(all["speed.md"]), "%!")
}

// tinyGrowth does the same for -growth.
var tinyGrowth = growthSizes{
	waiters: []int{6}, spread: 2, paths: []int{5}, sessions: []int{3}, flights: []int{2}, sample: 20, timeout: 3 * time.Second,
	watched: 1100 * time.Millisecond, resting: []int{1, 4}, rest: 200 * time.Millisecond, load: 100 * time.Millisecond, join: 20 * time.Second, drain: 20 * time.Second,
	cell: cellLimit, limit: 2 * time.Minute, repeats: 1,
}

func TestGrowth(t *testing.T) {
	rep, err := measureGrowth(t.Context(), zktest.Shared(t), tinyGrowth, t.Output())
	require.NoError(t, err)
	require.Empty(t, rep.failures)
	require.Empty(t, rep.notes)
	value := rep.value
	for _, group := range []string{groupOneSession, groupSpread(2)} {
		for _, n := range tinyGrowth.waiters {
			require.InDelta(t, 1, value(tableWaiters, group, "goroutines here, the caller's among them", n), 0.5)
			require.True(t, value(tableWaiters, group, "requests to queue", n) >= 2, "%s, %d", group, n)
			require.True(t, value(tableWaiters, group, "requests to be granted and release", n) >= 1, "%s, %d", group, n)
			require.Positive(t, value(tableWaiters, group, toQueue, n))
		}
	}
	for _, n := range tinyGrowth.paths {
		require.True(t, value(tablePaths, groupNew, newPathWrites, n) >= 3, "a create in vain, the container, the create")
		require.InDelta(t, 4, value(tablePaths, groupAgain, "requests of a cycle", n), 1)
		require.Positive(t, value(tablePaths, groupHeld, syncs, n))
	}
	for _, n := range tinyGrowth.sessions {
		require.Zero(t, value(tableSessions, groupIdle, syncs, n))
		require.InDelta(t, 2*n, value(tableSessions, groupHolding, syncs, n), float64(n), "every T/6, more or less one")
		require.Greater(t, value(tableSessions, groupOpen, heapBytes, n), 0.0)
	}
	for _, n := range tinyGrowth.flights {
		for _, group := range []string{groupRaw, groupFree} {
			require.Equal(t, 2*value(tableLoad, group, cyclesPerSecond, n), value(tableLoad, group, writesPerSecond, n))
		}
	}
	_, err = growthFiles(rep)
	require.ErrorContains(t, err, "no figure for", "so few do not stand out at the server")
	if testrun.Real() {
		require.Equal(t, 1.0, value(tablePaths, groupNew, serverWatches, 5))
		require.InDelta(t, 2, value(tableWaiters, groupSpread(2), serverWatches, 6), 1)
		require.True(t, value(tableLoad, groupFree, cpuOfCycle, 2) >= 0)
	}
}

// Who does not come to wait in time, or is not granted in time, is said and not waited for.
func TestGrowthDoesNotWaitForAll(t *testing.T) {
	size := tinyGrowth
	size.only, size.waiters, size.join = tableWaiters+", "+groupOneSession, []int{50}, time.Millisecond
	rep, err := measureGrowth(t.Context(), zktest.Shared(t), size, t.Output())
	require.NoError(t, err)
	require.Empty(t, rep.failures)
	require.NotEmpty(t, rep.notes)
	require.Contains(t, rep.notes[0], "not all waited after 1ms")
	require.Empty(t, rep.lines)

	size.join, size.drain = tinyGrowth.join, 0
	rep, err = measureGrowth(t.Context(), zktest.Shared(t), size, t.Output())
	require.NoError(t, err)
	require.Empty(t, rep.failures)
	require.NotEmpty(t, rep.notes)
	require.Contains(t, rep.notes[0], "were granted within 0s")
	for _, samples := range rep.samples {
		require.False(t, math.IsInf(samples[0], 0), "none were granted, and nothing is by their number")
	}

	size.limit = 0
	rep, err = measureGrowth(t.Context(), zktest.Shared(t), size, t.Output())
	require.NoError(t, err)
	require.Len(t, rep.failures, len((&growth{size: size}).cells()))
}
