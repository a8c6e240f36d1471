package znode_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/znode"
)

func TestSortBySeq(t *testing.T) {
	want := []string{
		"_c_ffffffff-ffff-4fff-bfff-ffffffffffff-lock--2147483648",
		"_c_00000000-0000-4000-8000-000000000000-lock--000000003",
		"ffffffffffffffffffffffffffffffff__lock__0000000000",
		"lock-0000000001",
		// a reader that came out of the writer with the same number
		"_c_00000000-0000-4000-8000-000000000000-__WRIT__0000000002",
		"_c_ffffffff-ffff-4fff-bfff-ffffffffffff-__READ__0000000002",
		"_c_ffffffffffffffffffffffffffffffff-lock-0000000009",
		"_c_00000000-0000-4000-8000-000000000000-lock-0000000010",
		"00000000000000000000000000000000__rlock__0000000011",
		"_c_00000000-0000-4000-8000-000000000000-__READ__2147483647",
		"_c_00000000-0000-4000-8000-000000000001-__READ__2147483647",
	}
	names := make([]znode.Name, len(want))
	for i, raw := range want {
		var ok bool
		names[i], ok = znode.Parse(raw, markers...)
		require.True(t, ok, raw)
	}
	for range 100 {
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		znode.SortBySeq(names)
		got := make([]string, len(names))
		for i, n := range names {
			got[i] = n.Raw
		}
		require.Equal(t, want, got)
	}
	znode.SortBySeq(nil)
}

// Numbers decide, whatever the random tokens in front of them are, also where
// their difference does not fit an int32.
func TestSortBySeqIgnoresTokens(t *testing.T) {
	for range 100 {
		seqs := []int32{math.MinInt32, -1, 0, 1, math.MaxInt32}
		for range 50 {
			seqs = append(seqs, int32(rand.Uint32()))
		}
		var names []znode.Name
		for _, seq := range seqs {
			raw := znode.Protected(znode.NewUUID(), fmt.Sprintf("%s%010d", znode.LockName, seq))
			name, ok := znode.Parse(raw, znode.LockName)
			require.True(t, ok)
			names = append(names, name)
		}
		znode.SortBySeq(names)
		slices.Sort(seqs)
		for i, name := range names {
			assert.Equal(t, seqs[i], name.Seq)
		}
	}
}
