package zktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// The last reply of a connection is held, and nobody ever lets it go: the server can be closed all the same, and nothing of it is left in the bubble.
func TestServerCloseWithAHeldLastReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.NewServer(t)
		gate := s.Hold(zktest.OpClose, "")
		c, events, err := zk.Connect([]string{"any:1"}, 10*time.Second, zk.WithDialer(s.Dialer()), zk.WithLogInfo(false), zk.WithHostProvider(new(oneHost)))
		require.NoError(t, err)
		_, _, err = c.Exists("/")
		require.NoError(t, err)
		go c.Close()
		<-gate.Reached()
		s.Close()
		for range events {
		}
	})
}
