package main

import "slices"

// shrink returns a part of strikes with which it still fails, and without any one of which it does not, as far as fails can tell. It leaves out ever smaller
// stretches, the last ones first: what comes behind the strike that did it is not needed at all.
func shrink(strikes []int, fails func([]int) bool) []int {
	for size := len(strikes) / 2; size >= 1; {
		shorter := false
		for end := len(strikes); end > 0 && len(strikes) > 1; {
			begin := max(end-size, 0)
			rest := slices.Delete(slices.Clone(strikes), begin, end)
			if len(rest) > 0 && fails(rest) {
				strikes, shorter = rest, true
			}
			end = begin
		}
		if size > 1 {
			size = (size + 1) / 2
		} else if !shorter {
			break
		}
	}
	return strikes
}
