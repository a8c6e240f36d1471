package zkrecipes

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/core"
)

// A machine takes the steps of one state machine, one after the other, on a goroutine that it has only while there is something to do.
type machine struct {
	on *core.Engine
	of stepper

	mu      sync.Mutex
	running bool
	again   bool
	over    bool
}

// wake asks for a step; it never blocks.
func (m *machine) wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.again = true
	if !m.running && !m.over {
		m.running = m.on.Soon(m)
	}
}

// A stepper is what a machine takes the steps of.
type stepper interface {
	step() (over bool) // looks until there is nothing to do but wait, or for good
	ended()            // called behind the last step
}

// Run is the Engine's.
func (m *machine) Run() {
	for {
		m.mu.Lock()
		m.again = false
		m.mu.Unlock()
		over := m.of.step()
		m.mu.Lock()
		if over || !m.again {
			m.over, m.running = over, false
			m.mu.Unlock()
			if over {
				m.of.ended()
			}
			return
		}
		m.mu.Unlock()
	}
}

// A quit is a ctx that ends by its own end alone. One of package context is four objects, and a place in a table of the Engine's, for each waiter. What is done
// with it ends with the Engine as well: requests do, and Close ends all that wait.
type quit struct {
	done chan struct{}
	over atomic.Bool
}

func newQuit() quit { return quit{done: make(chan struct{})} }

func (q *quit) end() {
	if q.over.CompareAndSwap(false, true) {
		close(q.done)
	}
}

func (q *quit) Deadline() (time.Time, bool) { return time.Time{}, false }
func (q *quit) Done() <-chan struct{}       { return q.done }
func (q *quit) Value(any) any               { return nil }

func (q *quit) Err() error {
	select {
	case <-q.done:
		return context.Canceled
	default:
		return nil
	}
}
