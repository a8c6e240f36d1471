package zktest_test

import (
	"context"
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// withoutShared lets a test start from no shared ensemble and leave none.
func withoutShared(t *testing.T) {
	require.NoError(t, zktest.CloseShared())
	t.Cleanup(func() { require.NoError(t, zktest.CloseShared()) })
}

func TestSharedLaunched(t *testing.T) {
	withoutShared(t)
	t.Setenv("ZKTEST_SERVERS", "")
	t.Setenv("ZKTEST_REAL", launchedIn())
	ens := zktest.Shared(t)
	require.Same(t, ens, zktest.Shared(t))
	pid := ens.Server(0).PID()
	require.NoError(t, zktest.CloseShared())
	require.NoError(t, zktest.CloseShared())
	require.False(t, processExists(pid))
	require.NotSame(t, ens, zktest.Shared(t))
}

// Where nothing is asked for it is a server in this process, whatever is installed.
func TestSharedInThisProcess(t *testing.T) {
	withoutShared(t)
	t.Setenv("ZKTEST_SERVERS", "")
	t.Setenv("ZKTEST_REAL", "")
	t.Setenv("ZOOKEEPER_HOME", t.TempDir())
	ens := zktest.Shared(t)
	require.Same(t, ens, zktest.Shared(t))
	require.NoError(t, ens.WaitReady(t.Context()))
	require.Len(t, ens.Addrs(), 1)
	s := ens.Server(0)
	require.True(t, s.Running())
	for _, f := range []func() error{s.Kill, s.Stop, s.Start, s.Wipe, s.Pause, s.Resume} {
		require.ErrorIs(t, f(), zktest.ErrNotOwned)
	}
	_, err := s.FourLetter(t.Context(), "ruok")
	require.Error(t, err, "it knows none")
	require.NoError(t, zktest.CloseShared())
	_, err = net.Dial("tcp", s.Addr())
	require.Error(t, err, "it has ended")
	require.NotSame(t, ens, zktest.Shared(t))
}

func TestSharedFromOutside(t *testing.T) {
	withoutShared(t)
	server := zktest.Start(t)
	for _, real := range []string{"", "addr"} {
		t.Setenv("ZKTEST_SERVERS", " "+server.Addrs()[0]+" ,")
		t.Setenv("ZKTEST_REAL", real)
		ens := zktest.Shared(t)
		require.Equal(t, server.Addrs(), ens.Addrs())
		require.Equal(t, ens.Server(0), ens.Leader())
		require.NoError(t, ens.WaitReady(t.Context()))
		s := ens.Server(0)
		require.True(t, s.Running())
		for _, f := range []func() error{s.Kill, s.Stop, s.Start, s.Wipe, s.Pause, s.Resume} {
			require.ErrorIs(t, f(), zktest.ErrNotOwned)
		}
		answer, err := s.FourLetter(t.Context(), "ruok")
		require.NoError(t, err)
		require.Equal(t, "imok", answer)
		require.NoError(t, zktest.CloseShared())
		require.True(t, server.Server(0).Running(), "it is not ours to stop")
	}
	t.Setenv("ZKTEST_REAL", launchedIn())
	require.NotEqual(t, server.Addrs(), zktest.Shared(t).Addrs())
}

func TestSharedFails(t *testing.T) {
	withoutShared(t)
	shared := func() string {
		defer zktest.CloseShared()
		return fatality(t, func(tb zktest.TB) { zktest.Shared(tb) })
	}
	t.Setenv("ZKTEST_SERVERS", "")
	t.Setenv("ZKTEST_REAL", "addr")
	require.Contains(t, shared(), "needs $ZKTEST_SERVERS")
	_, err := zktest.Launch()
	require.ErrorContains(t, err, "needs $ZKTEST_SERVERS")

	t.Setenv("ZKTEST_SERVERS", "localhost")
	_, err = zktest.Launch()
	require.ErrorIs(t, err, zktest.ErrNotOwned)

	t.Setenv("ZKTEST_REAL", "dokcer")
	said := shared()
	for _, known := range []string{"addr", "local", "docker"} {
		require.Contains(t, said, strconv.Quote(known))
	}

	t.Setenv("ZKTEST_REAL", "docker")
	t.Setenv("ZKTEST_IMAGE", "zkrecipes.invalid/none")
	require.Contains(t, shared(), "no ZooKeeper to launch")

	t.Setenv("ZKTEST_REAL", "local")
	t.Setenv("ZOOKEEPER_HOME", t.TempDir())
	require.Contains(t, shared(), "no ZooKeeper to launch")
}

func TestOutsideNotServing(t *testing.T) {
	mute := listen(t)
	ens := zktest.Outside(mute.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), glance)
	defer cancel()
	require.ErrorContains(t, ens.WaitReady(ctx), "no session within the time given")
}

func TestOutsideAddrs(t *testing.T) {
	t.Setenv("ZKTEST_SERVERS", " a:1, b ,,[::1]:3,::1")
	require.Equal(t, []string{"a:1", "b:2181", "[::1]:3", "[::1]:2181"}, zktest.OutsideAddrs())
	require.NoError(t, os.Unsetenv("ZKTEST_SERVERS"))
	require.Empty(t, zktest.OutsideAddrs())
}
