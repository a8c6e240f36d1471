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
	t.Parallel()
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

// The cookbook has each program of examples, and each line of code that it shows is there.
func TestCookbookShowsThePrograms(t *testing.T) {
	comments, spaces := regexp.MustCompile(`(^|\s)//.*`), regexp.MustCompile(`\s+`)
	plain := func(line string) string {
		return strings.TrimSpace(spaces.ReplaceAllString(comments.ReplaceAllString(line, ""), " "))
	}
	text, err := os.ReadFile("docs/cookbook.md")
	require.NoError(t, err)
	shown := make(map[string]bool)
	for section := range strings.SplitSeq(string(text), "\n## ") {
		name := regexp.MustCompile(`^.*\n\n\[examples/(\w+)\]`).FindStringSubmatch(section)
		if name == nil {
			continue
		}
		shown[name[1]] = true
		files, err := filepath.Glob("examples/" + name[1] + "/*.go")
		require.NoError(t, err)
		var program strings.Builder
		for _, file := range files {
			code, err := os.ReadFile(file)
			require.NoError(t, err)
			for line := range strings.Lines(string(code)) {
				program.WriteString(plain(line) + "\n")
			}
		}
		for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(section, -1) {
			for line := range strings.Lines(block[1]) {
				if line = plain(line); line != "..." {
					require.Contains(t, program.String(), line, "of the program %s the cookbook shows what is not there", name[1])
				}
			}
		}
	}
	programs, err := filepath.Glob("examples/*/main.go")
	require.NoError(t, err)
	for _, program := range programs {
		require.True(t, shown[filepath.Base(filepath.Dir(program))], "%s is not in the cookbook", program)
	}
	require.Len(t, shown, len(programs))
}
