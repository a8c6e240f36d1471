package zktest_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/zktest"
)

func TestMain(m *testing.M) {
	if os.Getenv(envLauncher) != "" {
		launchAndHang()
	}
	goleak.VerifyTestMain(closing{m})
}

// closing closes the shared server between the tests and the check for leaks.
type closing struct{ m *testing.M }

func (c closing) Run() int {
	code := c.m.Run()
	if err := zktest.CloseShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
