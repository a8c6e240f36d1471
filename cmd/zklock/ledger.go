package main

import (
	"fmt"
	"maps"
	"slices"
)

// A ledger is what the demo judges by. It is a register as a database with fencing would have it: every access names a token, and one that is older than
// the greatest token seen is refused. It is never asked by two workers at once, and a worker waits for its answer, so what it finds needs no clock:
//
//   - a worker enters the register after its grant and leaves it before its release. If the lock excludes, nobody enters while another is inside, unless
//     that one's lease has been lost;
//   - so a worker that is refused must find its lease lost. If it does not, two held at the same time or a token did not grow. Asking the lease after
//     the refusal, not before, leaves no gap in which a worker that was merely paused would look guilty.
type ledger struct {
	rounds int            // that each worker is to finish
	done   map[string]int // that each worker has finished
	inside string         // who holds; empty: nobody
	token  int64          // the greatest token seen
	first  int64          // the first token seen
	dead   string         // who was killed while inside
	heir   string         // who entered first after that
}

func newLedger(rounds int, workers []string) *ledger {
	l := &ledger{rounds: rounds, done: make(map[string]int)}
	for _, w := range workers {
		l.done[w] = 0
	}
	return l
}

// enter is the first access with a token; it shuts out all earlier ones. It is refused unless the token is greater than they are.
func (l *ledger) enter(who string, token int64) bool {
	if token <= l.token {
		return false
	}
	if l.first == 0 {
		l.first = token
	}
	if l.dead != "" && l.heir == "" {
		l.heir = who
	}
	l.inside, l.token = who, token
	return true
}

// access is a further one with the same token. It is refused when somebody has entered since.
func (l *ledger) access(who string, token int64) bool { return l.inside == who && l.token == token }

// leave is the last access with a token; with it a round is finished.
func (l *ledger) leave(who string, token int64) bool {
	if !l.access(who, token) {
		return false
	}
	l.inside = ""
	l.done[who]++
	return true
}

// lost says that a worker's lease ended by itself. Its round is not finished.
func (l *ledger) lost(who string) {
	if l.inside == who {
		l.inside = ""
	}
}

// killed says that a worker is dead. It reports whether the worker was inside.
func (l *ledger) killed(who string) bool {
	if l.inside != who {
		return false
	}
	l.inside, l.dead = "", who
	return true
}

// sections is how many rounds were finished.
func (l *ledger) sections() (n int) {
	for _, done := range l.done {
		n += done
	}
	return n
}

// verdict returns why the demo failed: counter is the number that nothing but the lock has protected.
func (l *ledger) verdict(counter int) error {
	switch sections := l.sections(); {
	case counter != sections:
		return fmt.Errorf("EXCLUSION BROKEN: %d critical sections have incremented the counter to %d", sections, counter)
	case l.dead == "":
		return fmt.Errorf("no worker was killed while it held")
	case l.heir == "":
		return fmt.Errorf("nobody was granted the lock after %s was killed", l.dead)
	}
	for _, who := range slices.Sorted(maps.Keys(l.done)) {
		if n := l.done[who]; who != l.dead && n != l.rounds {
			return fmt.Errorf("%s finished %d of its %d rounds", who, n, l.rounds)
		}
	}
	return nil
}
