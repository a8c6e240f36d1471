package zkrecipes

import (
	"context"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/core"
)

// A machine takes the steps of one state machine, one after the other, on a goroutine that it has only while there is something to do.
type machine struct {
	mu      sync.Mutex
	running bool
	again   bool
	over    bool
}

// wake asks for a step; it never blocks.
func (m *machine) wake(e *core.Engine, of stepper) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.again = true
	if !m.running && !m.over {
		m.running = e.Soon(of)
	}
}

// A stepper is what a machine takes the steps of; its Run is the machine's.
type stepper interface {
	core.Task
	step() (over bool) // looks until there is nothing to do but wait, or for good
	idle()             // called behind one after which it waits; it must not block
	ended()            // called behind the last one
}

// wakeHere asks for a step, and takes it before it returns if none is running: for who has a goroutine to spare, and holds no lock.
func (m *machine) wakeHere(of stepper) {
	m.mu.Lock()
	m.again = true
	here := !m.running && !m.over
	m.running = m.running || here
	m.mu.Unlock()
	if here {
		m.run(of)
	}
}

func (m *machine) run(of stepper) {
	for {
		m.mu.Lock()
		m.again = false
		m.mu.Unlock()
		over := of.step()
		m.mu.Lock()
		if over || !m.again {
			m.over, m.running = over, false
			if !over {
				of.idle()
			}
			m.mu.Unlock()
			if over {
				of.ended()
			}
			return
		}
		m.mu.Unlock()
	}
}

// A quit is a ctx that ends by its own end alone. One of package context is four objects, and a place in a table of the Engine's, for each waiter. What is done
// with it ends with the Engine as well: requests do, and Close ends all that wait. Its channel is there while something is done; an idle waiter has none.
type quit struct{ over lateChan }

func (q *quit) end()  { q.over.close() }
func (q *quit) rest() { q.over.drop() }

func (q *quit) Deadline() (time.Time, bool) { return time.Time{}, false }
func (q *quit) Value(any) any               { return nil }
func (q *quit) Done() <-chan struct{}       { return q.over.channel() }

func (q *quit) Err() error {
	if q.over.isClosed() {
		return context.Canceled
	}
	return nil
}
