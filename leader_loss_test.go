package zkrecipes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A leaderLoss is a way to lose leadership.
type leaderLoss struct {
	name    string
	opts    []DialOption
	lose    func(t testing.TB, p *zktest.Proxy, c *zk.Conn, l *Lease)
	heal    func(p *zktest.Proxy)
	reason  []LossReason
	outside bool // somebody else does it, of which nobody can know before the server's notice
}

func leaderLosses() []leaderLoss {
	short, long := []DialOption{WithTimeout(3 * time.Second)}, []DialOption{calm}
	healed := func(p *zktest.Proxy) { p.BlackHole(zktest.None) }
	hole := func(d zktest.Direction) func(testing.TB, *zktest.Proxy, *zk.Conn, *Lease) {
		return func(t testing.TB, p *zktest.Proxy, _ *zk.Conn, l *Lease) {
			p.BlackHole(d)
			if d != zktest.ToClient {
				return
			}
			// The server hears the client, which comes back again and again and hears nothing: that keeps the session alive for as long as the hole lasts.
			<-l.Context().Done()
			<-time.After(time.Second)
			p.BlackHole(zktest.None)
		}
	}
	unconfirmed := []LossReason{ReasonUnconfirmed}
	return []leaderLoss{
		{"expired", long, func(t testing.TB, p *zktest.Proxy, _ *zk.Conn, _ *Lease) { expireSession(t, p) }, nil, []LossReason{ReasonSessionExpired}, true},
		{"deleted", long, func(t testing.TB, _ *zktest.Proxy, c *zk.Conn, l *Lease) { require.NoError(t, c.Delete(l.Node(), -1)) }, nil, []LossReason{ReasonNodeDeleted}, true},
		{"deleted while cut off", long, func(t testing.TB, p *zktest.Proxy, c *zk.Conn, l *Lease) {
			p.Refuse(true)
			require.NoError(t, c.Delete(l.Node(), -1))
			p.Refuse(false)
		}, nil, []LossReason{ReasonNodeDeleted}, true},
		{"nothing arrives", short, hole(zktest.ToServer), healed, unconfirmed, false},
		{"nothing comes back", short, hole(zktest.ToClient), healed, unconfirmed, false},
		{"nothing at all", short, hole(zktest.Both), healed, unconfirmed, false},
		{"refused", short, func(_ testing.TB, p *zktest.Proxy, _ *zk.Conn, _ *Lease) { p.Refuse(true) }, func(p *zktest.Proxy) { p.Refuse(false) }, unconfirmed, false},
		{"disconnected, where that is a loss", []DialOption{WithLoseOnDisconnect(), calm}, func(_ testing.TB, p *zktest.Proxy, _ *zk.Conn, _ *Lease) { p.Cut() }, nil, unconfirmed, false},
	}
}

// TestLeaderIsToldOfEveryLoss is the kind K06: whatever ends leadership, the leader is told by its lease and its ctx, IsLeader and Changes, without being
// asked, and before the next one leads unless somebody else's hand ended it; afterwards the same participant can lead again (B34). The ways are those of
// B40 (samuel/go-zookeeper #20: no way to learn of it), B41 (docker/libkv #156: a channel that never closed), B43 (CURATOR-206) and B44 (consul #18271),
// silence that nobody tells, B46 (CURATOR-220: LOST skipped) and B47 (CURATOR-171: the znode deleted by an operator).
func TestLeaderIsToldOfEveryLoss(t *testing.T) {
	t.Parallel()
	ss := newSides(t, 32)
	defer ss.wg.Wait()
	for _, kind := range []string{aLatch, aSelector} {
		for _, loss := range leaderLosses() {
			ss.add(kind+", "+loss.name, func(t testing.TB) { loss.test(t, kind) })
		}
	}
}

