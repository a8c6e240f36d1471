package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/zktest"
)

const (
	workers = 3
	victim  = 1 // index of the worker that is killed,
	hangIn  = 1 // in this round
)

const demoHelp = `usage: zklock demo [flags]

Three worker processes contend for one lock on a ZooKeeper. Each line says who waits behind whom and who holds, with which fencing token. One holder is
killed with SIGKILL; the next one is granted when the dead one's session has ended. The exit code is 0 only if no two held at the same time, tokens only
grew, and a counter that nothing but the lock protects is exact.

The ZooKeeper is that of -servers or $ZKLOCK_SERVERS, else a local installation is started on a free port for as long as the demo runs.

flags:
`

// runDemo is zklock demo.
func runDemo(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var servers string
	var rounds int
	var hold, timeout, limit time.Duration
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.StringVar(&servers, "servers", os.Getenv("ZKLOCK_SERVERS"), "connect string, such as zk1:2181,zk2:2181/chroot")
	fs.IntVar(&rounds, "rounds", 3, "how many times each worker takes the lock")
	fs.DurationVar(&hold, "hold", 300*time.Millisecond, "how long it is held")
	fs.DurationVar(&timeout, "timeout", 2*time.Second, "session timeout: how soon a dead holder is replaced")
	fs.DurationVar(&limit, "limit", time.Minute, "give up after this long")
	unlocked := fs.Bool("unlocked", false, "let the workers go without the lock, to see that the demo notices")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), demoHelp)
		fs.PrintDefaults()
	}
	if err := parse(fs, args, stderr); err != nil {
		return err
	}
	switch {
	case rounds < hangIn+2:
		return usageError{fmt.Sprintf("-rounds %d: at least %d, so that somebody still waits when a worker is killed", rounds, hangIn+2)}
	case hold <= 0 || timeout <= 0 || limit <= 0:
		return usageError{"-hold, -timeout and -limit must be positive"}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not finished after -limit %v", limit))
	defer cancel()

	d := &demo{out: stdout, start: time.Now()}
	where := servers
	if servers == "" {
		ensemble, err := zktest.Launch()
		if err != nil {
			return fmt.Errorf("no ZooKeeper: give -servers, or install one (`make demo` does that): %w", err)
		}
		defer ensemble.Close()
		servers = strings.Join(ensemble.Addrs(), ",")
		where = servers + ", started for this demo"
	}
	if err := reach(ctx, servers, timeout); err != nil {
		return err
	}
	d.line("zookeeper", "at", where)
	return d.run(ctx, workerConfig{
		servers: servers, path: fmt.Sprintf("/zklock-demo/%08x", rand.Uint32()), rounds: rounds, hold: hold, timeout: timeout, unlocked: *unlocked,
	})
}

