package layout

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// WithoutExample returns the exported types of the package in dir of which no Example is run: one of the type, of one of its methods, or of a function that go doc
// shows with it. An Example is run when it says what it prints.
func WithoutExample(dir, importPath string) (types []string, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	var own, tests []*ast.File
	for i, f := range files {
		if strings.HasSuffix(names[i], "_test.go") {
			tests = append(tests, f)
		} else {
			own = append(own, f)
		}
	}
	p, err := doc.NewFromFiles(set, own, importPath)
	if err != nil {
		return nil, err
	}
	run := make(map[string]bool)
	for _, e := range doc.Examples(tests...) {
		if e.Output != "" || e.EmptyOutput {
			name := e.Name // T, F, T_M, and with a suffix that begins with a lower-case letter
			for {
				run[name] = true
				i := strings.LastIndex(name, "_")
				if i < 0 {
					break
				}
				name = name[:i]
			}
		}
	}
	for _, t := range p.Types {
		shown := run[t.Name]
		for _, f := range t.Funcs {
			shown = shown || run[f.Name]
		}
		if !shown {
			types = append(types, t.Name)
		}
	}
	slices.Sort(types)
	return types, nil
}
