package zktest

import (
	"crypto/sha1"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
)

// The permissions of an ACL.
const (
	permRead int32 = 1 << iota
	permWrite
	permCreate
	permDelete
	permAdmin
	permAll = 1<<iota - 1
)

type aclEntry struct {
	perms  int32
	scheme string
	id     string
}

// An identity is what a connection has proved itself to be.
type identity struct{ scheme, id string }

var worldAll = []aclEntry{{permAll, "world", "anyone"}}

// allowed reports whether one of the identities has the permission.
func allowed(acl []aclEntry, perm int32, auth []identity) bool {
	if len(acl) == 0 {
		return true
	}
	for _, a := range acl {
		if a.perms&perm == 0 {
			continue
		}
		if a.scheme == "world" && a.id == "anyone" {
			return true
		}
		for _, who := range auth {
			if who.scheme == a.scheme && matches(who, a.id) {
				return true
			}
		}
	}
	return false
}

func matches(who identity, id string) bool {
	if who.scheme != "ip" {
		return who.id == id
	}
	want, bits, ok := ipRange(id)
	have, _, known := ipRange(who.id)
	mask := ^uint32(0) << (32 - bits)
	return ok && known && have&mask == want&mask
}

// ipRange reads an address of version 4, the only one that the server knows, and how many bits of it count. Its numbers are what Java reads as such.
func ipRange(s string) (address uint32, bits int, ok bool) {
	s, after, ranged := strings.Cut(s, "/")
	parts := strings.Split(s, ".")
	if len(parts) != 4 {
		return 0, 0, false
	}
	for _, part := range parts {
		n, err := strconv.ParseInt(part, 10, 32)
		if err != nil || n < 0 || n > 255 {
			return 0, 0, false
		}
		address = address<<8 | uint32(n)
	}
	bits = 32
	if ranged {
		n, err := strconv.ParseInt(after, 10, 32)
		if err != nil || n < 0 || n > 32 {
			return 0, 0, false
		}
		bits = int(n)
	}
	return address, bits, true
}

// fixACL is what the server makes of the ACL of a request: duplicates go, "auth" becomes what the connection has proved itself to be, and what names
// nobody is refused.
func fixACL(acl []aclEntry, auth []identity) (fixed []aclEntry, err code) {
	if len(acl) == 0 {
		return nil, codeInvalidACL
	}
	add := func(a aclEntry) { fixed = append(fixed, a) }
	for i, a := range acl {
		if slices.Contains(acl[:i], a) {
			continue
		}
		switch a.scheme {
		case "world":
			if a.id != "anyone" {
				return nil, codeInvalidACL
			}
			add(a)
		case "auth":
			found := false
			for _, who := range auth {
				if who.scheme == "digest" { // an address is no proof of who somebody is
					add(aclEntry{a.perms, who.scheme, who.id})
					found = true
				}
			}
			if !found {
				return nil, codeInvalidACL
			}
		case "digest":
			// Two parts, as Java splits: empty ones at the end do not count.
			if parts := strings.Split(strings.TrimRight(a.id, ":"), ":"); len(parts) != 2 {
				return nil, codeInvalidACL
			}
			add(a)
		case "ip":
			if _, _, ok := ipRange(a.id); !ok {
				return nil, codeInvalidACL
			}
			add(a)
		default:
			return nil, codeInvalidACL
		}
	}
	return fixed, codeOK
}

// digest is the identity of "user:password".
func digest(credential string) string {
	user, _, _ := strings.Cut(credential, ":")
	sum := sha1.Sum([]byte(credential))
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}
