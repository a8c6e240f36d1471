package znode_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// badPaths are paths with the reason for which Validate rejects them.
var badPaths = []struct{ path, reason string }{
	{"", `empty`},
	{"a", `relative path: must start with "/"`},
	{"a/b", `relative path: must start with "/"`},
	{" /a", `relative path: must start with "/"`},
	{".", `relative path: must start with "/"`},
	{"\x00", `relative path: must start with "/"`},
	{"/a/", `trailing slash at byte 2`},
	{"//", `trailing slash at byte 1`},
	{"/a//", `trailing slash at byte 3`},
	{"//a", `empty element at byte 1`},
	{"/a//b", `empty element at byte 3`},
	{"/.", `"." element at byte 1`},
	{"/..", `".." element at byte 1`},
	{"/./a", `"." element at byte 1`},
	{"/../a", `".." element at byte 1`},
	{"/a/.", `"." element at byte 3`},
	{"/a/..", `".." element at byte 3`},
	{"/a/./b", `"." element at byte 3`},
	{"/a/../b", `".." element at byte 3`},
	{"/é/./b", `"." element at byte 4`},
	{"/a\x00", `NUL character at byte 2`},
	{"/\x00/b", `NUL character at byte 1`},
	{"/a\x01", `control character U+0001 at byte 2`},
	{"/a\nb", `control character U+000A at byte 2`},
	{"/a\x1f", `control character U+001F at byte 2`},
	{"/a\x7f", `control character U+007F at byte 2`},
	{"/é\u0080", `control character U+0080 at byte 3`},
	{"/a\u009f", `control character U+009F at byte 2`},
	{"/a\xff", `invalid UTF-8 at byte 2`},
	{"/a\xc3", `invalid UTF-8 at byte 2`},
	{"/\xc3/b", `invalid UTF-8 at byte 1`},
	{"/a\xed\xa0\x80", `invalid UTF-8 at byte 2`}, // U+D800
	{"/a\xc0\x80", `invalid UTF-8 at byte 2`},     // Java's modified UTF-8 for NUL
	{"/a\ue000", `character U+E000, which the server does not accept, at byte 2`},
	{"/a\uf000", `character U+F000, which the server does not accept, at byte 2`},
	{"/a\uf8ff", `character U+F8FF, which the server does not accept, at byte 2`},
	{"/a\ufff0", `character U+FFF0, which the server does not accept, at byte 2`},
	{"/a\ufffd", `character U+FFFD, which the server does not accept, at byte 2`},
	{"/a\uffff", `character U+FFFF, which the server does not accept, at byte 2`},
	{"/a\U00010000", `character U+10000, which the server does not accept, at byte 2`},
	{"/a\U0001f600", `character U+1F600, which the server does not accept, at byte 2`},
	{"/a\U0010ffff", `character U+10FFFF, which the server does not accept, at byte 2`},
}

var goodPaths = []string{
	"/", "/a", "/a/b", "/a b", "/ ", "/a/...", "/.../a", "/.a", "/a.", "/..a", "/a..", "/a.b", "/.a/..b",
	"/~", "/a~/\u00a0", "/é", "/日本/語", "/\ud7ff", "/\uf900", "/\uffef",
	"/_c_5f0c1e6a-0c8b-4b5e-9d0e-2f6f5d1b7a3c-lock-0000000000", "/queue-|my_id_x|0000000000",
	"/" + strings.Repeat("a", 1<<16), strings.Repeat("/a", 1<<12),
}

func TestValidate(t *testing.T) {
	for _, path := range goodPaths {
		assert.NoError(t, znode.Validate(path), "%.40q", path)
	}
	for _, c := range badPaths {
		err := znode.Validate(c.path)
		var pathErr *znode.PathError
		if assert.ErrorAs(t, err, &pathErr, "%q", c.path) {
			assert.Equal(t, znode.PathError{Path: c.path, Reason: c.reason}, *pathErr)
			assert.Equal(t, fmt.Sprintf("invalid path %q: %s", c.path, c.reason), err.Error())
		}
	}
}

// Every character, first, last and in the middle.
func TestValidateEveryCharacter(t *testing.T) {
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) || r == '/' || r == '.' {
			continue
		}
		bad := r <= 0x1f || 0x7f <= r && r <= 0x9f || 0xd800 <= r && r <= 0xf8ff || 0xfff0 <= r
		c := string(r)
		if path := "/" + c + "/" + c + "a" + c; (znode.Validate(path) != nil) != bad {
			t.Fatalf("%q: %v", path, znode.Validate(path))
		}
	}
}

