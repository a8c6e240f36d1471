package zktest

import (
	"bufio"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A client that attaches to its session again and again, which pushes the connection aside that is to close it, keeps it from none of its ends.
func TestExpireOfASessionThatIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	p := NewProxy(t, Shared(t).Addrs()[0])
	attach := func(s session) (granted session) {
		conn, err := net.DialTimeout("tcp", p.Addr(), 10*time.Second)
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Write(encodeFrame(connectRequest(s))); err != nil {
			return
		}
		if reply, err := readFrame(bufio.NewReader(conn)); err == nil {
			granted, _ = parseConnectReply(reply[4:])
		}
		return granted
	}
	for range 20 {
		s := attach(session{timeout: 10 * time.Second, passwd: make([]byte, 16)})
		require.NotZero(t, s.id)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for range 3 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						attach(s)
					}
				}
			})
		}
		err := p.Expire(t.Context())
		close(stop)
		wg.Wait()
		require.NoError(t, err)
		require.Zero(t, attach(s).id, "it is over")
	}
}
