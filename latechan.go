package zkrecipes

import "sync"

// A lateChan is a channel that is closed once, and made for who waits for that: most are never waited for.
type lateChan struct {
	mu     sync.Mutex
	c      chan struct{}
	closed bool
}

// close reports whether it is the first.
func (l *lateChan) close() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.closed = true
	if l.c != nil {
		close(l.c)
	}
	return true
}

func (l *lateChan) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func (l *lateChan) channel() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c == nil {
		l.c = make(chan struct{})
		if l.closed {
			close(l.c)
		}
	}
	return l.c
}

// drop forgets the channel, for which nobody waits any more, unless it is closed.
func (l *lateChan) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.c = nil
	}
}
