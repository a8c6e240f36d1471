package zktest

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// converse has a scenario with one server. It is late when this machine was so slow that something may have ended before it was made use of.
func converse(t testing.TB, addr string, scenario func(*dialogue, *rawConn, *rawConn)) (lines []string, late bool) {
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
	return d.lines, d.late
}

// The server of this process answers everything that the real one answers, in the same words and order.
func TestConformance(t *testing.T) {
	theirs, ours := Start(t, SystemProperty("znode.container.checkIntervalMs", "200")), newServerReaping(t, 200*time.Millisecond)
	steps := 0
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			var want, got []string
			for range 5 { // what was asked too late is not compared: no answer is a reason to ask again
				var late [2]bool
				want, late[0] = converse(t, theirs.Addrs()[0], s.run)
				got, late[1] = converse(t, ours.Addr(), s.run)
				if !late[0] && !late[1] {
					break
				}
				t.Log("too slow for its sessions")
			}
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
