package zktest

import (
	"strings"
)

// node finds what a read asks for; Server.mu is held.
func (s *Server) node(p *peer, path string, perm int32) (*node, code) {
	n := s.tree.find(path)
	switch {
	case n == nil:
		return nil, codeNoNode
	case perm != 0 && !allowed(n.acl, perm, p.auth):
		return nil, codeNoAuth
	}
	return n, codeOK
}

func (s *Server) opExists(p *peer, d *decoder, out *encoder) code {
	path, watch := d.text(), d.bool()
	if strings.IndexByte(path, 0) >= 0 {
		return codeBadArguments
	}
	n, err := s.node(p, path, 0)
	if watch && (err == codeOK || err == codeNoNode) && !d.bad() { // also for one that is not there
		s.watches.data.add(path, p, watchOnce)
	}
	if err == codeOK {
		out.stat(n.stat())
	}
	return err
}

func (s *Server) opGetData(p *peer, d *decoder, out *encoder) code {
	path, watch := d.text(), d.bool()
	n, err := s.node(p, path, permRead)
	if err != codeOK || d.bad() {
		return err
	}
	if watch {
		s.watches.data.add(path, p, watchOnce)
	}
	out.bytes(n.data)
	out.stat(n.stat())
	return codeOK
}

func (s *Server) opGetChildren(p *peer, d *decoder, out *encoder) code {
	_, err := s.children(p, d, out)
	return err
}

func (s *Server) opGetChildren2(p *peer, d *decoder, out *encoder) code {
	n, err := s.children(p, d, out)
	if err == codeOK {
		out.stat(n.stat())
	}
	return err
}

func (s *Server) children(p *peer, d *decoder, out *encoder) (*node, code) {
	path, watch := d.text(), d.bool()
	n, err := s.node(p, path, permRead)
	if d.bad() {
		return nil, codeMarshalling
	}
	if err != codeOK {
		return nil, err
	}
	if watch {
		s.watches.children.add(path, p, watchOnce)
	}
	out.strings(n.childNames())
	return n, codeOK
}

func (s *Server) opGetACL(p *peer, d *decoder, out *encoder) code {
	path := d.text()
	n, err := s.node(p, path, permRead|permAdmin)
	if err != codeOK || d.bad() {
		return err
	}
	acl := n.acl
	if !allowed(n.acl, permAdmin, p.auth) { // who may not change it does not see the passwords' digests
		acl = nil
		for _, a := range n.acl {
			if user, _, ok := strings.Cut(a.id, ":"); ok && a.scheme == "digest" {
				a.id = user + ":x"
			}
			acl = append(acl, a)
		}
	}
	out.acl(acl)
	out.stat(n.stat())
	return codeOK
}

func (s *Server) opSetACL(p *peer, d *decoder, out *encoder) code {
	path, null := d.textOrNull()
	acl, version := d.acl(), d.int32()
	s.begin()
	if d.bad() {
		return codeMarshalling
	}
	if null {
		return codeBadArguments
	}
	n, err := s.tree.setACL(path, acl, version, p.auth)
	if err == codeOK {
		out.stat(n.stat())
	}
	return err
}

// opSetWatches sets the watches that a client had on its last connection. What has changed since the zxid that it has seen it is told at once.
func (s *Server) opSetWatches(p *peer, d *decoder, _ *encoder) code {
	return s.setWatches(p, d, false)
}

func (s *Server) opSetWatches2(p *peer, d *decoder, _ *encoder) code {
	return s.setWatches(p, d, true)
}

func (s *Server) setWatches(p *peer, d *decoder, lasting bool) code {
	since := d.int64()
	data, exist, child := d.texts(), d.texts(), d.texts()
	var node, recursive []string
	if lasting {
		node, recursive = d.texts(), d.texts()
	}
	if d.bad() {
		return codeMarshalling
	}
	for _, path := range data {
		switch n := s.tree.find(path); {
		case n == nil:
			p.event(eventDeleted, path)
		case n.mzxid > since:
			p.event(eventData, path)
		default:
			s.watches.data.add(path, p, watchOnce)
		}
	}
	for _, path := range exist {
		if s.tree.find(path) != nil {
			p.event(eventCreated, path)
		} else {
			s.watches.data.add(path, p, watchOnce)
		}
	}
	for _, path := range child {
		switch n := s.tree.find(path); {
		case n == nil:
			p.event(eventDeleted, path)
		case n.pzxid > since:
			p.event(eventChildren, path)
		default:
			s.watches.children.add(path, p, watchOnce)
		}
	}
	for _, path := range node {
		s.watches.addBoth(path, p, watchLasting)
	}
	for _, path := range recursive {
		s.watches.addBoth(path, p, watchRecursive)
	}
	return codeOK
}

