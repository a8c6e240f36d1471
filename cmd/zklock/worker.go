package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

// An event is one line from a worker to the demo that started it.
type event struct {
	At     int64  `json:"at"` // Unix time in nanoseconds; all processes share one machine
	Worker string `json:"worker"`
	Kind   string `json:"kind"`
	Behind string `json:"behind,omitempty"` // waits
	Ahead  int    `json:"ahead,omitempty"`  // waits
	Token  int64  `json:"token,omitempty"`  // holds, done, lost
	Text   string `json:"text,omitempty"`
}

// Kinds of events.
const (
	kindReady  = "ready"  // connected; waits for a byte on stdin
	kindWaits  = "waits"  // somebody is ahead
	kindHolds  = "holds"  // granted
	kindDone   = "done"   // the critical section is over; sent before the release
	kindLost   = "lost"   // the lease ended by itself
	kindFailed = "failed" // an error that ends the worker
)

// workerConfig is what the demo tells a worker.
type workerConfig struct {
	servers, path, name, counter string
	rounds, hang                 int
	hold, timeout                time.Duration
	unlocked                     bool
}

func (c *workerConfig) flags() *flag.FlagSet {
	fs := flag.NewFlagSet("demo-worker", flag.ContinueOnError)
	fs.StringVar(&c.servers, "servers", "", "connect string")
	fs.StringVar(&c.path, "path", "", "the lock")
	fs.StringVar(&c.name, "name", "", "of this worker")
	fs.StringVar(&c.counter, "counter", "", "file with the number that nothing but the lock protects")
	fs.IntVar(&c.rounds, "rounds", 1, "how many times to take the lock")
	fs.IntVar(&c.hang, "hang", -1, "round in which to hold on until killed")
	fs.DurationVar(&c.hold, "hold", time.Second, "how long to hold it")
	fs.DurationVar(&c.timeout, "timeout", 2*time.Second, "session timeout")
	fs.BoolVar(&c.unlocked, "unlocked", false, "do not lock: shows that the demo notices")
	return fs
}

func (c *workerConfig) args() []string {
	return []string{
		"demo-worker", "-servers", c.servers, "-path", c.path, "-name", c.name, "-counter", c.counter, "-rounds", strconv.Itoa(c.rounds),
		"-hang", strconv.Itoa(c.hang), "-hold", c.hold.String(), "-timeout", c.timeout.String(), "-unlocked=" + strconv.FormatBool(c.unlocked),
	}
}

// runWorker is one process of the demo. It tells what it does in JSON lines on stdout, begins when it gets a byte on stdin, and ends when stdin does: with
// whoever started it.
func runWorker(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var c workerConfig
	if err := parse(c.flags(), args, stderr); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := make(chan struct{})
	go func() {
		if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
			close(started)
			_, _ = io.Copy(io.Discard, os.Stdin)
		}
		cancel()
	}()
	var mu sync.Mutex
	out := json.NewEncoder(stdout)
	say := func(e event) {
		mu.Lock()
		defer mu.Unlock()
		e.At, e.Worker = time.Now().UnixNano(), c.name
		_ = out.Encode(e)
	}
	if err := c.work(ctx, started, say); err != nil && ctx.Err() == nil {
		say(event{Kind: kindFailed, Text: err.Error()})
		return err
	}
	return nil
}

func (c *workerConfig) work(ctx context.Context, started <-chan struct{}, say func(event)) error {
	servers, namespace, err := zkrecipes.ParseConnectString(c.servers)
	if err != nil {
		return err
	}
	var mutex *zkrecipes.Mutex
	var session *zkrecipes.Session
	session, err = zkrecipes.Dial(ctx, servers, zkrecipes.WithNamespace(namespace), zkrecipes.WithTimeout(c.timeout),
		zkrecipes.WithLogger(slog.New(slog.DiscardHandler)),
		zkrecipes.WithTrace(&zkrecipes.Trace{Waiting: func(ctx context.Context, _, _ string, ahead int) {
			say(event{Kind: kindWaits, Behind: predecessor(ctx, mutex, session.ID()), Ahead: ahead})
		}}))
	if err != nil {
		return err
	}
	defer session.Close()
	mutex = zkrecipes.NewMutex(session, c.path, zkrecipes.WithOwner(zkrecipes.Owner(c.name)))
	say(event{Kind: kindReady})
	select {
	case <-started:
	case <-ctx.Done():
		return ctx.Err()
	}
	for round := range c.rounds {
		if err := c.round(ctx, mutex, round, say); err != nil {
			return err
		}
	}
	return nil
}

// predecessor names who stands right before this session in the queue.
func predecessor(ctx context.Context, m *zkrecipes.Mutex, session int64) string {
	ps, err := m.Participants(ctx)
	if err != nil {
		return "?"
	}
	for i, p := range ps {
		if p.Session == session && i > 0 {
			return string(ps[i-1].Owner)
		}
	}
	return "" // the turn came while we asked
}

// round takes the lock, reads the counter, holds on, and writes the counter back: an increment is missing if anybody else did so meanwhile.
func (c *workerConfig) round(ctx context.Context, mutex *zkrecipes.Mutex, round int, say func(event)) error {
	var token int64
	lost := func() <-chan struct{} { return nil }
	if !c.unlocked {
		lease, err := mutex.Lock(ctx)
		if err != nil {
			return err
		}
		defer lease.Release(context.WithoutCancel(ctx))
		token, lost = int64(lease.Token()), lease.Done
	}
	say(event{Kind: kindHolds, Token: token})
	n, err := readCounter(c.counter)
	if err != nil {
		return err
	}
	hold := time.After(c.hold)
	if round == c.hang {
		hold = nil
	}
	select {
	case <-hold:
	case <-lost():
		say(event{Kind: kindLost, Token: token})
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := os.WriteFile(c.counter, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
		return err
	}
	say(event{Kind: kindDone, Token: token})
	return nil
}

func readCounter(file string) (int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("EXCLUSION BROKEN: the counter was read while it was written: %w", err)
	}
	return n, nil
}
