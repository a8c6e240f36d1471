package zkrecipes

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// A notice that a znode is gone may still be under way when the contender has queued anew and was granted with another one.
// Reports: CURATOR-653, CURATOR-652, apache/accumulo #6197.
func TestNoticeOfAZnodeThatWasGivenUpEndsNoLease(t *testing.T) {
	s := dialShared(t, calm)
	l, err := NewMutex(s, newPath(t)).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	l.hold.ownEvent(l.Path()+"/_c_3c8a2c0e-0d0e-4b8f-9d4e-000000000000-lock-0000000000", core.Deleted)
	require.NoError(t, l.Err())
	l.hold.ownEvent(l.Node(), core.Deleted)
	require.ErrorIs(t, l.Err(), ErrLost)
}

// undeletable makes a directory whose znodes nobody may delete.
func undeletable(t *testing.T) string {
	t.Helper()
	c, path := admin(t), newPath(t)
	mkdirs(t, c, path)
	_, err := c.SetACL(path, zk.WorldACL(zk.PermAll&^zk.PermDelete), -1)
	require.NoError(t, err)
	return path
}

func TestReleaseSaysThatTheServerRefuses(t *testing.T) {
	s := dialShared(t, calm)
	m := NewMutex(s, undeletable(t))
	l, err := m.Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	for range 2 {
		err = l.Release(within(t, 5*time.Second))
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.NotErrorIs(t, err, ErrNoConnection)
		require.Contains(t, err.Error(), m.Path())
	}
	require.ErrorIs(t, l.Err(), ErrReleased)
	require.NoError(t, s.Close())
	require.Empty(t, children(t, admin(t), m.Path()), "it went with the session")
}

func TestTryLockDoesNotWaitForARefusedDelete(t *testing.T) {
	c := admin(t)
	s, p := dialProxy(t, calm)
	path := undeletable(t)
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, path+"/"), Times: 1, Do: zktest.Call(func(zktest.Frame) {
		_, _ = c.Create(path+"/lock-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll)) // somebody is faster
	})})
	done := make(chan error, 1)
	go func() {
		_, err := NewMutex(s, path).TryLock(context.Background())
		done <- err
	}()
	require.ErrorIs(t, next(t, done), ErrHeld)
}

// A system error tells that something broke on the server, not how far the delete had come.
func TestDeleteThatMetASystemErrorIsRepeated(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t, calm)
	m := NewMutex(s, newPath(t))
	l, err := m.Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpDelete, m.Path()+"/"), Times: 2, Do: zktest.ReplyError(-1)})
	require.NoError(t, l.Release(context.Background()), "it was deleted, and nobody else did it")
	require.Zero(t, s.engine.Owing())
	require.Equal(t, 3, p.Counts().Requests[zktest.OpDelete])
}

// stuck is a log handler that does not return.
type stuck struct {
	slog.Handler
	until chan struct{}
}

func (stuck) Enabled(context.Context, slog.Level) bool { return true }

func (h stuck) Handle(context.Context, slog.Record) error {
	<-h.until
	return nil
}

func TestStuckLogHandlerDelaysNoLoss(t *testing.T) {
	t.Parallel()
	until := make(chan struct{})
	s, p := dialProxy(t, WithLogger(slog.New(stuck{slog.DiscardHandler, until})))
	defer close(until)
	path := newPath(t)
	l, err := NewMutex(s, path).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	told := l.Context().Done() // which asks no clock
	p.BlackHole(zktest.Both)
	lease := mustLease(t, goLock(context.Background(), NewMutex(dialShared(t), path)))
	select {
	case <-told:
	default:
		t.Fatal("the next one was granted first")
	}
	require.NoError(t, lease.Release(context.Background()))
}
