package zktest

import "slices"

// A multiPart is one operation of a multi, as it was sent.
type multiPart struct {
	op   Op
	null bool // has no path
	body decoder
}

// multiParts takes a multi apart. The server reads all of it before it does any of it, and knows no multi that both reads and writes.
func (d *decoder) multiParts() (parts []multiPart) {
	for {
		op, done := Op(d.int32()), d.bool()
		d.skip(4)
		if d.bad() || done {
			return parts
		}
		part := multiPart{op: op, body: *d}
		if peek := *d; peek.int32() == -1 {
			part.null = true
		}
		switch op {
		case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL:
			d.create(op)
		case OpDelete, OpCheck:
			d.textOrNull()
			d.int32()
		case OpSetData:
			d.textOrNull()
			d.buffer()
			d.int32()
		case OpGetData, OpGetChildren:
			d.textOrNull()
			d.bool()
		default:
			d.b = nil
		}
		if len(parts) > 0 && part.reads() != parts[0].reads() {
			d.b = nil
		}
		parts = append(parts, part)
	}
}

func (part multiPart) reads() bool { return part.op == OpGetData || part.op == OpGetChildren }

// opMulti runs its parts as one transaction, and answers for each: of one that failed, all have.
func (s *Server) opMulti(p *peer, d *decoder, out *encoder) code {
	parts := d.multiParts()
	switch {
	case !d.bad() && slices.ContainsFunc(parts, func(part multiPart) bool { return part.null }):
		s.given++ // it falls over before it has begun
		multiHeader(out, -1, true, -1)
		return codeMarshalling
	case d.bad(), len(parts) > 0 && parts[0].reads():
		s.begin()
		return codeMarshalling
	}
	tx := s.begin()
	results := make([]encoder, len(parts))
	for i := range parts {
		err := s.part(tx, p, &parts[i], &results[i])
		if err == codeOK {
			continue
		}
		tx.rollback()
		if err == codeMarshalling {
			return err
		}
		for k := range parts {
			each := codeOK
			if k == i {
				each = err
			} else if k > i { // it has not been looked at
				each = codeRuntimeInconsistency
			}
			multiError(out, each)
		}
		multiHeader(out, -1, true, -1)
		return codeOK
	}
	for i, part := range parts {
		multiHeader(out, int32(part.op), false, codeOK)
		out.b = append(out.b, results[i].b...)
	}
	multiHeader(out, -1, true, -1)
	s.commit(tx)
	return codeOK
}

// part runs one part of a multi. Its op becomes that of the answer. A create is what its flags say, whatever the operation; with a time to live it must be
// the operation that has one.
func (s *Server) part(tx *txn, p *peer, part *multiPart, out *encoder) code {
	d := part.body
	switch part.op {
	case OpDelete:
		return s.opDelete(tx, p, &d, out)
	case OpSetData:
		return s.opSetData(tx, p, &d, out)
	case OpCheck:
		return s.opCheck(tx, p, &d, out)
	}
	r := d.create(part.op)
	op := OpCreate
	switch r.kind() {
	case kindMortal:
		if part.op != OpCreateTTL {
			return codeMarshalling
		}
		op = OpCreateTTL
	case kindContainer:
		op, r.ttl = OpCreateContainer, -1
	default:
		r.ttl = -1
	}
	if part.op = OpCreate; op != OpCreate { // it answers with a Stat
		part.op = OpCreate2
	}
	return s.create(op, tx, p, r, out)
}

func multiHeader(out *encoder, op int32, done bool, err code) {
	out.int32(op)
	out.bool(done)
	out.int32(int32(err))
}

func multiError(out *encoder, err code) {
	multiHeader(out, -1, false, err)
	out.int32(int32(err))
}

// opMultiRead answers each of its reads by itself. They set no watches.
func (s *Server) opMultiRead(p *peer, d *decoder, out *encoder) code {
	parts := d.multiParts()
	if d.bad() {
		return codeMarshalling
	}
	err := codeOK
	for _, part := range parts {
		if part.null || !part.reads() { // what came before it is said all the same
			err = codeMarshalling
			break
		}
		n, err := s.node(p, part.body.text(), permRead)
		if err != codeOK {
			multiError(out, err)
			continue
		}
		multiHeader(out, int32(part.op), false, codeOK)
		if part.op == OpGetData {
			out.bytes(n.data)
			out.stat(n.stat())
		} else {
			out.strings(n.childNames())
		}
	}
	multiHeader(out, -1, true, -1)
	return err
}
