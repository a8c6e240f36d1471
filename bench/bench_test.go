package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
		if row.what == sameAllocations {
			want = []string{ours}
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
