package znode

import (
	"cmp"
	"slices"
	"strings"
)

// SortBySeq sorts names into queue order: by number, never by the whole name, in
// which the random UUID comes first. Equal numbers, which a reader that came out
// of a writer has in common with it, stand in the order of their raw names, so
// that every process sees the same queue.
//
// If a number is [Exhausted] the result is not the order of arrival.
func SortBySeq(names []Name) {
	slices.SortFunc(names, func(a, b Name) int {
		if c := cmp.Compare(a.Seq, b.Seq); c != 0 {
			return c
		}
		return strings.Compare(a.Raw, b.Raw) // no two are equal
	})
}
