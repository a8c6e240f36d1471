package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/znode"
	"github.com/zkrecipes/zkrecipes/zktest"
)

func unknown(code int) error { return fmt.Errorf("unknown error: %d", code) }

func TestErrorClasses(t *testing.T) {
	for _, tt := range []struct {
		err     error
		class   Class
		applied bool // it may have been
	}{
		{zk.ErrNoServer, NotSent, false},
		{zk.ErrSessionMoved, NotSent, false},
		{unknown(-127), NotSent, false},

		{zk.ErrNoNode, Answered, false},
		{zk.ErrNoAuth, Answered, false},
		{zk.ErrBadVersion, Answered, false},
		{zk.ErrNoChildrenForEphemerals, Answered, false},
		{zk.ErrNodeExists, Answered, false},
		{zk.ErrNotEmpty, Answered, false},
		{zk.ErrInvalidACL, Answered, false},
		{zk.ErrInvalidFlags, Answered, false},
		{zk.ErrInvalidPath, Answered, false},
		{zk.ErrAuthFailed, Answered, false},
		{zk.ErrBadArguments, Answered, false},
		{zk.ErrReconfigDisabled, Answered, false},
		{zk.ErrAPIError, Answered, false},
		{zk.ErrShortBuffer, Answered, false},
		{unknown(-6), Answered, false},
		{unknown(-5), Answered, false},
		{unknown(-119), Answered, false},
		{unknown(-125), Answered, false},
		// Something broke on the server; how far the request had come it does not say.
		{unknown(-1), Answered, true},
		{unknown(-2), Answered, true},
		{unknown(-3), Answered, true},

		{zk.ErrSessionExpired, SessionOver, true},

		{zk.ErrConnectionClosed, Ambiguous, true},
		{zk.ErrClosing, Ambiguous, true},
		{zk.ErrUnknown, Ambiguous, true},
		{unknown(-4), Ambiguous, true},
		{unknown(-7), Ambiguous, true},
		{unknown(-12), SessionOver, true},
		{io.EOF, Ambiguous, true},
		{os.ErrDeadlineExceeded, Ambiguous, true},
		{&net.OpError{Op: "write", Err: syscall.EPIPE}, Ambiguous, true},
		{errors.New("unknown error: nonsense"), Ambiguous, true},
		{errors.New("anything else"), Ambiguous, true},
	} {
		for _, err := range []error{tt.err, fmt.Errorf("wrapped: %w", tt.err)} {
			if _, ok := Code(tt.err); ok && err != tt.err {
				continue // such an error has no identity, only a text; the engine meets it as the client made it
			}
			require.Equal(t, tt.class, Classify(err), "%v", err)
			require.Equal(t, tt.applied, MayHaveApplied(err), "%v", err)
		}
	}
}

// Every error of go-zookeeper's is known here, or ambiguous for a reason.
func TestCodesOfUnnamedErrors(t *testing.T) {
	for code := -130; code < 0; code++ {
		n, ok := Code(unknown(code))
		require.True(t, ok)
		require.Equal(t, code, n)
	}
	for _, err := range []error{nil, zk.ErrNoNode, errors.New("unknown error: "), errors.New("unknown error: 1x"), errors.New("unknown error -6")} {
		_, ok := Code(err)
		require.False(t, ok, "%v", err)
	}
	require.EqualError(t, Explain(unknown(-6)), "not implemented by this server (server code -6)")
	require.EqualError(t, Explain(unknown(-125)), "quota exceeded (server code -125)")
	require.Equal(t, unknown(-99), Explain(unknown(-99)))
	require.Equal(t, zk.ErrNoNode, Explain(zk.ErrNoNode))
}

// The texts that are read are those that the client makes.
func TestUnnamedErrorsOfTheClient(t *testing.T) {
	e, _, p := connectShared(t, Config{})
	for code, class := range map[int32]Class{-6: Answered, -4: Ambiguous, -127: NotSent, -112: SessionOver, -118: NotSent, -115: Answered} {
		remove := p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpSync), Times: 1, Do: zktest.ReplyError(code)})
		_, err := e.Do(within(t, 5*time.Second), func(c Conn) error { _, err := c.Sync("/"); return err })
		require.Error(t, err)
		require.Equal(t, class, Classify(err), "%d: %v", code, err)
		remove()
	}
}

// The server would answer larger data by hanging up, again at every retry.
func TestTooLargeDataIsNotSent(t *testing.T) {
	e, _, p := connectShared(t, Config{})
	dir := newPath(t)
	mk(t, e, dir, "")
	p.ResetCounters()
	_, err := e.Create(within(t, 5*time.Second), dir, znode.LockName, make([]byte, MaxData+1))
	require.ErrorIs(t, err, ErrTooLarge)
	require.ErrorContains(t, err, fmt.Sprint(MaxData+1))
	require.Zero(t, p.Counts().Total())
	require.Zero(t, e.Owing())

	epoch := e.Epoch()
	made, err := e.Create(within(t, 15*time.Second), dir, znode.LockName, []byte(strings.Repeat("x", MaxData)))
	require.NoError(t, err, "the most that is sent")
	require.Equal(t, epoch, e.Epoch(), "over the same connection")
	var data []byte
	do(t, e, func(c Conn) (err error) { data, _, err = c.Get(made.Path); return err })
	require.Len(t, data, MaxData)
}

func TestRequestsOfAClosedEngine(t *testing.T) {
	e, _, _ := connectShared(t, Config{})
	require.NoError(t, closeWithin(e, 5*time.Second))
	_, err := e.Do(context.Background(), func(Conn) error { panic("must not be called") })
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, e.DoCaller(context.Background(), func(Conn) error { panic("must not be called") }), ErrClosed)
	_, err = e.Create(context.Background(), "/x", znode.LockName, nil)
	require.ErrorIs(t, err, ErrClosed)
	_, _, err = Read(within(t, time.Second), e, func(Conn) (int, error) { panic("must not be called") })
	require.ErrorIs(t, err, ErrClosed)
}
