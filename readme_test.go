package zkrecipes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The first program of the README is one that compiles.
func TestReadmeProgramCompiles(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, program, ok := strings.Cut(string(text), "```go\npackage main")
	require.True(t, ok)
	program, _, ok = strings.Cut(program, "```")
	require.True(t, ok)
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte("package main"+program), 0o600))
	out, err := exec.Command("go", "vet", file).CombinedOutput()
	require.NoError(t, err, string(out))
}
