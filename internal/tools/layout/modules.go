package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A modFile is what go mod edit -json says of a go.mod.
type modFile struct {
	Module  struct{ Path string }
	Go      string
	Require []struct{ Path string }
	Replace []struct{ Old, New struct{ Path string } }
}

// ModuleViolations returns one line for each rule on modules that the tree in root breaks: whoever requires the root module gets what it was tested
// with, so it has no replace, and nothing of the nested ones; a nested module is named by its folder, takes the root from the tree, and is in
// go.work.
func ModuleViolations(root string) ([]string, error) {
	dirs, err := modules(root)
	if err != nil {
		return nil, err
	}
	var work struct{ Use []struct{ DiskPath string } }
	if err := edit(root, "work", &work); err != nil {
		return nil, err
	}
	var used []string
	for _, u := range work.Use {
		used = append(used, path.Clean(u.DiskPath))
	}
	var main modFile
	if err := edit(root, "mod", &main); err != nil {
		return nil, err
	}
	var bad []string
	note := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	if len(main.Replace) > 0 {
		note("go.mod replaces %s: who requires the module would not get that", main.Replace[0].Old.Path)
	}
	for _, r := range main.Require {
		if strings.HasPrefix(r.Path, main.Module.Path+"/") {
			note("go.mod requires the nested module %s", r.Path)
		}
	}
	for _, dir := range dirs {
		if !slices.Contains(used, dir) {
			note("go.work does not use %s", dir)
		}
		if dir == "." {
			continue
		}
		var nested modFile
		if err := edit(filepath.Join(root, dir), "mod", &nested); err != nil {
			return nil, err
		}
		if want := main.Module.Path + "/" + dir; nested.Module.Path != want {
			note("%s/go.mod is of %s, not %s", dir, nested.Module.Path, want)
		}
		if nested.Go != main.Go {
			note("%s/go.mod is for Go %s, the root's for %s", dir, nested.Go, main.Go)
		}
		fromTree := false
		for _, r := range nested.Replace {
			fromTree = fromTree || r.Old.Path == main.Module.Path && path.Join(dir, r.New.Path) == "."
		}
		if !fromTree {
			note("%s/go.mod does not replace %s with the root of the tree", dir, main.Module.Path)
		}
	}
	for _, dir := range used {
		if !slices.Contains(dirs, dir) {
			note("go.work uses %s, which is no module", dir)
		}
	}
	return bad, nil
}

// modules are the folders with a go.mod, as paths with slashes.
func modules(root string) (dirs []string, err error) {
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.Name() == "go.mod":
			dir, err := filepath.Rel(root, filepath.Dir(name))
			dirs = append(dirs, filepath.ToSlash(dir))
			return err
		}
		return nil
	})
	return dirs, err
}

// edit reads go.mod or go.work in dir, whatever GOWORK says.
func edit(dir, what string, into any) error {
	cmd := exec.Command("go", what, "edit", "-json", "go."+what)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("go %s edit in %s: %w: %s", what, dir, err, exit.Stderr)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(out, into)
}
