package zktest

import "encoding/binary"

// Action is what a [Rule] does to a frame. The zero Action lets the frame pass,
// which shields it from the rules behind.
type Action struct {
	kind    actionKind
	gate    *Gate
	rewrite func(Frame) []byte
	call    func(Frame)
}

type actionKind uint8

const (
	actPass actionKind = iota
	actCutBefore
	actCutAfter
	actHoleBefore
	actHoleAfter
	actHoldReply
	actHoldRequest
	actRewrite
	actCall
	actDropReply
)

// CutBefore does not forward the request and resets the connection on both
// sides: it is certain that the server never saw it. Of an event: the client
// never saw it.
func CutBefore() Action { return Action{kind: actCutBefore} }

// CutAfter forwards the request, waits for the server's reply, drops it and
// resets the connection on both sides: it is certain that the server has
// executed the request, and the client cannot know. Replies in front of it are
// delivered first. Of an event it is the same as [CutBefore].
func CutAfter() Action { return Action{kind: actCutAfter} }

// BlackHoleBefore is [CutBefore] with silence in place of the reset: the
// request is swallowed and the proxy goes into BlackHole(Both). Of an event it
// is the same as [BlackHoleAfter].
func BlackHoleBefore() Action { return Action{kind: actHoleBefore} }

// BlackHoleAfter is [CutAfter] with silence in place of the reset: the reply is
// swallowed and the proxy goes into BlackHole(Both). Of an event: the event is
// swallowed.
func BlackHoleAfter() Action { return Action{kind: actHoleAfter} }

// HoldReply forwards the request and holds the server's reply to it until the
// gate opens. All that comes behind the reply on the same connection waits too,
// as TCP demands. Of an event it holds the event.
func HoldReply(gate *Gate) Action { return Action{kind: actHoldReply, gate: gate} }

// HoldRequest holds the request, and all behind it on the same connection,
// until the gate opens. Of an event it is the same as [HoldReply].
func HoldRequest(gate *Gate) Action { return Action{kind: actHoldRequest, gate: gate} }

// RewriteReply forwards the request and sends the client what the function
// makes of the reply: a whole frame without the length in front. The function
// sees the reply with the Op, Path and N of its request. Of an event it
// rewrites the event.
func RewriteReply(rewrite func(Frame) []byte) Action {
	return Action{kind: actRewrite, rewrite: rewrite}
}

// ReplyError is a [RewriteReply] that says the request failed with code, one of
// ZooKeeper's negative error codes, whatever the server did. The reply to a
// connect has no place for an error and stays as it is.
func ReplyError(code int32) Action {
	return RewriteReply(func(f Frame) []byte {
		const header = 4 + 8 + 4 // xid, zxid, err
		if f.Op == OpConnect || len(f.Bytes) < header {
			return f.Bytes
		}
		return binary.BigEndian.AppendUint32(append([]byte(nil), f.Bytes[:header-4]...), uint32(code))
	})
}

// Call runs the function on the request, or event, and then forwards it. It
// runs on the goroutine that forwards, so nothing passes on that connection in
// that direction until it returns. It may use the proxy, but for
// [Proxy.Close], which waits for it.
func Call(call func(Frame)) Action { return Action{kind: actCall, call: call} }

// DropReply forwards the request and swallows the reply to it, only that one;
// the connection goes on. Of an event it swallows the event.
func DropReply() Action { return Action{kind: actDropReply} }

// forEvent is the action on a frame that no request comes before.
func (a Action) forEvent() Action {
	switch a.kind {
	case actCutBefore:
		a.kind = actCutAfter
	case actHoleBefore:
		a.kind = actHoleAfter
	case actHoldRequest:
		a.kind = actHoldReply
	}
	return a
}
