package zkrecipes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A lockStep is one arrival: who asks for what. The mode 'R' is RWLock.RLock, 'W' RWLock.Lock, 'M' Mutex.Lock.
type lockStep struct {
	mode  byte
	owner int
}

func (a lockStep) String() string { return fmt.Sprintf("%c%d", a.mode, a.owner) }

// rwModel is what a read/write lock has to do, said in the simplest way: a list of entries, one for each owner and mode, in the order of their places.
type rwModel struct {
	entries []*rwEntry
	fate    map[int]rwFate // of each arrival
	waits   map[int][]int  // arrivals of an owner that wait for the decision on its other mode
	arrived []lockStep
}

type rwEntry struct {
	lockStep
	granted bool
	alone   bool  // nobody else may hold: a writer, or a read on the znode of its owner's Mutex
	calls   []int // arrivals that wait for it, or that hold it
}

type rwFate int

const (
	fateWaits rwFate = iota
	fateHolds
	fateUpgrade
	fateReleased
)

func newRWModel() *rwModel {
	return &rwModel{fate: make(map[int]rwFate), waits: make(map[int][]int)}
}

func (a lockStep) reads() bool { return a.mode == 'R' }

func (m *rwModel) find(owner int, reads bool) *rwEntry {
	for _, e := range m.entries {
		if e.owner == owner && e.reads() == reads {
			return e
		}
	}
	return nil
}

func (m *rwModel) arrive(a lockStep) (call int) {
	call = len(m.arrived)
	m.arrived = append(m.arrived, a)
	m.enter(call)
	m.settle()
	return call
}

func (m *rwModel) enter(call int) {
	a := m.arrived[call]
	same, other := m.find(a.owner, a.reads()), m.find(a.owner, !a.reads())
	switch {
	case same != nil:
		same.calls = append(same.calls, call)
		if same.granted {
			m.fate[call] = fateHolds
		}
	case other == nil:
		m.entries = append(m.entries, &rwEntry{lockStep: a, alone: !a.reads(), calls: []int{call}})
	case !other.granted:
		m.waits[a.owner] = append(m.waits[a.owner], call)
	case !a.reads():
		m.fate[call] = fateUpgrade
	default: // a read in its writer's place
		m.fate[call] = fateHolds
		i := slices.Index(m.entries, other)
		m.entries = slices.Insert(m.entries, i+1, &rwEntry{lockStep: a, granted: true, alone: other.mode == 'M', calls: []int{call}})
	}
}

// settle grants what can be granted.
func (m *rwModel) settle() {
	for again := true; again; {
		again = false
		writers := 0
		for i, e := range m.entries {
			if !e.granted && (i == 0 || e.reads() && writers == 0) {
				e.granted, again = true, true
				for _, call := range e.calls {
					m.fate[call] = fateHolds
				}
				waiting := m.waits[e.owner]
				delete(m.waits, e.owner)
				for _, call := range waiting {
					m.enter(call)
				}
				break
			}
			if e.alone {
				writers++
			}
		}
	}
}

func (m *rwModel) release(call int) {
	m.fate[call] = fateReleased
	for i, e := range m.entries {
		if j := slices.Index(e.calls, call); j >= 0 {
			if e.calls = slices.Delete(e.calls, j, j+1); len(e.calls) == 0 {
				m.entries = slices.Delete(m.entries, i, i+1)
			}
			break
		}
	}
	m.settle()
}

func (m *rwModel) holders() (calls []int) {
	for call := range m.arrived {
		if m.fate[call] == fateHolds {
			calls = append(calls, call)
		}
	}
	return calls
}

// parkedCtx tells when somebody waits for its end: a call that does has found its place.
type parkedCtx struct {
	context.Context
	once   sync.Once
	parked chan struct{}
}

func (c *parkedCtx) Done() <-chan struct{} {
	c.once.Do(func() { close(c.parked) })
	return c.Context.Done()
}

// orderRun plays one order of arrivals and one of releases on the server, beside the model.
type orderRun struct {
	t        testing.TB
	sessions []*Session
	look     Conn
	path     string
	model    *rwModel
	results  []chan lockResult
	leases   map[int]*Lease
	errs     map[int]error
	tokens   []Token // of all grants so far
}

func (r *orderRun) locker(a lockStep) Locker {
	s := r.sessions[a.owner%len(r.sessions)]
	switch a.mode {
	case 'M':
		return NewMutex(s, r.path)
	case 'W':
		return NewRWLock(s, r.path)
	}
	return NewRWLock(s, r.path).RLocker()
}

func (r *orderRun) arrive(a lockStep) {
	nodes := len(r.model.entries)
	call := r.model.arrive(a)
	ctx := &parkedCtx{Context: context.Background(), parked: make(chan struct{})}
	ch := make(chan lockResult, 1)
	go func() {
		l, err := r.locker(a).Lock(ContextWithOwner(ctx, Owner(fmt.Sprint("owner-", a.owner))))
		ch <- lockResult{l, err}
	}()
	r.results = append(r.results, ch)
	r.check()
	if r.model.fate[call] == fateWaits {
		select {
		case <-ctx.parked:
		case <-time.After(10 * time.Second):
			r.t.Fatalf("%v neither waits nor returns", a)
		}
		if len(r.model.entries) > nodes { // the next one must not come before its znode is there
			eventually(r.t, 10*time.Second, "its znode", func() bool { return len(children(r.t, r.look, r.path)) == r.znodes() })
		}
	}
}

