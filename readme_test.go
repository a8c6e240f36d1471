package zkrecipes

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The programs of the documents are ones that compile.
func TestProgramsOfTheDocumentsCompile(t *testing.T) {
	for name, pkg := range map[string]string{"README.md": "main", "docs/testing.md": "service"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		_, program, ok := strings.Cut(string(text), "```go\npackage "+pkg+"\n")
		require.True(t, ok, name)
		program, _, ok = strings.Cut(program, "```")
		require.True(t, ok, name)
		file := filepath.Join(t.TempDir(), "program_test.go")
		if pkg == "main" {
			file = filepath.Join(t.TempDir(), "main.go")
		}
		require.NoError(t, os.WriteFile(file, []byte("package "+pkg+"\n"+program), 0o600))
		out, err := exec.Command("go", "vet", file).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
}

// A link of the documents to a file of this repository leads somewhere.
func TestLinksOfTheDocuments(t *testing.T) {
	names, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, name := range append(names, "README.md", "CONTRIBUTING.md", "CHANGELOG.md") {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, link := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(string(text), -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(name), link[1]))
			require.NoError(t, err, name)
		}
	}
}
