// Package layout holds the rules on what the packages of this module, and the modules beside it, may depend on, for its tests.
package layout

import (
	"fmt"
	"slices"
	"strings"
)

// A Package is what go list says of one.
type Package struct {
	ImportPath string
	Standard   bool
	Deps       []string // all of them, direct or not, without those of the tests
	Module     *struct{ Path string }
}

// client is the one module, besides this one, whose code runs in a service that uses the library.
const client = "github.com/go-zookeeper/zk"

// stdOnly are the packages, as paths in the module, that need nothing but the standard library, so that they can be used to
// test any client.
var stdOnly = []string{"zktest"}

// testOnly are the packages that only tests import, and that may need anything.
var testOnly = []string{"examples/internal/program", "internal/snapshot", "internal/testrun", "internal/zkcontainer"}

// Violations returns one line for each package of module that depends on what it must not. packages has the packages of
// the module and everything that these depend on.
func Violations(module string, packages []Package) []string {
	moduleOf := make(map[string]string, len(packages)) // "std" for the standard library
	for _, p := range packages {
		switch {
		case p.Standard:
			moduleOf[p.ImportPath] = "std"
		case p.Module != nil:
			moduleOf[p.ImportPath] = p.Module.Path
		}
	}
	var bad []string
	for _, p := range packages {
		if moduleOf[p.ImportPath] != module {
			continue
		}
		in := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if within(in, testOnly) {
			continue
		}
		for _, dep := range p.Deps {
			of := moduleOf[dep]
			if dep == "C" {
				of = "std"
			}
			depIn := strings.TrimPrefix(dep, module+"/")
			switch {
			case of == "std":
			case within(in, stdOnly):
				if of != module || !within(depIn, stdOnly) {
					bad = append(bad, fmt.Sprintf("%s depends on %s; it may need only the standard library", p.ImportPath, dep))
				}
			case of == module && within(depIn, testOnly):
				bad = append(bad, fmt.Sprintf("%s depends on %s, which is for tests only", p.ImportPath, dep))
			case of != module && of != client:
				bad = append(bad, fmt.Sprintf("%s depends on %s; what runs in a service needs %s and the standard library only", p.ImportPath, dep, client))
			}
		}
	}
	slices.Sort(bad)
	return bad
}

// within tells whether the package path is one of roots or below one.
func within(path string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return path == root || strings.HasPrefix(path, root+"/")
	})
}
