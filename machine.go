package zkrecipes

import "sync"

// A machine takes the steps of one state machine, one after the other, on a goroutine that lives only while there is something to do.
type machine struct {
	start func(func()) bool  // runs the goroutine; false when no more may be started
	step  func() (over bool) // looks until there is nothing to do but wait, or for good
	ended func()             // called behind the last step

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
		m.running = m.start(m.run)
	}
}

// wakeHere asks for a step, and takes it before it returns if none is running: for who has a goroutine to spare, and holds no lock.
func (m *machine) wakeHere() {
	m.mu.Lock()
	m.again = true
	here := !m.running && !m.over
	m.running = m.running || here
	m.mu.Unlock()
	if here {
		m.run()
	}
}

func (m *machine) run() {
	for {
		m.mu.Lock()
		m.again = false
		m.mu.Unlock()
		over := m.step()
		m.mu.Lock()
		if over || !m.again {
			m.over, m.running = over, false
			m.mu.Unlock()
			if over {
				m.ended()
			}
			return
		}
		m.mu.Unlock()
	}
}
