package zktest_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// The tests here have a real server and a real client.

type silent struct{}

func (silent) Printf(string, ...any) {}

// client is a go-zookeeper client that notes the states it goes through.
type client struct {
	*zk.Conn
	expired, connects atomic.Int64
}

func newClient(t testing.TB, timeout time.Duration, addrs ...string) *client {
	c := &client{}
	conn, _, err := zk.Connect(addrs, timeout, zk.WithLogger(silent{}), zk.WithEventCallback(func(e zk.Event) {
		switch e.State {
		case zk.StateExpired:
			c.expired.Add(1)
		case zk.StateHasSession:
			c.connects.Add(1)
		}
	}))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	c.Conn = conn
	return c
}

var paths atomic.Int64

// dir makes a node for the test alone.
func dir(t testing.TB, c *zk.Conn) string {
	path := fmt.Sprintf("/zktest-%d-%d", os.Getpid(), paths.Add(1))
	_, err := c.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	return path
}

var open = zk.WorldACL(zk.PermAll)

// setup is a client behind a proxy and one past it.
func setup(t testing.TB) (p *zktest.Proxy, c, admin *client, path string) {
	ens := zktest.Shared(t)
	p = zktest.NewProxy(t, ens.Addrs()[0])
	admin = newClient(t, 10*time.Second, ens.Addrs()...)
	path = dir(t, admin.Conn)
	c = newClient(t, 4*time.Second, p.Addr(), p.Addr()) // twice, for a client that has one server only sleeps a second before it comes back
	_, _, err := c.Exists(path)
	require.NoError(t, err)
	return p, c, admin, path
}

func exists(t testing.TB, c *client, path string) bool {
	ok, _, err := c.Exists(path)
	require.NoError(t, err)
	return ok
}

// latest returns the record of the last request, without what a client does by
// itself.
func latest(p *zktest.Proxy) (last zktest.Record) {
	for _, r := range p.Requests() {
		if zktest.AllRequests(zktest.Frame{Op: r.Op}) {
			last = r
		}
	}
	return last
}

func TestRealOperations(t *testing.T) {
	p, c, _, path := setup(t)
	p.ResetCounters()
	const any = -1
	var want []string
	step := func(op zktest.Op, on string, run func() error) {
		t.Helper()
		require.NoError(t, run(), op)
		want = append(want, fmt.Sprint(op, " ", on))
	}
	step(zktest.OpCreate, path+"/a", func() error { _, err := c.Create(path+"/a", []byte("x"), 0, open); return err })
	step(zktest.OpCreateContainer, path+"/c", func() error {
		_, err := c.CreateContainer(path+"/c", nil, zk.FlagContainer, open)
		return err
	})
	step(zktest.OpCreateTTL, path+"/t", func() error {
		_, err := c.CreateTTL(path+"/t", nil, zk.FlagTTL, open, time.Minute)
		return err
	})
	step(zktest.OpExists, path+"/a", func() error { _, _, err := c.Exists(path + "/a"); return err })
	step(zktest.OpGetData, path+"/a", func() error { _, _, err := c.Get(path + "/a"); return err })
	step(zktest.OpSetData, path+"/a", func() error { _, err := c.Set(path+"/a", nil, any); return err })
	step(zktest.OpGetACL, path+"/a", func() error { _, _, err := c.GetACL(path + "/a"); return err })
	step(zktest.OpSetACL, path+"/a", func() error { _, err := c.SetACL(path+"/a", open, any); return err })
	step(zktest.OpGetChildren2, path, func() error { _, _, err := c.Children(path); return err })
	step(zktest.OpSync, path, func() error { _, err := c.Sync(path); return err })
	step(zktest.OpMulti, path+"/a", func() error {
		_, err := c.Multi(&zk.CheckVersionRequest{Path: path + "/a", Version: any},
			&zk.SetDataRequest{Path: path, Version: any})
		return err
	})
	step(zktest.OpAuth, "", func() error { return c.AddAuth("digest", []byte("u:p")) })
	step(zktest.OpDelete, path+"/a", func() error { return c.Delete(path+"/a", any) })

	var got []string
	for _, r := range p.Requests() {
		if r.Op == zktest.OpPing {
			continue
		}
		got = append(got, fmt.Sprint(r.Op, " ", r.Path))
		require.True(t, r.Answered, r)
		require.Zero(t, r.Err, r)
		require.Equal(t, zktest.FateForwarded, r.Fate, r)
	}
	require.Equal(t, want, got)
	require.Equal(t, len(want), p.Counts().Total())

	// Errors, events, watches set again, the close.
	_, _, err := c.Get(path + "/none")
	require.Equal(t, zk.ErrNoNode, err)
	require.EqualValues(t, -101, latest(p).Err)
	_, _, watch, err := c.ChildrenW(path)
	require.NoError(t, err)
	p.Cut()
	eventually(t, "watches set again", func() bool { return p.Counts().Requests[zktest.OpSetWatches] == 1 })
	require.NoError(t, c.Delete(path+"/c", any))
	require.Equal(t, zk.EventNodeChildrenChanged, (<-watch).Type)
	require.Equal(t, 1, p.Counts().Events)
	c.Close()
	require.Equal(t, 1, p.Counts().Requests[zktest.OpClose])
}

