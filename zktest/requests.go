package zktest

import (
	"slices"
	"time"
)

// take executes one request of a connection; false when the connection is over.
func (s *Server) take(p *peer, body []byte, first bool) bool {
	req := parseRequest(body, first)
	if !first && len(body) < 8 { // less than a header
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.over() {
		return false
	}
	s.counts.Requests[req.Op]++
	s.counts.ToServer += int64(4 + len(body))
	if first {
		return s.connect(p, body)
	}
	ses := p.session
	if ses == nil || s.sessions[ses.id] != ses {
		return false
	}
	s.touch(ses)
	d := decoder{body}
	d.skip(8)
	if f := s.meet(req.Op, req.Path, func(f *fault) bool { return f.err != codeOK }); f != nil {
		s.reply(p, req.Op, req.Path, replyHeader(req.Xid, s.zxid, f.err).b)
		return true
	}
	op := operations[req.Op]
	if op == nil {
		s.reply(p, req.Op, req.Path, replyHeader(req.Xid, -1, codeUnimplemented).b)
		p.lastFrame()
		return false
	}
	var out encoder
	err := op(s, p, &d, &out)
	if d.bad() {
		err = codeMarshalling
	}
	xid, zxid := req.Xid, s.zxid
	switch req.Op {
	case OpPing:
		xid = xidPing
	case OpAuth, OpSASL: // they overtake what is under way, and know of no zxid
		if d.bad() {
			return false
		}
		zxid = 0
	case OpCheck:
		if err == codeOK { // the server fails to write an answer to this one
			return true
		}
	case opCreateSession:
		if err == codeOK { // it shakes hands again
			s.reply(p, req.Op, "", connectReplyOf(ses, !p.old))
			return true
		}
	}
	reply := replyHeader(xid, zxid, err)
	if err == codeOK || req.Op == OpMulti || req.Op == OpMultiRead { // which have something to say even then
		reply.b = append(reply.b, out.b...)
	}
	s.reply(p, req.Op, req.Path, reply.b)
	if req.Op == OpClose || req.Op == OpAuth && err != codeOK {
		p.lastFrame()
		return false
	}
	return true
}

// opCreateSession is what a server asks itself for at a handshake; a client may, too.
const opCreateSession Op = -10

// operations are what the server can do: each reads its request and writes what follows the header of the reply. Server.mu is held.
var operations map[Op]func(s *Server, p *peer, d *decoder, out *encoder) code

func init() {
	operations = map[Op]func(s *Server, p *peer, d *decoder, out *encoder) code{
		OpPing:            func(*Server, *peer, *decoder, *encoder) code { return codeOK },
		OpCreate:          writing(createAs(OpCreate)),
		OpCreate2:         writing(createAs(OpCreate2)),
		OpCreateContainer: writing(createAs(OpCreateContainer)),
		OpCreateTTL:       writing(createAs(OpCreateTTL)),
		OpDelete:          writing((*Server).opDelete),
		OpSetData:         writing((*Server).opSetData),
		OpCheck:           writing((*Server).opCheck),
		OpExists:          (*Server).opExists,
		OpGetData:         (*Server).opGetData,
		OpGetChildren:     (*Server).opGetChildren,
		OpGetChildren2:    (*Server).opGetChildren2,
		OpGetACL:          (*Server).opGetACL,
		OpSetACL:          (*Server).opSetACL,
		OpSync:            (*Server).opSync,
		OpMulti:           (*Server).opMulti,
		OpClose:           (*Server).opClose,
		OpAuth:            (*Server).opAuth,
		OpSetWatches:      (*Server).opSetWatches,
		OpSetWatches2:     (*Server).opSetWatches2,
		OpAddWatch:        (*Server).opAddWatch,
		OpRemoveWatches:   (*Server).opRemoveWatches,
		OpCheckWatches:    (*Server).opCheckWatches,
		OpGetEphemerals:   (*Server).opGetEphemerals,
		OpGetAllChildren:  (*Server).opGetAllChildren,
		OpMultiRead:       (*Server).opMultiRead,
		OpWhoAmI:          (*Server).opWhoAmI,
		OpSASL:            (*Server).opSASL,
		OpReconfig:        (*Server).opReconfig,
		OpDeleteContainer: writing((*Server).opDeleteContainer),
		opCreateSession:   writing((*Server).opCreateSession),
	}
}

// A write is a part of a transaction: alone, or in a multi.
type write func(s *Server, tx *txn, p *peer, d *decoder, out *encoder) code

// writing runs a write as a transaction of its own. One that fails has its number all the same, as on the server.
func writing(w write) func(s *Server, p *peer, d *decoder, out *encoder) code {
	return func(s *Server, p *peer, d *decoder, out *encoder) code {
		tx := s.begin()
		err := w(s, tx, p, d, out)
		if err == codeOK && d.bad() {
			err = codeMarshalling
		}
		if err != codeOK {
			tx.rollback()
			return err
		}
		s.commit(tx)
		return codeOK
	}
}

// The flags of a create, by number: kind, and whether a number is appended.
var createModes = []struct {
	kind       nodeKind
	sequential bool
}{{kindPersistent, false}, {kindEphemeral, false}, {kindPersistent, true}, {kindEphemeral, true}, {kindContainer, false}, {kindMortal, false}, {kindMortal, true}}

// maxTTL is what fits beside the mark of a TTL znode in its owner field.
const maxTTL = 1<<40 - 1

// A createRequest is a create as it was sent.
type createRequest struct {
	path  string
	null  bool // has no path
	data  []byte
	acl   []aclEntry
	flags int32
	ttl   int64 // -1 for none
}

func (d *decoder) create(op Op) createRequest {
	path, null := d.textOrNull()
	r := createRequest{path: path, null: null, data: d.buffer(), acl: d.acl(), flags: d.int32(), ttl: -1}
	if op == OpCreateTTL {
		r.ttl = d.int64()
	}
	return r
}

// kind is what the flags ask for; persistent for those that it does not know.
func (r createRequest) kind() nodeKind {
	if r.flags < 0 || int(r.flags) >= len(createModes) {
		return kindPersistent
	}
	return createModes[r.flags].kind
}

func createAs(op Op) write {
	return func(s *Server, tx *txn, p *peer, d *decoder, out *encoder) code {
		r := d.create(op)
		if d.bad() || r.null {
			return codeMarshalling
		}
		return s.create(op, tx, p, r, out)
	}
}

func (s *Server) create(op Op, tx *txn, p *peer, r createRequest, out *encoder) code {
	if r.flags < 0 || int(r.flags) >= len(createModes) {
		return codeBadArguments
	}
	mode := createModes[r.flags]
	c := creation{path: r.path, data: r.data, acl: r.acl, kind: mode.kind, sequential: mode.sequential, ttl: time.Duration(r.ttl) * time.Millisecond,
		session: p.session.id, auth: p.auth}
	switch {
	case mode.kind == kindMortal && (r.ttl <= 0 || r.ttl > maxTTL), mode.kind != kindMortal && r.ttl >= 0:
		return codeBadArguments
	case mode.kind != kindMortal && op == OpCreateTTL: // of this one the real server dies, and cannot be started again
		return codeBadArguments
	case op == OpCreateContainer: // whatever the flags say
		c.kind = kindContainer
	case mode.kind == kindContainer: // an old request with a new flag: a plain znode
		c.kind = kindPersistent
	}
	path, n, err := s.tree.create(tx, c)
	if err != codeOK {
		return err
	}
	out.string(path)
	if op != OpCreate {
		out.stat(n.stat())
	}
	return codeOK
}

func (s *Server) opDelete(tx *txn, p *peer, d *decoder, _ *encoder) code {
	path, version := d.text(), d.int32()
	if d.bad() {
		return codeMarshalling
	}
	return s.tree.remove(tx, path, version, p.auth)
}

func (s *Server) opSetData(tx *txn, p *peer, d *decoder, out *encoder) code {
	path, null := d.textOrNull()
	data, version := d.buffer(), d.int32()
	if d.bad() {
		return codeMarshalling
	}
	if null {
		return codeBadArguments
	}
	n, err := s.tree.set(tx, path, data, version, p.auth)
	if err == codeOK {
		out.stat(n.stat())
	}
	return err
}

func (s *Server) opCheck(_ *txn, p *peer, d *decoder, _ *encoder) code {
	path, null := d.textOrNull()
	version := d.int32()
	if d.bad() {
		return codeMarshalling
	}
	if null {
		return codeBadArguments
	}
	return s.tree.check(path, version, p.auth)
}

func (s *Server) opSync(_ *peer, d *decoder, out *encoder) code {
	path, null := d.textOrNull()
	if null {
		out.null()
	} else {
		out.string(path)
	}
	return codeOK
}

func (s *Server) opClose(p *peer, _ *decoder, _ *encoder) code {
	s.end(p.session)
	return codeOK
}

func (s *Server) opAuth(p *peer, d *decoder, _ *encoder) code {
	d.int32()
	scheme, credential := d.text(), d.buffer()
	var who identity
	switch scheme {
	case "digest":
		if credential == nil {
			return codeAuthFailed
		}
		who = identity{scheme, digest(string(credential))}
	case "ip": // known anyway
		return codeOK
	default:
		return codeAuthFailed
	}
	if !slices.Contains(p.auth, who) {
		p.auth = append(p.auth, who)
	}
	return codeOK
}
