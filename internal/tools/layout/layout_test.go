package layout

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRuntimeDependencies: a service that uses the library gets go-zookeeper/zk with it, and nothing else; a test that
// uses zktest gets nothing at all. On every system: files may be for some only.
func TestRuntimeDependencies(t *testing.T) {
	module := strings.TrimSpace(goList(t, "", "-m"))
	for _, goos := range []string{"linux", "darwin", "windows"} {
		var packages []Package
		listed := make(map[string]bool)
		dec := json.NewDecoder(strings.NewReader(goList(t, goos, "-deps", "-json=ImportPath,Standard,Deps,Module", "./...")))
		for {
			var p Package
			err := dec.Decode(&p)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			packages = append(packages, p)
			listed[p.ImportPath] = true
		}
		for _, path := range []string{module, module + "/zktest", client, "net"} {
			require.True(t, listed[path], "go list for %s does not list %s", goos, path)
		}
		for _, line := range Violations(module, packages) {
			t.Errorf("%s: %s", goos, line)
		}
	}
}

func goList(t *testing.T, goos string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = filepath.Join("..", "..", "..")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if goos != "" {
		cmd.Env = append(cmd.Env, "GOOS="+goos, "CGO_ENABLED=0")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go list %v", args)
	return string(out)
}

func TestViolations(t *testing.T) {
	const module = "example.com/m"
	std := func(path string) Package { return Package{ImportPath: path, Standard: true} }
	pkg := func(path, module string, deps ...string) Package {
		p := Package{ImportPath: path, Deps: deps}
		p.Module = &struct{ Path string }{module}
		return p
	}
	base := []Package{
		std("net"), std("vendor/golang.org/x/net/idna"), pkg(client, client, "net"), pkg("example.org/other", "example.org/other", "net"),
	}
	for _, tc := range []struct {
		name     string
		packages []Package
		want     []string
	}{
		{"root with the client", []Package{pkg(module, module, "net", client, module+"/internal/core"), pkg(module+"/internal/core", module, client)}, nil},
		{"root with another", []Package{pkg(module, module, "example.org/other")}, []string{"example.com/m depends on example.org/other"}},
		{"internal with another", []Package{pkg(module+"/internal/core", module, "example.org/other")}, []string{"internal/core depends on example.org/other"}},
		{"zktest with std", []Package{pkg(module+"/zktest", module, "net", "vendor/golang.org/x/net/idna")}, nil},
		{"zktest with a part of its own", []Package{pkg(module+"/zktest", module, module+"/zktest/wire"), pkg(module+"/zktest/wire", module, "net")}, nil},
		{"zktest with the client", []Package{pkg(module+"/zktest", module, client)}, []string{"zktest depends on " + client}},
		{"zktest with the root", []Package{pkg(module+"/zktest", module, module), pkg(module, module)}, []string{"zktest depends on example.com/m;"}},
		{"a part of zktest with the client", []Package{pkg(module+"/zktest/wire", module, client)}, []string{"zktest/wire depends on"}},
		{"for tests only", []Package{pkg(module+"/internal/zkcontainer", module, "example.org/other")}, nil},
		{"for tests only, and used", []Package{pkg(module+"/cmd/x", module, module+"/internal/zkcontainer"), pkg(module+"/internal/zkcontainer", module)}, []string{"cmd/x depends on example.com/m/internal/zkcontainer, which is for tests only"}},
		{"a name that begins alike", []Package{pkg(module+"/zktests", module, client)}, nil},
		{"unknown", []Package{pkg(module, module, "nowhere")}, []string{"depends on nowhere"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Violations(module, append(tc.packages, base...))
			require.Len(t, got, len(tc.want), "%q", got)
			for i := range got {
				require.Contains(t, got[i], tc.want[i])
			}
		})
	}
}
