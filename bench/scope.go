package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// cellLimit bounds one cell of one library in one round.
const cellLimit = 30 * time.Second

// wholeLimit bounds a run.
const wholeLimit = 30 * time.Minute

// A scope stands for a test where a test would be needed: it closes what a cell has opened, in reverse order, and keeps what went wrong. It is a zktest.TB.
type scope struct {
	name string

	mu       sync.Mutex
	cleanups []func()
	errs     []error
}

// inScope runs f on a goroutine of its own, with a ctx that ends after limit, then cleans up, and returns what went wrong.
func inScope(parent context.Context, name string, limit time.Duration, f func(context.Context, *scope)) error {
	ctx, cancel := context.WithTimeoutCause(parent, limit, fmt.Errorf("not finished in %v", limit))
	defer cancel()
	s := &scope{name: name}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer s.close()
		f(ctx, s)
	}()
	<-done
	if ctx.Err() != nil {
		return context.Cause(ctx) // the rest are consequences
	}
	return errors.Join(s.errs...)
}

func (s *scope) close() {
	for {
		s.mu.Lock()
		n := len(s.cleanups)
		if n == 0 {
			s.mu.Unlock()
			return
		}
		f := s.cleanups[n-1]
		s.cleanups = s.cleanups[:n-1]
		s.mu.Unlock()
		f()
	}
}

func (s *scope) Helper()             {}
func (s *scope) Logf(string, ...any) {}
func (s *scope) Name() string        { return s.name }

func (s *scope) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

func (s *scope) Errorf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, fmt.Errorf(format, args...))
}

// Fatalf ends the cell. Only the cell's own goroutine may call it.
func (s *scope) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}

// must ends the cell when there is an error.
func (s *scope) must(err error) {
	if err != nil {
		s.Fatalf("%w", err)
	}
}

// each runs f for 0..n-1 on goroutines of their own, waits for all, and ends the cell with their errors.
func (s *scope) each(n int, f func(i int) error) {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	s.must(errors.Join(errs...))
}

// pause waits for d, or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
