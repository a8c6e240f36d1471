package zkrecipes

import (
	"context"
	"log/slog"

	"github.com/zkrecipes/zkrecipes/internal/core"
)

// A queuedHandler lets nobody wait for the user's handler: log lines are written where leases are ended, with locks held.
type queuedHandler struct {
	slog.Handler
	queue *core.Serial
}

// Handle queues the record; it keeps the time at which it was made.
func (h queuedHandler) Handle(ctx context.Context, r slog.Record) error {
	r = r.Clone()
	h.queue.Add(func() { _ = h.Handler.Handle(ctx, r) })
	return nil
}

// WithAttrs returns the handler with more attributes.
func (h queuedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return queuedHandler{h.Handler.WithAttrs(attrs), h.queue}
}

// WithGroup returns the handler with a group.
func (h queuedHandler) WithGroup(name string) slog.Handler {
	return queuedHandler{h.Handler.WithGroup(name), h.queue}
}