// TestRealCutEverywhere is what the proxy is for: each request of an operation
// is cut, before and after, and what the server has done is as certain as said.
func TestRealCutEverywhere(t *testing.T) {
	t.Parallel()
	p, c, admin, path := setup(t)
	for i, tc := range []struct {
		do     zktest.Action
		exists bool
		fate   zktest.Fate
	}{
		{zktest.CutBefore(), false, zktest.FateCutBefore},
		{zktest.CutAfter(), true, zktest.FateCutAfter},
	} {
		for n := range 2 {
			connects := c.connects.Load()
			p.ResetCounters()
			p.OnRequest(zktest.Rule{Match: zktest.Nth(n, zktest.AllRequests), Times: 1, Do: tc.do})
			nodes := []string{fmt.Sprintf("%s/%d-%d-0", path, i, n), fmt.Sprintf("%s/%d-%d-1", path, i, n)}
			for k, node := range nodes {
				_, err := c.Create(node, nil, zk.FlagEphemeral, open)
				if k < n {
					require.NoError(t, err)
				} else {
					require.Equal(t, zk.ErrConnectionClosed, err)
					break
				}
			}
			require.Equal(t, tc.exists, exists(t, admin, nodes[n]))
			require.Equal(t, tc.fate, latest(p).Fate)
			// What is asked before the client is back may be refused with what was not sent.
			eventually(t, "connected again", func() bool { return c.connects.Load() > connects })
			require.True(t, exists(t, c, path), "the session lives on")
		}
	}
	require.Zero(t, c.expired.Load())
}

func TestRealHoldEvent(t *testing.T) {
	p, c, admin, path := setup(t)
	g := zktest.NewGate()
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpEvent, path), Do: zktest.HoldReply(g)})
	_, _, watch, err := c.GetW(path)
	require.NoError(t, err)
	_, err = admin.Set(path, []byte("new"), -1)
	require.NoError(t, err)
	<-g.Reached()
	select {
	case e := <-watch:
		t.Fatal("event passed the gate: ", e)
	case <-time.After(glance):
	}
	g.Open()
	require.Equal(t, zk.EventNodeDataChanged, (<-watch).Type)
}

func TestRealReplyError(t *testing.T) {
	p, c, admin, path := setup(t)
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, path), Times: 1, Do: zktest.ReplyError(-110)})
	_, err := c.Create(path+"/a", nil, 0, open)
	require.Equal(t, zk.ErrNodeExists, err)
	require.True(t, exists(t, admin, path+"/a"))
}

func TestRealBlackHole(t *testing.T) {
	t.Parallel()
	ens := zktest.Shared(t)
	p := zktest.NewProxy(t, ens.Addrs()[0])
	admin := newClient(t, 10*time.Second, ens.Addrs()...)
	path := dir(t, admin.Conn)
	c := newClient(t, shortSession, p.Addr())
	_, err := c.Create(path+"/e", nil, zk.FlagEphemeral, open)
	require.NoError(t, err)
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, path+"/b"), Times: 1, Do: zktest.BlackHoleAfter()})
	_, err = c.Create(path+"/b", nil, 0, open)
	require.Error(t, err)
	require.True(t, exists(t, admin, path+"/b"), "executed")
	eventually(t, "the server expires the session", func() bool { return !exists(t, admin, path+"/e") })
	require.Zero(t, c.expired.Load(), "the client cannot know")
	p.BlackHole(zktest.None)
	eventually(t, "the client learns", func() bool { return c.expired.Load() == 1 })
}

