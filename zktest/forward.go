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
		switch a.kind {
		case actCutBefore:
			rec.Fate = FateCutBefore
		case actHoleBefore:
			rec.Fate = FateSwallowed
		}
		p.journal.request(rec)
	})

	switch act.kind {
	case actCutBefore:
		l.close(true)
		return false
	case actHoleBefore:
		p.blackHole(Both, l, ToServer)
		return true
	case actHoldRequest:
		if !act.gate.pass(l.done) {
			return false
		}
	case actCall:
		act.call(f)
	}

	noBytes := f
	noBytes.Bytes = nil
	l.expect(&request{frame: noBytes, action: act, record: rec})
	switch ln.send(raw, func() { p.journal.fate(rec, FateForwarded) }) {
	case sentHole:
		p.journal.fate(rec, FateSwallowed)
	case sentNot:
		return false
	}
	return true
}

// forwardReply decides on one frame from the server. It returns false when the
// line has nothing more to do.
func (ln *line) forwardReply(raw []byte) bool {
	l, p := ln.l, ln.l.p
	var f Frame
	var req *request
	if ln.first {
		ln.first = false
		f = Frame{Op: OpConnect, Bytes: raw[4:]}
		if s, ok := parseConnectReply(f.Bytes); ok && s.id != 0 {
			p.journal.setSession(s)
		}
		req = l.answered(0) // a connect request counts as one with xid 0
	} else if f = parseReply(raw[4:]); f.Op != OpEvent {
		req = l.answered(f.Xid)
	}
	if req != nil {
		f.Op, f.Path, f.N, f.epoch = req.frame.Op, req.frame.Path, req.frame.N, req.frame.epoch
	}
	return ln.decideReply(raw, f, req)
}

func (ln *line) decideReply(raw []byte, f Frame, req *request) bool {
	l, p := ln.l, ln.l.p
	var rec *Record
	var act Action
	if req != nil {
		rec, act = req.record, req.action
		p.journal.update(rec, func(r *Record) { r.Answered, r.Err, r.Zxid = true, f.Err, f.Zxid })
	}

	switch ln.ready() {
	case mustQuit:
		l.close(true)
		return false
	case mustDrop:
		if f.Op == OpEvent {
			p.journal.event()
		}
		p.journal.fate(rec, FateReplyLost)
		return true
	}
	if f.Op == OpEvent {
		p.rules.match(&f, func(a Action) {
			act = a
			p.journal.event()
		})
	}

	switch act.kind {
	case actCutAfter:
		p.journal.fate(rec, FateCutAfter)
		l.close(true)
		return false
	case actCutBefore: // of an event
		l.close(true)
		return false
	case actHoleBefore, actHoleAfter:
		p.journal.fate(rec, FateReplyLost)
		p.blackHole(Both, l, ToClient)
		return true
	case actDropReply:
		p.journal.fate(rec, FateReplyLost)
		return true
	case actHoldReply:
		if !act.gate.pass(l.done) {
			return false
		}
	case actHoldRequest:
		if f.Op == OpEvent && !act.gate.pass(l.done) {
			return false
		}
	case actCall:
		if f.Op == OpEvent {
			act.call(f)
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
