package zkrecipes

import (
	"context"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// written is how many requests changed something, sessions aside.
func written(s *zktest.Server) (n int) {
	for _, op := range writes {
		n += s.Counts().Requests[op]
	}
	return n
}

// Thirty waiters of thirty sessions lose their connections at one moment, or sixty of one session, again and again. Each keeps its znode and its
// place, so nothing is written at all: Curator's latches made new znodes at each reconnect (CURATOR-504, CURATOR-644), Pulsar's locks never came to rest
// (pulsar #14736).
// Reports: apache/pulsar #14736, apache/pulsar #17759.
func TestVirtualReconnectsOfManyWaitersWriteNothing(t *testing.T) {
	for name, c := range map[string]struct{ sessions, each int }{"thirty sessions": {30, 1}, "one session": {1, 60}} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, server *zktest.Server) {
				holder, _ := dialVirtual(t, server)
				l, err := NewMutex(holder, "/v/lock").Lock(t.Context())
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for range c.sessions {
					s, _ := dialVirtual(t, server)
					for range c.each {
						wg.Go(func() { _, _ = NewMutex(s, "/v/lock").Lock(ctx) })
					}
				}
				time.Sleep(time.Minute)
				before := znodes(server, "/v/lock")
				require.Len(t, before, 1+c.sessions*c.each)
				server.ResetCounters()
				for range 5 {
					server.Disconnect()
					time.Sleep(3 * time.Second)
				}
				time.Sleep(time.Minute)
				require.Zero(t, written(server), "%v", server.Counts().Requests)
				require.Equal(t, before, znodes(server, "/v/lock"))
				require.NoError(t, l.Err())
				cancel()
				wg.Wait()
				time.Sleep(time.Minute)
				require.Len(t, znodes(server, "/v/lock"), 1)
			})
		})
	}
}

// Sixty waiters lose their session. Each comes again with one znode, which is one write, and then there is rest.
func TestVirtualAnExpiryCostsEachWaiterOneWrite(t *testing.T) {
	virtual(t, func(t *testing.T, server *zktest.Server) {
		const waiters = 60
		holder, _ := dialVirtual(t, server)
		_, err := NewMutex(holder, "/v/lock").Lock(t.Context())
		require.NoError(t, err)
		s, _ := dialVirtual(t, server)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() { _, _ = NewMutex(s, "/v/lock").Lock(ctx) })
		}
		time.Sleep(time.Minute)
		server.ResetCounters()
		server.Expire(s.ID())
		time.Sleep(5 * time.Minute)
		require.Equal(t, waiters, written(server), "%v", server.Counts().Requests)
		require.Len(t, znodes(server, "/v/lock"), 1+waiters)
		cancel()
		wg.Wait()
		time.Sleep(time.Minute)
	})
}

// A waiter's session ends again and again, in quick succession and with what it sends slowed down, so that what was begun for one session comes to its end in a
// later one (helix #641). In the end there is one znode, of the session that is there, and its name has not grown (CURATOR-190: each new name was made of the
// last one).
// Reports: apache/helix #641.
func TestVirtualExpiriesInQuickSuccession(t *testing.T) {
	virtual(t, func(t *testing.T, server *zktest.Server) {
		holder, _ := dialVirtual(t, server)
		first, err := NewMutex(holder, "/v/lock").Lock(t.Context())
		require.NoError(t, err)
		s, _ := dialVirtual(t, server)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		got := goLock(ctx, NewMutex(s, "/v/lock"))
		time.Sleep(time.Minute)
		server.Delay(200 * time.Millisecond)
		for i := range 20 {
			server.Expire(s.ID())
			time.Sleep(time.Duration(50*(1+i%8)) * time.Millisecond)
		}
		server.Delay(0)
		time.Sleep(time.Minute)
		var names []string
		for z := range server.Znodes("/v/lock") {
			if z.Path == "/v/lock" || z.Path == first.Node() {
				continue
			}
			names = append(names, path.Base(z.Path))
			require.Equal(t, s.ID(), z.Owner)
		}
		require.Len(t, names, 1)
		require.Len(t, names[0], len(path.Base(first.Node())))
		require.NoError(t, first.Release(t.Context()))
		synctest.Wait()
		l := <-got
		require.NoError(t, l.err)
		require.NoError(t, l.lease.Release(t.Context()))
		require.Empty(t, znodes(server, "/v/lock"))
	})
}
