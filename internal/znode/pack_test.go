package znode

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// allMarkers are those that anybody asks for.
var allMarkers = packedMarkers[:]

// A name comes out as it went in, whoever made it, and is small if a client did.
func TestPackedNamesComeBack(t *testing.T) {
	const dashed, plain = "0123abcd-4567-89ab-cdef-0123456789ab", "0123abcd456789abcdef0123456789ab"
	seqs := map[string]int32{"0000000007": 7, "2147483647": math.MaxInt32, "-2147483648": math.MinInt32, "-000000001": -1}
	var all []Name
	var packed []byte
	for _, marker := range allMarkers {
		for number := range seqs {
			for prefix, small := range map[string]bool{
				"": false, "_c_" + dashed + "-": true, "_c_" + plain + "-": true, "_c_" + strings.ToUpper(dashed) + "-": false, plain: true,
			} {
				n, ok := Parse(prefix+marker+number, allMarkers...)
				if !ok { // kazoo's have no protection, others' no bare digits
					continue
				}
				size := len(packed)
				packed = AppendPacked(packed, n)
				if small {
					require.Equal(t, PackedLen, len(packed)-size, n.Raw)
				}
				require.True(t, FirstPacked(string(packed[size:]), n))
				all = append(all, n)
			}
		}
	}
	require.Greater(t, len(all), 60)
	require.False(t, FirstPacked(string(packed), all[1]))
	for _, n := range all {
		var raw string
		raw, packed = Unpack(packed)
		require.Equal(t, n.Raw, raw)
	}
	require.Empty(t, packed)
}

func FuzzPacked(f *testing.F) {
	f.Add("_c_0123abcd-4567-89ab-cdef-0123456789ab-lock-0000000001")
	f.Add("_c_0123abcd456789abcdef0123456789ab-__WRIT__-000000001")
	f.Add("0123abcd456789abcdef0123456789ab__rlock__0000000001")
	f.Add("lock--2147483648")
	f.Fuzz(func(t *testing.T, raw string) {
		n, ok := Parse(raw, allMarkers...)
		if !ok {
			n = Name{Raw: raw}
		}
		back, rest := Unpack(AppendPacked(nil, n))
		require.Equal(t, raw, back)
		require.Empty(t, rest)
	})
}
