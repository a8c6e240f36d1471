package zktest

import "time"

// forwardRequest decides on one frame from the client. It returns false when
// the line has nothing more to do.
func (ln *line) forwardRequest(raw []byte) bool {
	l, p := ln.l, ln.l.p
	f := parseRequest(raw[4:], ln.first)
	ln.first = false
	rec := &Record{Conn: l.id, Op: f.Op, Xid: f.Xid, Path: f.Path, Size: len(f.Bytes)}

	switch ln.ready() {
	case mustQuit:
		l.close(true)
		return false
	case mustDrop:
		rec.Time, rec.Fate = time.Now(), FateSwallowed
		p.journal.request(rec)
		return true
	}

	var act Action
	p.rules.match(&f, func(a Action) {
		act = a
		rec.Time = time.Now()
		if a.kind == actCutBefore {
			rec.Fate = FateCutBefore
		}
		p.journal.request(rec)
	})
	switch act.kind {
	case actCutBefore:
		l.close(true)
		return false
	case actHoleBefore:
		// Who sees the fate may heal the hole: that must be there before.
		p.blackHole(Both, l, ToServer)
		p.journal.fate(rec, FateSwallowed)
		return true
	case actHoldRequest:
		if !act.gate.pass(l.done) {
			return false
		}
	case actCall:
		act.call(f)
	}

	l.expect(&request{op: f.Op, xid: f.Xid, path: f.Path, n: f.N, action: act, record: rec})
	switch ln.send(raw, func() { p.journal.fate(rec, FateForwarded) }) {
	case sentHole:
		p.journal.fate(rec, FateSwallowed)
	case sentNot:
		return false
	}
	return true
}

// forwardReply decides on one frame from the server, a reply or an event. It
// returns false when the line has nothing more to do.
func (ln *line) forwardReply(raw []byte) bool {
	f, act, rec := ln.identify(raw[4:])
	p := ln.l.p
	switch ln.ready() {
	case mustQuit:
		ln.l.close(true)
		return false
	case mustDrop:
		p.journal.fate(rec, FateReplyLost)
		if f.Op == OpEvent {
			p.journal.event()
		}
		return true
	}
	if f.Op != OpEvent {
		return ln.deliver(raw, f, act, rec)
	}
	p.rules.match(&f, func(a Action) {
		act = a.forEvent()
		p.journal.event()
	})
	if act.kind == actCall {
		act.call(f)
	}
	return ln.deliver(raw, f, act, nil)
}

// identify finds the request that a frame from the server answers, and so what
// is to be done with it. An event answers none.
func (ln *line) identify(body []byte) (f Frame, act Action, rec *Record) {
	var req *request
	if ln.first {
		ln.first = false
		f = Frame{Op: OpConnect, Bytes: body}
		if s, ok := parseConnectReply(body); ok && s.id != 0 {
			ln.l.p.journal.setSession(s)
		}
		req = ln.l.answered(0) // the connect was noted as a request with xid 0
	} else if f = parseReply(body); f.Op != OpEvent {
		req = ln.l.answered(f.Xid)
	}
	if req == nil {
		return f, act, nil
	}
	f.Op, f.Path, f.N = req.op, req.path, req.n
	ln.l.p.journal.update(req.record, func(r *Record) {
		r.Answered, r.Err, r.Zxid = true, f.Err, f.Zxid
	})
	return f, req.action, req.record
}

// deliver does to a frame from the server what the action says of it and sends
// what is left to the client. It returns false when the line has nothing more
// to do.
func (ln *line) deliver(raw []byte, f Frame, act Action, rec *Record) bool {
	l, p := ln.l, ln.l.p
	switch act.kind {
	case actCutAfter:
		p.journal.fate(rec, FateCutAfter)
		l.close(true)
		return false
	case actHoleAfter:
		p.blackHole(Both, l, ToClient) // before its fate is seen, as above
		p.journal.fate(rec, FateReplyLost)
		return true
	case actDropReply:
		p.journal.fate(rec, FateReplyLost)
		return true
	case actHoldReply:
		if !act.gate.pass(l.done) {
			return false
		}
	case actRewrite:
		raw = encodeFrame(act.rewrite(f))
	}
	switch ln.send(raw, nil) {
	case sentHole:
		p.journal.fate(rec, FateReplyLost)
	case sentNot:
		return false
	}
	return true
}
