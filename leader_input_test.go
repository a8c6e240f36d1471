package zkrecipes

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// Whatever is wrong with an argument is told by each member of the API, at once, as an *Error with the path, and nothing is sent.
func TestLeaderMembersTellWhatIsWrong(t *testing.T) {
	t.Parallel()
	s, p := dialProxy(t, calm)
	lead := func(context.Context) error { t.Error("led"); return nil }
	type member struct {
		name string
		call func(ctx context.Context) error
	}
	members := func(s *Session, path string, opts ...LeaderOption) []member {
		l, e := NewLeaderLatch(s, path, opts...), NewLeaderSelector(s, path, opts...)
		require.False(t, l.IsLeader())
		require.False(t, e.IsLeader())
		e.Resign() // nothing
		return []member{
			{"latch.Run", l.Run},
			{"latch.Await", func(ctx context.Context) error { _, err := l.Await(ctx); return err }},
			{"latch.Leader", func(ctx context.Context) error { _, err := l.Leader(ctx); return err }},
			{"latch.Participants", func(ctx context.Context) error { _, err := l.Participants(ctx); return err }},
			{"selector.Run", func(ctx context.Context) error { return e.Run(ctx, lead) }},
			{"selector.Leader", func(ctx context.Context) error { _, err := e.Leader(ctx); return err }},
			{"selector.Participants", func(ctx context.Context) error { _, err := e.Participants(ctx); return err }},
		}
	}
	ctx := within(t, 20*time.Second)
	for why, tc := range map[string]struct {
		s    *Session
		path string
		opts []LeaderOption
	}{
		"no Session":            {nil, "/x", nil},
		"relative path":         {s, "x", nil},
		": empty":               {s, "", nil},
		"trailing slash":        {s, "/x/", nil},
		"belongs to the server": {s, "/zookeeper/x", nil},
		"WithMaxHold":           {s, "/x", []LeaderOption{WithMaxHold(-time.Second)}},
		"WithData of":           {s, "/x", []LeaderOption{WithData(make([]byte, 1<<20))}},
		"owner of":              {s, "/x", []LeaderOption{WithOwner(Owner(strings.Repeat("x", maxOwner+1)))}},
		"__REVOKE__":            {s, "/x", []LeaderOption{WithOwner(revokeMessage), nil}},
	} {
		before := p.Counts().Total()
		for _, m := range members(tc.s, tc.path, tc.opts...) {
			err := m.call(ctx)
			require.ErrorIs(t, err, ErrInvalid, "%s, %s", m.name, why)
			require.ErrorContains(t, err, why, m.name)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, tc.path, e.Path, m.name)
			require.NotEmpty(t, e.Op, m.name)
		}
		if tc.s != nil {
			require.LessOrEqual(t, p.Counts().Total()-before, 2, "the heartbeat alone")
		}
	}
	closed := dialShared(t, calm)
	require.NoError(t, closed.Close())
	for _, m := range members(closed, newPath(t)) {
		err := m.call(ctx)
		if m.name == "latch.Await" {
			require.ErrorIs(t, err, ErrInvalid, "Run does not run, and would say why")
			continue
		}
		require.ErrorIs(t, err, ErrClosed, m.name)
		var e *Error
		require.ErrorAs(t, err, &e, m.name)
	}
	over, cancel := context.WithCancelCause(context.Background())
	reason := errors.New("not wanted")
	cancel(reason)
	for _, m := range members(s, newPath(t)) {
		err := m.call(over)
		if strings.HasSuffix(m.name, ".Run") {
			require.NoError(t, err, m.name) // its ctx has ended
			continue
		}
		if m.name == "latch.Await" {
			require.ErrorIs(t, err, ErrInvalid, "Run has ended")
			continue
		}
		require.ErrorIs(t, err, context.Canceled, m.name)
		require.ErrorIs(t, err, reason, m.name)
	}
	none := NewLeaderSelector(s, newPath(t))
	err := none.Run(ctx, nil)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "no function to lead")
	_, err = none.Leader(ctx)
	require.ErrorIs(t, err, ErrNoLeader)
	ps, err := none.Participants(ctx)
	require.NoError(t, err)
	require.Empty(t, ps)
}

