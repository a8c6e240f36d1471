package zktest

import "slices"

// A cut is one partition, until it is healed.
type cut struct {
	sessions []int64
	machines []*machine // whose new sessions are cut off too
	healed   chan struct{}
}

// Partition cuts these sessions off until heal is called: nothing that their clients send arrives and they hear nothing, on the connections that they
// have, on those by which they come back, and on those by which the same [Server.Dialer] asks for a new session. Nothing is lost, as little as by TCP:
// what was under way arrives afterwards if the connection lives. The sessions' time passes. A session that several partitions cut off is healed with the
// last of them.
func (s *Server) Partition(sessions ...int64) (heal func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &cut{sessions: slices.Clone(sessions), healed: make(chan struct{})}
	for p := range s.peers {
		if p.session != nil && p.from != nil && slices.Contains(sessions, p.session.id) {
			c.machines = append(c.machines, p.from)
		}
	}
	s.cuts = append(s.cuts, c)
	return func() { s.heal(c) }
}

func (s *Server) heal(c *cut) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.cuts, c)
	if i < 0 {
		return
	}
	s.cuts = slices.Delete(s.cuts, i, i+1)
	close(c.healed)
	for p := range s.peers { // the end of a connection that could not be told
		if ses := p.session; ses != nil && s.sessions[ses.id] != ses && s.cutFrom(p, ses.id) == nil {
			p.hangUp()
		}
	}
}

// cutFrom returns what a connection that is cut off has to wait for, nil for one that is not; mu is held. A connection whose session is not known yet
// names it by id, 0 for a new one.
func (s *Server) cutFrom(p *peer, id int64) <-chan struct{} {
	for _, c := range s.cuts {
		if slices.Contains(c.sessions, id) || id == 0 && p.from != nil && slices.Contains(c.machines, p.from) {
			return c.healed
		}
	}
	return nil
}

// cutOff returns what a frame on its way to a client has to wait for, nil for nothing.
func (s *Server) cutOff(p *peer) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.session == nil {
		return nil
	}
	return s.cutFrom(p, p.session.id)
}

// passes waits until what a client has sent arrives, which it does not while its session is cut off; false when the connection has ended.
func (s *Server) passes(p *peer, body []byte, first bool) bool {
	for {
		s.mu.Lock()
		var healed <-chan struct{}
		if first {
			d := decoder{body}
			d.skip(4 + 8 + 4)
			healed = s.cutFrom(p, d.int64())
		} else if p.session != nil {
			healed = s.cutFrom(p, p.session.id)
		}
		s.mu.Unlock()
		if healed == nil {
			return true
		}
		select {
		case <-healed:
		case <-p.done:
			return false
		}
	}
}