func TestRealExpire(t *testing.T) {
	t.Parallel()
	p, c, admin, path := setup(t)
	_, err := c.Create(path+"/e", nil, zk.FlagEphemeral, open)
	require.NoError(t, err)
	id, _, timeout := p.Session()
	require.Equal(t, c.SessionID(), id)
	require.Equal(t, 4*time.Second, timeout)

	require.NoError(t, p.Expire(t.Context()))
	require.False(t, exists(t, admin, path+"/e"))
	require.NoError(t, p.Expire(t.Context()), "gone already")
	eventually(t, "the client learns", func() bool { return c.expired.Load() == 1 })
	eventually(t, "a new session", func() bool { now, _, _ := p.Session(); return now != id })

	// Errors, and the end of the context.
	p.SetTarget("127.0.0.1:1")
	require.ErrorContains(t, p.Expire(t.Context()), "refused")
	mute := listen(t)
	p.SetTarget(mute.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), glance)
	defer cancel()
	require.ErrorIs(t, p.Expire(ctx), context.DeadlineExceeded)
}

func TestRealRefuse(t *testing.T) {
	t.Parallel()
	p, c, _, path := setup(t)
	p.Refuse(true)
	_, _, err := c.Get(path)
	require.Error(t, err)
	p.Refuse(false)
	eventually(t, "connected again", func() bool { return c.connects.Load() == 2 })
	require.True(t, exists(t, c, path))
}

func TestFourLetter(t *testing.T) {
	ens := zktest.Shared(t)
	_, c, _, path := setup(t)
	_, _, _, err := c.GetW(path)
	require.NoError(t, err)
	s := ens.Server(0)
	for word, want := range map[string]string{
		"srvr": "Mode: standalone",
		"ruok": "imok",
		"mntr": "zk_watch_count",
		"wchs": "watching",
		"wchc": path,
		"wchp": path,
		"cons": "sid=",
		"dump": "Session",
	} {
		answer, err := s.FourLetter(t.Context(), word)
		require.NoError(t, err)
		require.Contains(t, answer, want, word)
	}
	_, err = s.FourLetter(t.Context(), "words")
	require.ErrorContains(t, err, "four-letter")
}

func TestFourLetterFails(t *testing.T) {
	mute := listen(t)
	ens := zktest.Outside(mute.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), glance)
	defer cancel()
	_, err := ens.Server(0).FourLetter(ctx, "ruok")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, mute.Close())
	_, err = ens.Server(0).FourLetter(t.Context(), "ruok")
	require.ErrorContains(t, err, "refused")
}

func TestContainersAndTTL(t *testing.T) {
	t.Parallel()
	_, _, admin, path := setup(t)
	_, err := admin.CreateContainer(path+"/c", nil, zk.FlagContainer, open)
	require.NoError(t, err)
	_, err = admin.Create(path+"/c/child", nil, 0, open)
	require.NoError(t, err)
	require.NoError(t, admin.Delete(path+"/c/child", -1))
	began := time.Now()
	eventually(t, "the empty container is removed", func() bool { return !exists(t, admin, path+"/c") })
	require.Less(t, time.Since(began), 5*time.Second)
}

// TestRealExpireWhileBusy has sessions expired while their clients work, so that
// nothing hangs.
func TestRealExpireWhileBusy(t *testing.T) {
	t.Parallel()
	p, c, _, path := setup(t)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_, _, _ = c.Get(path)
			}
		}
	}()
	for i := range int64(3) {
		eventually(t, "a session", func() bool { return c.connects.Load() > i })
		require.NoError(t, p.Expire(t.Context()))
		eventually(t, "expired", func() bool { return c.expired.Load() > i })
	}
	close(stop)
	p.Refuse(true) // frees a Get that waits
	<-stopped
}

func TestVersionOfServer(t *testing.T) {
	answer, err := zktest.Shared(t).Server(0).FourLetter(t.Context(), "srvr")
	require.NoError(t, err)
	if os.Getenv("ZKTEST_SERVERS") != "" {
		return // its version is what it says
	}
	version := "" // an installation without a version in its names tells none, nor does an image: any answer fits then
	if !inDocker() {
		inst, err := zktest.Find()
		require.NoError(t, err)
		version = inst.Version
	}
	require.True(t, strings.HasPrefix(answer, "Zookeeper version: "+version), answer)
	said, err := zktest.Describe()
	require.NoError(t, err)
	require.Contains(t, said, version)
}