func (s *Server) opAddWatch(p *peer, d *decoder, out *encoder) code {
	path, mode := d.text(), d.int32()
	if d.bad() || mode != 0 && mode != 1 {
		return codeMarshalling
	}
	s.watches.addBoth(path, p, watchLasting+watchMode(mode))
	out.int32(int32(codeOK))
	return codeOK
}

// tablesOf are the tables that a removeWatches or checkWatches means: of children, of data, or both.
func (w *watches) tablesOf(kind int32) []*watchTable {
	switch kind {
	case 1:
		return []*watchTable{&w.children}
	case 2:
		return []*watchTable{&w.data}
	case 3:
		return []*watchTable{&w.children, &w.data}
	}
	return nil
}

func (s *Server) opRemoveWatches(p *peer, d *decoder, _ *encoder) code {
	path, null := d.textOrNull()
	tables := s.watches.tablesOf(d.int32())
	if d.bad() || tables == nil {
		return codeMarshalling
	}
	found := false
	for _, t := range tables {
		found = !null && t.remove(path, p) || found
	}
	if !found {
		return codeNoWatcher
	}
	return codeOK
}

func (s *Server) opCheckWatches(p *peer, d *decoder, _ *encoder) code {
	path := d.text()
	tables := s.watches.tablesOf(d.int32())
	if d.bad() || tables == nil {
		return codeMarshalling
	}
	found := false
	for _, t := range tables {
		has, err := t.contains(path, p)
		if err != codeOK {
			return err
		}
		found = found || has
	}
	if !found {
		return codeNoWatcher
	}
	return codeOK
}

// opGetEphemerals lists the session's own, below a path: an empty one or that of the root for all.
func (s *Server) opGetEphemerals(p *peer, d *decoder, out *encoder) code {
	prefix, _ := d.textOrNull()
	if strings.TrimSpace(prefix) == "" || strings.TrimSpace(prefix) == "/" {
		prefix = ""
	}
	var own []string
	for _, path := range s.tree.ephemeralsOf(p.session.id) {
		if strings.HasPrefix(path, prefix) {
			own = append(own, path)
		}
	}
	out.strings(own)
	return codeOK
}

// opGetAllChildren counts all that is below a znode. The root is counted with its other name, which is empty.
func (s *Server) opGetAllChildren(p *peer, d *decoder, out *encoder) code {
	path := d.text()
	if _, err := s.node(p, path, permRead); err != codeOK || d.bad() {
		return err
	}
	below := path + "/"
	count := int32(0)
	if path == "/" {
		below, count = "/", -1
	}
	for at := range s.tree.nodes {
		if strings.HasPrefix(at, below) {
			count++
		}
	}
	out.int32(count)
	return codeOK
}

// opWhoAmI lists what the connection has proved itself to be, without the passwords' digests.
func (s *Server) opWhoAmI(p *peer, _ *decoder, out *encoder) code {
	out.int32(int32(len(p.auth)))
	for _, who := range p.auth {
		user := who.id
		if who.scheme == "digest" {
			user, _, _ = strings.Cut(user, ":")
		}
		out.string(who.scheme)
		out.string(user)
	}
	return codeOK
}

// opSASL takes any token, as a server does that has not been told of SASL: it proves nothing.
func (s *Server) opSASL(_ *peer, d *decoder, out *encoder) code {
	if d.buffer() == nil { // it falls over one that is null
		d.b = nil
	}
	out.bytes(nil)
	return codeOK
}

// opReconfig is switched off, as by default.
func (s *Server) opReconfig(_ *peer, d *decoder, _ *encoder) code {
	for range 3 {
		d.textOrNull()
	}
	if d.int64(); d.bad() {
		return codeMarshalling
	}
	s.begin()
	return codeReconfigDisabled
}

// opDeleteContainer is what the server asks itself for. It cannot read a client's.
func (s *Server) opDeleteContainer(*txn, *peer, *decoder, *encoder) code { return codeBadArguments }

func (s *Server) opCreateSession(_ *txn, _ *peer, d *decoder, _ *encoder) code {
	d.int32() // the time that it might have taken
	return codeOK
}
