package zktest_test

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A client of go-zookeeper's that is closed while it has no connection leaves a goroutine that waits for a second. It does not fail the test.
func TestClosedClientsEndInABubble(t *testing.T) {
	ended := false
	synctest.Test(t, func(t *testing.T) {
		zktest.NewServer(t)
		go func() {
			time.Sleep(time.Second)
			ended = true
		}()
	})
	require.True(t, ended)
}

// The client of go-zookeeper runs in a bubble: it keeps its session for an hour, loses it while it is cut off, and comes back with another.
func TestServerWithClientInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.NewServer(t, zktest.TickTime(2*time.Second))
		c, _, err := zk.Connect([]string{"any:1"}, 10*time.Second, zk.WithDialer(s.Dialer()), zk.WithLogger(silent{}), zk.WithHostProvider(new(oneHost)))
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Create("/e", []byte("x"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		first := c.SessionID()
		time.Sleep(time.Hour) // it sends pings
		_, _, watch, err := c.GetW("/e")
		require.NoError(t, err)
		heal := s.Partition(first)
		time.Sleep(20 * time.Second)
		require.Empty(t, slices.Collect(s.Znodes("/e")))
		heal()
		require.Equal(t, zk.EventNotWatching, (<-watch).Type)
		for c.State() != zk.StateHasSession {
			time.Sleep(time.Second)
		}
		require.NotEqual(t, first, c.SessionID())
	})
}

// The same server over TCP, at an address that stays.
func TestServerWithClientByTCP(t *testing.T) {
	s := zktest.NewServer(t)
	addr := s.Addr()
	require.Equal(t, addr, s.Addr())
	c, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogger(silent{}))
	require.NoError(t, err)
	defer c.Close()
	path, err := c.CreateProtectedEphemeralSequential("/n-", []byte("x"), zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	s.Stop()
	_, err = net.Dial("tcp", addr)
	require.Error(t, err)
	require.NoError(t, s.Start())
	require.Equal(t, addr, s.Addr())
	require.Len(t, slices.Collect(s.Znodes(path)), 1)
}

// Options that only a launched server can have are refused.
func TestNewServerRefusesOptions(t *testing.T) {
	for _, o := range []zktest.Option{zktest.Servers(3), zktest.Property("a", "b"), zktest.SystemProperty("a", "b"), zktest.TickTime(0)} {
		f := new(fatal)
		func() {
			defer func() { _ = recover() }()
			zktest.NewServer(f, o)
		}()
		require.Len(t, f.said, 1)
	}
}

// fatal is a test that notes its end.
type fatal struct {
	tb
	said []string
}

func (f *fatal) Fatalf(format string, a ...any) {
	f.said = append(f.said, fmt.Sprintf(format, a...))
	panic("the end")
}

type oneHost struct{ sync.Mutex }

func (*oneHost) Init([]string) error  { return nil }
func (*oneHost) Len() int             { return 1 }
func (*oneHost) Next() (string, bool) { return "any:1", false }
func (*oneHost) Connected()           {}
