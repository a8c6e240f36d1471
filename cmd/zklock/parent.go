package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// A demo is one run: it starts the workers, prints what they tell, kills one, and judges.
type demo struct {
	config workerConfig
	print  *printer
	fail   context.CancelCauseFunc // the first failure ends the run
	begin  chan struct{}           // closed when all workers are connected: nobody starts before

	mu       sync.Mutex
	ledger   *ledger
	unready  int
	waiting  map[string]bool // who is in the queue
	audience chan struct{}   // if not nil, closed when somebody waits for the victim
	killedAt time.Time
	tookOver time.Duration // from the kill to the next grant
}

// A process is one worker.
type process struct {
	name   string
	cmd    *exec.Cmd
	out    *json.Decoder
	in     *json.Encoder
	stderr bytes.Buffer
}

func newDemo(stdout io.Writer, c workerConfig) *demo {
	return &demo{
		config: c, print: newPrinter(stdout), begin: make(chan struct{}), unready: workers, waiting: make(map[string]bool),
		ledger: newLedger(c.rounds, names()),
	}
}

func names() (all []string) {
	for i := range workers {
		all = append(all, fmt.Sprintf("worker-%d", i+1))
	}
	return all
}

// run returns when all workers have ended.
func (d *demo) run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, d.fail = context.WithCancelCause(ctx)
	defer d.fail(nil)
	var wg sync.WaitGroup
	for _, name := range names() {
		wg.Go(func() {
			if err := d.worker(ctx, self, name); err != nil {
				d.fail(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	counter, err := readCounter(d.config.counter)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ledger.verdict(counter); err != nil {
		return err
	}
	d.print.end("%d critical sections in %d processes, never two at a time, and the counter is %d. Tokens only grew, from %d to %d.\n"+
		"%s was killed while it held, and %s was granted %.2f s later.",
		d.ledger.sections(), workers, counter, d.ledger.first, d.ledger.token, d.ledger.dead, d.ledger.heir, d.tookOver.Seconds())
	return nil
}

// worker runs one worker process to its end.
func (d *demo) worker(ctx context.Context, self, name string) error {
	c := d.config
	c.name = name
	w := &process{name: name}
	w.cmd = exec.CommandContext(ctx, self, c.args()...)
	w.cmd.Stderr = &w.stderr
	stdin, err := w.cmd.StdinPipe() // it ends with this process, and the worker with it
	if err != nil {
		return err
	}
	// So that a worker can close its session, which frees its place at once.
	w.cmd.Cancel = stdin.Close
	w.cmd.WaitDelay = leaveWithin + time.Second
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := w.cmd.Start(); err != nil {
		return err
	}
	w.in, w.out = json.NewEncoder(stdin), json.NewDecoder(stdout)
	told := d.serve(ctx, w)
	if told != nil {
		_ = stdin.Close()
	}
	_, _ = io.Copy(io.Discard, stdout)
	err = w.cmd.Wait()
	d.mu.Lock()
	killed := d.ledger.dead == name
	d.mu.Unlock()
	switch {
	case killed, err == nil && told == nil, ctx.Err() != nil:
		return nil
	case err == nil:
		return told
	}
	if text := strings.TrimSpace(w.stderr.String()); text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// serve answers a worker's events until it has no more.
func (d *demo) serve(ctx context.Context, w *process) error {
	for {
		var e event
		if err := w.out.Decode(&e); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // it may have been killed in the middle of a line
				return nil
			}
			return err
		}
		if e.Kind == kindReady && !d.ready(ctx) {
			return nil
		}
		// What is wrong with a pipe that a worker has left shows in how it ended.
		_ = w.in.Encode(d.take(ctx, w, e))
	}
}

// ready waits for all workers to be connected.
func (d *demo) ready(ctx context.Context) bool {
	d.mu.Lock()
	d.unready--
	if d.unready == 0 {
		d.print.begin()
		close(d.begin)
	}
	d.mu.Unlock()
	select {
	case <-d.begin:
		return true
	case <-ctx.Done():
		return false
	}
}

// take enters an event into the ledger and prints it.
func (d *demo) take(ctx context.Context, w *process, e event) (r reply) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil || d.ledger.dead == w.name {
		return r
	}
	switch e.Kind {
	case kindWaits:
		d.queued(w.name)
		d.print.line(w.name, "waits", "behind %s%s", e.Behind, further(e.Ahead))
	case kindHolds:
		delete(d.waiting, w.name)
		orphaned := d.ledger.dead != "" && d.ledger.heir == ""
		if !d.ledger.enter(w.name, e.Token) {
			return reply{Refused: d.ledger.token}
		}
		after := ""
		if orphaned {
			d.tookOver = time.Since(d.killedAt)
			after = fmt.Sprintf(", %.2f s after the kill: the session of %s has ended", d.tookOver.Seconds(), d.ledger.dead)
		}
		d.print.line(w.name, "HOLDS", "token %d%s", e.Token, after)
		// Until somebody is dead nobody finishes a second round, so there is always a worker left to take over.
		if d.ledger.dead == "" && d.ledger.done[w.name] > 0 {
			r.Hang = true
			d.choose(ctx, w)
		}
	case kindWorks:
		if !d.ledger.access(w.name, e.Token) {
			return reply{Refused: d.ledger.token}
		}
	case kindDone:
		if !d.ledger.leave(w.name, e.Token) {
			return reply{Refused: d.ledger.token}
		}
		d.print.line(w.name, "done", "gives token %d back", e.Token)
	case kindLost:
		d.ledger.lost(w.name)
		d.print.line(w.name, "LOST", "token %d: %s", e.Token, e.Text)
	case kindBroken:
		d.print.line(w.name, "BROKEN", "has token %d and believes that it holds, but %s", e.Token, e.Text)
		d.fail(fmt.Errorf("EXCLUSION BROKEN: %s was refused with token %d while it held the lock: %s", w.name, e.Token, e.Text))
	}
	return r
}

func further(ahead int) string {
	if ahead < 2 {
		return ""
	}
	return fmt.Sprintf(", %d ahead", ahead)
}

// queued notes that a worker waits.
func (d *demo) queued(name string) {
	d.waiting[name] = true
	if d.audience != nil {
		close(d.audience)
		d.audience = nil
	}
}

// choose makes the holder the victim, which is killed in the middle of its work, when somebody waits for it.
func (d *demo) choose(ctx context.Context, w *process) {
	audience := make(chan struct{})
	d.audience = audience
	if len(d.waiting) > 0 {
		close(audience)
		d.audience = nil
	}
	go func() {
		work := time.NewTimer(d.config.hold / 2)
		defer work.Stop()
		select {
		case <-work.C:
		case <-ctx.Done():
			return
		}
		select {
		case <-audience:
		case <-ctx.Done():
			return
		}
		d.kill(w)
	}()
}

// kill kills a worker while it holds. If its lease was lost in the meantime another victim is found.
func (d *demo) kill(w *process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ledger.killed(w.name) {
		return
	}
	if err := w.cmd.Process.Kill(); err != nil {
		d.fail(fmt.Errorf("%s, to be killed: %w", w.name, err))
		return
	}
	d.killedAt = time.Now()
	d.print.line(w.name, "KILLED", "with SIGKILL while it holds token %d: nobody gives it back, its znode stays until its session ends", d.ledger.token)
}
