package zktest

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// converse has a scenario with one server.
func converse(t testing.TB, addr string, scenario func(*dialogue, *rawConn, *rawConn)) []string {
	d := &dialogue{t: t, dial: func() (net.Conn, error) { return net.Dial("tcp", addr) }}
	a, b := d.open("a", 0, make([]byte, 16), 0), d.open("b", 0, make([]byte, 16), 0)
	d.begin(a)
	scenario(d, a, b)
	d.finish()
	after := d.join("after")
	after.call(OpAuth, 0, "digest", []byte("me:secret"))
	after.clean("/m")
	after.call(OpExists, "/m", false)
	d.finish()
	return d.lines
}

// The server of this process answers everything that the real one answers, in the same words and order.
func TestConformance(t *testing.T) {
	theirs, ours := Start(t, SystemProperty("znode.container.checkIntervalMs", "200")), newServerReaping(t, 200*time.Millisecond)
	steps := 0
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			want, got := converse(t, theirs.Addrs()[0], s.run), converse(t, ours.Addr(), s.run)
			steps += len(want)
			if diff := compare(want, got); diff != nil {
				t.Error(diff)
			}
		})
	}
	t.Logf("%d answers compared", steps)
}

// newServerReaping looks for what can go at other times than one for users does.
func newServerReaping(t testing.TB, every time.Duration) *Server {
	set, err := newSettings(nil)
	require.NoError(t, err)
	set.reap = every
	s := newServer(set)
	t.Cleanup(s.Close)
	return s
}