// A second Run at the same time is told so, and leaves the first alone, whatever that is doing; when it has ended there can be another one. An owner in ctx
// is the id; what is wrong with it is told.
func TestSecondRun(t *testing.T) {
	t.Parallel()
	for _, leads := range []bool{false, true} {
		path := newPath(t)
		if !leads {
			l, err := queue(aSelector, dialShared(t, calm), path)(within(t, 5*time.Second), false)
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Release(context.Background())) }()
		}
		e := NewLeaderSelector(dialShared(t, calm), path)
		called := make(chan struct{}, 10)
		run := func(ctx context.Context) error {
			return e.Run(ctx, func(ctx context.Context) error {
				called <- struct{}{}
				err := e.Run(ctx, func(context.Context) error { return nil }) // from within
				require.ErrorIs(t, err, ErrInvalid)
				<-ctx.Done()
				return nil
			})
		}
		stop := goRun(t, run)
		n := 1
		if !leads {
			n = 2
		}
		waitingFor(t, path, n)
		for range 10 {
			err := e.Run(context.Background(), func(context.Context) error { t.Error("led twice"); return nil })
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, "runs already")
		}
		waitingFor(t, path, n)
		if leads {
			next(t, called)
			require.True(t, e.IsLeader())
		}
		require.NoError(t, stop())
		stop = goRun(t, run)
		if leads {
			next(t, called)
		}
		require.NoError(t, stop())
	}
	path := newPath(t)
	l := NewLeaderLatch(dialShared(t, calm), path, WithOwner("from the option"))
	require.ErrorIs(t, l.Run(ContextWithOwner(context.Background(), "")), ErrInvalid)
	_, err := l.Await(within(t, 5*time.Second))
	require.ErrorIs(t, err, ErrInvalid, "the first Run has ended, and no second one is waited for")
	require.ErrorContains(t, err, "it ended")
	goRun(t, func(ctx context.Context) error { return l.Run(ContextWithOwner(ctx, "from ctx")) })
	eventually(t, 5*time.Second, "it leads", l.IsLeader)
	leader, err := l.Leader(within(t, 5*time.Second))
	require.NoError(t, err)
	require.Equal(t, Owner("from ctx"), leader.Owner)
}

// Leader looks again when the one that it has found first goes before it is read, and finds the leader also where numbers do not tell any more who came first.
func TestLeaderFindsWhoLeads(t *testing.T) {
	t.Parallel()
	c, path := admin(t), newPath(t)
	s, p := dialProxy(t, calm)
	first, second := partake(t, aLatch, dialShared(t, calm), path), partake(t, aLatch, dialShared(t, calm), path)
	both := []*partaker{first, second}
	eventually(t, 5*time.Second, "one leads, and one waits", func() bool { return len(children(t, c, path)) == 2 && len(leadersOf(both)) == 1 })
	gone := leadersOf(both)[0]
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpGetData, gone.Node()), Times: 1, Do: zktest.Call(func(zktest.Frame) {
		if err := gone.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})})
	leader, err := NewLeaderLatch(s, path).Leader(within(t, 10*time.Second))
	require.NoError(t, err)
	require.NotEqual(t, gone.Node(), leader.Node)
	require.True(t, leader.Holding)

	virtual(t, func(t *testing.T, server *zktest.Server) {
		s, _ := dialVirtual(t, server)
		_, err := s.Conn().Create("/leader", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		server.SetCounter("/leader", math.MaxInt32-2)
		var all []*partaker
		for range 6 { // the last of them have the same number, or a lower one than the first
			all = append(all, partake(t, aLatch, s, "/leader"))
			time.Sleep(time.Second)
		}
		for _, p := range all {
			l := p.leads(t)
			leader, err := all[5].leader(t.Context())
			require.NoError(t, err)
			require.Equal(t, l.Node(), leader.Node)
			require.NoError(t, p.stop())
		}
	})
}
