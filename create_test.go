package zkrecipes

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// emptyList makes the reply to a getChildren2 one of a directory without children, as a server gives that has not yet applied their creation.
func emptyList(f zktest.Frame) []byte {
	const header, stat = 16, 68
	b := slices.Clone(f.Bytes[:header])
	b = append(b, 0, 0, 0, 0)
	return append(b, f.Bytes[len(f.Bytes)-stat:]...)
}

// TestRetriedCreateLeavesOneZnode loses the reply to the create, once or more, with a recovery that finds the znode or, on a server that lags, does not.
// Whatever was made, one znode remains, it is the lease's, and the call does not wait behind its own.
// Reports: CURATOR-264, apache/accumulo #637.
func TestRetriedCreateLeavesOneZnode(t *testing.T) {
	retriedCreateLeavesOneZnode(t)
}

func retriedCreateLeavesOneZnode(t testing.TB) {
	w := newCutWorld(t)
	for _, c := range []struct{ lost, hidden, made int }{
		{1, 0, 1},
		{1, 1, 2},
		{2, 1, 2}, // the second is found
		{2, 2, 3},
	} {
		subtest(t, fmt.Sprintf("%d replies lost, %d not found", c.lost, c.hidden), func(t testing.TB) {
			r := w.newRun(t, 10*time.Second)
			r.strangers()
			create := zktest.MatchPath(zktest.OpCreate, r.path+"/")
			r.p.OnRequest(zktest.Rule{Match: create, Times: c.lost, Do: zktest.CutAfter()})
			var creates, hidden int
			synced := false
			r.p.OnRequest(zktest.Rule{Do: zktest.RewriteReply(emptyList), Match: func(f zktest.Frame) bool {
				switch {
				case create(f):
					creates++
					synced = false
				case f.Op == zktest.OpSync && f.Path == r.path:
					synced = true
				case f.Op == zktest.OpGetChildren2 && synced && creates <= c.hidden:
					hidden++ // every list of this recovery, whoever asks
					return true
				}
				return false
			}})
			l, err := r.m.Lock(within(r, 10*time.Second))
			require.NoError(r, err, "%s", ops(r.requests()))
			r.exactly(l.Node())
			r.release(l)
			n := 0
			for _, q := range r.requests() {
				if q.Op == zktest.OpCreate {
					n++
				}
				if q.Op == zktest.OpGetData && q.Err == 0 { // one that has gone since the list was read is no matter
					require.Equal(r, l.Node(), q.Path, "it waited behind its own: %s", ops(r.requests()))
				}
			}
			require.Equal(r, c.made, n, "%s", ops(r.requests()))
			r.settled()
		})
	}
}

// TestCreateThatIsNeverAnsweredEnds cuts the connection under every create: an endless loop would cost the session its connection for ever.
// Reports: CURATOR-559, CURATOR-599.
func TestCreateThatIsNeverAnsweredEnds(t *testing.T) {
	createThatIsNeverAnsweredEnds(t)
}

func createThatIsNeverAnsweredEnds(t testing.TB) {
	r := newCutWorld(t).newRun(t, 10*time.Second)
	remove := r.p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, r.path+"/"), Do: zktest.CutBefore()})
	_, err := r.m.Lock(within(t, 10*time.Second))
	require.ErrorContains(t, err, "times running")
	remove()
	r.settled()
}

// A stuckConn keeps the client's writes until it is closed.
type stuckConn struct {
	net.Conn
	stick  atomic.Bool
	stuck  chan struct{} // closed when a write is kept
	once   sync.Once
	closed chan struct{}
}

func (c *stuckConn) Write(b []byte) (int, error) {
	if c.stick.Load() {
		c.once.Do(func() { close(c.stuck) })
		<-c.closed
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

func (c *stuckConn) Close() error {
	err := c.Conn.Close()
	if err == nil {
		close(c.closed)
	}
	return err
}

// TestCreateQueuedAcrossAnExpiryLeavesNothing has the client keep a create in its queue while the session ends. go-zookeeper then executes it in the next
// session, where nobody would look for it.
func TestCreateQueuedAcrossAnExpiryLeavesNothing(t *testing.T) {
	createQueuedAcrossAnExpiryLeavesNothing(t)
}

func createQueuedAcrossAnExpiryLeavesNothing(t testing.TB) {
	for _, cancelled := range []bool{false, true} {
		subtest(t, fmt.Sprintf("cancelled=%v", cancelled), func(t testing.TB) {
			w := newCutWorld(t)
			var conns []*stuckConn
			var mu sync.Mutex
			s, p := dialProxy(t, WithTimeout(10*time.Second), WithDialer(func(network, addr string, timeout time.Duration) (net.Conn, error) {
				c, err := net.DialTimeout(network, addr, timeout)
				if err != nil {
					return nil, err
				}
				mu.Lock()
				defer mu.Unlock()
				conns = append(conns, &stuckConn{Conn: c, stuck: make(chan struct{}), closed: make(chan struct{})})
				return conns[len(conns)-1], nil
			}))
			r := &cutRun{TB: t, cutWorld: w, s: s, p: p}
			r.at(w.top)
			r.mkdirs()
			old := s.ID()
			r.begin()
			mu.Lock()
			conn := conns[len(conns)-1]
			mu.Unlock()
			conn.stick.Store(true)
			go func() { _, _, _ = s.Conn().Exists("/") }()
			<-conn.stuck // the client writes nothing more, and does not know
			ctx, cancel := context.WithCancel(within(t, 20*time.Second))
			defer cancel()
			got := make(chan result, 1)
			go func() {
				l, err := r.m.Lock(ctx)
				got <- result{lease: l, err: err}
			}()
			eventually(t, 5*time.Second, "a create waits in the client", func() bool {
				stacks := make([]byte, 1<<20)
				stacks = stacks[:runtime.Stack(stacks, true)]
				return bytes.Contains(stacks, []byte("zk.(*Conn).Create("))
			})
			if cancelled {
				cancel()
				g := <-got
				require.ErrorIs(t, g.err, context.Canceled)
			}
			require.NoError(t, p.Expire(within(t, 5*time.Second)))
			require.NoError(t, conn.Close())
			eventually(t, 5*time.Second, "a new session", func() bool { return s.ID() != old && s.State() == StateConnected })
			if !cancelled {
				g := <-got
				require.NoError(t, g.err)
				require.NoError(t, g.lease.Err())
				_, stat, err := w.admin.Get(g.lease.Node())
				require.NoError(t, err)
				require.Equal(t, s.ID(), stat.EphemeralOwner)
				r.exactly(g.lease.Node())
				r.release(g.lease)
			}
			eventually(t, 5*time.Second, "the queued create was executed and undone", func() bool { return strings.Contains(ops(r.requests()), "delete") })
			r.settled()
		})
	}
}
