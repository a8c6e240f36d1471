package znode

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
)

// packedMarkers are the markers that a packed name has as a number. Their order is of no use but within a process.
var packedMarkers = [...]string{LockName, WriteName, ReadName, LatchName, LeaseName, KazooLock, KazooRead}

// The forms of a packed name, beside the number of its marker.
const (
	dashedForm = iota // _c_<UUID with dashes>-, Curator
	hexForm           // _c_<32 digits>-, go-zookeeper
	kazooForm         // the 32 digits alone
	forms
	asItIs = 0xff // its length and its bytes
)

const packedUUID = 16

// PackedLen is the length of a packed name that has a UUID.
const PackedLen = 1 + packedUUID + 4

// AppendPacked appends a name to b in about a third of its length. Who waits in a queue keeps the names of those before it, and most of a name is a UUID in
// hexadecimal digits.
func AppendPacked(b []byte, n Name) []byte {
	began := len(b)
	if form, ok := n.form(); ok {
		b = append(b, form)
		b = appendUUID(b, n.UUID)
		b = binary.BigEndian.AppendUint32(b, uint32(n.Seq))
		var whole [96]byte
		if raw, _ := appendUnpacked(whole[:0], b[began:]); string(raw) == n.Raw {
			return b
		}
	}
	b = append(b[:began], asItIs)
	b = binary.AppendUvarint(b, uint64(len(n.Raw)))
	return append(b, n.Raw...)
}

// Unpack returns the first name of those that AppendPacked has put into b, and what follows it.
func Unpack(b []byte) (raw string, rest []byte) {
	var whole [96]byte
	name, rest := appendUnpacked(whole[:0], b)
	return string(name), rest
}

// form is the first byte of a name that can be packed. Whether it comes out as it was is to be seen: a UUID may be in upper case.
func (n Name) form() (byte, bool) {
	for i, marker := range packedMarkers {
		if n.Marker != marker {
			continue
		}
		form := kazooForm
		switch {
		case len(n.UUID) == dashedLen:
			form = dashedForm
		case len(n.UUID) != hexLen:
			return 0, false
		case n.Raw[:len(protection)] == protection:
			form = hexForm
		}
		return byte(i*forms + form), true
	}
	return 0, false
}

func appendUUID(b []byte, uuid string) []byte {
	var digits [hexLen]byte
	at := 0
	for i := range len(uuid) {
		if uuid[i] != '-' {
			digits[at] = uuid[i]
			at++
		}
	}
	b, _ = hex.AppendDecode(b, digits[:]) // it was parsed
	return b
}

func appendUnpacked(whole, b []byte) (name, rest []byte) {
	if b[0] == asItIs {
		n, size := binary.Uvarint(b[1:])
		b = b[1+size:]
		return append(whole, b[:n]...), b[n:]
	}
	marker, form := packedMarkers[b[0]/forms], b[0]%forms
	uuid, seq := b[1:1+packedUUID], int32(binary.BigEndian.Uint32(b[1+packedUUID:]))
	if form != kazooForm {
		whole = append(whole, protection...)
	}
	for i, digit := range uuid {
		if form == dashedForm && (i == 4 || i == 6 || i == 8 || i == 10) {
			whole = append(whole, '-')
		}
		whole = hex.AppendEncode(whole, []byte{digit})
	}
	if form != kazooForm {
		whole = append(whole, '-')
	}
	whole = append(whole, marker...)
	var room [11]byte
	number := strconv.AppendInt(room[:0], int64(seq), 10)
	if seq < 0 {
		whole, number = append(whole, '-'), number[1:]
	}
	const digits = "0000000000"
	width := len(digits)
	if seq < 0 {
		width--
	}
	whole = append(whole, digits[:max(width-len(number), 0)]...)
	return append(whole, number...), b[PackedLen:]
}

// FirstPacked reports whether the first name in b is n.
func FirstPacked(b string, n Name) bool {
	var whole [96]byte
	return strings.HasPrefix(b, string(AppendPacked(whole[:0], n)))
}
