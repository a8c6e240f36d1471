package zktest_test

import (
	"os"
	"sync"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

func TestMain(m *testing.M) {
	if os.Getenv(envLauncher) != "" {
		launchAndHang()
	}
	realOnly := []string{
		"TestConformance", "TestConformanceAtTheLimit", "TestRandomWalk", "TestClientOnBoth", // compare with it
		"TestServerLifeCycle", "TestQuorum", "TestLeaderPaused", "TestOptions", "TestOptionErrors", "TestLoopbackOnly", "TestCloseLeavesNothing", "TestStartCleansUp",
		"TestPortTaken", "TestSessionTimeoutIsShort", "TestDiesWithParent", "TestOwnerNames", "TestPropertyWithABlank", "ExampleLaunch",
		"TestFourLetter", "TestVersionOfServer", "TestSharedLaunched", "TestSharedFromOutside",
	}
	os.Exit(testrun.Main(m, realOnly, zktest.CloseShared))
}

// real is what this run insists on, before any test sets it.
var real = os.Getenv("ZKTEST_REAL")

// inDocker tells whether the servers of this run are launched in containers.
var inDocker = sync.OnceValue(func() bool { return zktest.InDocker(real) })

func launchedIn() string {
	if inDocker() {
		return "docker"
	}
	return "local"
}
