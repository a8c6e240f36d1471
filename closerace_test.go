package zkrecipes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A Session is closed while a parent is being made, whose answer comes a little later, and waits for it. In the moment of the answer go-zookeeper would take
// the path out of it while its receive loop may still be writing that, which -race reports; it takes some 200 sessions to see it once.
func TestCloseWhileAParentIsMade(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t, calm)
	gate, closing := zktest.NewGate(), make(chan struct{})
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpCreateContainer), Times: 1, Do: zktest.HoldReply(gate)})
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpClose), Times: 1, Do: zktest.Call(func(zktest.Frame) { close(closing) })})
	got := goLock(context.Background(), NewMutex(s, newPath(t)))
	next(t, gate.Reached())
	closed := make(chan error, 1)
	const patience = 250 * time.Millisecond // Close waits no longer, however late the machine looks here
	began := time.Now()
	go func() { closed <- s.Close() }()
	select {
	case <-closing:
		if time.Since(began) < patience {
			t.Error("closed under it")
		}
	case <-time.After(100 * time.Millisecond):
	}
	gate.Open()
	require.NoError(t, next(t, closed))
	require.ErrorIs(t, (<-got).err, ErrClosed)
}