// znodes is how many the model's entries have: a read under a Mutex shares its.
func (r *orderRun) znodes() (n int) {
	for i, e := range r.model.entries {
		shares := e.reads() && e.granted && i > 0 && r.model.entries[i-1].owner == e.owner && r.model.entries[i-1].mode == 'M'
		if !shares {
			n++
		}
	}
	return n
}

// check waits for what the model says has been decided, and sees that nothing else was.
func (r *orderRun) check() {
	for call, ch := range r.results {
		fate := r.model.fate[call]
		_, known := r.leases[call]
		if r.errs[call] != nil || known {
			continue
		}
		if fate == fateWaits {
			select {
			case got := <-ch:
				r.t.Fatalf("call %d waits in the model, and returned %v, %v", call, got.lease, got.err)
			default:
			}
			continue
		}
		select {
		case got := <-ch:
			r.leases[call], r.errs[call] = got.lease, got.err
		case <-time.After(10 * time.Second):
			r.t.Fatalf("call %d has not returned", call)
		}
		if fate == fateUpgrade {
			require.ErrorIs(r.t, r.errs[call], ErrUpgrade)
			delete(r.leases, call)
			continue
		}
		require.NoError(r.t, r.errs[call])
	}
	for _, call := range r.model.holders() {
		l := r.leases[call]
		require.NoError(r.t, l.Err())
		if slices.Contains(r.tokens, l.Token()) { // of a hold that was entered again, or that is a read under a write
			continue
		}
		if !r.model.arrived[call].reads() {
			for _, old := range r.tokens {
				require.Greater(r.t, l.Token(), old, "a register that saw an earlier holder's would refuse the writer's token")
			}
		}
		r.tokens = append(r.tokens, l.Token())
	}
}

// play returns the number of choices there were at each release.
func (r *orderRun) play(arrivals []lockStep, choices []int) (width []int) {
	for _, a := range arrivals {
		r.arrive(a)
	}
	for step := 0; ; step++ {
		holders := r.model.holders()
		if len(holders) == 0 {
			break
		}
		choice := 0
		if step < len(choices) {
			choice = choices[step]
		}
		width = append(width, len(holders))
		call := holders[choice]
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		require.NoError(r.t, r.leases[call].Release(ctx))
		cancel()
		r.model.release(call)
		r.check()
	}
	for call, fate := range r.model.fate {
		require.NotEqual(r.t, fateWaits, fate, "call %d waits for ever", call)
	}
	require.Len(r.t, r.model.fate, len(arrivals))
	require.Empty(r.t, children(r.t, r.look, r.path))
	for _, s := range r.sessions {
		s.mu.Lock()
		for key := range s.holds {
			if strings.HasSuffix(key.dir, r.path) {
				r.t.Errorf("%+v is left", key)
			}
		}
		s.mu.Unlock()
	}
	return width
}

// nextChoices counts through the tree of choices, whose width at each step was seen in the last run; nil at its end.
func nextChoices(choices, width []int) []int {
	all := make([]int, len(width))
	copy(all, choices)
	for i := len(all) - 1; i >= 0; i-- {
		if all[i]+1 < width[i] {
			all[i]++
			return all[:i+1]
		}
	}
	return nil
}

// arrivalsOf returns every order of n arrivals with these modes, up to a renaming of the owners.
func arrivalsOf(n int, modes string) (all [][]lockStep) {
	var grow func(so []lockStep, owners int)
	grow = func(so []lockStep, owners int) {
		if len(so) == n {
			all = append(all, slices.Clone(so))
			return
		}
		for owner := range owners + 1 {
			for _, mode := range []byte(modes) {
				grow(append(so, lockStep{mode, owner}), max(owners, owner+1))
			}
		}
	}
	grow(nil, 0)
	return all
}

// Every order in which four lockers can arrive and, for each, every order in which those that hold can release: readers and writers, of one to four
// owners in two sessions, so that owners enter again, nest, downgrade and are refused as well. Once with RWLock's writers, once with a Mutex for them.
func TestRWLockEveryOrder(t *testing.T) {
	t.Parallel()
	for _, modes := range []string{"RW", "RM"} {
		t.Run(modes, func(t *testing.T) {
			t.Parallel()
			arrivals := arrivalsOf(4, modes)
			if n := 0; quick() {
				arrivals = slices.DeleteFunc(arrivals, func([]lockStep) bool { n++; return n%3 != 0 })
			}
			var wg sync.WaitGroup
			todo := make(chan []lockStep)
			runs := make(chan int, 12)
			look := admin(t)
			for range cap(runs) {
				a, b := dialShared(t, calm), dialShared(t, calm)
				wg.Go(func() {
					n := 0
					defer func() { runs <- n }()
					for order := range todo {
						for choices := []int{}; choices != nil; n++ {
							r := &orderRun{
								t: named{t, fmt.Sprintf("%v, releases %v", order, choices)}, sessions: []*Session{a, b}, look: look, path: newPath(t),
								model: newRWModel(), leases: make(map[int]*Lease), errs: make(map[int]error),
							}
							choices = nextChoices(choices, r.play(order, choices))
						}
					}
				})
			}
			for _, order := range arrivals {
				todo <- order
			}
			close(todo)
			wg.Wait()
			total := 0
			for range cap(runs) {
				total += <-runs
			}
			t.Logf("%d orders of arrival, %d runs", len(arrivals), total)
		})
	}
}

// named says in each failure which run it was. It panics where FailNow would end only the goroutine of a test.
type named struct {
	testing.TB
	what string
}

func (n named) Errorf(format string, args ...any) { n.TB.Errorf(n.what+": "+format, args...) }

func (n named) FailNow() { panic(n.what) }

func (n named) Fatalf(format string, args ...any) {
	panic(n.what + ": " + fmt.Sprintf(format, args...))
}
