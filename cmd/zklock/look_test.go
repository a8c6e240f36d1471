//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes"
)

const uuid = "01234567-89ab-cdef-0123-456789abcdef"

// plant makes a znode by hand, as another client does, and its parents.
func plant(t *testing.T, s *zkrecipes.Session, servers, path, data string, flags int32) string {
	t.Helper()
	_, namespace, err := zkrecipes.ParseConnectString(servers)
	require.NoError(t, err)
	full := namespace + path
	for i := range full {
		if i > 0 && full[i] == '/' {
			if _, err := s.Conn().Create(full[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != zk.ErrNodeExists {
				require.NoError(t, err)
			}
		}
	}
	node, err := s.Conn().Create(full, []byte(data), flags, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	return strings.TrimPrefix(node, namespace)
}

const queued = zk.FlagEphemeral | zk.FlagSequence

func TestStatusShowsEveryClientsQueue(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := observer(t, servers)
	reader := plant(t, s, servers, "/lock/_c_"+uuid+"-__READ__", "curator's", queued)
	writer := plant(t, s, servers, "/lock/"+strings.ReplaceAll(uuid, "-", "")+"__lock__", "kazoo's\x1b[2J", queued)
	waiter := plant(t, s, servers, "/lock/_c_"+uuid+"-lock-", "", queued)
	z := onServers(t, servers, "status", "/lock")
	require.Equal(t, exitOK, z.run(t))
	rows := strings.Split(strings.TrimSuffix(z.stdout.String(), "\n"), "\n")
	require.Len(t, rows, 4)
	session := sessionID(s.ID())
	require.Regexp(t, `^POS  STATE  MODE       OWNER  +SESSION +TOKEN +AGE +NODE$`, rows[0])
	require.Regexp(t, `^0    holds  shared     curator's  +`+session+`  \d+ +\d+s +`+reader+`$`, rows[1])
	require.Regexp(t, `^1    waits  exclusive  "kazoo's\\x1b\[2J"  `+session+`  \d+ +\d+s +`+writer+`$`, rows[2])
	require.Regexp(t, `^2    waits  exclusive  -  +`+session+`  \d+ +\d+s +`+waiter+`$`, rows[3])
	require.NotContains(t, z.stdout.String(), "\x1b", "neither a colour nor what somebody wrote into a znode")

	z = onServers(t, servers, "status", "-json", "/lock")
	require.Equal(t, exitOK, z.run(t))
	var st standing
	require.NoError(t, json.Unmarshal([]byte(z.stdout.String()), &st))
	require.Equal(t, 1, strings.Count(z.stdout.String(), "\n"))
	require.True(t, st.Exists)
	require.Len(t, st.Participants, 3)
	ps := queue(t, s, "/lock")
	for i, p := range st.Participants {
		require.Less(t, p.Age, 60.0)
		require.True(t, p.Since.Equal(ps[i].Since))
		p.Age, p.Since = 0, time.Time{}
		require.Equal(t, participant{
			Node: []string{reader, writer, waiter}[i], Owner: []string{"curator's", "kazoo's\x1b[2J", ""}[i], Session: session, Token: int64(ps[i].Token),
			Mode: []string{"shared", "exclusive", "exclusive"}[i], Holding: i == 0, Position: i,
		}, p)
	}
}

func TestStatusOfNobody(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := observer(t, servers)
	plant(t, s, servers, "/lock", "", 0)
	for _, tc := range []struct{ path, text, json string }{
		{"/lock", "nobody holds /lock, nobody waits\n", `"exists":true,"participants":[]`},
		{"/none", "/none does not exist: nobody holds it, nobody waits\n", `"exists":false,"participants":[]`},
		{"/", "nobody holds /, nobody waits\n", `"exists":true,"participants":[]`},
	} {
		z := onServers(t, servers, "status", tc.path)
		require.Equal(t, exitOK, z.run(t))
		require.Equal(t, tc.text, z.stdout.String())
		z = onServers(t, servers, "status", "-json", tc.path)
		require.Equal(t, exitOK, z.run(t))
		require.Contains(t, z.stdout.String(), tc.json)
	}
}

func TestStatusOfASemaphore(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := observer(t, servers)
	_, err := zkrecipes.NewSemaphore(s, "/lock", 2, zkrecipes.WithOwner("a")).Acquire(within(t, 20*time.Second), 2)
	require.NoError(t, err)
	eventually(t, 20*time.Second, "two holders", func() bool { // who has permits leaves the queue for them afterwards
		ps := queue(t, s, "/lock")
		return len(ps) == 2 && len(ps.Holders()) == 2
	})
	z := onServers(t, servers, "status", "/lock")
	require.Equal(t, exitOK, z.run(t))
	require.Regexp(t, `(?m)^0    holds  shared  a  .*  /lock/leases/_c_`, z.stdout.String())
	require.Regexp(t, `(?m)^1    holds  shared  a  .*  /lock/leases/_c_`, z.stdout.String())
}

// The picture follows: a path that is not there yet, a holder, a waiter, and the next holder.
func TestStatusWatch(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s, other := observer(t, servers), observer(t, servers)
	text, lines := onServers(t, servers, "status", "-watch", "/lock"), onServers(t, servers, "status", "/lock", "-watch", "-json")
	require.NoError(t, text.Start())
	require.NoError(t, lines.Start())
	text.find(t, `^\d{4}-\d\d-\d\dT.*\n/lock does not exist`)
	lines.find(t, `"exists":false`)
	first := hold(t, s, "/lock", "first")
	text.find(t, `0    holds  exclusive  first`)
	lines.find(t, `"owner":"first"[^}]*"holding":true`)
	second := make(chan *zkrecipes.Lease, 1)
	go func() {
		lease, err := zkrecipes.NewMutex(other, "/lock", zkrecipes.WithOwner("second")).Lock(within(t, 20*time.Second))
		if err == nil {
			second <- lease
		}
		close(second)
	}()
	text.find(t, `1    waits  exclusive  second`)
	lines.find(t, `"owner":"second"[^}]*"holding":false`)
	require.NoError(t, first.Release(within(t, 20*time.Second)))
	text.find(t, `0    holds  exclusive  second`)
	lines.find(t, `"owner":"second"[^}]*"holding":true`)
	lease := <-second
	require.NotNil(t, lease)
	require.NoError(t, lease.Release(within(t, 20*time.Second)))
	text.find(t, `nobody waits\n\n$`)
	for _, z := range []*zklock{text, lines} {
		require.NoError(t, z.Process.Signal(syscall.SIGINT))
		require.Equal(t, exitOK, z.finish(t))
		require.Empty(t, z.stderr.String())
	}
	for line := range strings.Lines(lines.stdout.String()) {
		require.NoError(t, json.Unmarshal([]byte(line), new(standing)))
	}
}

// The znodes of a semaphore come and go in directories that stay.
func TestStatusWatchOfASemaphore(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := observer(t, servers)
	acquire := func(owner zkrecipes.Owner) *zkrecipes.Lease {
		lease, err := zkrecipes.NewSemaphore(s, "/lock", 2, zkrecipes.WithOwner(owner)).Acquire(within(t, 20*time.Second), 1)
		require.NoError(t, err)
		return lease
	}
	acquire("first")
	z := onServers(t, servers, "status", "-watch", "-json", "/lock")
	require.NoError(t, z.Start())
	z.find(t, `"node":"/lock/leases/[^}]*"owner":"first"[^}]*"holding":true`)
	second := acquire("second")
	z.find(t, `"node":"/lock/leases/[^}]*"owner":"second"[^}]*"holding":true`)
	require.NoError(t, second.Release(within(t, 20*time.Second)))
	z.find(t, `"owner":"second".*\n(?:.*\n)*.*"participants":\[{[^}]*"owner":"first"[^}]*}\]}\n$`)
	require.NoError(t, z.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitOK, z.finish(t))
}

func TestTree(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := observer(t, servers)
	node := plant(t, s, servers, "/app/locks/a/_c_"+uuid+"-lock-", "12345", queued)
	plant(t, s, servers, "/app/config", "{}", 0)
	_, namespace, err := zkrecipes.ParseConnectString(servers)
	require.NoError(t, err)
	_, err = s.Conn().Set(namespace+"/app/config", []byte("{ }"), -1)
	require.NoError(t, err)
	_, err = s.Conn().Create(namespace+"/app/secret", nil, 0, zk.DigestACL(zk.PermAll, "somebody", "else"))
	require.NoError(t, err)

	z := onServers(t, servers, "tree", "/app")
	require.Equal(t, exitOK, z.run(t))
	name := node[strings.LastIndex(node, "/")+1:]
	var rows []string
	for line := range strings.Lines(z.stdout.String()) {
		rows = append(rows, strings.Join(strings.Fields(strings.Replace(line, "ephemeral sequential", "ephemeral-sequential", 1)), " "))
	}
	require.Equal(t, []string{
		"ZNODE TYPE SESSION DATA VERSION",
		"/app persistent - 0 0",
		"config persistent - 3 1",
		"locks persistent - 0 0",
		"a persistent - 0 0",
		name + " ephemeral-sequential " + sessionID(s.ID()) + " 5 0",
		"secret no permission to read - - -",
	}, rows)
	require.Contains(t, z.stdout.String(), "\n      _c_", "three levels down")

	z = onServers(t, servers, "tree", "/", "-depth", "1")
	require.Equal(t, exitOK, z.run(t))
	require.Contains(t, z.stdout.String(), "\n  app ")
	require.NotContains(t, z.stdout.String(), "config")

	z = onServers(t, servers, "tree", "/none")
	require.Equal(t, exitFailed, z.run(t))
	require.Contains(t, z.stderr.String(), "/none does not exist")
}

func TestRevokeNeedsAParticipant(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := observer(t, servers)
	plant(t, s, servers, "/lock/config", "precious", 0)
	for _, node := range []string{"/lock/config", "/lock/_c_" + uuid + "-lock-0000000000", "/lock", "/"} {
		z := onServers(t, servers, "revoke", node)
		require.Equal(t, exitFailed, z.run(t), node)
		require.Contains(t, z.stderr.String(), "zklock status")
	}
	data, _, err := s.Conn().Get("/" + strings.SplitN(servers, "/", 2)[1] + "/lock/config")
	require.NoError(t, err)
	require.Equal(t, "precious", string(data))
}

func TestBreakDeletesTheHolder(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := observer(t, servers)
	lease := hold(t, s, "/lock", "stuck")
	waiter := plant(t, s, servers, "/lock/_c_"+uuid+"-lock-", "waiter", queued)

	z := onServers(t, servers, "break", "/lock") // its standard input is /dev/null, as under cron
	require.Equal(t, exitUsage, z.run(t))
	require.Contains(t, z.stderr.String(), "-yes")
	z = onServers(t, servers, "break", "-yes", "-older-than", "1h", "/lock")
	require.Equal(t, exitOK, z.run(t))
	require.Equal(t, "nothing to delete: nothing of /lock is older than 1h0m0s\n", z.stdout.String())
	require.NoError(t, lease.Err())
	require.Len(t, queue(t, s, "/lock"), 2)

	z = onServers(t, servers, "break", "-yes", "-older-than", "1ms", "/lock")
	require.Equal(t, exitOK, z.run(t))
	require.Regexp(t, `^deleted: /lock/_c_\S+ of stuck \(session 0x[0-9a-f]+, token \d+\), there for \d+s\n$`, z.stdout.String())
	<-lease.Done()
	require.ErrorIs(t, lease.Err(), zkrecipes.ErrLost)
	ps := queue(t, s, "/lock")
	require.Len(t, ps, 1)
	require.EqualValues(t, "waiter", ps[0].Owner)

	z = onServers(t, servers, "break", "-yes", waiter)
	require.Equal(t, exitOK, z.run(t))
	require.Contains(t, z.stdout.String(), "deleted: "+waiter+" of waiter")
	require.Empty(t, queue(t, s, "/lock"))
}

func TestBreakDeletesNothingElse(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := observer(t, servers)
	plant(t, s, servers, "/lock/config", "precious", 0)
	for _, node := range []string{"/lock/config", "/lock", "/none", "/"} {
		z := onServers(t, servers, "break", "-yes", node)
		require.Equal(t, exitOK, z.run(t))
		require.Contains(t, z.stdout.String(), "nothing to delete")
	}
	found, _, err := s.Conn().Exists("/" + strings.SplitN(servers, "/", 2)[1] + "/lock/config")
	require.NoError(t, err)
	require.True(t, found)
}

func TestAge(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{0: "0s", 59.9: "59s", 61: "1m1s", 3600: "1h0m", 7325: "2h2m", 90000: "1d1h", 8.64e6: "100d0h"} {
		require.Equal(t, want, age(seconds))
	}
}
