package core

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// Whatever becomes of a hand-over, the heir is told once, the znode goes, and the heir's stays.
func TestHandOver(t *testing.T) {
	t.Parallel()
	type scene struct {
		t    *testing.T
		e    *Engine
		p    *zktest.Proxy
		node string
		heir *Heir

		after func() // what is done when HandOver has returned
	}
	onMulti := func(s scene, do zktest.Action) {
		s.p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: do})
	}
	for name, c := range map[string]struct {
		prepare         func(s *scene)
		handed, kept    bool
		multis, deletes int  // requests
		atOnce          bool // it is told before HandOver returns, and else whenever the engine comes to it
		err             error
	}{
		"free":                 {prepare: func(*scene) {}, handed: true, kept: true, multis: 1},
		"the heir is missing":  {prepare: func(s *scene) { remove(s.t, s.e, s.heir.Path) }, multis: 1, deletes: 1},
		"the znode is missing": {prepare: func(s *scene) { remove(s.t, s.e, s.node) }, kept: true, multis: 1, err: zk.ErrNoNode},
		"both are":             {prepare: func(s *scene) { remove(s.t, s.e, s.node); remove(s.t, s.e, s.heir.Path) }, multis: 1, err: zk.ErrNoNode},
		"another connection": {prepare: func(s *scene) {
			s.p.Cut()
			eventually(s.t, 10*time.Second, "it is back", func() bool { return s.e.Ready() && s.e.Epoch() != s.heir.Epoch })
		}, kept: true, deletes: 1},
		"another session":       {prepare: func(s *scene) { s.heir.Epoch.Session++ }, kept: true, deletes: 1},
		"not sent":              {prepare: func(s *scene) { onMulti(*s, zktest.CutBefore()) }, kept: true, multis: 1, deletes: 1},
		"sent and not answered": {prepare: func(s *scene) { onMulti(*s, zktest.CutAfter()) }, kept: true, multis: 1, deletes: 1},
		"something broke":       {prepare: func(s *scene) { onMulti(*s, zktest.ReplyError(-1)) }, kept: true, multis: 1, deletes: 1},
		// Here the server has done it all the same, which the delete finds.
		"the server is busy":          {prepare: func(s *scene) { onMulti(*s, zktest.ReplyError(-127)) }, kept: true, multis: 1, deletes: 1, err: zk.ErrNoNode},
		"the server knows no such op": {prepare: func(s *scene) { onMulti(*s, zktest.ReplyError(-6)) }, kept: true, multis: 1, deletes: 1, err: zk.ErrNoNode},
		"it may not":                  {prepare: func(s *scene) { onMulti(*s, zktest.ReplyError(-102)) }, kept: true, multis: 1, deletes: 1, err: zk.ErrNoNode},
		"owed already": {prepare: func(s *scene) {
			gate := zktest.NewGate()
			s.t.Cleanup(gate.Open)
			s.p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpDelete), Times: 1, Do: zktest.HoldRequest(gate)})
			s.e.Remove(s.node, s.e.Epoch().Session)
			<-gate.Reached()
			s.after = gate.Open
		}, kept: true, atOnce: true}, // its delete was sent before
		"the session is over": {prepare: func(s *scene) {
			session := s.e.Epoch().Session
			expire(s.t, s.p)
			eventually(s.t, 10*time.Second, "it has another one", func() bool { return s.e.Ready() && s.e.Epoch().Session != session })
		}, kept: true, atOnce: true, err: zk.ErrSessionExpired},
		"closed": {prepare: func(s *scene) { _ = closeWithin(s.e, 5*time.Second) }, kept: true, atOnce: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, _, p := connectShared(t, Config{Timeout: 10 * time.Second})
			dir := newPath(t)
			told := make(chan bool, 10)
			s := &scene{t: t, e: e, p: p, node: dir + "/a", heir: &Heir{Path: dir + "/b", Epoch: e.Epoch(), Told: func(handed bool) { told <- handed }}}
			for _, path := range []string{dir, s.node, s.heir.Path} {
				mk(t, e, path, "")
			}
			session := e.Epoch().Session
			c.prepare(s)
			p.ResetCounters()
			r := e.HandOver(s.node, session, *s.heir)
			if c.atOnce {
				require.Len(t, told, 1)
			}
			if s.after != nil {
				s.after()
			}
			select {
			case <-r.Done():
			case <-time.After(10 * time.Second):
				t.Fatal("it is not gone")
			}
			require.ErrorIs(t, r.Err(), c.err)
			require.Equal(t, c.handed, <-told)
			require.Empty(t, told)
			require.Equal(t, c.multis, p.Counts().Requests[zktest.OpMulti])
			require.Equal(t, c.deletes, p.Counts().Requests[zktest.OpDelete])
			if name == "closed" || name == "the session is over" {
				return
			}
			for path, want := range map[string]bool{s.node: false, s.heir.Path: c.kept} {
				var ok bool
				do(t, e, func(c Conn) (err error) { ok, _, err = c.Exists(path); return err })
				require.Equal(t, want, ok, path)
			}
			require.Zero(t, e.Owing())
		})
	}
}

func remove(t testing.TB, e *Engine, path string) {
	t.Helper()
	do(t, e, func(c Conn) error { return c.Delete(path, -1) })
}

// The session ends while the transaction is answered: the heir, which has ended with it, is not told that it was handed anything.
func TestHandOverWhoseSessionEnds(t *testing.T) {
	t.Parallel()
	e, _, p := connectShared(t, Config{})
	dir := newPath(t)
	for _, path := range []string{dir, dir + "/a", dir + "/b"} {
		mk(t, e, path, "")
	}
	gate := zktest.NewGate()
	defer gate.Open()
	p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpMulti), Times: 1, Do: zktest.HoldReply(gate)})
	told := make(chan bool, 10)
	session := e.Epoch().Session
	r := e.HandOver(dir+"/a", session, Heir{Path: dir + "/b", Epoch: e.Epoch(), Told: func(handed bool) { told <- handed }})
	<-gate.Reached()
	e.reaper.sessionOver(session, true)
	<-r.Done()
	gate.Open()
	require.False(t, <-told)
	require.ErrorIs(t, r.Err(), zk.ErrSessionExpired)
}
