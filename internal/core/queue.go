package core

import "sync"

// A Serial runs functions one after another on a goroutine of its own. Its queue has no bound, so that adding to it never blocks: the client calls back
// with locks held.
type Serial struct {
	mu    sync.Mutex
	queue []func()
	spare []func() // of the last batch
	wake  chan struct{}
	done  chan struct{}
	ended bool
}

// keptQueue is the longest queue that is kept for what comes next.
const keptQueue = 16

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
		s.queue, s.spare = s.spare, nil
		s.mu.Unlock()
		for i, fn := range batch {
			fn()
			batch[i] = nil
		}
		if cap(batch) <= keptQueue {
			s.mu.Lock()
			s.spare = batch[:0]
			s.mu.Unlock()
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
