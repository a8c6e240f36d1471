// Package znode knows how znodes are called: which paths the server accepts,
// what Curator, go-zookeeper and kazoo name the nodes they queue with, and in
// which order such nodes stand.
//
// Everything here is a pure function of its arguments. None of it proves
// anything: a name says who claims to have made a node (anybody may create any
// name; Stat.EphemeralOwner is the proof), and a sequence number is an order of
// arrival only as long as the parent's counter is not [Exhausted].
package znode

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// PathError reports a path or a namespace that breaks the rules of [Validate].
type PathError struct {
	Path   string // as given
	Reason string // what is wrong and, where it helps, at which byte of Path
}

func (e *PathError) Error() string {
	return fmt.Sprintf("invalid path %q: %s", e.Path, e.Reason)
}

// Validate returns nil if the server takes path as the path of a node, else a
// [*PathError].
//
// A valid path is "/" or an absolute path without a trailing slash, without
// empty, "." or ".." elements, in valid UTF-8 without control characters
// (U+0000..U+001F, U+007F..U+009F), U+D800..U+F8FF and U+FFF0..U+FFFF. These are
// the rules of PathUtils in ZooKeeper's server and in Curator. Both look at
// UTF-16 units, so every character above U+FFFF is two surrogates to them and is
// rejected as well.
//
// go-zookeeper's own check is laxer ("/./a", U+E000 and U+1F600 pass it), so it
// is no substitute.
//
// A sequential create may end in a slash; validate the parent there.
func Validate(path string) error {
	if reason := check(path, 0); reason != "" {
		return &PathError{Path: path, Reason: reason}
	}
	return nil
}

// ValidateNamespace returns nil if ns can stand in front of every path, else a
// [*PathError]. Curator writes namespaces without the leading slash ("apps/x");
// with it is fine too. "" and "/" mean no namespace.
func ValidateNamespace(ns string) error {
	var reason string
	if strings.HasPrefix(ns, "/") {
		reason = check(ns, 0)
	} else {
		reason = check("/"+ns, 1)
	}
	if reason != "" {
		return &PathError{Path: ns, Reason: "as a namespace: " + reason}
	}
	return nil
}

// check returns what is wrong with path, "" for nothing. Positions are told less
// shift, the number of bytes that the caller put in front.
func check(path string, shift int) string {
	at := func(i int, format string, args ...any) string {
		return fmt.Sprintf(format, args...) + fmt.Sprintf(" at byte %d", i-shift)
	}
	switch {
	case path == "":
		return "empty"
	case path[0] != '/':
		return `relative path: must start with "/"`
	case path == "/":
		return ""
	case path[len(path)-1] == '/':
		return at(len(path)-1, "trailing slash")
	}
	start := 1 // of the current element
	for i := 1; ; {
		if i == len(path) || path[i] == '/' {
			switch path[start:i] {
			case "":
				return at(start, "empty element")
			case ".", "..":
				return at(start, "%q element", path[start:i])
			}
			if i == len(path) {
				return ""
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(path[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return at(i, "invalid UTF-8")
		case r == 0:
			return at(i, "NUL character")
		case r <= 0x1f, 0x7f <= r && r <= 0x9f:
			return at(i, "control character %U", r)
		case 0xd800 <= r && r <= 0xf8ff, 0xfff0 <= r:
			return at(i, "character %U, which the server does not accept,", r)
		}
		i += size
	}
}

// Join returns the path of child under parent, which may be "/". As in Curator's
// ZKPaths.makePath the slash between the two may be missing or be there already,
// and an empty child, or "/", is the parent itself: Join(ns, path) puts a path
// into a namespace. An empty parent counts as "/". Nothing is validated.
func Join(parent, child string) string {
	parent = strings.TrimSuffix(parent, "/")
	child = strings.TrimPrefix(child, "/")
	if child == "" && parent != "" {
		return parent
	}
	return parent + "/" + child
}

// Split cuts a valid path into its parent and its last element: "/a/b" into "/a"
// and "b", "/a" into "/" and "a". The root is ("/", "").
func Split(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path
	}
	return path[:max(i, 1)], path[i+1:]
}

// Ancestors lists the nodes on the way to path, topmost first and path last, in
// the order in which they have to be created: "/a/b" gives "/a" and "/a/b". The
// root, which always exists, is left out: "/" gives nothing.
func Ancestors(path string) []string {
	if path == "" || path == "/" {
		return nil
	}
	nodes := make([]string, 0, strings.Count(path, "/"))
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			nodes = append(nodes, path[:i])
		}
	}
	return append(nodes, path)
}
