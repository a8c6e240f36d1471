// Package failover is a service of which one instance works and the others stand by, and how its owner tests that: failover_test.go lets a night pass in
// milliseconds. See docs/testing.md.
package failover

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

// A Service is one instance.
type Service struct {
	Mutex *zkrecipes.Mutex
	Every time.Duration
	Work  func(ctx context.Context, token zkrecipes.Token) error
}

// Run works as long as this instance is the one that may, waits for that while it is not, and returns when ctx ends or the work fails.
func (s *Service) Run(ctx context.Context) error {
	for {
		err := zkrecipes.Do(ctx, s.Mutex, s.active)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, zkrecipes.ErrLost): // somebody else goes on; stand by
		case err != nil:
			return err
		}
	}
}

// active works until the lease ends, and ctx with it.
func (s *Service) active(ctx context.Context) error {
	lease, _ := zkrecipes.LeaseFromContext(ctx)
	ticker := time.NewTicker(s.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := s.Work(ctx, lease.Token()); err != nil && ctx.Err() == nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
