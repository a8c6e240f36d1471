package main

import (
	"math"
	"slices"
)

// A point is one of a curve.
type point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// median is the middle one, or the mean of the two in the middle, and NaN of none.
func median(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(xs))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// slope is that of the straight line with the least squares; NaN when the points have no two values of X.
func slope(points []point) float64 {
	var mx, my float64
	for _, p := range points {
		mx += p.X / float64(len(points))
		my += p.Y / float64(len(points))
	}
	var xy, xx float64
	for _, p := range points {
		xy += (p.X - mx) * (p.Y - my)
		xx += (p.X - mx) * (p.X - mx)
	}
	if xx == 0 {
		return math.NaN()
	}
	return xy / xx
}

// exponent is the power of X by which Y grows: 1 is linear, 2 is quadratic.
func exponent(points []point) float64 {
	logs := make([]point, len(points))
	for i, p := range points {
		logs[i] = point{math.Log(p.X), math.Log(p.Y)}
	}
	return slope(logs)
}

// jain is Jain's index of fairness: 1 when all got the same, 1/n when one got all.
func jain(shares []float64) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// spread is the greatest share over the smallest.
func spread(shares []float64) float64 { return slices.Max(shares) / slices.Min(shares) }
