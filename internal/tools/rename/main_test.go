package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const newPath = "example.com/some-team/locks"

// TestRenameThisModule renames a copy of this module: it must build, be formatted, and name the old path nowhere.
func TestRenameThisModule(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	old, err := modulePath(root)
	require.NoError(t, err)
	files, err := sourceFiles(root)
	require.NoError(t, err)
	require.Contains(t, files, "go.mod")
	require.Contains(t, files, filepath.Join("internal", "tools", "rename", "main_test.go"))

	dir := t.TempDir()
	for _, name := range files {
		info, err := os.Stat(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		src, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		dst := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(dst), 0o777))
		require.NoError(t, os.WriteFile(dst, src, info.Mode().Perm()))
	}

	was, changed, err := rename(dir, newPath)
	require.NoError(t, err)
	require.Equal(t, old, was)
	require.Positive(t, changed)

	modules := 0
	for _, name := range files {
		src, err := os.ReadFile(filepath.Join(dir, name))
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		if i := bytes.Index(src, []byte(old)); i >= 0 {
			t.Errorf("%s: line %d still names %s", name, 1+bytes.Count(src[:i], []byte("\n")), old)
		}
		if filepath.Base(name) == "go.mod" {
			modules++
			run(t, filepath.Join(dir, filepath.Dir(name)), "go", "list", "-deps", "-test", "./...") // every import, of the tests too, leads somewhere
		}
	}
	require.Positive(t, modules)
	run(t, dir, "go", "list", "-export", "-gcflags=-N -l", "./...") // compiles all, and links nothing
	require.Empty(t, run(t, dir, "gofmt", "-l", "."), "gofmt -l")
	t.Setenv("GOWORK", "off") // else it lists the nested modules too
	require.Equal(t, newPath, strings.TrimSpace(run(t, dir, "go", "list", "-m")))
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), "%s %v in %s:\n%s%s", name, args, dir, &stdout, &stderr)
	return stdout.String()
}

// TestRenameKinds renames a made-up tree with one file of every kind.
func TestRenameKinds(t *testing.T) {
	const old = "example.org/lib"
	for _, tc := range []struct{ name, file, before, after string }{
		{"go.mod", "go.mod", "module example.org/lib\n\ngo 1.26\n", "module " + newPath + "\n\ngo 1.26\n"},
		{"nested module", "otel/go.mod", "module example.org/lib/otel\n\nrequire example.org/lib v0.0.0\n\nreplace example.org/lib => ../\n",
			"module " + newPath + "/otel\n\nrequire " + newPath + " v0.0.0\n\nreplace " + newPath + " => ../\n"},
		{"imports are sorted anew", "a.go", "package a\n\nimport (\n\t_ \"example.com/z\"\n\t_ \"example.org/lib/b\"\n)\n",
			"package a\n\nimport (\n\t_ \"" + newPath + "/b\"\n\t_ \"example.com/z\"\n)\n"},
		{"unformatted Go stays so", "b.go", "package a\nimport   _ \"example.org/lib/b\"\n", "package a\nimport   _ \"" + newPath + "/b\"\n"},
		{"address", "README.md", "[x](https://example.org/lib/blob/main/x.md) `example.org/lib`, example.org/lib.", "[x](https://" + newPath + "/blob/main/x.md) `" + newPath + "`, " + newPath + "."},
		{"hidden folder", ".ci/run", "go get example.org/lib@latest", "go get " + newPath + "@latest"},
		{"another module", "other.txt", "example.org/lib2 example.org/library example.org/lib-x example.org/lib_x an.example.org/lib", "example.org/lib2 example.org/library example.org/lib-x example.org/lib_x an.example.org/lib"},
		{"binary", "data.bin", "\x00example.org/lib", "\x00example.org/lib"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module "+old+"\n"), 0o666))
			file := filepath.Join(dir, tc.file)
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o777))
			require.NoError(t, os.WriteFile(file, []byte(tc.before), 0o755))
			was, _, err := rename(dir, newPath)
			require.NoError(t, err)
			require.Equal(t, old, was)
			got, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, tc.after, string(got))
			info, err := os.Stat(file)
			require.NoError(t, err)
			if tc.file != "go.mod" {
				require.Equal(t, os.FileMode(0o755), info.Mode().Perm(), "the mode stays")
			}
		})
	}
}

func TestRenameRefuses(t *testing.T) {
	const mod = "module example.org/lib\n"
	for _, path := range []string{
		"", " ", "lib", "lib/x", "example.com", "example.com/", "/example.com/x", "example.com//x", "example.com/x/", "example.com/x y",
		"example.com/x\n", "example.com/../x", "example.com/./x", "example.com/.x", "example.com/x.", "-example.com/x", "example.com/-x",
		"https://example.com/x", "example.com/x@v1", "example.com/$(id)", "example.com/`id`", "example.com/x;id", "example.com/x'", `example.com/x"`,
		`example.com\x`, "Example.com/x", "example.com/ü", "exa_mple.com/x", "example..com/x", "example.com/x/v0", "example.com/x/v1", "example.com/x/v01",
		"example.org/lib",
	} {
		t.Run(path, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "go.mod")
			require.NoError(t, os.WriteFile(file, []byte(mod), 0o666))
			_, _, err := rename(dir, path)
			require.Error(t, err)
			got, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, mod, string(got))
		})
	}
}

func TestCheckModulePathTakes(t *testing.T) {
	for _, path := range []string{"example.com/x", "github.com/SomeTeam/zk_recipes", "my-git.example.com/x", "git.example.co.uk/a/b/c.d", "example.com/x/v2", "example.com/x/v10", "example.com/v1/x"} {
		require.NoError(t, checkModulePath(path), path)
	}
}

// FuzzReplacePath: no whole path stays, nothing else changes, and a second time there is nothing to do.
func FuzzReplacePath(f *testing.F) {
	f.Add("module example.org/lib\n")
	f.Add("example.org/libexample.org/lib/x example.org/lib")
	f.Add("example.org/lib.example.org/lib")
	whole := regexp.MustCompile(`(^|[^A-Za-z0-9_.-])example\.org/lib($|[^A-Za-z0-9_-])`)
	f.Fuzz(func(t *testing.T, src string) {
		const old, other = "example.org/lib", "example.com/elsewhere"
		if strings.Contains(src, "\x00") || strings.Contains(src, other) {
			return // binary, or not to be told from what was replaced
		}
		dst := string(replacePath([]byte(src), old, other))
		if found := whole.FindString(dst); found != "" {
			t.Fatalf("%q became %q, which still has %q", src, dst, found)
		}
		if strings.ReplaceAll(dst, other, old) != src {
			t.Fatalf("%q became %q: more than the path changed", src, dst)
		}
		if again := string(replacePath([]byte(dst), old, other)); again != dst {
			t.Fatalf("%q became %q, and a second time %q", src, dst, again)
		}
	})
}