func (loss leaderLoss) test(t testing.TB, kind string) {
	c, path := admin(t), newPath(t)
	s, p := dialProxy(t, loss.opts...)
	first := partake(t, kind, s, path)
	changes := followChanges(t, first)
	l := first.leads(t)
	type grant struct{ told, asked error }
	granted := make(chan grant, 10)
	trace := &Trace{AcquireDone: func(_ context.Context, _, _ string, _ *Lease, err error) {
		if err == nil {
			granted <- grant{l.Context().Err(), l.Err()} // in that order: Err asks the clock
		}
	}}
	second := partake(t, kind, dialShared(t, calm, WithTrace(trace)), path)
	waitingFor(t, path, 2)
	loss.lose(t, p, c, l.Lease)
	next := second.leads(t)
	g := <-granted
	if !loss.outside {
		require.Error(t, g.told, "the next one leads, and the leader has not been told")
		require.ErrorIs(t, g.asked, ErrLost)
	}
	select {
	case <-l.Context().Done():
	case <-time.After(5 * time.Second):
		t.Fatal("not told")
	}
	var lost *LostError
	require.ErrorAs(t, context.Cause(l.Context()), &lost)
	require.Contains(t, loss.reason, lost.Reason)
	require.False(t, first.isLeader())
	if loss.heal != nil {
		loss.heal(p)
	}
	waitingFor(t, path, 2)
	require.False(t, first.isLeader())
	require.True(t, second.isLeader())
	next.end()
	again := first.leads(t)
	require.Greater(t, again.Token(), next.Token())
	changed := func(want ...bool) {
		eventually(t, 5*time.Second, "each change", func() bool {
			seen := changes()
			return slices.Equal(seen, want) || slices.Equal(seen, append([]bool{false}, want...)) // it may have looked before the first term
		})
	}
	changed(true, false, true)
	require.NoError(t, first.stop())
	require.NoError(t, second.stop())
	changed(true, false, true, false)
}

