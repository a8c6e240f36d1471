package zktest_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// withoutShared lets a test start from no shared ensemble and leave none.
func withoutShared(t *testing.T) {
	require.NoError(t, zktest.CloseShared())
	t.Cleanup(func() { require.NoError(t, zktest.CloseShared()) })
}

func TestShared(t *testing.T) {
	withoutShared(t)
	t.Setenv("ZKTEST_SERVERS", "")
	t.Setenv("ZKTEST_REAL", "")
	ens := zktest.Shared(t)
	require.Same(t, ens, zktest.Shared(t))
	pid := ens.Server(0).PID()
	require.NoError(t, zktest.CloseShared())
	require.NoError(t, zktest.CloseShared())
	require.False(t, processExists(pid))
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
	t.Setenv("ZKTEST_REAL", "local")
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

	t.Setenv("ZKTEST_REAL", "docker")
	said := shared()
	require.Contains(t, said, `"addr"`)
	require.Contains(t, said, `"local"`)

	t.Setenv("ZKTEST_REAL", "local")
	t.Setenv("ZOOKEEPER_HOME", t.TempDir())
	require.Contains(t, shared(), "no local ZooKeeper")
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
