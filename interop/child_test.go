package interop

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// With childRole in its environment the test binary is a process with clients of the library for Go that it names, and talks as the peers do.
const childRole = "INTEROP_TEST_CHILD"

// startGo starts one, which the test may kill.
func startGo(t testing.TB, library string) *Process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childRole+"="+library)
	p, err := startProcess(Kind(library), cmd)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// startLibrary starts a process for clients of a library, which the test may kill.
func startLibrary(t testing.TB, library string) *Process {
	t.Helper()
	switch library {
	case ours, zkLock:
		return startGo(t, library)
	case kazooOnCurators:
		return Start(t, Kazoo)
	default:
		return Start(t, Kind(library))
	}
}

// A served is a client whose requests run in their order, but for close, which ends a wait.
type served struct {
	library   string
	name      string
	requests  chan func()
	opened    chan struct{} // closed when client is there
	client    client
	revocable bool // the next mutex tells when it is asked for
}

// serve answers requests until there are no more.
func serve(library string) int {
	clients := make(map[string]*served)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		id, name, verb, args := words[0], words[1], words[2], words[3:]
		c := clients[name]
		if c == nil {
			c = &served{library: library, name: name, requests: make(chan func(), 16), opened: make(chan struct{})}
			clients[name] = c
			go func() {
				for request := range c.requests {
					request()
				}
			}()
		}
		answer := func() {
			text, err := c.perform(verb, args)
			if text = "ok " + text; err != nil {
				text = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
			}
			say(id + " " + text)
		}
		if verb == "close" {
			go answer()
		} else {
			c.requests <- answer
		}
	}
	return 0 // who drove it is gone; the sessions end by themselves
}

var saying sync.Mutex

func say(line string) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Println(line)
}

func (c *served) perform(verb string, args []string) (string, error) {
	ctx := context.Background()
	o, _ := c.client.(*ourClient)
	switch verb {
	case "open":
		ms, err := strconv.Atoi(args[1])
		if err != nil {
			return "", err
		}
		c.client, err = openGo(c.library, strings.Split(args[0], ","), time.Duration(ms)*time.Millisecond, slog.NewTextHandler(os.Stderr, nil))
		if err != nil {
			return "", err
		}
		close(c.opened)
		return strconv.FormatInt(c.client.Session(), 10), nil
	case "close":
		<-c.opened
		return "", c.client.Close(ctx)
	case "release":
		return "", c.client.Release(ctx, Side(args[0]), args[1])
	case "revocable": // of the next acquisition, as Curator's
		c.revocable = true
		return "", nil
	case "attemptrevoke":
		return "", o.AttemptRevoke(ctx, args[0])
	case "count", "look":
		ms, err := strconv.Atoi(args[2])
		if err != nil {
			return "", err
		}
		return o.keep(ctx, verb, ledger(args[0]), args[1], time.Duration(ms)*time.Millisecond)
	default:
		node, err := c.client.Lock(ctx, Side(verb), args[0])
		if err == nil && c.revocable {
			c.revocable = false
			go func() {
				if o.AwaitRevocation(ctx) == nil {
					say("event " + c.name + " revoked")
				}
			}()
		}
		return node, err
	}
}
