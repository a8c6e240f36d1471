package layout

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModules(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	dirs, err := modules(root)
	require.NoError(t, err)
	require.Contains(t, dirs, ".")
	require.Contains(t, dirs, "interop")
	bad, err := ModuleViolations(root)
	require.NoError(t, err)
	require.Empty(t, bad)
}

func TestModuleViolations(t *testing.T) {
	const (
		root = "module example.com/m\n\ngo 1.26\n"
		work = "go 1.26\n\nuse (\n\t.\n\t./a/b\n)\n"
		good = "module example.com/m/a/b\n\ngo 1.26\n\nrequire example.com/m v0.0.0\n\nreplace example.com/m => ../../\n"
	)
	for _, tc := range []struct{ name, root, work, nested, want string }{
		{"good", root, work, good, ""},
		{"replace in the root", root + "\nreplace example.org/x => ../x\n", work, good, "go.mod replaces example.org/x"},
		{"root needs a nested one", root + "\nrequire example.com/m/a/b v0.1.0\n", work, good, "go.mod requires the nested module example.com/m/a/b"},
		{"not in go.work", root, "go 1.26\n\nuse .\n", good, "go.work does not use a/b"},
		{"root not in go.work", root, "go 1.26\n\nuse ./a/b\n", good, "go.work does not use ."},
		{"go.work uses nothing", root, "go 1.26\n\nuse (\n\t.\n\t./a\n\t./a/b\n)\n", good, "go.work uses a, which is no module"},
		{"other name", root, work, "module example.com/m/b\n\ngo 1.26\n\nreplace example.com/m => ../../\n", "a/b/go.mod is of example.com/m/b"},
		{"other Go", root, work, "module example.com/m/a/b\n\ngo 1.25\n\nreplace example.com/m => ../../\n", "a/b/go.mod is for Go 1.25"},
		{"no replace", root, work, "module example.com/m/a/b\n\ngo 1.26\n", "a/b/go.mod does not replace example.com/m"},
		{"replace with another folder", root, work, "module example.com/m/a/b\n\ngo 1.26\n\nreplace example.com/m => ../\n", "a/b/go.mod does not replace"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o777))
			for name, text := range map[string]string{"go.mod": tc.root, "go.work": tc.work, "a/b/go.mod": tc.nested} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(text), 0o666))
			}
			bad, err := ModuleViolations(dir)
			require.NoError(t, err)
			if tc.want == "" {
				require.Empty(t, bad)
				return
			}
			require.Len(t, bad, 1, "%q", bad)
			require.Contains(t, bad[0], tc.want)
		})
	}
}
