package zkrecipes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A handover is a holder that is about to be cut off, and who is granted next, on one clock.
type handover struct {
	lease *Lease
	lost  chan time.Time // when the lease's Done was closed
	next  chan nextGrant
}

// A nextGrant is what was true the moment the next Lock returned.
type nextGrant struct {
	lease *Lease
	err   error
	at    time.Time
	done  bool  // the last holder's Done was closed
	told  error // and its Err, asked after that
}

// newHandover lets holder have a lock and next wait for it. look is a way to the tree past all faults.
func newHandover(t testing.TB, look Conn, holder, next *Session) *handover {
	t.Helper()
	path := newPath(t)
	lease, err := NewMutex(holder, path).Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	h := &handover{lease: lease, lost: make(chan time.Time, 1), next: make(chan nextGrant, 1)}
	ctx := within(t, 30*time.Second)
	stop := context.AfterFunc(lease.Context(), func() { h.lost <- time.Now() })
	t.Cleanup(func() { stop() })
	go func() {
		var g nextGrant
		g.lease, g.err = NewMutex(next, path).Lock(ctx)
		g.at = time.Now()
		// Lease.Done would ask the clock, and so would Err: first whether the lease was told without being asked.
		g.done = lease.Context().Err() != nil
		g.told = lease.Err()
		h.next <- g
	}()
	// On a machine that stands still the lease may be lost before anything is broken. That has to be told in time as well.
	eventually(t, 10*time.Second, "the next one waits, or has been granted", func() bool {
		return len(children(t, look, path)) == 2 || lease.Context().Err() != nil
	})
	return h
}

// margin waits for the next grant and returns how long before it the holder had been told. It had to be told.
func (h *handover) margin(t testing.TB) time.Duration {
	t.Helper()
	g := <-h.next
	require.NoError(t, g.err)
	defer func() { require.NoError(t, g.lease.Release(context.Background())) }()
	if !g.done || g.told == nil {
		var late any = "not within a second"
		select {
		case at := <-h.lost:
			late = at.Sub(g.at)
		case <-time.After(time.Second):
		}
		t.Fatalf("the next client was granted while the lease was held: Done closed: %v, Err: %v; told later by: %v", g.done, g.told, late)
	}
	require.ErrorIs(t, g.told, ErrLost)
	require.ErrorIs(t, h.lease.Release(context.Background()), ErrLost)
	return g.at.Sub(<-h.lost)
}

// margins collects them over many runs.
type margins struct {
	mu  sync.Mutex
	all []time.Duration
}

func (m *margins) add(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, d)
}

func (m *margins) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.all) == 0 {
		return "no runs"
	}
	slices.Sort(m.all)
	return fmt.Sprintf("%d runs, told before the next grant by at least %v, median %v", len(m.all), m.all[0].Round(time.Millisecond),
		m.all[len(m.all)/2].Round(time.Millisecond))
}

// A holder that hears or says nothing any more is told before its session can end at the server, and with it before anybody else is granted, whatever
// the direction and the phase of its pings.
// Reports: CURATOR-206, CURATOR-465, pinterest/rocksplicator #417, hashicorp/consul #18271, hashicorp/consul #1843, CURATOR-460, FLINK-10052.
func TestLossBeforeRegrantOnAStandaloneServer(t *testing.T) {
	t.Parallel()
	lossBeforeRegrantOnAStandaloneServer(t)
}

func lossBeforeRegrantOnAStandaloneServer(t testing.TB) {
	const holders = 10
	directions := []zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.Both}
	next, look := dialShared(t, WithTimeout(10*time.Second)), admin(t)
	byDirection := map[zktest.Direction]*margins{zktest.ToServer: {}, zktest.ToClient: {}, zktest.Both: {}}
	ss := newSides(t, holders)
	for i := range holders {
		ss.add(fmt.Sprintf("holder %d", i), func(t testing.TB) {
			timeout := []time.Duration{time.Second, 1600 * time.Millisecond}[i%2]
			s, p := dialProxy(t, WithTimeout(timeout))
			for round := range rounds(t, 5) {
				d := directions[(i/2+round)%len(directions)]
				h := newHandover(t, look, s, next)
				<-time.After(rand.N(timeout / 2)) // a ping is due every third of it
				over := make(chan struct{})
				var healing sync.WaitGroup
				p.BlackHole(d)
				if d == zktest.ToClient {
					// The server hears the client, which comes back again and again and hears nothing: that keeps the session alive, with the znode if
					// its delete was not out in time, for as long as the hole lasts.
					healing.Go(func() {
						<-h.lease.Context().Done()
						select {
						case <-time.After(timeout):
							p.BlackHole(zktest.None)
						case <-over:
						}
					})
				}
				byDirection[d].add(h.margin(t))
				close(over)
				healing.Wait()
				p.BlackHole(zktest.None)
			}
		})
	}
	ss.wg.Wait()
	for d, m := range byDirection {
		t.Logf("black hole %v: %v", d, m)
	}
}
