package zktest

import "encoding/binary"

// An encoder writes the protocol's types; decoder reads them.
type encoder struct{ b []byte }

func (e *encoder) int32(v int32) { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }

func (e *encoder) int64(v int64) { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }

func (e *encoder) bool(v bool) {
	var b byte
	if v {
		b = 1
	}
	e.b = append(e.b, b)
}

// bytes writes a buffer; nil is one of length -1.
func (e *encoder) bytes(v []byte) {
	if v == nil {
		e.int32(-1)
		return
	}
	e.int32(int32(len(v)))
	e.b = append(e.b, v...)
}

func (e *encoder) string(v string) {
	e.int32(int32(len(v)))
	e.b = append(e.b, v...)
}

// null writes a string that is none.
func (e *encoder) null() { e.int32(-1) }

func (e *encoder) strings(v []string) {
	e.int32(int32(len(v)))
	for _, s := range v {
		e.string(s)
	}
}

func (e *encoder) stat(s statOf) {
	e.int64(s.czxid)
	e.int64(s.mzxid)
	e.int64(s.ctime)
	e.int64(s.mtime)
	e.int32(s.version)
	e.int32(s.cversion)
	e.int32(s.aversion)
	e.int64(s.owner)
	e.int32(s.dataLength)
	e.int32(s.numChildren)
	e.int64(s.pzxid)
}

func (e *encoder) acl(acl []aclEntry) {
	e.int32(int32(len(acl)))
	for _, a := range acl {
		e.int32(a.perms)
		e.string(a.scheme)
		e.string(a.id)
	}
}

func (d *decoder) bool() bool {
	t := d.take(1)
	return t != nil && t[0] != 0
}

// buffer reads a buffer as it was written: nil stays nil, and it may be kept.
func (d *decoder) buffer() []byte {
	n := d.int32()
	if n == -1 {
		return nil
	}
	return append([]byte{}, d.take(int(n))...)
}

// text reads a string that must not be null: the server falls over one.
func (d *decoder) text() string {
	s, null := d.textOrNull()
	if null {
		d.b = nil
	}
	return s
}

func (d *decoder) textOrNull() (s string, null bool) {
	n := d.int32()
	if n == -1 {
		return "", true
	}
	return string(d.take(int(n))), false
}

func (d *decoder) strings() (all []string) {
	for n := d.int32(); n > 0 && !d.bad(); n-- {
		all = append(all, d.text())
	}
	return all
}

// texts reads a list that must not be null.
func (d *decoder) texts() []string {
	if peek := *d; peek.int32() == -1 {
		d.b = nil
	}
	return d.strings()
}

func (d *decoder) acl() (all []aclEntry) {
	for n := d.int32(); n > 0 && !d.bad(); n-- {
		a := aclEntry{perms: d.int32()}
		a.scheme, _ = d.textOrNull() // null is the name of no scheme
		id, null := d.textOrNull()
		if a.id = id; null && (a.scheme == "world" || a.scheme == "digest" || a.scheme == "ip") {
			d.b = nil
		}
		all = append(all, a)
	}
	return all
}
