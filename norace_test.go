//go:build !race

package zkrecipes

const raceEnabled = false
