package core

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// callers returns how many wait for the list of a directory that is not sent yet.
func (ls *lists) callers(dir string) int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if next := ls.m[dir]; next != nil {
		return next.callers
	}
	return 0
}

type listed struct {
	Listing
	err error
}

func goList(ctx context.Context, e *Engine, dir string) <-chan listed {
	ch := make(chan listed, 1)
	go func() {
		l, err := e.List(ctx, dir)
		ch <- listed{l, err}
	}()
	return ch
}

// Whoever asks while a list is under way gets the next one, which is sent after all of them have asked: it shows what was made before they did, which the
// one under way does not.
func TestListsAreSharedByThoseWhoAskedBeforeTheyWereSent(t *testing.T) {
	e, _, p := connectShared(t, Config{Timeout: 10 * time.Second})
	dir := newPath(t)
	mk(t, e, dir, "")
	ctx := within(t, 20*time.Second)
	gate := zktest.NewGate()
	defer gate.Open()
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpGetChildren2, dir), Times: 1, Do: zktest.HoldReply(gate)})
	first := goList(ctx, e, dir)
	<-gate.Reached()
	const more = 50
	var others []<-chan listed
	for range more {
		others = append(others, goList(ctx, e, dir))
	}
	eventually(t, 10*time.Second, "all have asked", func() bool { return e.lists.callers(dir) == more })
	other := goList(ctx, e, newPath(t)) // of another directory, which waits for nobody but the connection
	made := make(chan error, 1)
	go func() { // answered behind the first list, and done before the second is sent
		_, err := e.Do(ctx, func(c Conn) error {
			_, err := c.Create(dir+"/x", nil, 0, zk.WorldACL(zk.PermAll))
			return err
		})
		made <- err
	}()
	eventually(t, 10*time.Second, "it is sent", func() bool {
		return slices.ContainsFunc(p.Requests(), func(q zktest.Record) bool { return q.Op == zktest.OpCreate && q.Path == dir+"/x" })
	})
	gate.Open()
	l := <-first
	require.NoError(t, l.err)
	require.Nil(t, l.Memo, "nobody shares it")
	require.Empty(t, l.Names)
	var memo *Memo
	for _, ch := range others {
		l := <-ch
		require.NoError(t, l.err)
		require.Equal(t, []string{"x"}, l.Names)
		require.NotNil(t, l.Memo)
		require.True(t, memo == nil || memo == l.Memo, "one for all who share it")
		memo = l.Memo
		require.True(t, l.Span.SameConn())
	}
	require.NoError(t, <-made)
	require.ErrorIs(t, (<-other).err, zk.ErrNoNode)
	require.Equal(t, 2, reads(p, dir))
	e.lists.mu.Lock()
	defer e.lists.mu.Unlock()
	require.Empty(t, e.lists.m)
}

// A listConn tells when the request for a list is written to it.
type listConn struct {
	net.Conn
	sent func()
}

func (c listConn) Write(b []byte) (int, error) {
	if len(b) >= 12 && b[11] == opGetChildren2 {
		defer c.sent()
	}
	return c.Conn.Write(b)
}

// What was on its way out is as of before the list was sent, not of when it was answered.
func TestListKnowsWhatWasLeavingBeforeIt(t *testing.T) {
	sent := make(chan struct{})
	tell := sync.OnceFunc(func() { close(sent) })
	e, _, p := connectShared(t, Config{Timeout: 10 * time.Second, Dialer: func(network, addr string, d time.Duration) (net.Conn, error) {
		c, err := net.DialTimeout(network, addr, d)
		if err != nil {
			return nil, err
		}
		return listConn{c, tell}, nil
	}})
	dir := newPath(t)
	mk(t, e, dir, "")
	mk(t, e, dir+"/x", "")
	mk(t, e, dir+"/y", "")
	ctx := within(t, 20*time.Second)
	hold := func(op zktest.Op, path string) *zktest.Gate {
		gate := zktest.NewGate()
		t.Cleanup(gate.Open)
		p.OnRequest(zktest.Rule{Match: zktest.MatchPath(op, path), Times: 1, Do: zktest.HoldRequest(gate)})
		return gate
	}
	deleting := hold(zktest.OpDelete, dir+"/x")
	x := e.Remove(dir+"/x", 0)
	<-deleting.Reached() // the list waits behind it
	first := goList(ctx, e, dir)
	select {
	case <-sent: // and so it knows what is leaving
	case <-time.After(10 * time.Second):
		t.Fatal("the list is not sent")
	}
	y := e.Remove(dir+"/y", 0)
	deleting.Open()
	l := <-first
	require.NoError(t, l.err)
	require.True(t, l.Leaving.Has("x"))
	require.False(t, l.Leaving.Has("y"))
	<-x.Done()
	<-y.Done()
}