// reach finds out early, and in one place, whether there is a ZooKeeper.
func reach(ctx context.Context, connect string, timeout time.Duration) error {
	servers, namespace, err := zkrecipes.ParseConnectString(connect)
	if err != nil {
		return usageError{err.Error()}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Second, errors.New("no answer within 5 s"))
	defer cancel()
	s, err := zkrecipes.Dial(ctx, servers, zkrecipes.WithNamespace(namespace), zkrecipes.WithTimeout(timeout),
		zkrecipes.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	return s.Close()
}

// A demo is one run: it starts the workers, prints what they tell, and judges it.
type demo struct {
	out   io.Writer
	start time.Time

	mu      sync.Mutex
	events  []event
	ready   sync.WaitGroup // workers that are not connected yet
	killed  int64          // when the victim was dead, in Unix nanoseconds
	granted bool           // somebody was granted after that
}

func (d *demo) line(who, verb, text string) {
	fmt.Fprintf(d.out, "%7.2fs  %-9s  %-6s %s\n", time.Since(d.start).Seconds(), who, verb, text)
}

func (d *demo) run(ctx context.Context, c workerConfig) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "zklock-demo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c.counter = filepath.Join(dir, "counter")
	if err := os.WriteFile(c.counter, []byte("0"), 0o600); err != nil {
		return err
	}
	d.ready.Add(workers)
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for i := range workers {
		w := c
		w.name, w.hang = fmt.Sprintf("worker-%d", i+1), -1
		if i == victim && !c.unlocked {
			w.hang = hangIn
		}
		wg.Go(func() { errs[i] = d.worker(ctx, self, w) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return d.judge(c)
}

// worker runs one worker process to its end.
func (d *demo) worker(ctx context.Context, self string, c workerConfig) error {
	connected := sync.OnceFunc(d.ready.Done)
	defer connected()
	cmd := exec.CommandContext(ctx, self, c.args()...)
	cmd.WaitDelay = 5 * time.Second
	stdin, err := cmd.StdinPipe() // it ends with this process, and the worker with it
	if err != nil {
		return err
	}
	cmd.Cancel = stdin.Close
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		d.ready.Wait() // nobody begins before all are there, or have failed
		_, _ = stdin.Write([]byte{'\n'})
	}()
	killed, held := false, 0
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue
		}
		if e.Kind == kindReady {
			connected()
			continue
		}
		d.take(e)
		if e.Kind == kindHolds {
			if held == c.hang {
				killed = true
				_ = cmd.Process.Kill()
			}
			held++
		}
	}
	connected()
	err = cmd.Wait()
	switch {
	case killed:
		d.mu.Lock()
		d.killed = time.Now().UnixNano()
		d.mu.Unlock()
		d.line(c.name, "KILLED", "with SIGKILL while it holds; nobody gives its lock back")
		return nil
	case err != nil && ctx.Err() == nil:
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}

// take prints an event and keeps it.
func (d *demo) take(e event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
	switch e.Kind {
	case kindWaits:
		if e.Behind != "" {
			d.line(e.Worker, "waits", fmt.Sprintf("behind %s, %d ahead", e.Behind, e.Ahead))
		}
	case kindHolds:
		text := fmt.Sprintf("token %d", e.Token)
		if d.killed != 0 && !d.granted {
			d.granted = true
			text += fmt.Sprintf(", %.1f s after the kill: the dead one's session has ended", time.Duration(e.At-d.killed).Seconds())
		}
		d.line(e.Worker, "HOLDS", text)
	case kindDone:
		d.line(e.Worker, "done", fmt.Sprintf("token %d, gives back", e.Token))
	case kindLost:
		d.line(e.Worker, "LOST", fmt.Sprintf("token %d", e.Token))
	case kindFailed:
		d.line(e.Worker, "failed", e.Text)
	}
}

// A section is one critical section, from after the grant to before the release.
type section struct {
	worker   string
	from, to int64
	token    int64
}

// judge says whether exclusion held.
func (d *demo) judge(c workerConfig) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var sections []section
	open := make(map[string]int)
	done := 0
	for _, e := range d.events {
		switch e.Kind {
		case kindHolds:
			open[e.Worker] = len(sections)
			sections = append(sections, section{worker: e.Worker, from: e.At, to: d.killed, token: e.Token})
		case kindDone, kindLost:
			sections[open[e.Worker]].to = e.At
			if e.Kind == kindDone {
				done++
			}
		}
	}
	slices.SortFunc(sections, func(a, b section) int { return cmp.Compare(a.from, b.from) })
	for i, next := range sections {
		if i == 0 {
			continue
		}
		before := sections[i-1]
		if next.from < before.to {
			return fmt.Errorf("EXCLUSION BROKEN: %s held from %v before %s was done", next.worker, time.Duration(before.to-next.from), before.worker)
		}
		if !c.unlocked && next.token <= before.token {
			return fmt.Errorf("TOKENS RAN BACKWARDS: %d (%s) after %d (%s)", next.token, next.worker, before.token, before.worker)
		}
	}
	counter, err := readCounter(c.counter)
	if err != nil {
		return err
	}
	want := workers*c.rounds - (c.rounds - hangIn) // the victim does not finish this round and those after it
	switch {
	case counter != done:
		return fmt.Errorf("EXCLUSION BROKEN: %d critical sections, but the counter says %d", done, counter)
	case done != want:
		return fmt.Errorf("%d critical sections were finished, %d expected", done, want)
	case !d.granted:
		return errors.New("nobody was granted after the kill")
	}
	d.line("summary", "ok", fmt.Sprintf("%d critical sections, counter %d, never two at a time, tokens only grew, the killed one's lock was passed on", done, counter))
	return nil
}
