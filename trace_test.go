package zkrecipes

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTraceHooks(t *testing.T) {
	type key struct{}
	calls := make(chan string, 100)
	say := func(f string, args ...any) { calls <- fmt.Sprintf(f, args...) }
	trace := &Trace{
		AcquireStart: func(ctx context.Context, op, path string) context.Context {
			say("start %s", op)
			return context.WithValue(ctx, key{}, "span")
		},
		Waiting: func(ctx context.Context, op, _ string, ahead int) {
			say("waiting %s %d %v", op, ahead, ctx.Value(key{}))
		},
		AcquireDone: func(ctx context.Context, op, _ string, l *Lease, err error) {
			say("done %s %v %v %v", op, l != nil, err != nil, ctx.Value(key{}))
		},
		Released: func(l *Lease, held time.Duration) { say("released %v %v", l.Context().Value(key{}), held > 0) },
	}
	first, s := dialShared(t, calm), dialShared(t, WithTrace(trace), WithTrace(&Trace{}), WithTrace(nil))
	bg := context.Background()
	path := newPath(t)
	l, err := NewMutex(first, path).Lock(bg)
	require.NoError(t, err)
	_, err = NewMutex(s, path).TryLock(bg)
	require.ErrorIs(t, err, ErrHeld)
	got := goLock(bg, NewMutex(s, path))
	expect := func(want ...string) {
		t.Helper()
		for _, w := range want {
			require.Equal(t, w, next(t, calls))
		}
	}
	expect("start trylock", "done trylock false true span", "start lock", "waiting lock 1 span")
	require.NoError(t, l.Release(bg))
	mine := mustLease(t, got)
	expect("done lock true false span")
	require.NoError(t, mine.Release(bg))
	expect("released span true")
	require.Empty(t, calls)
}

// Who joins an acquisition that waits already is told its place as well.
func TestWaitingIsToldToALateJoiner(t *testing.T) {
	places := make(chan int, 10)
	first := dialShared(t, calm)
	s := dialShared(t, WithTrace(&Trace{Waiting: func(_ context.Context, _, _ string, ahead int) { places <- ahead }}))
	bg := context.Background()
	path := newPath(t)
	l, err := NewMutex(first, path).Lock(bg)
	require.NoError(t, err)
	m := NewMutex(s, path, WithOwner("both"))
	one := goLock(bg, m)
	require.Equal(t, 1, next(t, places))
	two := goLock(bg, m)
	require.Equal(t, 1, next(t, places))
	require.NoError(t, l.Release(bg))
	require.NoError(t, mustLease(t, one).Release(bg))
	require.NoError(t, mustLease(t, two).Release(bg))
}

// Every hook, for every way to acquire a read/write lock: by the queue, under a write lease, entered again, refused; released and lost.
func TestTraceHooksOfAReadWriteLock(t *testing.T) {
	t.Parallel()
	calls := make(chan string, 100)
	say := func(f string, args ...any) { calls <- fmt.Sprintf(f, args...) }
	s := dialShared(t, WithTrace(&Trace{
		AcquireStart: func(ctx context.Context, op, _ string) context.Context {
			say("start %s", op)
			return nil
		},
		Waiting:      func(_ context.Context, op, _ string, ahead int) { say("waiting %s %d", op, ahead) },
		AcquireDone:  func(_ context.Context, op, _ string, l *Lease, err error) { say("done %s %v", op, err == nil) },
		Released:     func(l *Lease, _ time.Duration) { say("released %v", l.Err() == ErrReleased) },
		Lost:         func(l *Lease, err *LostError) { say("lost %v %v", err.Reason, l.Err() == err) },
		StateChanged: func(_ *Session, st State) { say("%v", st) },
	}))
	expect := func(want ...string) {
		t.Helper()
		for _, w := range want {
			require.Equal(t, w, next(t, calls))
		}
	}
	expect("connected")
	other := dialShared(t, calm)
	path := newPath(t)
	l := NewRWLock(s, path)
	ctx := within(t, 20*time.Second)
	var blockers []*Lease
	for range 2 {
		b, err := NewRWLock(other, path).RLock(ctx)
		require.NoError(t, err)
		blockers = append(blockers, b)
	}
	write := goLock(ctx, l)
	expect("start lock", "waiting lock 2")
	read := goLock(ctx, l.RLocker())
	expect("start rlock", "waiting rlock 1")
	_, err := l.TryRLock(ctx)
	require.ErrorIs(t, err, ErrHeld)
	expect("start tryrlock", "done tryrlock false")
	require.NoError(t, blockers[1].Release(ctx))
	expect("waiting lock 1")
	require.NoError(t, blockers[0].Release(ctx))
	w := mustLease(t, write)
	expect("done lock true")
	nested, err := l.RLock(w.Context())
	require.NoError(t, err)
	again, err := l.TryRLock(w.Context())
	require.NoError(t, err)
	expect("start rlock", "done rlock true", "start tryrlock", "done tryrlock true")
	require.NoError(t, w.Release(ctx))
	r := mustLease(t, read)
	require.ElementsMatch(t, []string{"released true", "done rlock true"}, []string{next(t, calls), next(t, calls)})
	_, err = l.TryLock(nested.Context())
	require.ErrorIs(t, err, ErrUpgrade)
	expect("start trylock", "done trylock false")
	require.NoError(t, again.Release(ctx))
	require.NoError(t, r.Release(ctx))
	expect("released true", "released true")
	require.NoError(t, admin(t).Delete(nested.Node(), -1))
	expect("lost its znode was deleted true")
	require.ErrorIs(t, nested.Release(ctx), ErrLost)
	require.NoError(t, s.Close())
	expect("closed")
	require.Empty(t, calls)
}
