package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const guide = "../docs/migration.md"

// blocks are the texts in a document that are fenced as a language.
func blocks(t testing.TB, doc, language string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(doc)
	require.NoError(t, err)
	for _, part := range strings.Split(string(text), "```"+language+"\n")[1:] {
		block, _, ok := strings.Cut(part, "```")
		require.True(t, ok, doc)
		all = append(all, block)
	}
	require.NotEmpty(t, all, "%s: no %s", doc, language)
	return all
}

// The programs of the guide compile, and those that need no arguments run to their end.
func TestProgramsOfTheGuide(t *testing.T) {
	t.Parallel()
	here := strings.NewReplacer(`"zk1:2181", "zk2:2181", "zk3:2181"`, fmt.Sprintf("%q", servers(t)[0]), "/jobs/report", newPath(t))
	for _, program := range blocks(t, guide, "go") {
		command := strings.HasPrefix(program, "// Command ") // see TestCommandsOfTheGuide
		file := filepath.Join(t.TempDir(), "main.go")
		require.NoError(t, os.WriteFile(file, []byte(here.Replace(program)), 0o600))
		tools := [][]string{{"gofmt", "-d", file}, {"go", "vet", file}}
		if !command {
			tools = append(tools, []string{"go", "run", file})
		}
		for _, tool := range tools {
			cmd := exec.Command(tool[0], tool[1:]...)
			out, err := cmd.Output()
			require.NoError(t, err, "%v: %s", tool, out)
			want := ""
			if tool[1] == "run" {
				want = "reported\n"
			}
			require.Equal(t, want, string(out), "%v", tool)
		}
	}
}

// The tests that the documents name are there.
func TestDocumentsNameTests(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var code strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		code.Write(text)
	}
	for _, doc := range []string{fleetDoc, guide} {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		names := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(text), -1)
		require.NotEmpty(t, names)
		for _, name := range names {
			require.Contains(t, code.String(), "func "+name+"(t *testing.T)", doc)
		}
	}
}

// The classes for kazoo that the guide has are those that the tests run.
func TestClassesOfTheGuide(t *testing.T) {
	source, err := sources.ReadFile("peers/curator_names.py")
	require.NoError(t, err)
	require.Equal(t, []string{string(source)}, blocks(t, guide, "python"))
}

// The commands of the guide do what it says.
func TestCommandsOfTheGuide(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, program := range blocks(t, guide, "go") {
		if name, ok := strings.CutPrefix(program, "// Command "); ok {
			name, _, _ = strings.Cut(name, " ")
			require.NoError(t, os.WriteFile(filepath.Join(dir, name+".go"), []byte(program), 0o600))
		}
	}
	f := newFleet(t)
	for _, who := range []string{"ours mutex", "curator mutex", "zk mutex", "kazoo mutex"} {
		f.join(who)
	}
	f.settle()
	require.NoError(t, createAll(plain(t), f.path+"/note"))
	var said string
	for _, block := range blocks(t, guide, "sh") {
		for _, line := range strings.Split(strings.TrimSpace(block), "\n") {
			line = strings.NewReplacer("zk1:2181,zk2:2181", strings.Join(f.servers, ","), "/jobs/report", f.path).Replace(line)
			words := strings.Fields(strings.Replace(line, "go run ", "go run "+dir+"/", 1))
			out, err := exec.Command(words[0], words[1:]...).Output() // without the log
			require.NoError(t, err, "%s: %s", line, out)
			said += string(out)
		}
	}
	lines := strings.Split(strings.TrimSpace(said), "\n")
	require.Len(t, lines, 6, said)
	for i, m := range f.members {
		state := "waits exclusive"
		if i == 0 {
			state = "holds exclusive"
		}
		require.True(t, strings.HasPrefix(lines[i], fmt.Sprintf("%s session=%#x owner=%q", state, m.session, f.owner(m))), said)
	}
	require.Contains(t, said, "kazoo's, which Java does not see: ")
	require.Contains(t, said, "no lock, for which Java may wait and at which zk.Lock fails: note\n")
}

// Three instances of one library stand in the queue. One after the other gives back, and comes back as one of another library.
func TestRollingMove(t *testing.T) {
	moves := []struct{ from, to, what string }{{kazoo, kazooOnCurators, "mutex"}, {kazoo, kazooOnCurators, "write"}, {zkLock, ours, "mutex"}}
	for _, library := range pairs {
		moves = append(moves, struct{ from, to, what string }{library, ours, "mutex"}, struct{ from, to, what string }{library, ours, "write"})
	}
	for _, move := range moves {
		t.Run(fmt.Sprintf("%s to %s, %s", move.from, move.to, move.what), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			for range 3 {
				f.join(move.from + " " + move.what)
			}
			f.settle()
			for range 3 {
				f.leave(f.members[0])
				f.join(move.to + " " + move.what)
				f.settle()
			}
			f.drain(nil)
		})
	}
}
