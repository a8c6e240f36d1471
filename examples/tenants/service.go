package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

// A Service writes invoices, which each tenant wants numbered without a gap. The numbers are in files that all hosts share, and that nothing but the tenant's
// lock protects.
type Service struct {
	Session *zkrecipes.Session
	Host    string        // as which others see it
	Wait    time.Duration // for whoever is at the same tenant's
	Room    chan struct{} // its capacity: how many requests work or wait in this process
	Folder  string
	Pause   time.Duration // that an invoice takes
}

// lock is a tenant's: made where it is needed, which costs nothing, and its directory goes by itself when nobody has used it for a while. The name comes from
// outside, and must not become a path of its own by a slash in it.
func (s *Service) lock(tenant string) zkrecipes.Locker {
	return impatient{zkrecipes.NewMutex(s.Session, "/tenants/"+url.PathEscape(tenant)), s.Wait}
}

// An impatient lock is waited for only so long; the work under it has the time that it takes.
type impatient struct {
	zkrecipes.Locker
	wait time.Duration
}

// Lock is that of the Locker.
func (l impatient) Lock(ctx context.Context) (*zkrecipes.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, l.wait)
	defer cancel()
	return l.Locker.Lock(ctx)
}

// invoice calls next, which takes the same lock: by ctx it enters again.
func (s *Service) invoice(ctx context.Context, tenant string) (number int, err error) {
	err = zkrecipes.Do(ctx, s.lock(tenant), func(ctx context.Context) error {
		if number, err = s.next(ctx, tenant); err != nil {
			return err
		}
		select {
		case <-time.After(s.Pause):
			return nil
		case <-ctx.Done(): // the request has gone, or the lease
			return context.Cause(ctx)
		}
	})
	return number, err
}

func (s *Service) next(ctx context.Context, tenant string) (number int, err error) {
	err = zkrecipes.Do(ctx, s.lock(tenant), func(context.Context) error {
		file := filepath.Join(s.Folder, url.PathEscape(tenant))
		b, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		number, _ = strconv.Atoi(strings.TrimSpace(string(b))) // no file: 0
		number++
		return os.WriteFile(file, []byte(strconv.Itoa(number)), 0o600)
	})
	return number, err
}

// ServeHTTP is POST /tenants/{tenant}/invoice.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case s.Room <- struct{}{}:
		defer func() { <-s.Room }()
	default: // one tenant whom everybody wants must not fill the process with those who wait
		w.Header().Set("Retry-After", "1")
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	// Each request is an owner of its own: two in one process exclude each other. The id that a client sends is a label only; it may come twice.
	id := fmt.Sprintf("%s %s %s", s.Host, r.Header.Get("X-Request-Id"), zkrecipes.NewOwner())
	ctx := zkrecipes.ContextWithOwner(r.Context(), zkrecipes.Owner(id))
	number, err := s.invoice(ctx, r.PathValue("tenant"))
	switch {
	case err == nil:
		fmt.Fprintln(w, number)
	case errors.Is(err, zkrecipes.ErrLost):
		http.Error(w, "broken off: "+err.Error(), http.StatusConflict)
	case errors.Is(err, zkrecipes.ErrHeld):
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusLocked) // says who is at it
	case errors.Is(err, zkrecipes.ErrInvalid):
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
