package zktest

import (
	"slices"
	"strings"
	"sync"
)

// Rule ties an [Action] to the frames it is for.
type Rule struct {
	// Match chooses requests and events; replies are reached through their
	// request. Every rule's Match is called once for each request and event
	// of all connections, in the order of the rules and one call at a time,
	// also when an earlier rule acts on the frame. So a counting Match such as
	// [Nth] counts every frame. Match must not add or remove rules. A nil
	// Match is [AllRequests].
	Match func(Frame) bool

	// Times is how many frames the rule acts on before it is removed; 0 is for
	// ever.
	Times int

	Do Action
}

// MatchOp accepts frames of the given kinds.
func MatchOp(ops ...Op) func(Frame) bool {
	return func(f Frame) bool { return slices.Contains(ops, f.Op) }
}

// MatchPath accepts frames of one kind whose path begins with prefix. Of a
// multi the first path counts.
func MatchPath(op Op, prefix string) func(Frame) bool {
	return func(f Frame) bool { return f.Op == op && strings.HasPrefix(f.Path, prefix) }
}

// AllRequests accepts every request but the connect and the pings.
func AllRequests(f Frame) bool {
	return f.Op != OpPing && f.Op != OpConnect && f.Op != OpEvent
}

// Nth accepts the n-th frame, counted from 0, that match accepts. It counts
// from when it is first used, or [Proxy.ResetCounters]. The result belongs to
// one rule; make another one for another rule.
func Nth(n int, match func(Frame) bool) func(Frame) bool {
	var mu sync.Mutex
	var seen, epoch int
	return func(f Frame) bool {
		if !match(f) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		if f.epoch != epoch {
			seen, epoch = 0, f.epoch
		}
		seen++
		return seen == n+1
	}
}

// ruleset is the rules of a proxy, in order.
type ruleset struct {
	mu    sync.Mutex
	rules []*liveRule
	epoch int
}

type liveRule struct {
	Rule
	accepted int // frames that Match accepted since the last reset
	acted    int
}

func (s *ruleset) add(r Rule) (remove func()) {
	if r.Match == nil {
		r.Match = AllRequests
	}
	live := &liveRule{Rule: r}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, live)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(live)
	}
}

func (s *ruleset) drop(live *liveRule) {
	if i := slices.Index(s.rules, live); i >= 0 {
		s.rules = slices.Delete(s.rules, i, i+1)
	}
}

// match finds the action for a frame and sets its N. then runs before another
// frame is matched, so that what it writes down is in the order of the rules'
// decisions.
func (s *ruleset) match(f *Frame, then func(Action)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.epoch = s.epoch
	var acting *liveRule
	n := 0
	for _, r := range s.rules {
		if !r.Match(*f) {
			continue
		}
		if acting == nil {
			acting, n = r, r.accepted
		}
		r.accepted++
	}
	if acting == nil {
		then(Action{})
		return
	}
	f.N = n
	acting.acted++
	if acting.acted == acting.Times {
		s.drop(acting)
	}
	then(acting.Do)
}

func (s *ruleset) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	for _, r := range s.rules {
		r.accepted = 0
	}
}