func TestValidateNamespace(t *testing.T) {
	for _, ns := range []string{"", "/", "a", "/a", "a/b", "/a/b", "ns/sub", ".a", "日本/語"} {
		assert.NoError(t, znode.ValidateNamespace(ns), "%q", ns)
	}
	for _, c := range []struct{ ns, reason string }{
		{"a/", "trailing slash at byte 1"},
		{"/a/", "trailing slash at byte 2"},
		{"//", "trailing slash at byte 1"},
		{"//a", "empty element at byte 1"},
		{"a//b", "empty element at byte 2"},
		{".", `"." element at byte 0`},
		{"..", `".." element at byte 0`},
		{"a/../b", `".." element at byte 2`},
		{"/a/../b", `".." element at byte 3`},
		{"a\x00", "NUL character at byte 1"},
		{"\xff", "invalid UTF-8 at byte 0"},
	} {
		assert.Equal(t, &znode.PathError{Path: c.ns, Reason: "as a namespace: " + c.reason}, znode.ValidateNamespace(c.ns), "%q", c.ns)
	}
}

func TestJoin(t *testing.T) {
	for _, c := range []struct{ parent, child, want string }{
		{"/", "a", "/a"},
		{"/a", "b", "/a/b"},
		{"/a/b", "c", "/a/b/c"},
		{"/a", "b/c", "/a/b/c"},
		// a path into a namespace
		{"/ns", "/a/b", "/ns/a/b"},
		{"/ns", "/", "/ns"},
		{"/", "/", "/"},
		{"/", "/a", "/a"},
		{"", "/a", "/a"},
		// nothing to add
		{"/a", "", "/a"},
		{"/", "", "/"},
		{"", "", "/"},
		{"", "a", "/a"},
	} {
		assert.Equal(t, c.want, znode.Join(c.parent, c.child), "%q + %q", c.parent, c.child)
	}
}

func TestSplit(t *testing.T) {
	for _, c := range []struct{ path, parent, name string }{
		{"/a", "/", "a"},
		{"/a/b", "/a", "b"},
		{"/a/b/c", "/a/b", "c"},
		{"/", "/", ""},
		// not valid, but no reason to panic
		{"", "", ""},
		{"a", "", "a"},
		{"a/b", "a", "b"},
		{"/a/", "/a", ""},
	} {
		parent, name := znode.Split(c.path)
		assert.Equal(t, [2]string{c.parent, c.name}, [2]string{parent, name}, "%q", c.path)
	}
}

func TestAncestors(t *testing.T) {
	assert.Equal(t, []string{"/a", "/a/b", "/a/b/c"}, znode.Ancestors("/a/b/c"))
	assert.Equal(t, []string{"/a"}, znode.Ancestors("/a"))
	assert.Empty(t, znode.Ancestors("/"))
	assert.Empty(t, znode.Ancestors(""))
}

// goodPath is the rule of Validate in another notation. The regexp package
// matches U+FFFD for invalid UTF-8, which the class excludes.
var goodPath = regexp.MustCompile(`^(/|(/([^/.\x00-\x1f\x7f-\x{9f}\x{e000}-\x{f8ff}\x{fff0}-\x{10ffff}]|\.)+)+)$`)

// clientRejects is the check that go-zookeeper v1.0.4 makes before it sends a
// request: what it rejects must not get past Validate. It misses "/./a".
func clientRejects(path string) bool {
	if !strings.HasPrefix(path, "/") {
		return true
	}
	if path == "/" {
		return false
	}
	for i, element := range strings.Split(path[1:], "/") {
		if element == "" || element == ".." || element == "." && (i > 0 || path == "/.") {
			return true
		}
	}
	return strings.ContainsFunc(path, func(r rune) bool { // U+FFFD for invalid UTF-8
		return r <= 0x1f || 0x7f <= r && r <= 0x9f || 0xf000 <= r && r <= 0xf8ff || 0xfff0 <= r && r < 0xffff
	})
}

func FuzzValidate(f *testing.F) {
	for _, path := range goodPaths {
		if len(path) < 100 {
			f.Add(path)
		}
	}
	for _, c := range badPaths {
		f.Add(c.path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		want := goodPath.MatchString(path)
		for element := range strings.SplitSeq(path, "/") {
			want = want && element != "." && element != ".."
		}
		err := znode.Validate(path)
		if want != (err == nil) {
			t.Fatalf("%q: %v", path, err)
		}
		if err == nil && clientRejects(path) {
			t.Fatalf("%q: the client would reject it", path)
		}
		if path != "" && path[0] == '/' {
			ns, bare := znode.ValidateNamespace(path), znode.ValidateNamespace(path[1:])
			if (ns == nil) != (err == nil) || bare != nil && err == nil {
				t.Fatalf("%q: %v, as a namespace %v and %v", path, err, ns, bare)
			}
		}
		// These must not panic on anything, and agree on what is valid.
		parent, name := znode.Split(path)
		joined, nodes := znode.Join(parent, name), znode.Ancestors(path)
		if err != nil {
			var pathErr *znode.PathError
			require.True(t, errors.As(err, &pathErr))
			require.Equal(t, path, pathErr.Path)
			return
		}
		require.Equal(t, path, joined)
		require.NoError(t, znode.Validate(parent))
		for i, node := range nodes {
			require.NoError(t, znode.Validate(node))
			up, _ := znode.Split(node)
			require.Equal(t, append([]string{"/"}, nodes...)[i], up)
		}
		if path != "/" {
			require.Equal(t, path, nodes[len(nodes)-1])
		}
	})
}
