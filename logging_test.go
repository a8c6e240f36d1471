package zkrecipes

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A stuckHandler does not return from Enabled once it is armed.
type stuckHandler struct {
	slog.Handler
	armed *atomic.Bool
	block chan struct{}
}

func (h stuckHandler) Enabled(ctx context.Context, l slog.Level) bool {
	if h.armed.Load() && l >= slog.LevelWarn {
		<-h.block
	}
	return h.Handler.Enabled(ctx, l)
}

// What a log handler does when it is asked whether it wants a line is somebody else's code as well, and keeps no loss from being told.
func TestHandlerThatIsAskedDelaysNoLoss(t *testing.T) {
	t.Parallel()
	h := stuckHandler{slog.NewTextHandler(testWriter{t}, nil), new(atomic.Bool), make(chan struct{})}
	s, p := dialProxy(t, WithLogger(slog.New(h)))
	other := dialShared(t, calm)
	path := newPath(t)
	l, err := NewMutex(s, path).Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	next := goLock(context.Background(), NewMutex(other, path))
	waitingFor(t, path, 2)
	h.armed.Store(true)
	defer close(h.block)
	p.BlackHole(zktest.Both)
	n := mustLease(t, next)
	select {
	case <-l.Context().Done(): // not by asking, which would end it
	default:
		t.Fatal("another one holds, and the loss is not told")
	}
	require.NoError(t, n.Release(within(t, 10*time.Second)))
	p.BlackHole(zktest.None)
}
