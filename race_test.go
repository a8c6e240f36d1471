//go:build race

package zkrecipes

const raceEnabled = true
