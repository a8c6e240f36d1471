package zkrecipes

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A create that never reached the server is looked for, and a znode of another session bears its very token: that one is no place in the queue, whatever its
// name says. (It can only be a create of one's own that another session has executed, so it is removed.) CURATOR-489 had one token for everybody; CURATOR-498
// and CURATOR-604 took the znode of a former session for one's own.
// Reports: KAFKA-1387, KAFKA-7165, apache/dubbo #5135, STORM-1941, wglass/lighthouse #11.
func TestZnodeOfAnotherSessionIsNotAdopted(t *testing.T) {
	t.Parallel()
	for name, locker := range lockers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := dialProxy(t, calm)
			path, other := newPath(t), admin(t)
			mkdirs(t, other, path)
			gate := zktest.NewGate()
			defer gate.Open()
			asked := make(chan string, 1)
			create := zktest.MatchPath(zktest.OpCreate, path+"/")
			p.OnRequest(zktest.Rule{Times: 1, Do: zktest.HoldRequest(gate), Match: func(f zktest.Frame) bool {
				if !create(f) || len(asked) > 0 {
					return false
				}
				asked <- f.Path
				return true
			}})
			got := goLock(context.Background(), locker(s, path))
			next(t, gate.Reached())
			want := <-asked
			theirs, err := other.Create(want, []byte("theirs"), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			p.Cut()
			l := mustLease(t, got)
			require.NotEqual(t, theirs, l.Node())
			_, stat, err := other.Get(l.Node())
			require.NoError(t, err)
			require.Equal(t, s.ID(), stat.EphemeralOwner)
			require.Equal(t, int64(l.Token()), stat.Czxid)
			eventually(t, 5*time.Second, "one znode", func() bool { return len(children(t, other, path)) == 1 })
			require.NoError(t, l.Err())
			require.NoError(t, l.Release(context.Background()))
			require.Empty(t, children(t, other, path))
		})
	}
}

// The answer to a handshake comes too late, and the client has another session by then: the first one is at the server, and the client has never known it.
// Nothing is made in it, so its end takes nothing along. A client of Kafka's lost a znode in that way (zookeeper-dev 2012). go-zookeeper itself would wait for the
// answer for more than six session timeouts, and take up a session that may have ended by then.
func TestSessionThatTheClientNeverKnew(t *testing.T) {
	t.Parallel()
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	gate := zktest.NewGate()
	defer gate.Open()
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpConnect), Times: 1, Do: zktest.HoldReply(gate)})
	began := time.Now()
	s := dial(t, []string{p.Addr()}, WithTimeout(testTimeout))
	next(t, gate.Reached())
	require.Less(t, time.Since(began), 3*testTimeout, "it is asked anew after a third of the timeout")
	l, err := NewMutex(s, newPath(t)).Lock(within(t, 5*time.Second))
	require.NoError(t, err)
	look := admin(t)
	_, stat, err := look.Get(l.Node())
	require.NoError(t, err)
	require.Equal(t, s.ID(), stat.EphemeralOwner)
	gate.Open()
	<-time.After(testTimeout + 2*testTick) // the server has ended the other one
	require.NoError(t, l.Err())
	ok, _, err := look.Exists(l.Node())
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, l.Release(within(t, 5*time.Second)))
}

// Two clients ask at once and both lose the answer, so that each finds two znodes and has to know its own: by a token of each attempt, where mozilla's zktools
// (#2), go-zookeeper (#144) and otter (#1926) had none.
// Reports: mozilla-services/zktools #2, samuel/go-zookeeper #144, rackerlabs/otter #1926.
func TestTwoClientsLoseTheReplyAtOnce(t *testing.T) {
	t.Parallel()
	games := max(3, 20/oneIn(t))
	a, pa := dialProxy(t, calm)
	b, pb := dialProxy(t, calm)
	look := admin(t)
	for range games {
		path := newPath(t)
		mkdirs(t, look, path)
		for _, p := range []*zktest.Proxy{pa, pb} {
			p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, path+"/"), Times: 1, Do: zktest.CutAfter()})
		}
		var mu sync.Mutex
		inside, most := 0, 0
		var wg sync.WaitGroup
		for _, s := range []*Session{a, b} {
			wg.Go(func() {
				err := Do(within(t, 10*time.Second), NewMutex(s, path), func(context.Context) error {
					mu.Lock()
					inside++
					most = max(most, inside)
					mu.Unlock()
					if n := len(children(t, look, path)); n > 2 {
						t.Errorf("%d znodes of two", n)
					}
					mu.Lock()
					inside--
					mu.Unlock()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Equal(t, 1, most)
		require.Empty(t, children(t, look, path))
	}
}
