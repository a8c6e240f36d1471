// Command shrink looks for the shortest schedule of faults with which a campaign in virtual time fails.
//
//	shrink [-tries 20] [-within 10m] TEST SEED
//
// It is what make shrink runs, in the root of the module: TEST is a campaign such as TestVirtualCampaign, SEED the name of its scene that failed. A seed fixes
// what happens when, not which goroutine runs first, so each schedule is tried several times before it counts as one that does not fail.
//
// It prints the strikes that are left, and a line for testdata/schedules, from which TestVirtualSchedules has them again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	tries := flag.Int("tries", 20, "how often a schedule is tried before it counts as one that does not fail")
	within := flag.Duration("within", 10*time.Minute, "how long to look")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: make shrink TEST=TestVirtualCampaign SEED=number")
		flag.PrintDefaults()
	}
	flag.Parse()
	seed, err := strconv.ParseUint(flag.Arg(1), 10, 64)
	if flag.NArg() != 2 || err != nil || *tries < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0), seed, *tries, *within); err != nil {
		fmt.Fprintln(os.Stderr, "shrink:", err)
		os.Exit(1)
	}
}

func run(test string, seed uint64, tries int, within time.Duration) error {
	dir, err := os.MkdirTemp("", "shrink-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := &campaign{binary: filepath.Join(dir, "campaign.test"), test: test, seed: seed, tries: tries}
	if out, err := exec.Command("go", "test", "-c", "-o", c.binary, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("%w:\n%s", err, out)
	}
	if out, err := exec.Command(c.binary, "-test.list", "^"+test+"$").Output(); err != nil || !strings.Contains(string(out), test) {
		return fmt.Errorf("there is no test %s in this folder", test)
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	all := c.fails(ctx, nil)
	if all == nil {
		return fmt.Errorf("%s does not fail with seed %d in %d tries", test, seed, tries)
	}
	strikes := struck(all.output)
	if strikes == nil {
		return fmt.Errorf("%s fails with seed %d, and does not say after which strikes:\n%s", test, seed, all.output)
	}
	fmt.Printf("shrink: fails after %d strikes\n", len(strikes))
	last := all
	short := shrink(strikes, func(some []int) bool {
		f := c.fails(ctx, some)
		if f != nil {
			last = f
			fmt.Printf("shrink: fails after %d\n", len(some))
		}
		return f != nil
	})
	how := "the shortest, for each strike is needed"
	if ctx.Err() != nil {
		how = "the shortest found in " + within.String()
	}
	fmt.Printf("%s\nshrink: %d strikes, %s:\n%s %d %s\n", last.output, len(short), how, test, seed, list(short))
	return nil
}

// A campaign is a test that makes the strikes of a seed, or some of them.
type campaign struct {
	binary, test string
	seed         uint64
	tries        int
}

// A failure is what a run that failed printed.
type failure struct{ output string }

// fails tries a schedule, on all processors, until it fails; nil if it does not, or when ctx ends. No strikes means all.
func (c *campaign) fails(ctx context.Context, strikes []int) *failure {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var found *failure
	left := c.tries
	next := func() bool {
		mu.Lock()
		defer mu.Unlock()
		left--
		return left >= 0 && found == nil && ctx.Err() == nil
	}
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for next() {
				if f := c.once(ctx, strikes); f != nil {
					mu.Lock()
					found = f
					mu.Unlock()
					cancel()
				}
			}
		})
	}
	wg.Wait()
	return found
}

func (c *campaign) once(ctx context.Context, strikes []int) *failure {
	cmd := exec.CommandContext(ctx, c.binary, "-test.run", "^"+c.test+"$", "-test.count", "1", "-test.timeout", "2m")
	cmd.Env = append(os.Environ(), "ZKRECIPES_TEST_SEED="+strconv.FormatUint(c.seed, 10), "ZKRECIPES_STRIKES="+list(strikes), "ZKRECIPES_TORTURE=", "ZKTEST_REAL=", "ZKTEST_SERVERS=")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if ctx.Err() != nil || !errors.As(err, &exit) {
		return nil
	}
	return &failure{string(out)}
}

var told = regexp.MustCompile(`(?m)strikes: (\d+ .*)$`)

// struck returns the numbers of the strikes of which a failed run tells.
func struck(output string) (numbers []int) {
	m := told.FindStringSubmatch(output)
	if m == nil {
		return nil
	}
	for _, s := range strings.Split(m[1], ", ") {
		number, _, _ := strings.Cut(s, " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// list is what ZKRECIPES_STRIKES takes.
func list(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		part := strconv.Itoa(numbers[i])
		if j > i {
			part += "-" + strconv.Itoa(numbers[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}