// Whose ctx ends does not wait for the answer. When it was to send the list, the others do; the last one takes it along.
func TestListOfCallersWhoLeave(t *testing.T) {
	e, _, p := connectShared(t, Config{Timeout: 10 * time.Second})
	dir := newPath(t)
	mk(t, e, dir, "")
	p.Refuse(true)
	p.Cut()
	eventually(t, 10*time.Second, "it is disconnected", func() bool { return !e.Ready() })
	long := within(t, 20*time.Second)
	ctx, cancel := context.WithCancel(long)
	first := goList(ctx, e, dir) // its turn has come, and it waits for a session
	eventually(t, 10*time.Second, "it has a place", func() bool { return e.lists.callers(dir) == 1 && len(e.slots) > 0 })
	second := goList(long, e, dir)
	eventually(t, 10*time.Second, "another one has joined", func() bool { return e.lists.callers(dir) == 2 })
	brief, leave := context.WithCancel(long)
	third := goList(brief, e, dir)
	eventually(t, 10*time.Second, "and another one", func() bool { return e.lists.callers(dir) == 3 })
	leave()
	require.ErrorIs(t, (<-third).err, context.Canceled)
	cancel()
	require.ErrorIs(t, (<-first).err, context.Canceled)
	require.Empty(t, second)
	p.Refuse(false)
	require.NoError(t, (<-second).err)

	gate := zktest.NewGate()
	defer gate.Open()
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpGetChildren2, dir), Times: 1, Do: zktest.HoldReply(gate)})
	first = goList(long, e, dir)
	<-gate.Reached()
	brief, leave = context.WithCancel(long)
	third = goList(brief, e, dir)
	eventually(t, 10*time.Second, "it waits for its turn", func() bool { return e.lists.callers(dir) == 1 })
	p.ResetCounters()
	leave()
	require.ErrorIs(t, (<-third).err, context.Canceled)
	gate.Open()
	require.NoError(t, (<-first).err)
	require.Zero(t, reads(p, dir), "nobody wants it")
	_, err := e.List(long, dir)
	require.NoError(t, err)
}

// Lists go on and end in every order, and none is left waiting, also by Close.
func TestListsUnderChurn(t *testing.T) {
	t.Parallel()
	e, _, p := connectShared(t, Config{})
	dirs := []string{newPath(t), newPath(t)}
	for _, dir := range dirs {
		mk(t, e, dir, "")
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n := range 60 {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				if (i+n)%3 == 0 {
					cancel()
					ctx, cancel = context.WithTimeout(context.Background(), time.Duration((i*n)%7)*100*time.Microsecond)
				}
				l, err := e.List(ctx, dirs[(i+n)%2])
				switch {
				case err == nil && len(l.Names) > 0:
					t.Error(l.Names)
				case err != nil && ctx.Err() == nil && Classify(err) == Answered:
					t.Error(err)
				}
				cancel()
			}
		})
	}
	for range 5 {
		p.Cut()
		eventually(t, 10*time.Second, "it is back", e.Ready)
	}
	wg.Wait()
	e.lists.mu.Lock()
	require.Empty(t, e.lists.m)
	e.lists.mu.Unlock()
	var last []<-chan listed
	p.BlackHole(zktest.Both)
	for range 8 {
		last = append(last, goList(context.Background(), e, dirs[0]))
	}
	_ = closeWithin(e, 2*time.Second)
	for _, ch := range last {
		select {
		case l := <-ch:
			require.True(t, l.err == nil || errors.Is(l.err, ErrClosed) || errors.Is(l.err, zk.ErrConnectionClosed), fmt.Sprint(l.err))
		case <-time.After(10 * time.Second):
			t.Fatal("Close does not end it")
		}
	}
}

// What those who share a list make of it is made once; who has one of its own makes it, and so does who asks for something else.
func TestMemo(t *testing.T) {
	made := 0
	three := func() any { made++; return 3 }
	m := new(Memo)
	require.Equal(t, 3, m.Of("n", three))
	require.Equal(t, 3, m.Of("n", three))
	require.Equal(t, 1, made)
	require.Equal(t, "other", m.Of("m", func() any { return "other" }))
	require.Equal(t, 3, m.Of("n", three))
	require.Equal(t, 1, made)
	require.Equal(t, 3, (*Memo)(nil).Of("n", three))
	require.Equal(t, 2, made)
}
