package zktest_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// fakeDocker puts a docker command in the path, alone, that answers with script.
func fakeDocker(t *testing.T, script string) string {
	t.Helper()
	command := filepath.Join(t.TempDir(), "docker")
	require.NoError(t, os.WriteFile(command, []byte("#!/bin/sh\n"+script), 0o755))
	t.Setenv("PATH", filepath.Dir(command))
	return command
}

func TestFindDocker(t *testing.T) {
	if runtime.GOOS != "linux" {
		_, err := zktest.FindDocker()
		require.ErrorIs(t, err, zktest.ErrNotFound)
		return
	}
	has := func(image string) string {
		return `case "$1 $5" in "info "*) echo '[name=seccomp,profile=default]' ;; "image ` + image + `") echo sha256:1 ;; *) echo "No such image" >&2; exit 1 ;; esac`
	}
	t.Setenv("ZKTEST_IMAGE", "")

	t.Run("official", func(t *testing.T) {
		command := fakeDocker(t, has("zookeeper:3.9"))
		d, err := zktest.FindDocker()
		require.NoError(t, err)
		require.Equal(t, command, d.Command)
		require.Equal(t, "zookeeper:3.9", d.Image)
		require.NotEmpty(t, d.User)
		require.Empty(t, d.CgroupParent)
	})
	t.Run("built", func(t *testing.T) {
		script, err := os.ReadFile("../scripts/zkimage")
		require.NoError(t, err)
		_, name, _ := strings.Cut(string(script), "\nbuilt=")
		fakeDocker(t, has(strings.Fields(name)[0]))
		d, err := zktest.FindDocker()
		require.NoError(t, err, "the name of what scripts/zkimage builds")
		require.Contains(t, d.String(), "zkrecipes-zookeeper")
	})
	t.Run("named", func(t *testing.T) {
		fakeDocker(t, has("zookeeper:3.9"))
		t.Setenv("ZKTEST_IMAGE", "mine:1")
		_, err := zktest.FindDocker()
		require.ErrorIs(t, err, zktest.ErrNotFound)
		require.ErrorContains(t, err, "no image mine:1: run scripts/zkimage")
		fakeDocker(t, has("mine:1"))
		d, err := zktest.FindDocker()
		require.NoError(t, err)
		require.Equal(t, "mine:1", d.Image)
	})
	t.Run("rootless", func(t *testing.T) {
		fakeDocker(t, `echo '[name=seccomp,profile=default name=rootless]'`)
		d, err := zktest.FindDocker()
		require.NoError(t, err)
		require.Equal(t, "0:0", d.User)
	})
	t.Run("one group for all containers", func(t *testing.T) {
		fakeDocker(t, `echo 'cgroup=cgroupfs1 []'`)
		d, err := zktest.FindDocker()
		require.NoError(t, err)
		require.Equal(t, "/", d.CgroupParent)
	})
	t.Run("no image", func(t *testing.T) {
		fakeDocker(t, has("another"))
		_, err := zktest.FindDocker()
		require.ErrorContains(t, err, "make test")
	})
	t.Run("no engine", func(t *testing.T) {
		fakeDocker(t, `echo "Cannot connect to the Docker daemon" >&2; exit 1`)
		_, err := zktest.FindDocker()
		require.ErrorIs(t, err, zktest.ErrNotFound)
		require.ErrorContains(t, err, "Cannot connect to the Docker daemon")
	})
	t.Run("no command", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := zktest.FindDocker()
		require.ErrorIs(t, err, zktest.ErrNotFound)
		require.ErrorContains(t, err, "install Docker")
	})
}

// TestOrder: without ZKTEST_REAL a local installation comes before Docker, and
// one that was named is not passed over.
func TestOrder(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // Docker is not in the order
	}
	fakeDocker(t, `case "$1" in info) echo '[]' ;; esac`)
	t.Setenv("ZKTEST_SERVERS", "")
	t.Setenv("ZKTEST_IMAGE", "")
	home, javaHome := t.TempDir(), t.TempDir()
	touch(t, 0o644, home, "lib", "zookeeper-3.9.2.jar")
	touch(t, 0o755, javaHome, "bin", "java")
	t.Setenv("JAVA_HOME", javaHome)
	for _, c := range []struct{ real, home, want string }{
		{"", home, "ZooKeeper 3.9.2"},
		{"local", home, "ZooKeeper 3.9.2"},
		{"docker", home, "ZooKeeper in the image zookeeper:3.9"},
		{"", javaHome, ""},
		{"local", javaHome, ""},
		{"addr", home, ""},
	} {
		t.Setenv("ZKTEST_REAL", c.real)
		t.Setenv("ZOOKEEPER_HOME", c.home)
		said, err := zktest.Describe()
		require.Equal(t, c.want, said, "%+v", c)
		require.Equal(t, c.want == "", err != nil, "%+v", c)
	}
	// No Java: neither is there, or Docker is.
	t.Setenv("ZKTEST_REAL", "")
	t.Setenv("ZOOKEEPER_HOME", "")
	t.Setenv("JAVA_HOME", t.TempDir())
	said, err := zktest.Describe()
	require.NoError(t, err)
	require.Equal(t, "ZooKeeper in the image zookeeper:3.9", said)
	t.Setenv("PATH", t.TempDir())
	_, err = zktest.Describe()
	require.ErrorIs(t, err, zktest.ErrNotFound)
	require.ErrorContains(t, err, "JAVA_HOME")
	require.ErrorContains(t, err, "Docker")
}

// TestPropertyWithABlank: in a container the flags of the JVM go through a shell.
func TestPropertyWithABlank(t *testing.T) {
	ens, err := zktest.Launch(zktest.SystemProperty("zkrecipes.test", "two words"))
	if inDocker() {
		require.ErrorContains(t, err, "may hold no blank")
		return
	}
	require.NoError(t, err)
	require.NoError(t, ens.Close())
}
