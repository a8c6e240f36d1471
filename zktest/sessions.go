package zktest

import (
	"crypto/rand"
	"maps"
	"slices"
	"time"
)

// A memSession is one session of a Server, under its mu.
type memSession struct {
	id      int64
	passwd  []byte
	timeout time.Duration
	peer    *peer // its connection, nil for none
	expires time.Time
}

// negotiate is the timeout that a client gets.
func (s *Server) negotiate(asked int32) time.Duration {
	return min(max(time.Duration(asked)*time.Millisecond, min(2*s.tick, maxMinSession)), maxSession)
}

// newSession is called with mu held.
func (s *Server) newSession(asked int32) *memSession {
	s.lastID++
	s.begin() // the creation of a session is a transaction
	ses := &memSession{id: s.lastID, passwd: make([]byte, 16), timeout: s.negotiate(asked)}
	_, _ = rand.Read(ses.passwd)
	s.sessions[ses.id] = ses
	s.touch(ses)
	return ses
}

// touch is called with mu held. Sessions end at the next full tick after their timeout.
func (s *Server) touch(ses *memSession) {
	after := time.Since(s.began) + ses.timeout
	before := ses.expires
	ses.expires = s.began.Add((after/s.tick + 1) * s.tick)
	if before.IsZero() || ses.expires.Before(before) {
		s.ring()
	}
}

// ring lets the clock look now.
func (s *Server) ring() {
	select {
	case s.sooner <- struct{}{}:
	default:
	}
}

// clock ends sessions and looks for what can be reaped. It is the only thing of a Server that happens by itself.
func (s *Server) clock() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	reaping := s.began.Add(s.reapEvery)
	for {
		select {
		case <-timer.C:
		case <-s.sooner:
		case <-s.over:
			return
		}
		s.mu.Lock()
		now := time.Now()
		if !reaping.After(now) {
			if !s.stopped {
				s.reap()
			}
			reaping = now.Add(s.reapEvery)
		}
		next := reaping
		if !s.stopped { // a server that does not run counts no time
			for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
				if ses := s.sessions[id]; !ses.expires.After(now) {
					s.kill(ses)
				} else if ses.expires.Before(next) {
					next = ses.expires
				}
			}
		}
		s.mu.Unlock()
		timer.Reset(max(time.Until(next), 0))
	}
}

// kill ends a session and its connection, which one that is cut off learns when it is healed; mu is held.
func (s *Server) kill(ses *memSession) {
	s.end(ses)
	p := ses.peer
	if p == nil {
		return
	}
	s.watches.forget(p)
	if s.cutFrom(p, ses.id) == nil {
		p.hangUp()
	}
}

// end ends a session: its ephemerals go in one transaction. mu is held.
func (s *Server) end(ses *memSession) {
	delete(s.sessions, ses.id)
	tx := s.begin()
	for _, path := range s.tree.ephemeralsOf(ses.id) {
		s.tree.drop(tx, path)
	}
	s.commit(tx)
}

// reap deletes containers that have become empty, and znodes whose time is over. What that makes empty has to wait for the next time. mu is held.
func (s *Server) reap() {
	at := s.now()
	var empty []string
	for path := range s.tree.mortals {
		n := s.tree.nodes[path]
		if len(n.children) == 0 && (n.kind == kindContainer && n.made > 0 || n.kind == kindMortal && at-n.mtime > n.ttl.Milliseconds()) {
			empty = append(empty, path)
		}
	}
	slices.Sort(empty)
	for _, path := range empty {
		tx := s.begin()
		s.tree.drop(tx, path)
		s.commit(tx)
	}
}

// connect answers the first frame of a connection; false when it has to be dropped. mu is held.
func (s *Server) connect(p *peer, body []byte) bool {
	d := decoder{body}
	d.int32() // version of the protocol
	seen, asked, id, passwd := d.int64(), d.int32(), d.int64(), d.buffer()
	if d.bad() {
		return false
	}
	if seen > s.zxid { // the client knows of what this server has not seen
		return false
	}
	p.old = len(d.b) == 0 // a client that knows of read-only servers says whether it takes one, and is told
	ses := s.sessions[id]
	if ses != nil && ses.peer != nil { // whoever names a session takes its connection, even with a wrong password
		old := ses.peer
		ses.peer, old.session = nil, nil
		s.watches.forget(old)
		old.hangUp()
	}
	switch {
	case id == 0:
		ses = s.newSession(asked)
	case ses == nil || string(passwd) != string(ses.passwd):
		s.reply(p, OpConnect, "", connectReplyOf(nil, !p.old))
		p.lastFrame()
		return true
	default:
		ses.timeout = s.negotiate(asked)
		s.touch(ses)
	}
	p.session, ses.peer = ses, p
	s.reply(p, OpConnect, "", connectReplyOf(ses, !p.old))
	return true
}

func connectReplyOf(ses *memSession, readOnly bool) []byte {
	var e encoder
	e.int32(0)
	if ses == nil {
		ses = &memSession{passwd: make([]byte, 16)}
	}
	e.int32(int32(ses.timeout.Milliseconds()))
	e.int64(ses.id)
	e.bytes(ses.passwd)
	if readOnly {
		e.bool(false)
	}
	return e.b
}
