package zkrecipes

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"
)

// A book knows who says to hold a lease, and has a number that is protected by tokens: a read is refused when a later writer has been there, a write
// when anybody later has. Readers do not shut each other out.
type book struct {
	t     testing.TB
	begin time.Time

	mu      sync.Mutex
	inside  map[*Lease]*actor
	ended   map[int64]bool // ZooKeeper sessions that were ended from outside
	anybody Token          // greatest token seen
	who     string         // whose that was
	writer  Token          // and of a writer
	value   int
	taken   int // writes
	refused int
	wrong   []string
}

func newBook(t testing.TB) *book {
	return &book{t: t, begin: time.Now(), inside: make(map[*Lease]*actor), ended: make(map[int64]bool)}
}

// ends notes that a session is about to be ended from outside.
func (b *book) ends(session int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended[session] = true
}

func (b *book) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.wrong) < 20 {
		b.wrong = append(b.wrong, fmt.Sprintf("at %v: ", time.Since(b.begin).Round(time.Millisecond))+fmt.Sprintf(format, args...))
	}
}

// enter notes that a lease was granted, and returns what is to be called before its release.
func (b *book) enter(a *actor, l *Lease) (leave func()) {
	b.mu.Lock()
	b.inside[l] = a
	b.mu.Unlock()
	b.alone(a, l)
	return func() {
		b.alone(a, l)
		b.mu.Lock()
		delete(b.inside, l)
		b.mu.Unlock()
	}
}

// alone checks a lease against all others inside that exclude it. Each was granted before it came in, and a lease that says now that it is held was
// held ever since: so if one says so and then the other, both held when the first was asked.
func (b *book) alone(a *actor, l *Lease) {
	b.mu.Lock()
	others := maps.Clone(b.inside)
	b.mu.Unlock()
	for o, who := range others {
		same := o.hold.s == l.hold.s && o.Owner() == l.Owner()
		if o == l || same || o.hold.key.shared && l.hold.key.shared || o.Err() != nil || l.Err() != nil {
			continue
		}
		at := time.Now()
		if !b.told(o, l) {
			b.note("%s (token %d) and %s (token %d) both held, %v ago", who.name, o.Token(), a.name, l.Token(), time.Since(at))
		}
	}
}

// told waits for the loss of one of the leases whose sessions were ended from outside; false if there is none, or if it is not told.
func (b *book) told(leases ...*Lease) bool {
	for _, l := range leases {
		b.mu.Lock()
		ended := b.ended[l.hold.stake.session]
		b.mu.Unlock()
		if !ended {
			continue
		}
		select {
		case <-l.Done():
			return true
		case <-time.After(5 * time.Second):
		}
	}
	return false
}

// read is an access under a lease; false if the token is old, or the lease lost.
func (b *book) read(a *actor, l *Lease) (int, bool) {
	if l.Err() != nil {
		return 0, false
	}
	value, later := b.access(a, l, nil)
	b.after(a, l, later)
	return value, later == ""
}

func (b *book) write(a *actor, l *Lease, value int) {
	if l.Err() != nil {
		return
	}
	_, later := b.access(a, l, &value)
	b.after(a, l, later)
}

// access returns the number, and who was there later if the token is old.
func (b *book) access(a *actor, l *Lease, value *int) (n int, later string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	token := l.Token()
	if token < b.writer || a.writes && token < b.anybody {
		b.refused++
		return 0, b.who
	}
	if token > b.anybody {
		b.anybody, b.who = token, fmt.Sprintf("%s, token %d, at %v, session %#x", a.name, token, time.Since(b.begin), l.hold.stake.session)
	}
	if a.writes {
		b.writer = token
	}
	if value != nil {
		b.value = *value
		b.taken++
	}
	return b.value, ""
}

// after is the look at a lease that follows every access: the one that was refused as old must be lost by now, as somebody else was granted later.
func (b *book) after(a *actor, l *Lease, later string) {
	b.alone(a, l)
	if later == "" {
		return
	}
	err, asked := l.Err(), time.Since(b.begin)
	if err == nil && b.told(l) {
		err = l.Err()
	}
	if !errors.Is(err, ErrLost) {
		b.note("%s, token %d, session %#x: refused as old at %v, after %s: %v", a.name, l.Token(), l.hold.stake.session,
			asked, later, err)
	}
}
