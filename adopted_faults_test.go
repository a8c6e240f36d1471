package zkrecipes

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// go-zookeeper reads the last zxid that it has seen for its setWatches request while its receive loop may write it. A dialer of ours keeps the two apart;
// on a connection without one, -race reports that fault of the client's now and then, when a connection with watches is cut. It cannot be told from a
// fault of this library's by the exit status, and not be suppressed. So tests that cut connections without TrackContact run in a process that was built
// without -race, and those with it, which go the same ways through this library but for looking instead of being told, in this one.

// plainBinary is this test binary, built without -race. It goes with the tests' own temporary directory.
var plainBinary = sync.OnceValues(func() (string, error) {
	if !raceEnabled {
		return os.Executable()
	}
	dir, err := os.MkdirTemp("", "zkrecipes-test-")
	if err != nil {
		return "", err
	}
	plainDir = dir
	name := filepath.Join(dir, "plain.test")
	out, err := exec.Command("go", "test", "-c", "-o", name, ".").CombinedOutput()
	if err != nil {
		return "", &exec.Error{Name: string(out), Err: err}
	}
	return name, nil
})

// plainDir is what TestMain removes.
var plainDir string

// binaryFor returns the program that a worker of this way is to be.
func binaryFor(t testing.TB, w way) string {
	t.Helper()
	if w == observed {
		name, err := plainBinary()
		require.NoError(t, err)
		return name
	}
	name, err := os.Executable()
	require.NoError(t, err)
	return name
}

// rounds is how often a part of a test is repeated: n times for Dial, and half as often in the ways of NewSession, which are the same ways through most of
// the engine; a quarter of it on the server of this process; n times in all of them in make torture.
func rounds(t testing.TB, n int) int {
	if os.Getenv("ZKRECIPES_TORTURE") != "" {
		return n
	}
	if wayOf(t) != dialed {
		n = (n + 1) / 2
	}
	if !testrun.Real() {
		n = (n + 3) / 4
	}
	return n
}

// underFaults runs a test that breaks connections in the ways of NewSession.
func underFaults(t *testing.T, fn func(t testing.TB)) {
	apart := func(t *testing.T) {
		if !testrun.Real() {
			t.Parallel() // it is quick enough for both
		}
	}
	t.Run(tracked.String(), func(t *testing.T) {
		apart(t)
		fn(via{t, tracked})
	})
	t.Run(observed.String(), func(t *testing.T) {
		apart(t)
		if raceEnabled {
			runPlain(t)
			return
		}
		fn(via{t, observed})
	})
}

// waitsUnderFaults is underFaults for a test that waits for long.
func waitsUnderFaults(t *testing.T, fn func(t testing.TB)) {
	if testrun.Real() {
		underFaults(t, fn)
		return
	}
	together(t, map[string]func(*testing.T){
		tracked.String(): func(t *testing.T) { fn(via{t, tracked}) },
		observed.String(): func(t *testing.T) {
			if raceEnabled {
				runPlain(t)
				return
			}
			fn(via{t, observed})
		},
	})
}

// together runs the few parts of a test at once that wait for long. With t.Parallel they would begin after all other tests of the package.
func together(t *testing.T, parts map[string]func(*testing.T)) {
	var wg sync.WaitGroup
	for name, part := range parts {
		wg.Go(func() { t.Run(name, part) })
	}
	wg.Wait()
}

// runPlain runs this very test in a process built without -race, on the server that the tests share.
func runPlain(t *testing.T) {
	t.Helper()
	name, err := plainBinary()
	require.NoError(t, err)
	var parts []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
	}
	args := []string{"-test.run", strings.Join(parts, "/"), "-test.v"}
	if deadline, ok := t.Deadline(); ok {
		args = append(args, "-test.timeout", max(time.Until(deadline)-5*time.Second, time.Second).String())
	}
	cmd := exec.Command(name, args...)
	cmd.Env = os.Environ()
	if os.Getenv("ZKTEST_REAL") == "" {
		cmd.Env = append(cmd.Env, "ZKTEST_SERVERS="+strings.Join(zktest.Shared(t).Addrs(), ","))
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
		return
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "told before") || strings.Contains(line, " requests: ") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

func TestAdoptedNoOrphanWhateverIsCut(t *testing.T) {
	t.Parallel()
	underFaults(t, noOrphanWhateverIsCut)
}

func TestAdoptedNoOrphanAfterABlackHole(t *testing.T) {
	t.Parallel()
	underFaults(t, noOrphanAfterABlackHole)
}

func TestAdoptedNoOrphanWhenCancelledAtAnyRequest(t *testing.T) {
	t.Parallel()
	underFaults(t, noOrphanWhenCancelledAtAnyRequest)
}

func TestAdoptedWaiterThatEndsWithAnErrorLeavesNothing(t *testing.T) {
	t.Parallel()
	underFaults(t, waiterThatEndsWithAnErrorLeavesNothing)
}

func TestAdoptedRetriedCreateLeavesOneZnode(t *testing.T) {
	t.Parallel()
	underFaults(t, retriedCreateLeavesOneZnode)
}

func TestAdoptedCreateThatIsNeverAnsweredEnds(t *testing.T) {
	t.Parallel()
	underFaults(t, createThatIsNeverAnsweredEnds)
}

func TestAdoptedCreateQueuedAcrossAnExpiryLeavesNothing(t *testing.T) { // alone: it looks at all goroutines
	for _, w := range adoptions {
		t.Run(w.String(), func(t *testing.T) {
			if w == observed && raceEnabled {
				runPlain(t)
				return
			}
			createQueuedAcrossAnExpiryLeavesNothing(via{t, w})
		})
	}
}

func TestAdoptedReleaseWhileDisconnectedIsFinished(t *testing.T) {
	t.Parallel()
	underFaults(t, releaseWhileDisconnectedIsFinished)
}

func TestAdoptedLateReleaseNeverRemovesAnothersZnode(t *testing.T) {
	t.Parallel()
	underFaults(t, lateReleaseNeverRemovesAnothersZnode)
}

func TestAdoptedCreateStuckInAPausedFollowerLeavesNoOrphan(t *testing.T) {
	t.Parallel()
	underFaults(t, createStuckInAPausedFollowerLeavesNoOrphan)
}
