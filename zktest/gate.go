package zktest

import "sync"

// Gate holds frames back until a test opens it; see [HoldReply] and
// [HoldRequest]. It opens once and stays open. A Gate that is never opened does
// not keep a connection or a proxy from closing.
type Gate struct {
	open, reached         chan struct{}
	openOnce, reachedOnce sync.Once
}

// NewGate returns a closed gate.
func NewGate() *Gate {
	return &Gate{open: make(chan struct{}), reached: make(chan struct{})}
}

// Open lets all frames held go on. Further calls do nothing.
func (g *Gate) Open() { g.openOnce.Do(func() { close(g.open) }) }

// Reached is closed when the first frame is being held, or passes an open gate.
func (g *Gate) Reached() <-chan struct{} { return g.reached }

// pass waits for the gate; false when done comes first.
func (g *Gate) pass(done <-chan struct{}) bool {
	g.reachedOnce.Do(func() { close(g.reached) })
	select {
	case <-g.open:
		return true
	case <-done:
		return false
	}
}
