package zkrecipes

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// What takes hours and is exact to the nanosecond, on the server of this process in virtual time. That this server is like the real one is tested in
// zktest; what the recipes promise is tested on the real one too.

const virtualTimeout = 12 * time.Second

// virtual runs a test in a bubble with a server of its own.
func virtual(t *testing.T, run func(t *testing.T, s *zktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { run(t, zktest.NewServer(t, zktest.TickTime(time.Second))) })
}

// dialVirtual opens a Session on a server in the bubble.
func dialVirtual(t *testing.T, s *zktest.Server, opts ...DialOption) (*Session, *syncTimes) {
	t.Helper()
	times := &syncTimes{dial: s.Dialer()}
	opts = append([]DialOption{WithDialer(times.Dial), WithTimeout(virtualTimeout), WithLogger(quiet(t))}, opts...)
	session, err := Dial(t.Context(), []string{"zk:2181"}, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return session, times
}

// settle lets sessions just made get to where nothing that they read is kept for a moment, as the answer that makes a new session's first watch is.
func settle() { time.Sleep(100 * time.Millisecond) }

// syncTimes is a dialer that notes when the last sync was sent.
type syncTimes struct {
	dial func(network, address string, timeout time.Duration) (net.Conn, error)

	mu   sync.Mutex
	last time.Time
}

func (s *syncTimes) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	c, err := s.dial(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return syncTimesConn{c, s}, nil
}

func (s *syncTimes) get() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

type syncTimesConn struct {
	net.Conn
	times *syncTimes
}

func (c syncTimesConn) Write(b []byte) (int, error) {
	if len(b) >= 12 && zktest.Op(binary.BigEndian.Uint32(b[8:])) == zktest.OpSync {
		c.times.mu.Lock()
		c.times.last = time.Now()
		c.times.mu.Unlock()
	}
	return c.Conn.Write(b)
}

// znodes are the paths below a path.
func znodes(s *zktest.Server, below string) (all []string) {
	for z := range s.Znodes(below) {
		if z.Path != below {
			all = append(all, z.Path)
		}
	}
	return all
}

// Six sessions hold one after the other, ten minutes each, without a gap.
func TestVirtualContention(t *testing.T) {
	virtual(t, func(t *testing.T, s *zktest.Server) {
		const contenders = 6
		var sessions []*Session
		for range contenders {
			session, _ := dialVirtual(t, s)
			sessions = append(sessions, session)
		}
		settle()
		began := time.Now()
		var wg sync.WaitGroup
		var mu sync.Mutex
		var tokens []Token
		held := 0
		for _, session := range sessions {
			wg.Go(func() {
				err := Do(t.Context(), NewMutex(session, "/v/lock"), func(ctx context.Context) error {
					lease, _ := LeaseFromContext(ctx)
					mu.Lock()
					held++
					if held != 1 {
						t.Errorf("%d hold", held)
					}
					tokens = append(tokens, lease.Token())
					mu.Unlock()
					time.Sleep(10 * time.Minute)
					mu.Lock()
					held--
					mu.Unlock()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Equal(t, contenders*10*time.Minute, time.Since(began))
		require.IsIncreasing(t, tokens)
		require.Empty(t, znodes(s, "/v/lock"))
	})
}

// A holder that is cut off is told exactly two thirds of T after its last proof was sent, and the next one is granted when the server has ended its
// session, not before.
func TestVirtualPartition(t *testing.T) {
	for _, phase := range []time.Duration{0, time.Millisecond, 700 * time.Millisecond, 1999 * time.Millisecond} {
		t.Run(phase.String(), func(t *testing.T) {
			virtual(t, func(t *testing.T, s *zktest.Server) {
				holder, proofs := dialVirtual(t, s)
				waiter, _ := dialVirtual(t, s)
				lease, err := NewMutex(holder, "/v/lock").Lock(t.Context())
				require.NoError(t, err)
				granted := make(chan time.Time, 1)
				go func() {
					next, err := NewMutex(waiter, "/v/lock").Lock(t.Context())
					if err != nil {
						t.Error(err)
						close(granted)
						return
					}
					granted <- time.Now()
					if next.Token() <= lease.Token() {
						t.Error("a token that does not grow")
					}
				}()
				time.Sleep(10*time.Minute + phase)
				synctest.Wait()
				proof := proofs.get()
				require.NoError(t, lease.Err())
				require.Less(t, time.Since(proof), virtualTimeout/6+time.Millisecond)
				heal := s.Partition(holder.ID())
				<-lease.Done()
				lost := time.Now()
				require.Equal(t, virtualTimeout*2/3, lost.Sub(proof))
				var reason *LostError
				require.ErrorAs(t, lease.Err(), &reason)
				require.Equal(t, ReasonUnconfirmed, reason.Reason)
				at := <-granted
				require.GreaterOrEqual(t, at.Sub(proof), virtualTimeout)
				require.LessOrEqual(t, at.Sub(proof), virtualTimeout+virtualTimeout/6+2*time.Second)
				require.Positive(t, at.Sub(lost))
				heal()
				_, err = NewMutex(holder, "/v/other").Lock(t.Context())
				require.NoError(t, err, "the session comes back")
			})
		})
	}
}

// What a session that ended held goes to the next one at once, and its former holder is told why and queues at the tail.
func TestVirtualExpiry(t *testing.T) {
	virtual(t, func(t *testing.T, s *zktest.Server) {
		holder, _ := dialVirtual(t, s)
		waiter, _ := dialVirtual(t, s)
		lease, err := NewMutex(holder, "/v/lock").Lock(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Hour)
		expired := time.Now()
		require.True(t, s.Expire(holder.ID()))
		next, err := NewMutex(waiter, "/v/lock").Lock(t.Context())
		require.NoError(t, err)
		require.Equal(t, expired, time.Now())
		<-lease.Context().Done() // which asks no clock
		require.Less(t, time.Since(expired), virtualTimeout/3)
		var reason *LostError
		require.ErrorAs(t, lease.Err(), &reason)
		require.Equal(t, ReasonSessionExpired, reason.Reason)
		require.ErrorIs(t, lease.Release(t.Context()), ErrLost)

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_, err = NewMutex(holder, "/v/lock").Lock(ctx)
		require.ErrorIs(t, err, ErrHeld)
		require.NoError(t, next.Release(t.Context()))
		_, err = NewMutex(holder, "/v/lock").Lock(t.Context())
		require.NoError(t, err)
	})
}

// Waiters keep their znodes and their places over disconnects and a stop of the server.
func TestVirtualDisconnect(t *testing.T) {
	virtual(t, func(t *testing.T, s *zktest.Server) {
		holder, _ := dialVirtual(t, s)
		lease, err := NewMutex(holder, "/v/lock").Lock(t.Context())
		require.NoError(t, err)
		order := make(chan int, 3)
		var waiters []int64
		for i := range 3 {
			session, _ := dialVirtual(t, s)
			waiters = append(waiters, session.ID())
			go func() {
				err := Do(t.Context(), NewMutex(session, "/v/lock"), func(context.Context) error {
					order <- i
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		queue := znodes(s, "/v/lock")
		require.Len(t, queue, 4)
		for _, id := range waiters {
			s.Disconnect(id)
			time.Sleep(time.Minute)
		}
		s.Stop()
		time.Sleep(time.Second)
		require.NoError(t, s.Start())
		time.Sleep(10 * time.Minute)
		require.Equal(t, queue, znodes(s, "/v/lock"))
		require.NoError(t, lease.Err(), "back in time")
		require.NoError(t, lease.Release(t.Context()))
		for i := range 3 {
			require.Equal(t, i, <-order)
		}
	})
}

// A wait that ctx ends takes exactly as long as ctx, and leaves nothing behind, also when the connection is away at that time.
func TestVirtualCancel(t *testing.T) {
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprint("away ", away), func(t *testing.T) {
			virtual(t, func(t *testing.T, s *zktest.Server) {
				holder, _ := dialVirtual(t, s)
				waiter, _ := dialVirtual(t, s)
				lease, err := NewMutex(holder, "/v/lock").Lock(t.Context())
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				var heal func()
				if away {
					time.AfterFunc(time.Hour-time.Second, func() { heal = s.Partition(waiter.ID()) })
				}
				_, err = NewMutex(waiter, "/v/lock").Lock(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, ErrHeld)
				require.Equal(t, time.Hour, time.Since(began))
				if away {
					synctest.Wait()
					require.Len(t, znodes(s, "/v/lock"), 2)
					heal()
				}
				time.Sleep(virtualTimeout)
				require.Equal(t, []string{lease.Node()}, znodes(s, "/v/lock"))
				require.NoError(t, lease.Err())
			})
		})
	}
}

// A create whose answer is lost is found again: the lock is taken once, by one znode.
func TestVirtualLostReply(t *testing.T) {
	virtual(t, func(t *testing.T, s *zktest.Server) {
		session, _ := dialVirtual(t, s)
		first, err := NewMutex(session, "/v/lock").Lock(t.Context()) // the directory is there
		require.NoError(t, err)
		require.NoError(t, first.Release(t.Context()))
		s.LoseReply(zktest.OpCreate, "/v/lock/")
		lease, err := NewMutex(session, "/v/lock").Lock(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.Equal(t, []string{lease.Node()}, znodes(s, "/v/lock"))
		require.NoError(t, lease.Err())
	})
}
