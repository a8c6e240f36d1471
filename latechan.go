package zkrecipes

import "sync"

// A lateChan is a channel that is closed once, and made for who waits for that: most are never waited for.
type lateChan struct {
	mu sync.Mutex
	c  chan struct{} // isOver once it is closed; nil for none yet
}

// isOver is what all of them are in the end.
var isOver = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// close reports whether it is the first.
func (l *lateChan) close() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c == isOver {
		return false
	}
	if l.c != nil {
		close(l.c)
	}
	l.c = isOver
	return true
}

func (l *lateChan) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.c == isOver
}

func (l *lateChan) channel() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c == nil {
		l.c = make(chan struct{})
	}
	return l.c
}

// drop forgets the channel, for which nobody waits any more, unless it is closed.
func (l *lateChan) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c != isOver {
		l.c = nil
	}
}
