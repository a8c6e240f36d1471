package zkrecipes

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// A read under a write lease is on its way when somebody deletes the writer's znode, and the next writer is granted. The read must not come in beside it,
// in the old place: it queues.
func TestNestedReadComesAfterTheWritersEnd(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t, calm)
	other, c := dialShared(t, calm), admin(t)
	path := newPath(t)
	ctx := within(t, 30*time.Second)
	w, err := NewRWLock(s, path, WithOwner("o")).Lock(ctx)
	require.NoError(t, err)
	next := goLock(ctx, NewRWLock(other, path))
	waitingFor(t, path, 2)
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldRequest(gate)})
	read := goLock(ctx, NewRWLock(s, path, WithOwner("o")).RLocker())
	eventually(t, 10*time.Second, "the read is on its way", func() bool { return p.Counts().Requests[zktest.OpMulti] == 1 })
	require.NoError(t, c.Delete(w.Node(), -1))
	l := mustLease(t, next)
	gate.Open()
	waitingFor(t, path, 2) // it has queued
	select {
	case got := <-read:
		t.Fatalf("the read holds beside the writer: %v, %v", got.lease, got.err)
	default:
	}
	require.ErrorIs(t, w.Err(), ErrLost)
	require.NoError(t, l.Release(ctx))
	r := mustLease(t, read)
	require.Greater(t, r.Token(), l.Token())
	require.NoError(t, r.Release(ctx))
	require.Empty(t, children(t, c, path))
}

// While a read under it is on its way, the last write lease is released: its Done is closed at once, its znode stays until the read is decided, so that
// nobody comes in between. A Release whose ctx ends meanwhile says so.
func TestReleaseOfTheWriterWaitsForARead(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t, calm)
	other, c := dialShared(t, calm), admin(t)
	path := newPath(t)
	ctx := within(t, 30*time.Second)
	w, err := NewRWLock(s, path, WithOwner("o")).Lock(ctx)
	require.NoError(t, err)
	next := goLock(ctx, NewRWLock(other, path))
	waitingFor(t, path, 2)
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldRequest(gate)})
	read := goLock(ctx, NewRWLock(s, path, WithOwner("o")).RLocker())
	eventually(t, 10*time.Second, "the read is on its way", func() bool { return p.Counts().Requests[zktest.OpMulti] == 1 })
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	err = w.Release(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "in the background")
	require.ErrorIs(t, w.Err(), ErrReleased)
	released := make(chan error, 1)
	go func() { released <- w.Release(ctx) }() // again, to wait for it
	// Who asks for the write lock again now is somebody new, who must not go before the one who waits.
	again := goLock(ctx, NewRWLock(s, path, WithOwner("o")))
	require.Len(t, children(t, c, path), 2)
	gate.Open()
	r := mustLease(t, read)
	require.Equal(t, w.Token(), r.Token())
	require.NoError(t, <-released)
	select {
	case got := <-again:
		require.ErrorIs(t, got.err, ErrUpgrade, "its owner reads")
	case <-time.After(10 * time.Second):
		t.Fatal("write under read neither refused nor granted")
	}
	select {
	case got := <-next:
		t.Fatalf("the writer holds beside the read: %v, %v", got.lease, got.err)
	default:
	}
	require.NoError(t, r.Release(ctx))
	require.NoError(t, mustLease(t, next).Release(ctx))
	require.Empty(t, children(t, c, path))
	require.Empty(t, s.Leases())
}

// The read that a write lease's znode waits for is given up: the znode goes, and so does what was made for the read.
func TestReadGivenUpWhileTheWriterIsReleased(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(*zktest.Gate) zktest.Action{"before": zktest.HoldRequest, "after": zktest.HoldReply} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := dialProxy(t, calm)
			other := dialShared(t, calm)
			path := newPath(t)
			ctx := within(t, 30*time.Second)
			w, err := NewRWLock(s, path, WithOwner("o")).Lock(ctx)
			require.NoError(t, err)
			next := goLock(ctx, NewRWLock(other, path))
			waitingFor(t, path, 2)
			gate := zktest.NewGate()
			p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: hold(gate)})
			short, cancel := context.WithCancel(ctx)
			read := goLock(short, NewRWLock(s, path, WithOwner("o")).RLocker())
			eventually(t, 10*time.Second, "the read is on its way", func() bool { return p.Counts().Requests[zktest.OpMulti] == 1 })
			released := make(chan error, 1)
			go func() { released <- w.Release(ctx) }()
			<-w.Done()
			cancel()
			got := <-read
			require.ErrorIs(t, got.err, context.Canceled)
			require.NotErrorIs(t, got.err, ErrHeld, "nobody is in its way")
			gate.Open()
			require.NoError(t, <-released)
			require.NoError(t, mustLease(t, next).Release(ctx))
			eventually(t, 10*time.Second, "nothing is left", func() bool { return len(children(t, admin(t), path)) == 0 })
			require.Empty(t, s.Leases())
		})
	}
}

