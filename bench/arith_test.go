package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		xs   []float64
		want float64
	}{
		{[]float64{7}, 7}, {[]float64{9, 1}, 5}, {[]float64{3, 100, 1}, 3}, {[]float64{4, 1, 3, 2}, 2.5},
	} {
		given := append([]float64(nil), tc.xs...)
		require.Equal(t, tc.want, median(given), "%v", tc.xs)
		require.Equal(t, tc.xs, given, "it is the caller's")
	}
	require.True(t, math.IsNaN(median(nil)))
}

func TestSlope(t *testing.T) {
	// 3 ms beside 2.5 round trips.
	trips := []point{{0.02, 0.003 + 2.5*0.02}, {0.08, 0.003 + 2.5*0.08}}
	require.InDelta(t, 2.5, slope(trips), 1e-12)
	require.InDelta(t, 0, slope([]point{{1, 4}, {2, 4}, {9, 4}}), 1e-12)
	require.InDelta(t, -0.5, slope([]point{{2, 1}, {0, 2}}), 1e-12)
	// By hand: the means are 2 and 3, the sums 6 and 2.
	require.InDelta(t, 3, slope([]point{{1, 1}, {2, 1}, {3, 7}}), 1e-12)
	require.True(t, math.IsNaN(slope([]point{{1, 1}, {1, 2}})))
	require.True(t, math.IsNaN(slope(nil)))
}

func TestExponent(t *testing.T) {
	for _, e := range []float64{0, 1, 1.95, 2} {
		var points []point
		for _, n := range []float64{100, 500, 1000} {
			points = append(points, point{n, 0.03 * math.Pow(n, e)})
		}
		require.InDelta(t, e, exponent(points), 1e-9)
	}
	require.True(t, math.IsNaN(exponent([]point{{100, 3}})))
}

func TestFairness(t *testing.T) {
	for _, tc := range []struct {
		shares       []float64
		jain, spread float64
	}{
		{[]float64{50, 50, 50}, 1, 1},
		{[]float64{100, 0, 0, 0}, 0.25, math.Inf(1)},
		{[]float64{2, 4}, 0.9, 2},
		{[]float64{8}, 1, 1},
	} {
		require.InDelta(t, tc.jain, jain(tc.shares), 1e-12, "%v", tc.shares)
		require.Equal(t, tc.spread, spread(tc.shares), "%v", tc.shares)
	}
}
