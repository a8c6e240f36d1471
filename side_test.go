package zkrecipes

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
)

// A side is one of many small tests that run at once within a test. Subtests with t.Parallel are no more than there are processors, and these wait for
// the network nearly all the time. It has its own goroutine, so FailNow ends that one only, and shows its log when it fails.
type side struct {
	testing.TB
	name string

	mu       sync.Mutex
	lines    []string
	failed   bool
	cleanups []func()
}

func (s *side) Name() string { return s.TB.Name() + "/" + s.name }
func (s *side) Helper()      {}
func (s *side) Log(args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprint(args...))
}
func (s *side) Logf(format string, args ...any) { s.Log(fmt.Sprintf(format, args...)) }
func (s *side) Errorf(format string, args ...any) {
	s.mu.Lock()
	s.failed = true
	s.mu.Unlock()
	s.Logf(format, args...)
}
func (s *side) FailNow() {
	s.mu.Lock()
	s.failed = true
	s.mu.Unlock()
	runtime.Goexit()
}
func (s *side) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	s.FailNow()
}
func (s *side) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}
func (s *side) Cleanup(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, fn)
}

// side runs fn to its end, clean-ups included, and reports what failed.
func (s *side) run(fn func(t testing.TB)) {
	for _, step := range []func(){func() { fn(s) }, s.cleanUp} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			step()
		}()
		<-done
	}
	if s.Failed() {
		s.TB.Errorf("%s:\n%s", s.name, strings.Join(s.lines, "\n"))
	}
}

func (s *side) cleanUp() {
	for {
		s.mu.Lock()
		n := len(s.cleanups)
		if n == 0 {
			s.mu.Unlock()
			return
		}
		fn := s.cleanups[n-1]
		s.cleanups = s.cleanups[:n-1]
		s.mu.Unlock()
		fn()
	}
}

// sides collects small tests and runs them, so many at once.
type sides struct {
	t     testing.TB
	wg    sync.WaitGroup
	at    chan struct{}
	every int
	added int
}

func newSides(t testing.TB, atOnce int) *sides {
	return &sides{t: t, at: make(chan struct{}, atOnce), every: 1}
}

// newSampledSides is for tables of hundreds of cases; see oneIn.
func newSampledSides(t testing.TB, atOnce int) *sides {
	ss := newSides(t, atOnce)
	ss.every = oneIn(t)
	return ss
}

func (ss *sides) add(name string, fn func(t testing.TB)) {
	ss.added++
	if ss.added%ss.every != 0 {
		return
	}
	ss.at <- struct{}{}
	ss.wg.Go(func() {
		defer func() { <-ss.at }()
		(&side{TB: ss.t, name: name}).run(fn)
	})
}

// oneIn is how many cases of a table of hundreds one is run of; make torture runs them all. On a real server it is every fourth, and of the ways of NewSession
// every twelfth. On the server of this process it is every twelfth, and every twenty-fourth: go test without anything else is for a first answer within a minute.
func oneIn(t testing.TB) int {
	switch {
	case os.Getenv("ZKRECIPES_TORTURE") != "":
		return 1
	case testrun.Real() && wayOf(t) == dialed:
		return 4
	case testrun.Real():
		return 12
	case wayOf(t) == dialed:
		return 12
	}
	return 24
}

// subtest runs a part of a test.
func subtest(t testing.TB, name string, fn func(t testing.TB)) {
	if tt, ok := t.(*testing.T); ok {
		tt.Run(name, func(t *testing.T) { fn(t) })
		return
	}
	part := &side{TB: t, name: name}
	part.run(fn)
	for _, line := range part.lines {
		if strings.Contains(line, "told before") { // what was measured is of interest
			t.Logf("%s: %s", name, line)
		}
	}
}