// The session ends while a Release waits for a read: the lease was there to the end and was given back, so that is no loss. The read queues in the next
// session.
func TestSessionEndsWhileAReleaseWaitsForARead(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t, calm)
	path := newPath(t)
	ctx := within(t, 60*time.Second)
	w, err := NewRWLock(s, path, WithOwner("o")).Lock(ctx)
	require.NoError(t, err)
	gate := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldRequest(gate)})
	read := goLock(ctx, NewRWLock(s, path, WithOwner("o")).RLocker())
	eventually(t, 10*time.Second, "the read is on its way", func() bool { return p.Counts().Requests[zktest.OpMulti] == 1 })
	released := make(chan error, 1)
	go func() { released <- w.Release(ctx) }()
	<-w.Done()
	p.Refuse(true)
	p.Cut()
	require.NoError(t, p.Expire(ctx))
	gate.Open()
	p.Refuse(false)
	require.NoError(t, <-released)
	require.ErrorIs(t, w.Err(), ErrReleased)
	r := mustLease(t, read)
	require.Greater(t, r.Token(), w.Token())
	require.NoError(t, r.Release(ctx))
	require.Empty(t, children(t, admin(t), path))
}

// A call that waits for what becomes of its owner's call in the other mode says who is ahead of that one.
func TestWaitingForTheOtherModeSaysWhoIsAhead(t *testing.T) {
	t.Parallel()
	s, other := dialShared(t, calm), dialShared(t, calm)
	path := newPath(t)
	ctx := within(t, 60*time.Second)
	l, err := NewMutex(other, path).Lock(ctx)
	require.NoError(t, err)
	long, cancel := context.WithCancel(ctx)
	first := goLock(long, NewRWLock(s, path, WithOwner("o")))
	waitingFor(t, path, 2)
	short, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	_, err = NewRWLock(s, path, WithOwner("o")).RLock(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, ErrHeld)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, l.Owner(), e.Ahead[0].Owner)
	cancel()
	require.ErrorIs(t, (<-first).err, ErrHeld)
	require.NoError(t, l.Release(ctx))
}

// The data of the write's znode fit into a request, and with the paths of a read under it they do not: that is said, and nothing is sent.
func TestReadWithLargeDataBelowALongPath(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t, calm)
	path := newPath(t) + strings.Repeat("x", 500)
	ctx := within(t, 60*time.Second)
	l := NewRWLock(s, path, WithOwner("o"), WithData(make([]byte, core.MaxData)))
	w, err := l.Lock(ctx)
	require.NoError(t, err)
	_, err = l.RLock(ctx)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "too large")
	require.Zero(t, p.Counts().Requests[zktest.OpMulti])
	require.NoError(t, w.Err())
	require.NoError(t, w.Release(ctx))
	_, err = NewMutex(s, newPath(t)+strings.Repeat("x", 2000), WithData(make([]byte, core.MaxData))).Lock(ctx)
	require.ErrorIs(t, err, ErrInvalid)
}

// What a call's error says is the caller's own: whatever is done to it shows in no other's.
func TestAheadOfAnErrorIsTheCallers(t *testing.T) {
	t.Parallel()
	s, other := dialShared(t, calm), dialShared(t, calm)
	path := newPath(t)
	ctx := within(t, 30*time.Second)
	l, err := NewMutex(other, path, WithOwner("holder")).Lock(ctx)
	require.NoError(t, err)
	long, cancel := context.WithCancel(ctx)
	waiting := goLock(long, NewMutex(s, path, WithOwner("o")))
	waitingFor(t, path, 2)
	eventually(t, 10*time.Second, "it has read who is ahead", func() bool {
		short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
		defer stop()
		_, err = NewMutex(s, path, WithOwner("o")).Lock(short)
		var e *Error
		require.ErrorAs(t, err, &e)
		return len(e.Ahead) == 1 && e.Ahead[0].Owner == "holder"
	})
	var e *Error
	require.ErrorAs(t, err, &e)
	e.Ahead[0].Owner = "scribble"
	e.Ahead[0].Data[0] = 'X'
	cancel()
	require.ErrorAs(t, (<-waiting).err, &e)
	require.Equal(t, Owner("holder"), e.Ahead[0].Owner)
	require.Equal(t, "holder", string(e.Ahead[0].Data))
	require.NoError(t, l.Release(ctx))
}
