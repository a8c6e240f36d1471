// Command rename changes the path of this module everywhere: in every go.mod, import, document, script and setting.
//
//	rename NEW/MODULE/PATH
//
// It is what make rename runs, in the root of the module.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 || os.Args[1] == "" {
		fmt.Fprintln(os.Stderr, "usage: make rename MODULE=example.com/team/zkrecipes")
		os.Exit(2)
	}
	old, changed, err := rename(".", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "rename:", err)
		os.Exit(1)
	}
	fmt.Printf("rename: %s is now %s in %d files; next: go vet ./... && git diff\n", old, os.Args[1], changed)
}

// rename changes the path of the module in dir to path, in all files that belong to it. If path is bad, nothing is changed.
func rename(dir, path string) (old string, changed int, err error) {
	if err := checkModulePath(path); err != nil {
		return "", 0, err
	}
	if old, err = modulePath(dir); err != nil {
		return "", 0, err
	}
	if path == old {
		return "", 0, fmt.Errorf("the module path is %s already", old)
	}
	files, err := sourceFiles(dir)
	if err != nil {
		return "", 0, err
	}
	for _, name := range files {
		name = filepath.Join(dir, name)
		info, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // tracked, and deleted in the work tree
		}
		if err != nil {
			return "", 0, err
		}
		if !info.Mode().IsRegular() {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return "", 0, err
		}
		dst := replacePath(src, old, path)
		if bytes.Equal(src, dst) {
			continue
		}
		if strings.HasSuffix(name, ".go") {
			// Imports are sorted by path: another path may need another order. What was not formatted before stays as it is.
			if was, err := format.Source(src); err == nil && bytes.Equal(was, src) {
				if dst, err = format.Source(dst); err != nil {
					return "", 0, fmt.Errorf("%s: %w", name, err)
				}
			}
		}
		if err := os.WriteFile(name, dst, info.Mode().Perm()); err != nil {
			return "", 0, err
		}
		changed++
	}
	return old, changed, nil
}

// checkModulePath refuses what the go command would refuse as the path of a module that others can require, and the few
// odd characters that it would take: a path goes into scripts and settings too.
func checkModulePath(path string) error {
	elem := strings.Split(path, "/")
	for _, e := range elem {
		if !pathElement.MatchString(e) {
			return fmt.Errorf("module path %q: %q is not an element of a path (letters, digits, and . _ - inside)", path, e)
		}
	}
	if !hostName.MatchString(elem[0]) {
		return fmt.Errorf("module path %q: the first element must be a host name with a dot, as in example.com/team/zkrecipes", path)
	}
	if len(elem) < 2 {
		return fmt.Errorf("module path %q: a host name alone is no module path", path)
	}
	if last := elem[len(elem)-1]; version.MatchString(last) && !majorVersion.MatchString(last) {
		return fmt.Errorf("module path %q: %s is no major version that a path may end with (v2, v3, ...)", path, last)
	}
	return nil
}

var (
	pathElement  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9_-])?$`)
	hostName     = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+$`)
	version      = regexp.MustCompile(`^v[0-9]+$`)
	majorVersion = regexp.MustCompile(`^v([2-9]|[1-9][0-9]+)$`)
)

var moduleLine = regexp.MustCompile(`(?m)^module[ \t]+"?([^\s"]+)"?`)

// modulePath reads the path of the module in dir from its go.mod.
func modulePath(dir string) (string, error) {
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", err
	}
	m := moduleLine.FindSubmatch(mod)
	if m == nil {
		return "", fmt.Errorf("%s: no module line", filepath.Join(dir, "go.mod"))
	}
	return string(m[1]), nil
}

// sourceFiles lists the files in dir that belong to the project: those that git tracks or would track, or, in a copy
// without git, all.
func sourceFiles(dir string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
		cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("git ls-files: %w", err)
		}
		files := strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
		slices.Sort(files)
		return slices.Compact(files), nil
	}
	var files []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		files = append(files, rel)
		return err
	})
	return files, err
}

// replacePath replaces old in src where it stands as a whole path or as the beginning of one: neither in the path
// example.com/lib2 nor in other-example.com/lib does example.com/lib stand. Binary files stay as they are.
func replacePath(src []byte, old, path string) []byte {
	if bytes.IndexByte(src, 0) >= 0 {
		return src
	}
	var dst []byte
	rest := src
	for {
		i := bytes.Index(rest, []byte(old))
		if i < 0 {
			return append(dst, rest...)
		}
		end := i + len(old)
		before := i > 0 && (isWord(rest[i-1]) || rest[i-1] == '.')
		after := end < len(rest) && isWord(rest[end])
		dst = append(dst, rest[:i]...)
		if before || after {
			dst = append(dst, old...)
		} else {
			dst = append(dst, path...)
		}
		rest = rest[end:]
	}
}

func isWord(c byte) bool {
	return c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}
