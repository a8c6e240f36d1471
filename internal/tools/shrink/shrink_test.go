package main

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// Exactly the strikes that are needed are left, wherever they stand, and it takes few tries to find them.
func TestShrinkLeavesWhatIsNeeded(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		all := upTo(1 + rnd.IntN(300))
		needed := rnd.Perm(len(all))[:1+rnd.IntN(min(4, len(all)))]
		slices.Sort(needed)
		tries := 0
		got := shrink(all, func(some []int) bool {
			tries++
			require.True(t, slices.IsSorted(some))
			return !slices.ContainsFunc(needed, func(n int) bool { return !slices.Contains(some, n) })
		})
		require.Equal(t, needed, got, "seed %d", seed)
		require.Less(t, tries, 150, "seed %d", seed)
	}
}

// Either of two is enough: one is left.
func TestShrinkWhereEitherWillDo(t *testing.T) {
	got := shrink(upTo(200), func(some []int) bool { return slices.Contains(some, 20) || slices.Contains(some, 180) })
	require.Len(t, got, 1)
}

// It fails less and less often the shorter it gets: what is left did fail.
func TestShrinkOfWhatFailsByChance(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var failed [][]int
	got := shrink(upTo(200), func(some []int) bool {
		if !slices.Contains(some, 77) || rnd.IntN(200) > len(some)+20 {
			return false
		}
		failed = append(failed, some)
		return true
	})
	require.Contains(t, failed, got)
}

func TestListOfStrikes(t *testing.T) {
	require.Equal(t, "0-2,5,7-8", list([]int{0, 1, 2, 5, 7, 8}))
	require.Equal(t, "4", list([]int{4}))
}

func TestStrikesThatARunTellsOf(t *testing.T) {
	const out = "--- FAIL: TestVirtualCampaign/7 (0.2s)\n    faults_test.go:120: strikes: 3 long partition at 48s, 12 expire at 2m36s, 13 lost reply at 2m48s\nFAIL\n"
	require.Equal(t, []int{3, 12, 13}, struck(out))
	require.Nil(t, struck("panic: deadlock"))
}
