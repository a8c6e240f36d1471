package interop

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// The table in fleetDoc stands between these.
const (
	fleetDoc    = "../docs/mixed-fleets.md"
	matrixBegin = "<!-- TestMatrix writes from here"
	matrixEnd   = "<!-- to here. -->"
)

// columns are the libraries of the table.
var columns = []string{curator, kazoo, kazooOnCurators, zkLock}

// checkMatrix compares the table in the document, but for the versions, with what a run has shown: cells in which the libraries took turns, and cells in
// which those who were first were killed. With -update, on a real ZooKeeper, it writes the table.
func checkMatrix(t *testing.T, inTurn, killed map[cellKey]bool) {
	if len(inTurn) < len(cells()) || len(killed) < len(cells()) {
		t.Log("a part of the matrix is no table")
		return
	}
	versions := versionsOf(t)
	text, err := os.ReadFile(fleetDoc)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), matrixBegin)
	require.True(t, ok, fleetDoc)
	comment, rest, ok := strings.Cut(rest, "\n")
	require.True(t, ok, fleetDoc)
	written, after, ok := strings.Cut(rest, matrixEnd)
	require.True(t, ok, fleetDoc)
	table := matrixTable(versions, inTurn, killed)
	if *update {
		require.True(t, testrun.Real(), "-update needs a real ZooKeeper: ZKTEST_REAL=local or docker")
		require.NoError(t, os.WriteFile(fleetDoc, []byte(before+matrixBegin+comment+"\n"+table+matrixEnd+after), 0o644))
		return
	}
	require.Equal(t, withoutVersions(written), withoutVersions(table),
		"%s is not what this run has shown; go test -run TestMatrix -update writes it", fleetDoc)
}

// withoutVersions is a table as it is with any versions, which are the machine's.
func withoutVersions(table string) string {
	return regexp.MustCompile(`\d+(\.\d+)*`).ReplaceAllString(table, "N")
}

func matrixTable(versions map[string]string, inTurn, killed map[cellKey]bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nZooKeeper %s, Java %s; go-zookeeper %s is under this library, too.\n\n", versions["zookeeper"], versions["java"], versions[zkLock])
	fmt.Fprintf(&b, "| recipe | Curator %s | kazoo %s | kazoo %s on Curator's znodes | zk.Lock %s |\n|---|---|---|---|---|\n",
		versions[curator], versions[kazoo], versions[kazoo], versions[zkLock])
	for _, r := range matrix {
		fmt.Fprintf(&b, "| %s |", r.name)
		for _, peer := range columns {
			shown := func(oursFirst bool) bool {
				key := cellKey{r.name, peer, oursFirst}
				return inTurn[key] && killed[key]
			}
			switch {
			case shown(true) && shown(false):
				b.WriteString(" both |")
			case shown(true):
				b.WriteString(" ours first |")
			default:
				b.WriteString(" - |")
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	return b.String()
}

// versionsOf asks the libraries, and a real server.
func versionsOf(t *testing.T) map[string]string {
	ctx := within(t, 20*time.Second)
	versions := map[string]string{"zookeeper": "3", "java": "17", zkLock: "1"}
	for _, kind := range []Kind{Curator, Kazoo} {
		version, err := open(t, kind).Version(ctx)
		require.NoError(t, err)
		require.Regexp(t, `^\d+\.\d+`, version)
		library, java, _ := strings.Cut(version, " ")
		versions[string(kind)] = library
		if java != "" {
			versions["java"] = java
		}
	}
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	goZookeeper := regexp.MustCompile(`github.com/go-zookeeper/zk v(\S+)`).FindSubmatch(mod)
	require.NotNil(t, goZookeeper)
	versions[zkLock] = string(goZookeeper[1])
	if *update {
		text, err := zktest.Shared(t).Server(0).FourLetter(ctx, "srvr")
		require.NoError(t, err)
		found := regexp.MustCompile(`version: (\d+\.\d+\.\d+)`).FindStringSubmatch(text)
		require.NotNil(t, found, text)
		versions["zookeeper"] = found[1]
	}
	return versions
}
