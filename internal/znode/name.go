package znode

import (
	"crypto/rand"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
)

// Kind is the way in which a contender stands in a queue.
type Kind int

const (
	Exclusive Kind = iota // nobody else may hold: a mutex, a writer
	Shared                // other shared ones may hold too: a reader
)

func (k Kind) String() string {
	switch k {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// The markers: what stands in a node's name right before the sequence number.
const (
	LockName  = "lock-"     // Curator's InterProcessMutex, LeaderSelector and semaphores; go-zookeeper's Lock
	WriteName = "__WRIT__"  // Curator's InterProcessReadWriteLock, write half
	ReadName  = "__READ__"  // and read half
	LatchName = "latch-"    // Curator's LeaderLatch
	LeaseName = "lease-"    // Curator's InterProcessSemaphoreV2
	KazooLock = "__lock__"  // kazoo's Lock and WriteLock
	KazooRead = "__rlock__" // kazoo's ReadLock
)

const (
	protection = "_c_"
	hexLen     = 32 // a UUID as plain hex digits
	dashedLen  = 36 // a UUID as 8-4-4-4-12
)

// Name is the parsed name of a node that stands in a queue.
type Name struct {
	Raw    string // as listed
	UUID   string // lower case, 36 characters with dashes (Curator) or 32 without (go-zookeeper, kazoo); "" if unprotected
	Marker string // the one of the markers asked for that it has
	Seq    int32
}

// Exclusive reports whether n is a mutex's or a writer's node, with which no
// other holder goes together. It says nothing about latches and leases, which
// have rules of their own: for them it is false.
func (n Name) Exclusive() bool {
	switch n.Marker {
	case LockName, WriteName, KazooLock:
		return true
	}
	return false
}

// NewUUID returns a random (version 4) UUID in the form that Java prints: lower
// case, with dashes.
func NewUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	var text [dashedLen]byte
	at := 0
	for i, digit := range b {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			text[at] = '-'
			at++
		}
		hex.Encode(text[at:], []byte{digit})
		at += 2
	}
	return string(text[:])
}

// IsUUID reports whether name is a UUID in the form that NewUUID returns.
func IsUUID(name string) bool {
	return len(name) == dashedLen && isUUID(name) && name == strings.ToLower(name)
}

// Protected returns the name under which Curator creates a node in protection
// mode, so that the node can be found when the reply to the create is lost. A
// UUID must not be used for two creates.
func Protected(uuid, name string) string {
	return protection + uuid + "-" + name
}

// ProtectedPath returns the path of the node of that name in dir, as Join and
// Protected would.
func ProtectedPath(dir, uuid, name string) string {
	return strings.TrimSuffix(dir, "/") + "/" + protection + uuid + "-" + name
}

// UUIDOf returns the UUID in front of a protected name, in lower case, whatever
// follows it: "_c_", a UUID with dashes (Curator) or as 32 hex digits
// (go-zookeeper's CreateProtectedEphemeralSequential), "-". For any other name
// it is "", also for kazoo's, which have a UUID but no such prefix.
func UUIDOf(name string) string {
	uuid, _ := cutProtection(name)
	return strings.ToLower(uuid)
}

// Parse reads a child's name as
//
//	[protection] marker number
//
// with one of the given markers, and reports whether it is of that form. A
// directory may have other children (locks of their own, another recipe's nodes,
// anybody's), and they must be ignored, neither counted nor stumbled over; so
// the form is taken exactly:
//
//   - protection is "_c_<uuid>-" with dashes (Curator) or without (go-zookeeper),
//     and before kazoo's markers the 32 digits alone. All three may be absent.
//     Hex digits may be upper case, as for Java's UUID.fromString.
//   - number is an int32 as the server prints a parent's counter, Java's "%010d":
//     "0000000007", and past the limit "-2147483648" (11 characters) up to
//     "-000000001" (10). The sign belongs to the number, so after "lock-" there
//     can be two dashes.
//
// The first marker that fits wins; an empty one fits nothing.
func Parse(raw string, markers ...string) (Name, bool) {
	for _, marker := range markers {
		if marker == "" {
			continue
		}
		cut := cutProtection
		if marker == KazooLock || marker == KazooRead {
			cut = cutHex
		}
		uuid, rest := cut(raw)
		number, ok := strings.CutPrefix(rest, marker)
		if !ok {
			continue
		}
		if seq, ok := parseSeq(number); ok {
			return Name{Raw: raw, UUID: strings.ToLower(uuid), Marker: marker, Seq: seq}, true
		}
	}
	return Name{}, false
}

// Exhausted reports whether seq is a number from where on numbers do not tell
// the order any more. The counter is an int32 of the parent: at 2^31-1 the
// server repeats that number for creates that come one at a time and goes on
// with negative ones for creates that come in a burst. Only czxids order nodes
// then.
func Exhausted(seq int32) bool {
	return seq < 0 || seq == math.MaxInt32
}

// cutProtection cuts a protection prefix off name. Without one it returns "" and
// name as it is.
func cutProtection(name string) (uuid, rest string) {
	s, ok := strings.CutPrefix(name, protection)
	if !ok {
		return "", name
	}
	for _, n := range [...]int{dashedLen, hexLen} {
		if len(s) > n && s[n] == '-' && isUUID(s[:n]) {
			return s[:n], s[n+1:]
		}
	}
	return "", name
}

// cutHex cuts kazoo's prefix off name: the digits of a UUID with nothing before
// and nothing after them. Without one it returns "" and name as it is.
func cutHex(name string) (uuid, rest string) {
	if len(name) > hexLen && isUUID(name[:hexLen]) {
		return name[:hexLen], name[hexLen:]
	}
	return "", name
}

// isUUID reports whether s, of dashedLen or hexLen bytes, consists of hex digits
// and, in the dashed form, of dashes where they belong.
func isUUID(s string) bool {
	for i := 0; i < len(s); i++ {
		if len(s) == dashedLen && (i == 8 || i == 13 || i == 18 || i == 23) {
			if s[i] != '-' {
				return false
			}
			continue
		}
		switch c := s[i]; {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'f', 'A' <= c && c <= 'F':
		default:
			return false
		}
	}
	return true
}

// parseSeq reads an int32 in the one way in which "%010d" prints it.
//
// strconv alone would do for the value but takes other spellings too ("+1",
// "-0", any number of zeros), which the server never makes.
func parseSeq(s string) (int32, bool) {
	const width = 10 // with the sign
	switch {
	case len(s) == width && s != "-000000000":
	case len(s) == width+1 && s[0] == '-' && s[1] != '0':
	default:
		return 0, false
	}
	for i := 0; i < len(s); i++ {
		if (s[i] < '0' || '9' < s[i]) && (i > 0 || s[i] != '-') {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 32)
	return int32(n), err == nil
}
