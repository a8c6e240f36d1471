package interop

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A Kind is a client library.
type Kind string

// The kinds. scripts/peers installs them from Debian's packages.
const (
	Curator Kind = "curator" // Java
	Kazoo   Kind = "kazoo"   // Python; its locks are told to heed the znodes of the others, which they do not by default

	// Their own recipes, without this library: each runs a script, step by step, and says what it saw. They have no Peers.
	CuratorRecipes Kind = "curator-recipes"
	KazooRecipes   Kind = "kazoo-recipes"
)

const (
	// curatorJar names the jars that it needs in its manifest.
	curatorJar = "/usr/share/java/curator-recipes.jar"
	// python is Debian's own, which sees Debian's packages; another one that comes first in the path does not.
	python = "/usr/bin/python3"
)

//go:embed peers/*.java peers/*.py
var sources embed.FS

// mainClasses are the Java programs. scripts are the Python ones: the files of each are one program, with a main.
var (
	mainClasses = map[Kind]string{Curator: "Peer", CuratorRecipes: "Recipes"}
	scripts     = map[Kind][]string{Kazoo: {"curator_names", "peer"}, KazooRecipes: {"recipes", "recipes_locks", "recipes_znodes", "recipes_cuts"}}
)

// command is what starts a process of this kind.
func (k Kind) command() (*exec.Cmd, error) {
	switch {
	case mainClasses[k] != "":
		classes, err := compiled()
		if err != nil {
			return nil, err
		}
		return exec.Command(javaTool("java"), append(smallMachine(""), "-Xmx256m", "-cp", classes+":"+curatorJar, mainClasses[k])...), nil
	case scripts[k] != nil:
		if out, err := exec.Command(python, "-c", "import kazoo.recipe.lock").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("interop: no kazoo (%w); make peers installs it (Debian: apt-get install python3-kazoo)\n%s", err, out)
		}
		var program bytes.Buffer
		for _, name := range scripts[k] {
			source, err := sources.ReadFile("peers/" + name + ".py")
			if err != nil {
				return nil, err
			}
			program.Write(source)
		}
		program.WriteString("\n\nmain()\n")
		return exec.Command(python, "-c", program.String()), nil
	}
	return nil, fmt.Errorf("interop: no such kind: %q", string(k))
}

func javaTool(name string) string {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		return filepath.Join(home, "bin", name)
	}
	return name
}

// smallMachine are the options of a Java machine that runs for seconds, beside others: it starts in half the time.
func smallMachine(prefix string) []string {
	return []string{prefix + "-XX:TieredStopAtLevel=1", prefix + "-XX:+UseSerialGC"}
}

var classes struct {
	mu  sync.Mutex
	dir string
}

// compiled is the folder with the classes of the Java programs, which are compiled once.
func compiled() (string, error) {
	classes.mu.Lock()
	defer classes.mu.Unlock()
	if classes.dir != "" {
		return classes.dir, nil
	}
	if _, err := os.Stat(curatorJar); err != nil {
		return "", fmt.Errorf("interop: no Curator (%w); make peers installs it (Debian: apt-get install libcurator-recipes-java)", err)
	}
	dir, err := os.MkdirTemp("", "interop-")
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, sources); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	files, err := filepath.Glob(filepath.Join(dir, "peers", "*.java"))
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	args := append(smallMachine("-J"), "-proc:none", "-Xlint:none", "-encoding", "UTF-8", "-cp", curatorJar, "-d", dir)
	if out, err := exec.Command(javaTool("javac"), append(args, files...)...).CombinedOutput(); err != nil {
		err = fmt.Errorf("interop: cannot compile the Java programs (%w); a JDK is needed (Debian: apt-get install default-jdk-headless)\n%s", err, out)
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	classes.dir = dir
	return dir, nil
}

// Start starts a process of that kind for this test, which may kill it. It is closed with the test.
func Start(tb zktest.TB, kind Kind) *Process {
	tb.Helper()
	p, err := launch(kind)
	if err != nil {
		tb.Fatalf("%v", err)
		return nil
	}
	tb.Cleanup(p.Close)
	return p
}

func launch(kind Kind) (*Process, error) {
	cmd, err := kind.command()
	if err != nil {
		return nil, err
	}
	return startProcess(kind, cmd)
}

var shared struct {
	mu        sync.Mutex
	processes map[Kind]*Process
}

// Shared returns the process of that kind that all tests of this one share; its first use starts it. A test must not kill it. A TestMain must call
// CloseShared after the tests.
func Shared(tb zktest.TB, kind Kind) *Process {
	tb.Helper()
	shared.mu.Lock()
	p, err := shared.processes[kind], error(nil)
	if p == nil {
		if p, err = launch(kind); err == nil {
			if shared.processes == nil {
				shared.processes = make(map[Kind]*Process)
			}
			shared.processes[kind] = p
		}
	}
	shared.mu.Unlock() // before Fatalf, which does not return
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return p
}

// CloseShared ends the processes that Shared has started, and removes what was compiled.
func CloseShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	for _, p := range shared.processes {
		p.Close()
	}
	shared.processes = nil
	classes.mu.Lock()
	defer classes.mu.Unlock()
	dir := classes.dir
	classes.dir = ""
	if dir == "" {
		return nil
	}
	return os.RemoveAll(dir)
}
