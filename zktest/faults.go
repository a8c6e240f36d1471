package zktest

import (
	"slices"
	"strings"
	"time"
)

// A fault waits for one request or event.
type fault struct {
	op   Op
	path string // or what begins with it; empty for all
	err  code   // Fail
	lose bool   // LoseReply
	gate *Gate  // Hold
	left int    // how often yet
}

func (f *fault) fits(op Op, path string) bool {
	return f.op == op && (f.path == "" || f.path == path || strings.HasPrefix(path, f.path))
}

// Fail answers the next request of a kind for a path, or one that begins with it (a protected name is not known before), with an error of ZooKeeper's,
// such as -4 for a lost connection or -102 for no authority, and does not execute it. For a multi the path is that of its first operation.
func (s *Server) Fail(op Op, path string, err int32) {
	s.plan(&fault{op: op, path: path, err: code(err), left: 1})
}

// LoseReply executes the next such request, and ends the connection instead of answering it.
func (s *Server) LoseReply(op Op, path string) {
	s.plan(&fault{op: op, path: path, lose: true, left: 1})
}

// Hold keeps back the reply to the next such request, or with OpEvent the next event for that path, and with it all that comes after it on the
// connection, until the gate is opened.
func (s *Server) Hold(op Op, path string) *Gate {
	g := NewGate()
	s.plan(&fault{op: op, path: path, gate: g, left: 1})
	return g
}

// Forget takes back the faults of Fail, LoseReply and Hold that have met nothing yet.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

func (s *Server) plan(f *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f)
}

// meet returns a fault that waits for this, and takes it out when it was for once; mu is held.
func (s *Server) meet(op Op, path string, kind func(*fault) bool) *fault {
	for i, f := range s.faults {
		if kind(f) && f.fits(op, path) {
			if f.left--; f.left == 0 {
				s.faults = slices.Delete(s.faults, i, i+1)
			}
			return f
		}
	}
	return nil
}

// arrange gives a frame on its way what is to happen to it; mu is held.
func (s *Server) arrange(f *outFrame) {
	if s.delay > 0 {
		f.due = time.Now().Add(s.delay)
	}
	if met := s.meet(f.op, f.path, func(f *fault) bool { return f.lose || f.gate != nil }); met != nil {
		f.gate, f.lose = met.gate, met.lose
	}
}

// Delay lets every reply and event from now on arrive that much later; 0 ends it.
func (s *Server) Delay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// Expire ends a session as if its timeout had passed: its ephemeral znodes go, its connection is dropped, and the client learns at its next connect. It
// reports whether there was such a session.
func (s *Server) Expire(session int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses := s.sessions[session]
	if ses == nil {
		return false
	}
	s.kill(ses)
	return true
}

// Disconnect drops the connections of these sessions, or all connections. The sessions live on.
func (s *Server) Disconnect(sessions ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.peers {
		if len(sessions) == 0 || p.session != nil && slices.Contains(sessions, p.session.id) {
			p.hangUp()
		}
	}
}

// Stop ends all connections and refuses new ones. The tree, the sessions and their passwords are kept; no session expires meanwhile.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.shut()
	}
}

// Start lets a stopped server go on, at the same address. Sessions have their whole timeout to come back.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped || s.closed {
		return nil
	}
	if s.addr != "" {
		if err := s.listen(s.addr); err != nil {
			return err
		}
	}
	s.stopped = false
	for _, ses := range s.sessions {
		s.touch(ses)
	}
	s.ring()
	return nil
}

// SetCounter sets how many children a znode ever had, which is the next sequence number below it, so that a test meets the limit of 2147483647 without
// as many creates. It reports whether there is such a znode.
func (s *Server) SetCounter(path string, n int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	parent := s.tree.nodes[path]
	if parent == nil {
		return false
	}
	parent.made = n
	return true
}
