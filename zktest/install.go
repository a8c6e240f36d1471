package zktest

import (
	"archive/zip"
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// ErrNotFound is returned, wrapped in a message that says what to install, when
// there is nothing to launch: no ZooKeeper, no Java to run it with, no engine or
// no image for containers.
var ErrNotFound = errors.New("zktest: no ZooKeeper to launch")

// debianJars are where distributions put the server's jar. Its manifest names
// the jars it depends on, so it is enough as a class path but for the logging.
var debianJars = []string{"/usr/share/java/zookeeper.jar"}

// debianLogging are added to it when present: the manifest of Debian's jar
// leaves out the slf4j binding, without which the server is mute.
var debianLogging = []string{"/usr/share/java/slf4j-log4j12.jar", "/usr/share/java/log4j-1.2.jar"}

// Install is a ZooKeeper on this machine.
type Install struct {
	Java      string   // path of the java command
	ClassPath []string // jars, in order
	Version   string   // "3.8.0"; empty when the name of the jar does not tell
}

// Find locates a ZooKeeper to launch: the jars of $ZOOKEEPER_HOME (in lib/ and
// at the top, as in the binary release), else those of the Debian or Ubuntu
// package. Java is $JAVA_HOME/bin/java, else the java of the path. It looks at
// files only and starts nothing.
//
// The error wraps [ErrNotFound] and says what to install. A $ZOOKEEPER_HOME
// that holds no server is such an error too; the package is not tried then,
// since whoever set the variable did not mean that one.
func Find() (Install, error) {
	inst, err := findJars(os.Getenv("ZOOKEEPER_HOME"), debianJars)
	if err != nil {
		return Install{}, err
	}
	inst.Java, err = findJava(os.Getenv("JAVA_HOME"))
	return inst, err
}

func findJava(home string) (string, error) {
	if home != "" {
		if p, err := exec.LookPath(filepath.Join(home, "bin", "java")); err == nil {
			return p, nil
		}
		return "", fmt.Errorf("%w: JAVA_HOME=%s has no bin/java; correct or unset it", ErrNotFound, home)
	}
	p, err := exec.LookPath("java")
	if err != nil {
		return "", fmt.Errorf("%w: no java in the path; install a Java runtime, version 8 or later (Debian: apt-get install default-jre-headless), or set JAVA_HOME", ErrNotFound)
	}
	return p, nil
}

func findJars(home string, packaged []string) (Install, error) {
	if home != "" {
		var jars []string
		for _, pattern := range []string{"*.jar", "lib/*.jar"} {
			found, _ := filepath.Glob(filepath.Join(home, pattern))
			jars = append(jars, found...)
		}
		for _, jar := range jars {
			if v, ok := serverJar(jar); ok {
				return Install{ClassPath: jars, Version: v}, nil
			}
		}
		return Install{}, fmt.Errorf("%w: ZOOKEEPER_HOME=%s has no zookeeper-<version>.jar in it or in its lib; point it at an unpacked binary release (apache-zookeeper-<version>-bin) or unset it", ErrNotFound, home)
	}
	for _, jar := range packaged {
		if _, err := os.Stat(jar); err != nil {
			continue
		}
		inst := Install{ClassPath: []string{jar}}
		for _, extra := range debianLogging {
			if _, err := os.Stat(extra); err == nil {
				inst.ClassPath = append(inst.ClassPath, extra)
			}
		}
		// The jar is a link to one that carries the version in its name.
		if real, err := filepath.EvalSymlinks(jar); err == nil {
			inst.Version, _ = serverJar(real)
		}
		if inst.Version == "" {
			inst.Version = manifestVersion(jar)
		}
		return inst, nil
	}
	return Install{}, fmt.Errorf("%w: install one (Debian and Ubuntu: apt-get install zookeeper), or unpack a binary release from https://zookeeper.apache.org/releases.html and set ZOOKEEPER_HOME to its directory, or set ZKTEST_SERVERS=host:port to use a running one where a test does not need its own", ErrNotFound)
}

var serverJarName = regexp.MustCompile(`^zookeeper-(\d[\w.-]*)\.jar$`)

// serverJar tells whether path is named like the jar that holds the server, and
// its version. zookeeper-jute-3.8.0.jar is not one.
func serverJar(path string) (version string, ok bool) {
	m := serverJarName.FindStringSubmatch(filepath.Base(path))
	if m == nil || strings.HasSuffix(m[1], "-tests") {
		return "", false
	}
	return m[1], true
}

// manifestVersion reads Implementation-Version of a jar; empty when it has none.
func manifestVersion(jar string) string {
	r, err := zip.OpenReader(jar)
	if err != nil {
		return ""
	}
	defer r.Close()
	f, err := r.Open("META-INF/MANIFEST.MF")
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if v, ok := strings.CutPrefix(s.Text(), "Implementation-Version:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
