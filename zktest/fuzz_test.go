package zktest

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sound says what does not fit together within a server.
func (s *Server) sound() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ephemeral, mortal := 0, 0
	for path, n := range s.tree.nodes {
		switch n.kind {
		case kindEphemeral:
			ephemeral++
		case kindContainer, kindMortal:
			mortal++
		}
		if path != "/" {
			parent, name := splitPath(path)
			if above := s.tree.nodes[parent]; above == nil {
				return fmt.Errorf("%q without a parent", path)
			} else if _, ok := above.children[name]; !ok {
				return fmt.Errorf("%q is no child of its parent", path)
			}
		}
		for name := range n.children {
			at := path + "/" + name
			if path == "/" {
				at = "/" + name
			}
			if s.tree.nodes[at] == nil {
				return fmt.Errorf("%q is not there", at)
			}
		}
		if n.kind == kindEphemeral && s.sessions[n.owner] == nil {
			return fmt.Errorf("%q of a session that is none", path)
		}
		if n.kind == kindEphemeral && len(n.children) > 0 {
			return fmt.Errorf("%q is ephemeral and has children", path)
		}
		if n.czxid > s.zxid || n.mzxid > s.zxid || n.pzxid > s.zxid || n.mzxid < n.czxid {
			return fmt.Errorf("%q: zxids of the future", path)
		}
	}
	for id, own := range s.tree.ephemerals {
		for path := range own {
			if n := s.tree.nodes[path]; n == nil || n.kind != kindEphemeral || n.owner != id {
				return fmt.Errorf("%q is no ephemeral of %d", path, id)
			}
			ephemeral--
		}
	}
	if ephemeral != 0 || mortal != len(s.tree.mortals) {
		return fmt.Errorf("%d ephemerals and %d of %d others that go are unknown", ephemeral, mortal-len(s.tree.mortals), mortal)
	}
	for _, t := range []*watchTable{&s.watches.data, &s.watches.children} {
		recursive := 0
		for path, who := range t.of {
			for p, mode := range who {
				if mode == watchRecursive {
					recursive++
				}
				if _, ok := p.watching[watchRef{t, path}]; !ok || p.session == nil {
					return fmt.Errorf("a watch of %q of nobody", path)
				}
			}
		}
		if recursive != t.recursive {
			return fmt.Errorf("%d recursive watches, not %d", recursive, t.recursive)
		}
	}
	for _, ses := range s.sessions {
		if ses.peer != nil && ses.peer.session != ses {
			return fmt.Errorf("session %d has the connection of another", ses.id)
		}
	}
	return nil
}

// stream is what a client sends: a first frame, and requests.
func stream(first []any, requests ...part) []byte {
	var e encoder
	e.args(first)
	all := encodeFrame(e.b)
	for i, p := range requests {
		e := encoder{}
		e.int32(int32(i))
		e.int32(int32(p.op))
		e.args(p.args)
		all = append(all, encodeFrame(e.b)...)
	}
	return all
}

var anyFirst = []any{0, int64(0), 30000, int64(0), make([]byte, 16), false}

// Whatever a client sends, the server does not fall over it, serves others afterwards, and leaves nothing behind.
func FuzzServer(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("ruok"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte("\x00\x0f\xff\xff"))
	f.Add(stream(anyFirst)[:20])
	f.Add(stream(anyFirst, whole...))
	f.Add(stream([]any{0, int64(0), 1, int64(firstSession + 1), []byte(nil)}, whole...))
	for seed := range uint64(12) {
		var requests []part
		for _, s := range newWalk(seed) {
			switch s.do {
			case "call", "mute":
				requests = append(requests, in(s.op, s.args...))
			case "multi":
				requests = append(requests, in(OpMulti, append(s.args, endOfMulti{})...))
			case "burst":
				for _, p := range s.args {
					requests = append(requests, p.(part))
				}
			}
		}
		f.Add(stream(anyFirst, requests...))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		before := runtime.NumGoroutine()
		s, err := LaunchServer()
		require.NoError(t, err)
		defer func() {
			s.Close()
			for until := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) { // the pipe's deadlines
				if time.Now().After(until) {
					t.Fatalf("%d goroutines, and %d before", runtime.NumGoroutine(), before)
				}
			}
		}()
		d := talk(t, s)
		other := d.join("other")
		other.call(OpAddWatch, "/", 1)
		c, err := d.dial()
		require.NoError(t, err)
		read := make(chan int64)
		go func() {
			n, _ := io.Copy(io.Discard, c)
			read <- n
		}()
		_, _ = c.Write(sent)    // until the server hangs up
		other.call(OpSync, "/") // or it has lost its connection to one that knows the number of its session
		require.NoError(t, s.sound())
		c.Close()
		<-read
		later := d.join("later")
		later.call(OpExists, "/", true)
		require.Contains(t, d.lines[len(d.lines)-1], ": 0 z")
		d.finish()
		require.NoError(t, s.sound())
	})
}

// A length is not believed: connections that promise the largest frame and send nothing of it cost nearly nothing.
func TestServerTrustsNoLength(t *testing.T) {
	s := NewServer(t)
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	const connections = 100
	before := allocated()
	var all []net.Conn
	for range connections {
		c, err := s.Dialer()("tcp", "any:1", time.Second)
		require.NoError(t, err)
		all = append(all, c)
		_, err = c.Write([]byte("\x00\x0f\xff\xff and a little more"))
		require.NoError(t, err)
	}
	require.Less(t, allocated()-before, uint64(connections*200<<10), "bytes for %d connections", connections)
	for _, c := range all {
		c.Close()
	}
}
