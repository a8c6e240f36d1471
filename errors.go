package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// The errors that calls of this package match, beside those of ctx and of go-zookeeper (such as zk.ErrNoAuth).
var (
	ErrHeld         = errors.New("zkrecipes: held by another owner")                    // somebody is ahead: of a Try, or when ctx ended a wait
	ErrLost         = errors.New("zkrecipes: lease lost")                               // it ended without its holder's doing; see LostError
	ErrReleased     = errors.New("zkrecipes: lease released")                           // it was given back
	ErrUpgrade      = errors.New("zkrecipes: a read lease cannot become a write lease") // see RWLock
	ErrNoLeader     = errors.New("zkrecipes: no leader")                                // nobody leads at the moment
	ErrNoConnection = errors.New("zkrecipes: no session with the ensemble")             // none while the call could wait
	ErrInvalid      = errors.New("zkrecipes: invalid argument")                         // a mistake in the call, its recipe, or what it finds
	ErrClosed       = core.ErrClosed                                                    // the Session was closed
)

// Error is what a recipe's call returns. When a ctx ended the wait it matches ctx.Err(), context.Cause(ctx), and ErrHeld if somebody was ahead or
// ErrNoConnection if there was no session.
type Error struct {
	Op    string       // "dial", "lock", "trylock", "release", ...
	Path  string       // the recipe's path, inside the namespace; empty for dial and close
	Ahead Participants // who stood in the way, the nearest eight, nearest first; of those further ahead only node, token and position may be known
	Err   error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("zkrecipes: ")
	b.WriteString(e.Op)
	if e.Path != "" {
		fmt.Fprintf(&b, " %s", e.Path)
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(plain(e.Err))
	}
	return b.String()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// plain is err's text without this package's prefix, which stands at the front of the whole message once.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "zkrecipes: ") }

// A LostError says why a lease ended without its holder's doing. It matches ErrLost.
type LostError struct {
	Path   string
	Reason LossReason
	Err    error // may be nil
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("zkrecipes: lease on %s lost: %s", e.Path, e.Reason)
	if e.Err != nil {
		s += ": " + plain(e.Err)
	}
	return s
}

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// LossReason is why a lease was lost.
type LossReason int

// The reasons.
const (
	ReasonSessionExpired LossReason = iota + 1 // the server ended the session
	ReasonNodeDeleted                          // somebody deleted the lease's znode
	ReasonUnconfirmed                          // nothing proves any more that the session lives (or WithLoseOnDisconnect)
	ReasonSessionClosed                        // Session.Close
	ReasonHoldLimit                            // WithMaxHold has passed
)

func (r LossReason) String() string {
	switch r {
	case ReasonSessionExpired:
		return "session expired"
	case ReasonNodeDeleted:
		return "its znode was deleted"
	case ReasonUnconfirmed:
		return "no proof that the session is alive"
	case ReasonSessionClosed:
		return "session closed"
	case ReasonHoldLimit:
		return "held for longer than WithMaxHold allows"
	}
	return fmt.Sprintf("LossReason(%d)", int(r))
}

// several is an error with more than one cause and a text of its own.
type several struct {
	text   string
	causes []error
}

func (e *several) Error() string   { return e.text }
func (e *several) Unwrap() []error { return e.causes }

// also says text and matches each of the causes.
func also(text string, causes ...error) error {
	e := &several{text: text}
	for _, c := range causes {
		if c != nil {
			e.causes = append(e.causes, c)
		}
	}
	return e
}

// invalid is an ErrInvalid that says what is wrong.
func invalid(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return also("invalid argument: "+plain(err), ErrInvalid, err)
}

// ended is the error of a wait that ctx ended.
func ended(ctx context.Context, noSession bool, dialErr error, ahead Participants, own int64) error {
	causes := []error{ctx.Err()}
	if cause := context.Cause(ctx); cause != ctx.Err() {
		causes = append(causes, cause)
	}
	text := plain(context.Cause(ctx))
	if ahead != nil { // empty: nobody, but there are too few permits
		causes = append(causes, ErrHeld)
		text = heldText(ahead, own) + ": " + text
	}
	if noSession {
		causes = append(causes, ErrNoConnection)
		why := "no session with the ensemble"
		if dialErr != nil {
			causes = append(causes, dialErr)
			why += " (" + strings.ReplaceAll(dialErr.Error(), "\n", "; ") + ")"
		}
		text = why + ": " + text
	}
	return also(text, causes...)
}

// heldText names who is nearest ahead.
func heldText(ahead Participants, own int64) string {
	if len(ahead) == 0 { // of a semaphore with fewer permits than were asked for
		return "too few permits"
	}
	p := ahead[0]
	_, name := znode.Split(p.Node)
	text := "held by another owner"
	switch {
	case p.Owner != "":
		text = fmt.Sprintf("behind %q (session 0x%x, token %d)", string(p.Owner), uint64(p.Session), p.Token)
	case p.Session != 0:
		text = fmt.Sprintf("behind %s (session 0x%x, token %d)", name, uint64(p.Session), p.Token)
	default:
		text = fmt.Sprintf("%s by %s", strings.TrimSuffix(text, " by another owner"), name)
	}
	if n := max(len(ahead)-1, p.Position); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	if own != 0 && p.Session == own {
		text += ", which is of this Session: to enter again, pass the context of the lease held (Lease.Context) or use one Owner"
	}
	return text
}

// callError makes what a call returns from what the engine returned.
func callError(op, path string, err error) *Error {
	if errors.Is(err, core.ErrTooLarge) {
		err = invalid("%w", err)
	}
	return &Error{Op: op, Path: path, Err: core.Explain(err)}
}
