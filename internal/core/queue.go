package core

import "sync"

// A Serial runs functions one after another on a goroutine of its own. Its queue has no bound, so that adding to it never blocks: the client calls back
// with locks held.
type Serial struct {
	mu    sync.Mutex
	queue []func()
	wake  chan struct{}
	done  chan struct{}
	ended bool
}

// NewSerial starts a Serial.
func NewSerial() *Serial {
	s := &Serial{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go s.run()
	return s
}

// Add queues fn; false after Stop.
func (s *Serial) Add(fn func()) bool {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return false
	}
	s.queue = append(s.queue, fn)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return true
}

func (s *Serial) run() {
	defer close(s.done)
	for {
		s.mu.Lock()
		batch, ended := s.queue, s.ended
		s.queue = nil
		s.mu.Unlock()
		for _, fn := range batch {
			fn()
		}
		if len(batch) > 0 {
			continue
		}
		if ended {
			return
		}
		<-s.wake
	}
}

// Stop lets what is queued run and returns; Done is closed when it has.
func (s *Serial) Stop() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Done is closed when nothing runs any more after Stop.
func (s *Serial) Done() <-chan struct{} { return s.done }
