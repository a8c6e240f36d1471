package core

import (
	"encoding/binary"
	"time"
)

// Operation codes of the protocol, as far as the engine looks at them.
const (
	opCreate          = 1
	opDelete          = 2
	opExists          = 3
	opGetData         = 4
	opSetData         = 5
	opSetACL          = 7
	opGetChildren     = 8
	opSync            = 9
	opPing            = 11
	opGetChildren2    = 12
	opMulti           = 14
	opCreate2         = 15
	opCreateContainer = 19
	opCreateTTL       = 21
	opAuth            = 100
	opSetWatches      = 101
	opSetWatches2     = 105
	opClose           = -11

	xidPing  = -2
	xidEvent = -1
)

// maxFrame bounds what a length prefix can make us allocate. 10,000 waiters list 0.6 MB; nothing legitimate comes near this.
const maxFrame = 256 << 20

// provesSession reports whether an answer to op shows that the leader heard of the session at or after the time the request was sent. A follower
// answers pings and reads by itself, and auth never touches a session.
func provesSession(op int32) bool {
	switch op {
	case opSync, opCreate, opDelete, opSetData, opSetACL, opMulti, opCreate2, opCreateContainer, opCreateTTL:
		return true
	}
	return false
}

// decidedByLeader reports whether an answer with this code came out of the leader's pipeline; others may be a follower's own refusal.
func decidedByLeader(code int32) bool {
	switch code {
	case 0, -101 /* NoNode */, -103 /* BadVersion */, -108 /* NoChildrenForEphemerals */, -110 /* NodeExists */, -111 /* NotEmpty */ :
		return true
	}
	return false
}

func setsWatch(op int32) bool {
	switch op {
	case opExists, opGetData, opGetChildren, opGetChildren2:
		return true
	}
	return false
}

func makesNode(op int32) bool {
	switch op {
	case opCreate, opCreate2, opMulti:
		return true
	}
	return false
}

// A connectRequest or connectReply is the first frame of its direction.
type connectRequest struct {
	zxid    int64 // the last that the client has seen
	session int64
	timeout time.Duration // that the client asks for
}

func parseConnectRequest(frame []byte) (r connectRequest, ok bool) {
	// length, protocol version, last zxid, timeout, session id
	if len(frame) < 4+4+8+4+8 {
		return r, false
	}
	timeout := time.Duration(int32(binary.BigEndian.Uint32(frame[16:]))) * time.Millisecond
	return connectRequest{int64(binary.BigEndian.Uint64(frame[8:])), int64(binary.BigEndian.Uint64(frame[20:])), timeout}, true
}

// setWatchesZxid is the last zxid that the client had seen when it made a setWatches request.
func setWatchesZxid(frame []byte) int64 {
	// length, xid, operation, relative zxid
	if len(frame) < 4+4+4+8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(frame[12:]))
}

type connectReply struct {
	timeoutMs int32
	session   int64
	passwd    []byte
}

func parseConnectReply(frame []byte) (r connectReply, ok bool) {
	// length, protocol version, timeout, session id, password
	if len(frame) < 4+4+4+8+4 {
		return r, false
	}
	r.timeoutMs = int32(binary.BigEndian.Uint32(frame[8:]))
	r.session = int64(binary.BigEndian.Uint64(frame[12:]))
	if n := int(int32(binary.BigEndian.Uint32(frame[20:]))); n > 0 && len(frame) >= 24+n {
		r.passwd = append([]byte(nil), frame[24:24+n]...)
	}
	return r, true
}

func appendConnectRequest(b []byte, lastZxid int64, timeoutMs int32, session int64, passwd []byte) []byte {
	if len(passwd) == 0 {
		passwd = make([]byte, 16)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(4+8+4+8+4+len(passwd)))
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(lastZxid))
	b = binary.BigEndian.AppendUint32(b, uint32(timeoutMs))
	b = binary.BigEndian.AppendUint64(b, uint64(session))
	b = binary.BigEndian.AppendUint32(b, uint32(len(passwd)))
	return append(b, passwd...)
}

func appendCloseRequest(b []byte, xid int32) []byte {
	b = binary.BigEndian.AppendUint32(b, 8)
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	op := int32(opClose)
	return binary.BigEndian.AppendUint32(b, uint32(op))
}

// frameLen returns the whole length of the frame at the start of b, prefix included, or 0 when that cannot be told yet; ok is false for a length that no
// ZooKeeper sends.
func frameLen(b []byte) (n int, ok bool) {
	if len(b) < 4 {
		return 0, true
	}
	l := binary.BigEndian.Uint32(b)
	if l > maxFrame {
		return 0, false
	}
	return 4 + int(l), true
}
