package main

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sample is a report with some figures.
func sample() *report {
	size := quick
	size.waiters = []int{100, 1000}
	r := newReport(about{Date: "2001-02-03", Server: "ZooKeeper 0", Versions: []string{"v"}, Machine: "one", Rounds: 3}, quickLibraries(), size)
	for _, v := range []float64{2, 2.04, 50} { // one round met a hiccup
		r.add(freeLock, perTrips, raw, v)
		r.add(freeLock, perTrips, ours, v+0.2)
	}
	r.add(freeLock, perRequests, ours, 4.16)
	r.add(failedTry, perWrites, ours, 0)
	r.add(contended(2), fairness, ours, math.Inf(1)) // one session got nothing
	r.fail(drains, "zk.Lock", errors.New("not finished in 30s"))
	for _, n := range []float64{1000, 100} {
		for _, y := range []float64{1, 2, 40} {
			r.grow(curveBytes, ours, point{n, n * y})
		}
	}
	return r
}

func line(t *testing.T, table, what string) []string {
	t.Helper()
	for l := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(l, "|"), "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) > 1 && cells[1] == what {
			return cells[2:]
		}
	}
	require.Fail(t, "no such line", "%s in\n%s", what, table)
	return nil
}

func TestTable(t *testing.T) {
	var b strings.Builder
	require.NoError(t, sample().markdown(&b))
	table := b.String()
	require.Contains(t, table, "2001-02-03, ZooKeeper 0. v. one. Medians of 3 rounds.")
	require.Equal(t, []string{"", "", "4.16", "", "<= 4.1", "**no**"}, line(t, table, "requests per cycle"))
	require.Equal(t, []string{"2.04", "", "2.24", "1.1", "<= 2.3", "yes"}, line(t, table, "round trips per cycle"))
	require.Equal(t, []string{"", "", "0", "", "<= 0", "yes"}, line(t, table, "writes per call"))
	require.Equal(t, []string{"", "failed", "", "", "<= 1.1", "**no**"}, line(t, table, "N=1000: requests of a waiter"), "what is missing is not met")
	require.Equal(t, []string{"", "failed", "", "", "", ""}, line(t, table, "N=100: requests of a waiter"))
	require.Equal(t, []string{"", "", "∞", "", "", ""}, line(t, table, fairness))
	require.Contains(t, table, "drain of one session's waiters of zk.Lock failed: not finished in 30s")
}

func TestMissed(t *testing.T) {
	missed := sample().missed()
	require.Contains(t, missed, "free lock, requests: 4.16, the target is 4.1")
	require.Contains(t, missed, "drain of one session's waiters, N=1000: requests of a waiter: no figure, the target is 1.1", "what is missing is not met")
	for _, met := range []string{"free lock, round trips", "failed TryLock, writes"} {
		require.NotContains(t, strings.Join(missed, "\n"), met+":")
	}
}

func TestJSON(t *testing.T) {
	var b strings.Builder
	require.NoError(t, sample().json(&b))
	var got struct {
		About about
		Lines []struct {
			Cell, Measure string
			Values        map[string]struct {
				Median  *float64
				Samples []float64
			}
			ToRaw *float64
			Met   *bool
		}
		Curves   map[string][]series
		Failures map[string]string
	}
	require.NoError(t, json.Unmarshal([]byte(b.String()), &got))
	require.Equal(t, "ZooKeeper 0", got.About.Server)
	require.Equal(t, perTrips, got.Lines[2].Measure)
	require.Equal(t, []float64{2, 2.04, 50}, got.Lines[2].Values[raw].Samples)
	require.Equal(t, 2.04, *got.Lines[2].Values[raw].Median)
	require.InDelta(t, 1.098, *got.Lines[2].ToRaw, 0.001)
	require.True(t, *got.Lines[2].Met)
	require.False(t, *got.Lines[0].Met)
	require.Equal(t, []series{{ours, []point{{100, 200}, {1000, 2000}}}}, got.Curves[curveBytes], "medians, by N")
	require.Len(t, got.Failures, 1)
	fair := got.Lines[slices.IndexFunc(rows(quick), func(r row) bool { return r.what == fairness })]
	require.Equal(t, fairness, fair.Measure)
	require.Nil(t, fair.Values[ours].Median)
}

func TestFigure(t *testing.T) {
	for want, v := range map[string]float64{"0": 0, "0.26": 0.2551, "1": 1, "2.1": 2.1, "12.3": 12.34, "15": 15, "100": 100, "1234": 1234.4, "-1.5": -1.5, "": math.NaN(), "∞": math.Inf(1)} {
		require.Equal(t, want, figure(v))
	}
}
