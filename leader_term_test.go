package zkrecipes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// Await that looks while a first Run begins waits for it, whichever of the two looks first: the state of a participant is read in one step.
func TestAwaitWhileRunBegins(t *testing.T) {
	t.Parallel()
	s, path := dialShared(t, calm), newPath(t)
	counted := 0
	for range 20 {
		l := NewLeaderLatch(s, path)
		ctx, cancel := context.WithCancel(context.Background())
		l.mu.Lock()
		began := time.Now()
		awaited := lockedIn(func() (*Lease, error) { return l.Await(ctx) })
		<-time.After(time.Millisecond) // so that Await stands before Run at the mutex
		stop := goRun(t, l.Run)
		<-time.After(2 * time.Millisecond)
		l.mu.Unlock()
		l.mu.Lock() // whoever waited in vain for so long is given the mutex next, and then the one behind
		<-time.After(time.Millisecond)
		l.mu.Unlock()
		r := next(t, awaited)
		if errors.Is(r.err, ErrInvalid) && time.Since(began) >= startGrace { // the machine stood still for so long
			require.NoError(t, stop())
			cancel()
			continue
		}
		counted++
		require.NoError(t, r.err)
		require.NoError(t, r.lease.Err())
		require.NoError(t, stop())
		cancel()
	}
	require.Positive(t, counted)
}

// The ctx that lead gets has a timer of its own for the deadline of Run's ctx. Whichever of the two fires first, that is the end of Run's ctx, and nil.
func TestLeadEndsAtTheDeadlineOfRun(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T, server *zktest.Server) {
		s, _ := dialVirtual(t, server)
		for range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := NewLeaderSelector(s, "/v/leader").Run(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
			cancel()
			require.NoError(t, err)
		}
	})
}

// A term that is over before lead could be called is none: lead is never called without leadership. It is Curator's testRaceAtStateChanged, for every way
// in which a term can be over by then.
func TestLeadIsNotCalledWithoutLeadership(t *testing.T) {
	t.Parallel()
	c := admin(t)
	for name, end := range map[string]func(t testing.TB, l *Lease, p *zktest.Proxy, stop func()){
		"its znode was deleted": func(t testing.TB, l *Lease, _ *zktest.Proxy, _ func()) { require.NoError(t, c.Delete(l.Node(), -1)) },
		"the session was ended": func(t testing.TB, _ *Lease, p *zktest.Proxy, _ func()) { expireSession(t, p) },
		"ctx has ended":         func(_ testing.TB, _ *Lease, _ *zktest.Proxy, stop func()) { stop() },
	} {
		for _, once := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(within(t, 30*time.Second))
				defer cancel()
				grants := 0
				var p *zktest.Proxy
				trace := &Trace{AcquireDone: func(_ context.Context, _, _ string, l *Lease, err error) {
					if grants++; err != nil || grants > 1 {
						return
					}
					end(t, l, p, cancel)
					if ctx.Err() == nil {
						<-l.Context().Done()
					}
				}}
				var opts []LeaderOption
				if once {
					opts = append(opts, WithoutRequeue())
				}
				var s *Session
				s, p = dialProxy(t, calm, WithTrace(trace))
				enough := errors.New("enough")
				err := NewLeaderSelector(s, newPath(t), opts...).Run(ctx, func(ctx context.Context) error {
					l, _ := LeaseFromContext(ctx)
					require.NoError(t, l.Err(), "called without leadership")
					require.NoError(t, ctx.Err())
					require.Equal(t, 2, grants)
					return enough
				})
				switch {
				case ctx.Err() != nil:
					require.NoError(t, err)
					require.Equal(t, 1, grants)
				case once:
					require.ErrorIs(t, err, ErrLost)
					require.Equal(t, 1, grants)
				default:
					require.Equal(t, enough, err)
				}
			})
		}
	}
}

// Whoever resigns and ends ctx right behind it has asked for nothing but an end: Run returns nil, also when lead returns the cause of its ctx.
func TestResignRightBeforeTheEnd(t *testing.T) {
	t.Parallel()
	e := NewLeaderSelector(dialShared(t, calm), newPath(t))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	require.NoError(t, e.Run(ctx, func(ctx context.Context) error {
		e.Resign()
		<-ctx.Done()
		cancel()
		return context.Cause(ctx)
	}))
}

// lead may release the lease itself. It has given leadership up then, as by Resign: no loss, and no error.
func TestLeadReleasesItsLease(t *testing.T) {
	t.Parallel()
	path, enough := newPath(t), errors.New("enough")
	for _, once := range []bool{false, true} {
		var opts []LeaderOption
		if once {
			opts = append(opts, WithoutRequeue())
		}
		e := NewLeaderSelector(dialShared(t, calm), path, opts...)
		terms := 0
		err := e.Run(within(t, 20*time.Second), func(ctx context.Context) error {
			if terms++; terms == 2 {
				return enough
			}
			l, _ := LeaseFromContext(ctx)
			require.NoError(t, l.Release(within(t, 5*time.Second)))
			require.False(t, e.IsLeader())
			require.Equal(t, ErrReleased, context.Cause(ctx))
			return nil
		})
		if once {
			require.NoError(t, err)
			require.Equal(t, 1, terms)
		} else {
			require.Equal(t, enough, err)
		}
	}
}

// An empty id replaces the owner that would be made up, not the data that somebody asked for.
func TestEmptyIDKeepsTheData(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]LeaderOption{{WithOwner(""), WithData([]byte("host:port"))}, {WithData([]byte("host:port")), WithOwner("")}} {
		l := NewLeaderLatch(dialShared(t, calm), newPath(t), opts...)
		runs(t, l)
		_, err := l.Await(within(t, 5*time.Second))
		require.NoError(t, err)
		leader, err := l.Leader(within(t, 5*time.Second))
		require.NoError(t, err)
		require.Equal(t, "host:port", string(leader.Data))
		require.Empty(t, leader.Owner)
	}
}

// A reader of Changes that is busy while leadership is lost and won again hears of both: never of two terms as of one.
func TestChangesNeverMissesALoss(t *testing.T) {
	t.Parallel()
	l := NewLeaderLatch(dialShared(t, calm), newPath(t))
	runs(t, l)
	_, err := l.Await(within(t, 5*time.Second))
	require.NoError(t, err)
	var seen []bool
	for leads := range l.Changes(within(t, 20*time.Second)) {
		if seen = append(seen, leads); len(seen) == 3 {
			break
		}
		if len(seen) > 1 {
			continue
		}
		for range 2 {
			lease, err := l.Await(within(t, 5*time.Second))
			require.NoError(t, err)
			require.NoError(t, lease.Release(within(t, 5*time.Second)))
		}
		_, err := l.Await(within(t, 5*time.Second))
		require.NoError(t, err)
	}
	require.Equal(t, []bool{true, false, true}, seen)
}
