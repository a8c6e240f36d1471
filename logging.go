package zkrecipes

import (
	"context"
	"log/slog"

	"github.com/zkrecipes/zkrecipes/internal/core"
)

// A queuedHandler lets nobody wait for the user's handler, of which every method is somebody else's code: log lines are written where leases are ended,
// before that is told, and with locks held.
type queuedHandler struct {
	slog.Handler
	queue *core.Serial
}

// Enabled asks nobody; Handle does, later.
func (h queuedHandler) Enabled(context.Context, slog.Level) bool { return true }

// Handle queues the record; it keeps the time at which it was made.
func (h queuedHandler) Handle(ctx context.Context, r slog.Record) error {
	r = r.Clone()
	h.queue.Add(func() {
		if h.Handler.Enabled(ctx, r.Level) {
			_ = h.Handler.Handle(ctx, r)
		}
	})
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
