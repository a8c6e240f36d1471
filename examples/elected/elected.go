package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

// A Service is one instance.
type Service struct {
	Election *zkrecipes.LeaderSelector
	Work     func(ctx context.Context, token zkrecipes.Token) error // one piece of it

	stopping atomic.Bool
}

// Run takes part in the election, and works while this instance leads, until ctx ends or the work fails.
func (s *Service) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { s.stopping.Store(true) })()
	return s.Election.Run(ctx, s.lead)
}

// lead returns when it may not or shall not go on, which is when leadership passes on. A piece of work gets the ctx of the lease: it is broken off when
// leadership is lost, but not when the service is asked to stop.
func (s *Service) lead(ctx context.Context) error {
	lease, _ := zkrecipes.LeaseFromContext(ctx)
	for ctx.Err() == nil && lease.Err() == nil { // the ctx ends a moment after the lease
		if err := s.Work(lease.Context(), lease.Token()); err != nil && lease.Err() == nil {
			return err
		}
	}
	return nil
}

// ServeHTTP is the health endpoint: 200 on the leader, 503 everywhere else, and from the moment at which it is asked to stop. It asks no server, so it may be
// asked as often as one likes.
func (s *Service) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	switch {
	case s.stopping.Load():
		http.Error(w, "stopping", http.StatusServiceUnavailable)
	case !s.Election.IsLeader():
		http.Error(w, "standby", http.StatusServiceUnavailable)
	default:
		_, _ = w.Write([]byte("leader\n"))
	}
}

// Serve is Run with the health endpoint on a listener. The endpoint answers until the work has ended, and requests that are under way then are finished.
func (s *Service) Serve(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", s)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		err := server.Serve(listener)
		cancel(err) // without its endpoint it shall not lead
		served <- err
	}()
	err := s.Run(ctx)
	limit, end := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer end()
	err = errors.Join(err, server.Shutdown(limit))
	if why := <-served; !errors.Is(why, http.ErrServerClosed) {
		err = errors.Join(err, why)
	}
	return err
}
