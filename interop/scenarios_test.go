package interop

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
)

// A scenario is what a public report tells of, as far as it can be brought about from outside. A library that goes through it well returns nil, else what is
// wrong, in the words of the table in docs/reliability.md.
type scenario struct {
	name, reports string
	run           func(r *rival) error
	timeout       time.Duration     // of the session; 0 for sessionTimeout, for which nothing here waits
	lacks         []string          // the libraries that have no such thing
	faults        map[string]string // of those that fail it; never ours
}

var scenarios = []scenario{
	{
		name: "the reply to the create is lost, and the search for it fails", reports: "samuel/go-zookeeper #229",
		run: lostReplyAndSearch, faults: map[string]string{zkLock: "nobody can have the lock"},
	},
	{
		name: "a waiter's create is cut after it was made", reports: "CURATOR-45, samuel/go-zookeeper #237",
		run: waiterIsCut,
	},
	{
		name: "the create of a permit is cut after it was made", reports: "CURATOR-315, CURATOR-335",
		run: permitIsCut, lacks: []string{zkLock, kazoo},
	},
	{
		name: "a child that is nobody's", reports: "samuel/go-zookeeper #64, CURATOR-43",
		run: foreignChild, faults: map[string]string{zkLock: "the lock cannot be had", curator: "the lock cannot be had"},
	},
	{
		name: "the session of a holder is ended", reports: "samuel/go-zookeeper #20, CURATOR-171",
		run: sessionOfAHolderEnds, faults: map[string]string{
			zkLock: "the lock is not told", curator: "its connection is told, the lock is not", kazoo: "its connection is told, the lock is not",
		},
	},
	{
		name: "a holder hears nothing any more, and another one is granted", reports: "CURATOR-206, CURATOR-465, CURATOR-460",
		run: blackHole, timeout: 6 * time.Second, faults: map[string]string{
			zkLock: "the lock says that it is held", curator: "the lock says that it is held", kazoo: "the lock says that it is held",
		},
	},
	{
		name: "the znode of a holder is deleted by hand", reports: "CURATOR-171, segmentio/consul-go #14",
		run: holderIsDeleted, faults: map[string]string{
			zkLock: "the lock says that it is held", curator: "the lock says that it is held", kazoo: "the lock says that it is held",
		},
	},
	{
		name: "the znode of a waiter is deleted by hand", reports: "zk-ruby/zk #55, CURATOR-307, CURATOR-211",
		run: waiterIsDeleted, faults: map[string]string{zkLock: "it is granted without a znode"},
	},
	{
		name: "a release after the session was ended, and a new lock", reports: "hashicorp/consul #4902",
		run: againAfterTheEnd, faults: map[string]string{zkLock: "it cannot be locked again"},
	},
	{
		name: "a release without a connection, which comes back", reports: "CURATOR-202, etcd-io/etcd #22123",
		run: releaseWithoutAConnection, faults: map[string]string{zkLock: "nobody can have the lock"},
	},
	{
		name: "a wait that is given up", reports: "docker/libkv #12",
		run: waitIsGivenUp, faults: map[string]string{zkLock: "a wait has no limit"},
	},
	{
		name: "a wait that is given up without a connection", reports: "python-zk/kazoo #54, python-zk/kazoo #264",
		run: waitIsGivenUpWithoutAConnection, faults: map[string]string{
			zkLock: "a wait has no limit", curator: "it returns when there is a connection again", kazoo: "it returns when there is a connection again",
		},
	},
	{
		name: "a try without a connection", reports: "spring-integration #1863, CURATOR-559",
		run: tryWithoutAConnection, faults: map[string]string{
			zkLock: "a wait has no limit", curator: "it returns when there is a connection again", kazoo: "it returns when there is a connection again",
		},
	},
	{
		name: "a reader between two writers", reports: "python-zk/kazoo #649",
		run: readerBetweenWriters, lacks: []string{zkLock}, faults: map[string]string{kazoo: "the reader waits for the later writer"},
	},
	{
		name: "a writer reads on, and another one waits", reports: "CURATOR-276, CURATOR-621",
		run: downgrade, lacks: []string{zkLock, kazoo}, faults: map[string]string{curator: "the writer is granted beside the reader"},
	},
	{
		name: "two candidates are cut off for a moment", reports: "CURATOR-504, CURATOR-644",
		run: candidatesAreCut, lacks: []string{zkLock, kazoo},
	},
}

// rivals are the libraries that go through the scenarios, in the order of the table.
var rivals = []string{ours, zkLock, curator, kazoo}

// Scenarios of public reports, run with this library, go-zookeeper's lock, Curator's and kazoo's. The reports are not all answered there; what is asserted is
// what was measured, and what docs/reliability.md says: a fault that is gone one day fails this test, and leaves that table.
func TestScenariosWithPeers(t *testing.T) {
	for _, sc := range scenarios {
		for _, library := range rivals {
			if slices.Contains(sc.lacks, library) {
				continue
			}
			t.Run(sc.name+", "+library, func(t *testing.T) {
				t.Parallel()
				timeout := sc.timeout
				if timeout == 0 {
					timeout = sessionTimeout
				}
				err := sc.run(newRival(t, library, timeout))
				if want := sc.faults[library]; want != "" {
					require.ErrorContains(t, err, want)
				} else {
					require.NoError(t, err)
				}
			})
		}
	}
}

// The table between these is made of the scenarios.
const (
	reliabilityDoc = "../docs/reliability.md"
	scenariosBegin = "<!-- TestTableOfTheScenarios writes from here"
	scenariosEnd   = "<!-- to here. -->"
)

// The table in docs/reliability.md is what TestScenariosWithPeers asserts; -update writes it.
func TestTableOfTheScenarios(t *testing.T) {
	t.Parallel()
	versions := versionsOf(t)
	var b strings.Builder
	fmt.Fprintf(&b, "\n| what happens | as in | zkrecipes | zk.Lock %s | Curator %s | kazoo %s |\n|---|---|---|---|---|---|\n",
		versions[zkLock], versions[curator], versions[kazoo])
	for _, sc := range scenarios {
		require.NotContains(t, slices.Collect(maps.Keys(sc.faults)), ours)
		fmt.Fprintf(&b, "| %s | %s |", sc.name, sc.reports)
		for _, library := range rivals {
			switch fault := sc.faults[library]; {
			case slices.Contains(sc.lacks, library):
				b.WriteString(" - |")
			case fault == "":
				b.WriteString(" right |")
			default:
				fmt.Fprintf(&b, " **%s** |", fault)
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	text, err := os.ReadFile(reliabilityDoc)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), scenariosBegin)
	require.True(t, ok, reliabilityDoc)
	comment, rest, ok := strings.Cut(rest, "\n")
	require.True(t, ok, reliabilityDoc)
	written, after, ok := strings.Cut(rest, scenariosEnd)
	require.True(t, ok, reliabilityDoc)
	if *update {
		require.True(t, testrun.Real(), "-update needs a real ZooKeeper: ZKTEST_REAL=local or docker")
		require.NoError(t, os.WriteFile(reliabilityDoc, []byte(before+scenariosBegin+comment+"\n"+b.String()+scenariosEnd+after), 0o644))
		return
	}
	require.Equal(t, withoutVersions(written), withoutVersions(b.String()), "%s; go test -run TestTableOfTheScenarios -update writes it", reliabilityDoc)
}
