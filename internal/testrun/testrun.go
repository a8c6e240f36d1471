// Package testrun is the TestMain of this module's packages: it chooses what runs, closes what the tests share, and fails when a goroutine is left.
package testrun

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs m, then each of closers in their order, and returns the exit code: 1 also when a closer fails or a goroutine outlives them all.
//
// Where no real ZooKeeper was asked for, by $ZKTEST_REAL or $ZKTEST_SERVERS, the tests run on the server of this process. Those that start, stop or look
// into a real one are named by real, and left out then; one line says so.
func Main(m *testing.M, real []string, closers ...func() error) int {
	flag.Parse()
	if !Real() {
		if err := leaveOut(real); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	for _, closer := range closers {
		if err := closer(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if code != 0 {
		return code
	}
	if err := find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Real reports whether a real ZooKeeper was asked for.
func Real() bool { return os.Getenv("ZKTEST_REAL") != "" || os.Getenv("ZKTEST_SERVERS") != "" }

// LeaveOut leaves tests out that cannot run here, and says what they need. It is for what not every machine lets anybody do; call it before Main.
func LeaveOut(needs string, names ...string) {
	flag.Parse()
	skip := "^(" + strings.Join(names, "|") + ")$"
	if s := flag.Lookup("test.skip").Value.String(); s != "" {
		skip = s + "|" + skip
	}
	fmt.Printf("left out, for they need %s: %s\n", needs, strings.Join(names, " "))
	if err := flag.Set("test.skip", skip); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// atOnce is how many tests run at once on the server of this process: nearly all of them wait.
const atOnce = "20"

func leaveOut(real []string) error {
	given := make(map[string]string)
	flag.Visit(func(f *flag.Flag) { given[f.Name] = f.Value.String() })
	if _, ok := given["test.parallel"]; !ok {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			return err
		}
	}
	if len(real) == 0 {
		return nil
	}
	skip := "^(" + strings.Join(real, "|") + ")$"
	if s := given["test.skip"]; s != "" {
		skip = s + "|" + skip
	}
	fmt.Printf("left out, for they need a real ZooKeeper (make test runs them): %s\n", strings.Join(real, " "))
	return flag.Set("test.skip", skip)
}

// find looks for 3 s: go-zookeeper's Close of a client that is not connected sleeps for one, in a goroutine that nobody waits for.
func find() error {
	err := goleak.Find()
	for deadline := time.Now().Add(3 * time.Second); err != nil && time.Now().Before(deadline); {
		err = goleak.Find()
	}
	return err
}
