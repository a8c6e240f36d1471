package failover

import (
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

// A worklog is what the instances did.
type worklog struct {
	mu      sync.Mutex
	entries []entry
}

type entry struct {
	name  string
	token zkrecipes.Token
	at    time.Time
}

func (w *worklog) add(e entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries = append(w.entries, e)
}

// who worked in a time.
func (w *worklog) who(from, to time.Time) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for _, e := range w.entries {
		if !e.at.Before(from) && e.at.Before(to) && !slices.Contains(names, e.name) {
			names = append(names, e.name)
		}
	}
	return names
}

// times returns when an instance worked.
func (w *worklog) times(name string) []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	times := []time.Time{{}}
	for _, e := range w.entries {
		if e.name == name {
			times = append(times, e.at)
		}
	}
	return times
}

func (w *worklog) firstOf(name string) time.Time { return w.times(name)[min(1, len(w.times(name))-1)] }
func (w *worklog) last(name string) time.Time    { return w.times(name)[len(w.times(name))-1] }

func (w *worklog) tokensGrow() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.IsSortedFunc(w.entries, func(a, b entry) int { return int(a.token - b.token) })
}
