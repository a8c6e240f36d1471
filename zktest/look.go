package zktest

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
)

// A SessionInfo is one session of a Server.
type SessionInfo struct {
	ID        int64
	Timeout   time.Duration
	Connected bool
	Watches   int
}

// Sessions yields the sessions there are, by id.
func (s *Server) Sessions() iter.Seq[SessionInfo] {
	s.mu.Lock()
	var all []SessionInfo
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		ses := s.sessions[id]
		info := SessionInfo{ID: id, Timeout: ses.timeout}
		if ses.peer != nil && !ses.peer.over() {
			info.Connected, info.Watches = true, len(ses.peer.watching)
		}
		all = append(all, info)
	}
	s.mu.Unlock()
	return slices.Values(all)
}

// A ZnodeInfo is one znode of a Server.
type ZnodeInfo struct {
	Path      string
	Data      []byte
	Owner     int64 // session of an ephemeral
	Container bool
	Czxid     int64
	Version   int32
}

// Znodes yields the znodes below a path, itself included, by path.
func (s *Server) Znodes(path string) iter.Seq[ZnodeInfo] {
	s.mu.Lock()
	var all []ZnodeInfo
	for _, at := range slices.Sorted(maps.Keys(s.tree.nodes)) {
		if path == "/" || at == path || strings.HasPrefix(at, path+"/") {
			n := s.tree.nodes[at]
			all = append(all, ZnodeInfo{at, slices.Clone(n.data), n.owner, n.kind == kindContainer, n.czxid, n.version})
		}
	}
	s.mu.Unlock()
	return slices.Values(all)
}

// Counts returns the totals since the server was made or ResetCounters.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	c.Requests = maps.Clone(c.Requests)
	return c
}

// ResetCounters starts Counts anew.
func (s *Server) ResetCounters() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts = Counts{Requests: make(map[Op]int)}
}
