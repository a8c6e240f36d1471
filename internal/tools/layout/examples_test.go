package layout

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryTypeHasAnExample(t *testing.T) {
	module := strings.TrimSpace(goList(t, "", "-m"))
	for _, in := range []string{".", "zktest"} {
		types, err := WithoutExample(filepath.Join("..", "..", "..", in), module)
		require.NoError(t, err)
		require.Empty(t, types, "of %s", in)
	}
}

func TestWithoutExample(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"p.go":      "package p\n\ntype A int\ntype B int\ntype C int\ntype D int\ntype E int\ntype f int\n\nfunc (B) M() {}\nfunc NewC() C { return 0 }\n",
		"p_test.go": "package p_test\n\nfunc ExampleA_suffix() {\n\t// Output: a\n}\nfunc ExampleB_M() {\n\t// Output:\n}\nfunc ExampleNewC() {\n\t// Output: c\n}\nfunc ExampleD() {}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	types, err := WithoutExample(dir, "example.com/p")
	require.NoError(t, err)
	require.Equal(t, []string{"D", "E"}, types)
}
