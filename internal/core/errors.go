package core

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"
)

var (
	// ErrClosed ends every call of an engine that was closed.
	ErrClosed = errors.New("zkrecipes: session closed")
	// ErrTooLarge is for data that the server would answer by dropping the connection.
	ErrTooLarge = errors.New("data too large")
)

// MaxData is the largest znode that is sent: the server's default jute.maxbuffer of 1 MiB, less 1 KiB for the rest of the request. A larger request
// would not be refused but cost the connection, again at every retry.
const MaxData = 1<<20 - 1<<10

// Class says what is known of a request that returned an error.
type Class int

const (
	// NotSent: the request never left this process.
	NotSent Class = iota
	// Answered: the server decided.
	Answered
	// Ambiguous: it may have been applied, may be applied later, or never.
	Ambiguous
	// SessionOver: the server says that the session has ended.
	SessionOver
)

// answers are the errors that are a server's decision, or the client's refusal of an argument before sending.
var answers = []error{
	zk.ErrNoNode, zk.ErrNoAuth, zk.ErrBadVersion, zk.ErrNoChildrenForEphemerals, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrInvalidACL,
	zk.ErrInvalidFlags, zk.ErrInvalidPath, zk.ErrAuthFailed, zk.ErrBadArguments, zk.ErrReconfigDisabled, zk.ErrAPIError, zk.ErrShortBuffer,
}

// Classify is the one place where the errors of go-zookeeper are told apart. Whatever it does not know is ambiguous: a failed socket write, for one,
// reaches the caller as a bare net error although the bytes may have arrived.
func Classify(err error) Class {
	if errors.Is(err, zk.ErrNoServer) || errors.Is(err, zk.ErrSessionMoved) {
		// ErrNoServer only ever empties the queue of what was not written; a moved session's request was refused.
		return NotSent
	}
	if errors.Is(err, zk.ErrSessionExpired) {
		return SessionOver
	}
	for _, a := range answers {
		if errors.Is(err, a) {
			return Answered
		}
	}
	switch code, ok := Code(err); {
	case !ok:
		return Ambiguous
	case code == codeConnectionLoss || code == codeOperationTimeout:
		return Ambiguous
	case code == codeThrottled:
		return NotSent
	case code == codeUnknownSession: // it ended between the request's arrival and its turn
		return SessionOver
	}
	return Answered
}

// MayHaveApplied reports whether a request that ended with err may still have changed something, now or later.
func MayHaveApplied(err error) bool {
	switch Classify(err) {
	case Ambiguous, SessionOver:
		return true
	case Answered:
		// A system error tells that something broke on the server, not how far the request had come.
		code, ok := Code(err)
		return ok && code > codeMarshalling && code < 0
	}
	return false
}

const (
	codeConnectionLoss   = -4
	codeMarshalling      = -5
	codeUnimplemented    = -6
	codeOperationTimeout = -7
	codeUnknownSession   = -12
	codeSessionExpired   = -112
	codeThrottled        = -127
)

// Code returns the number in an error for which go-zookeeper has no name; it makes a fresh one each time ("unknown error: -6").
func Code(err error) (int, bool) {
	if err == nil {
		return 0, false
	}
	text, ok := strings.CutPrefix(err.Error(), "unknown error: ")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

// Explain gives the errors without a name the meaning that the server's documentation gives them.
func Explain(err error) error {
	meaning := map[int]string{
		-1: "system error", -2: "runtime inconsistency", -3: "data inconsistency", codeMarshalling: "the server could not read the request",
		codeUnimplemented: "not implemented by this server", codeUnknownSession: "the session has ended", -119: "the server is read-only", -125: "quota exceeded", codeThrottled: "throttled",
	}
	if code, ok := Code(err); ok && meaning[code] != "" {
		return fmt.Errorf("%s (server code %d)", meaning[code], code)
	}
	return err
}
