package core

import (
	"context"
	"net"
	"time"

	"github.com/go-zookeeper/zk"
)

// A Track is the dialer of a client that somebody else owns. Its wires feed a Contact from the first connection on, before there is an engine that goes
// by it. It serves one client: a second one would have its sockets closed.
type Track struct {
	contact *Contact
	lane    *lane
}

// NewTrack returns a Track whose connections d makes, or a plain dialer when d is nil.
func NewTrack(d zk.Dialer) *Track {
	c := NewContact()
	c.foreign = true
	handshake := func() time.Duration { // 0 until the first one: then the client's request says what it asks for
		_, _, timeout := c.identity()
		return timeout / 3
	}
	// The client decides when it is over; a lane that is never poisoned needs nobody to end it.
	return &Track{c, newLane(context.Background(), route{servers: newServerList(nil), dial: d}, c, handshake)}
}

// Take reserves the Track for one engine; false when it is taken.
func (t *Track) Take() bool { return t.contact.take() }

// Dial is the zk.Dialer of the client. It remembers the addresses, so that a session that the client has left can be ended over a connection of its own.
func (t *Track) Dial(network, server string, timeout time.Duration) (net.Conn, error) {
	t.lane.servers.add(server)
	return t.lane.Dial(network, server, timeout)
}
