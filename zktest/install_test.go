package zktest_test

import (
	"archive/zip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

func touch(t *testing.T, mode os.FileMode, parts ...string) string {
	name := filepath.Join(parts...)
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, nil, mode))
	return name
}

func TestFindJars(t *testing.T) {
	t.Run("release", func(t *testing.T) {
		home := t.TempDir()
		jars := []string{
			touch(t, 0o644, home, "lib", "slf4j-api-1.7.30.jar"),
			touch(t, 0o644, home, "lib", "zookeeper-3.9.2.jar"),
			touch(t, 0o644, home, "lib", "zookeeper-jute-3.9.2.jar"),
		}
		touch(t, 0o644, home, "lib", "notes.txt")
		inst, err := zktest.FindJars(home, nil)
		require.NoError(t, err)
		require.Equal(t, zktest.Install{ClassPath: jars, Version: "3.9.2"}, inst)
	})
	t.Run("old release", func(t *testing.T) {
		home := t.TempDir()
		jars := []string{touch(t, 0o644, home, "zookeeper-3.4.14.jar"), touch(t, 0o644, home, "lib", "netty.jar")}
		inst, err := zktest.FindJars(home, nil)
		require.NoError(t, err)
		require.Equal(t, zktest.Install{ClassPath: jars, Version: "3.4.14"}, inst)
	})
	t.Run("package", func(t *testing.T) {
		dir := t.TempDir()
		touch(t, 0o644, dir, "zookeeper-3.8.0.jar")
		link := filepath.Join(dir, "zookeeper.jar")
		require.NoError(t, os.Symlink("zookeeper-3.8.0.jar", link))
		inst, err := zktest.FindJars("", []string{filepath.Join(dir, "none.jar"), link})
		require.NoError(t, err)
		require.Equal(t, link, inst.ClassPath[0])
		require.Equal(t, "3.8.0", inst.Version)
	})
	t.Run("package that hides its version", func(t *testing.T) {
		jar := filepath.Join(t.TempDir(), "zookeeper.jar")
		f, err := os.Create(jar)
		require.NoError(t, err)
		z := zip.NewWriter(f)
		w, err := z.Create("META-INF/MANIFEST.MF")
		require.NoError(t, err)
		_, err = w.Write([]byte("Manifest-Version: 1.0\r\nImplementation-Version: 3.7.1\r\n"))
		require.NoError(t, err)
		require.NoError(t, z.Close())
		require.NoError(t, f.Close())
		inst, err := zktest.FindJars("", []string{jar})
		require.NoError(t, err)
		require.Equal(t, "3.7.1", inst.Version)
	})
	t.Run("neither", func(t *testing.T) {
		home := t.TempDir()
		touch(t, 0o644, home, "lib", "zookeeper-jute-3.9.2.jar")
		_, err := zktest.FindJars(home, []string{home})
		require.ErrorIs(t, err, zktest.ErrNotFound)
		require.ErrorContains(t, err, home)
		_, err = zktest.FindJars("", nil)
		require.ErrorIs(t, err, zktest.ErrNotFound)
		for _, advice := range []string{"apt-get install zookeeper", "ZOOKEEPER_HOME", "ZKTEST_SERVERS"} {
			require.ErrorContains(t, err, advice)
		}
	})
}

func TestFindJava(t *testing.T) {
	home := t.TempDir()
	_, err := zktest.FindJava(home)
	require.ErrorIs(t, err, zktest.ErrNotFound)
	java := touch(t, 0o755, home, "bin", "java")
	got, err := zktest.FindJava(home)
	require.NoError(t, err)
	require.Equal(t, java, got)

	t.Setenv("PATH", t.TempDir())
	_, err = zktest.FindJava("")
	require.ErrorIs(t, err, zktest.ErrNotFound)
	require.ErrorContains(t, err, "install a Java runtime")
	t.Setenv("PATH", filepath.Join(home, "bin"))
	got, err = zktest.FindJava("")
	require.NoError(t, err)
	require.Equal(t, java, got)
}

func TestFind(t *testing.T) {
	home, javaHome := t.TempDir(), t.TempDir()
	jar := touch(t, 0o644, home, "lib", "zookeeper-3.9.2.jar")
	java := touch(t, 0o755, javaHome, "bin", "java")
	t.Setenv("ZOOKEEPER_HOME", home)
	t.Setenv("JAVA_HOME", javaHome)
	inst, err := zktest.Find()
	require.NoError(t, err)
	require.Equal(t, zktest.Install{Java: java, ClassPath: []string{jar}, Version: "3.9.2"}, inst)

	t.Setenv("JAVA_HOME", t.TempDir())
	_, err = zktest.Find()
	require.ErrorIs(t, err, zktest.ErrNotFound)
}