// followChanges collects what Changes yields until the test ends.
func followChanges(t testing.TB, p *partaker) (seen func() []bool) {
	var mu sync.Mutex
	var all []bool
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for leads := range p.changes(ctx) {
			mu.Lock()
			all = append(all, leads)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return func() []bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// TestLeaderLossIsToldPastWhatIsStuck is B45 (apache/accumulo #5132) of the kind K06: a hook that does not return, a reader of Changes that does not read
// and a leader that does not look at its ctx keep no other participant of the Session from being told in time, nor the next one from leading.
func TestLeaderLossIsToldPastWhatIsStuck(t *testing.T) {
	t.Parallel()
	until := make(chan struct{})
	stuck := &Trace{Lost: func(*Lease, *LostError) { <-until }, StateChanged: func(*Session, State) { <-until }}
	s, p := dialProxy(t, WithTimeout(time.Second), WithTrace(stuck))
	busy, path := newPath(t), newPath(t)
	e := NewLeaderSelector(s, busy)
	leading := make(chan *Lease, 1)
	goRun(t, func(ctx context.Context) error {
		return e.Run(ctx, func(ctx context.Context) error {
			l, _ := LeaseFromContext(ctx)
			leading <- l
			<-until
			return nil
		})
	})
	unread := next(t, leading)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for range NewLeaderLatch(s, busy).Changes(within(t, time.Minute)) {
			<-until
			return
		}
	}()
	first := partake(t, aLatch, s, path)
	l := first.leads(t)
	told := make(chan error, 1)
	trace := &Trace{AcquireDone: func(_ context.Context, _, _ string, _ *Lease, err error) { told <- l.Context().Err() }}
	partake(t, aLatch, dialShared(t, calm, WithTrace(trace)), path)
	other := partake(t, aSelector, dialShared(t, calm), busy)
	// On a machine that stands still leadership may be lost before anything is broken. That has to be told in time as well.
	c := admin(t)
	eventually(t, 10*time.Second, "the next ones wait, or lead", func() bool {
		waiting := func(path string, l *Lease) bool { return len(children(t, c, path)) == 2 || l.Context().Err() != nil }
		return waiting(path, l.Lease) && waiting(busy, unread)
	})
	p.BlackHole(zktest.Both)
	require.Error(t, next(t, told))
	other.leads(t)
	require.Error(t, unread.Context().Err())
	require.False(t, e.IsLeader(), "lead still runs, and does not lead")
	close(until)
	<-read
	p.BlackHole(zktest.None)
}

// TestVirtualLeaderIsToldBeforeTheNext is the kind K08 (B56, CURATOR-460 and FLINK-10052: a timer that starts too late): in whatever phase of the heartbeat
// a leader is cut off, it is told two thirds of T after its last proof was sent, and the next one leads when the server has ended the session.
func TestVirtualLeaderIsToldBeforeTheNext(t *testing.T) {
	for _, kind := range []string{aLatch, aSelector} {
		for phase := time.Duration(0); phase < virtualTimeout/6; phase += virtualTimeout / 6 / 12 {
			t.Run(fmt.Sprint(kind, " ", phase), func(t *testing.T) {
				virtual(t, func(t *testing.T, server *zktest.Server) {
					s, proofs := dialVirtual(t, server)
					other, _ := dialVirtual(t, server)
					first := partake(t, kind, s, "/v/leader")
					l := first.leads(t)
					second := partake(t, kind, other, "/v/leader")
					time.Sleep(time.Minute + phase)
					synctest.Wait()
					heal := server.Partition(s.ID())
					proof := proofs.get()
					<-l.Context().Done()
					lost := time.Now()
					require.Equal(t, virtualTimeout*2/3, lost.Sub(proof))
					require.False(t, first.isLeader())
					second.leads(t)
					require.GreaterOrEqual(t, time.Since(proof), virtualTimeout)
					require.Positive(t, time.Since(lost))
					require.LessOrEqual(t, time.Since(lost), 2*virtualTimeout)
					heal()
					time.Sleep(2 * virtualTimeout)
					require.Len(t, znodes(server, "/v/leader"), 2, "it takes part again")
					require.False(t, first.isLeader())
					require.True(t, second.isLeader())
					require.NoError(t, first.stop())
					require.NoError(t, second.stop())
				})
			})
		}
	}
}

// IsLeader asks the lease clock: it is true up to the last nanosecond in which the session is proved, and false at the next, whatever the goroutines that
// tell of a loss have come to by then; for that it sends nothing, and it needs no event, not even the return of lead.
func TestVirtualIsLeaderAsksTheClock(t *testing.T) {
	for _, kind := range []string{aLatch, aSelector} {
		for i := range 12 {
			t.Run(fmt.Sprint(kind, " ", i), func(t *testing.T) {
				virtual(t, func(t *testing.T, server *zktest.Server) {
					s, proofs := dialVirtual(t, server)
					var who *candidate
					until := make(chan struct{})
					defer close(until)
					leading := make(chan struct{}, 1)
					if kind == aLatch {
						l := NewLeaderLatch(s, "/v/leader")
						who = &l.candidate
						goRun(t, l.Run)
						_, err := l.Await(t.Context())
						require.NoError(t, err)
					} else {
						e := NewLeaderSelector(s, "/v/leader")
						who = &e.candidate
						goRun(t, func(ctx context.Context) error {
							return e.Run(ctx, func(ctx context.Context) error {
								select {
								case leading <- struct{}{}:
									<-until // it looks at nothing
								default: // a later term
									<-ctx.Done()
								}
								return nil
							})
						})
						require.Eventually(t, e.IsLeader, time.Minute, time.Millisecond)
					}
					time.Sleep(time.Minute + time.Duration(i)*time.Millisecond*173)
					synctest.Wait()
					requests := server.Counts().Total()
					for range 1000 {
						require.True(t, who.isLeader())
					}
					require.Equal(t, requests, server.Counts().Total())
					defer server.Partition(s.ID())()
					end := proofs.get().Add(virtualTimeout * 2 / 3)
					time.Sleep(time.Until(end) - time.Nanosecond)
					require.True(t, who.isLeader())
					time.Sleep(time.Nanosecond)
					require.False(t, who.isLeader())
					require.Equal(t, requests, server.Counts().Total())
				})
			})
		}
	}
}
