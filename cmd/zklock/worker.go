package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

// An event is one line from a worker to the demo that started it, and a reply the answer to it. A worker does nothing before it has the answer, so an
// answered event has happened before whatever the worker does next, as seen from every process.
type event struct {
	Kind   string `json:"kind"`
	Token  int64  `json:"token,omitempty"`
	Behind string `json:"behind,omitempty"`
	Ahead  int    `json:"ahead,omitempty"`
	Text   string `json:"text,omitempty"`
}

// Kinds of events.
const (
	kindReady  = "ready"  // connected; the answer is the start
	kindWaits  = "waits"  // in the queue, Behind somebody, with Ahead in all before it
	kindHolds  = "holds"  // granted Token
	kindWorks  = "works"  // still holds Token
	kindDone   = "done"   // finished a round; sent before the release
	kindLost   = "lost"   // the lease of Token ended by itself; Text says why
	kindBroken = "broken" // refused with Token, but the lease is held
)

type reply struct {
	Refused int64 `json:"refused,omitempty"` // the greatest token seen, when the event's was older
	Hang    bool  `json:"hang,omitempty"`    // hold on until killed
}

// envUnlocked lets workers go without the lock: a test of the demo, which must notice.
const envUnlocked = "ZKLOCK_DEMO_UNLOCKED"

// workerConfig is what the demo tells a worker.
type workerConfig struct {
	servers, path, name, counter string
	rounds                       int
	hold, timeout                time.Duration
}

func (c *workerConfig) flags() *flag.FlagSet {
	fs := flag.NewFlagSet("demo-worker", flag.ContinueOnError)
	fs.StringVar(&c.servers, "servers", "", "connect string")
	fs.StringVar(&c.path, "path", "", "the lock")
	fs.StringVar(&c.name, "name", "", "of this worker")
	fs.StringVar(&c.counter, "counter", "", "file with the number that nothing but the lock protects")
	fs.IntVar(&c.rounds, "rounds", 1, "how many times to take the lock")
	fs.DurationVar(&c.hold, "hold", time.Second, "how long to hold it")
	fs.DurationVar(&c.timeout, "timeout", 2*time.Second, "session timeout")
	return fs
}

func (c *workerConfig) args() []string {
	return []string{
		"demo-worker", "-servers", c.servers, "-path", c.path, "-name", c.name, "-counter", c.counter,
		"-rounds", strconv.Itoa(c.rounds), "-hold", c.hold.String(), "-timeout", c.timeout.String(),
	}
}

// dial opens a session on a connect string. The demo's lines say what a log would.
func dial(ctx context.Context, connect string, opts ...zkrecipes.DialOption) (*zkrecipes.Session, error) {
	servers, namespace, err := zkrecipes.ParseConnectString(connect)
	if err != nil {
		return nil, usageError{err.Error()}
	}
	return zkrecipes.Dial(ctx, servers, append(opts, zkrecipes.WithNamespace(namespace), zkrecipes.WithLogger(slog.New(slog.DiscardHandler)))...)
}

// A parent is the demo, as its worker sees it.
type parent struct {
	out     *json.Encoder
	replies chan reply // closed when the parent is gone
}

var errGone = errors.New("the demo is gone")

// listen reads answers until the parent is gone.
func (p *parent) listen(gone context.CancelCauseFunc) {
	for in := json.NewDecoder(os.Stdin); ; {
		var r reply
		if in.Decode(&r) != nil {
			break
		}
		p.replies <- r
	}
	close(p.replies)
	gone(errGone)
	// Closing the session takes up to a session timeout when the server went as well. A worker that outlives its demo for longer is worse than a znode that
	// stays until its session ends.
	time.AfterFunc(leaveWithin, func() { os.Exit(exitFailed) })
}

// say sends an event and waits for the answer. It is called by one goroutine only.
func (p *parent) say(e event) (reply, error) {
	if err := p.out.Encode(e); err != nil {
		return reply{}, err
	}
	r, ok := <-p.replies
	if !ok {
		return r, errGone
	}
	return r, nil
}

// runWorker is one process of the demo. It tells what it does on stdout, hears on stdin what to do, and ends when stdin does.
func runWorker(ctx context.Context, args []string, stdout, _ io.Writer) error {
	var c workerConfig
	if err := parse(c.flags(), args, stdout); err != nil {
		return err
	}
	ctx, gone := context.WithCancelCause(ctx)
	defer gone(nil)
	p := &parent{json.NewEncoder(stdout), make(chan reply, 1)} // one event, one answer: listen never waits
	go p.listen(gone)
	if err := c.work(ctx, p); ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}

func (c *workerConfig) work(ctx context.Context, p *parent) error {
	var session *zkrecipes.Session
	var mutex *zkrecipes.Mutex
	session, err := dial(ctx, c.servers, zkrecipes.WithTimeout(c.timeout), zkrecipes.WithTrace(&zkrecipes.Trace{
		// The hook runs in Lock, on this goroutine.
		Waiting: func(ctx context.Context, _, _ string, ahead int) {
			if name := predecessor(ctx, mutex, session.ID()); name != "" {
				_, _ = p.say(event{Kind: kindWaits, Behind: name, Ahead: ahead}) // Lock ends with ctx, too
			}
		},
	}))
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }() // a server that could not be told lets the session time out
	// The owner is a label here, by which the others name this worker: each has a session of its own.
	mutex = zkrecipes.NewMutex(session, c.path, zkrecipes.WithOwner(zkrecipes.Owner(c.name)))
	lock := func(ctx context.Context) (holding, error) { return mutex.Lock(ctx) }
	if os.Getenv(envUnlocked) != "" {
		lock = noLock
	}
	if _, err := p.say(event{Kind: kindReady}); err != nil {
		return err
	}
	for finished := 0; finished < c.rounds; {
		ok, err := c.round(ctx, p, lock)
		if err != nil {
			return err
		}
		if ok {
			finished++
		}
	}
	return nil
}

// predecessor names who stands right before this session in the queue; it is empty when its turn has come meanwhile.
func predecessor(ctx context.Context, m *zkrecipes.Mutex, session int64) string {
	queue, err := m.Participants(ctx)
	if err != nil {
		return "somebody"
	}
	for i, p := range queue {
		if p.Session == session && i > 0 {
			return string(queue[i-1].Owner)
		}
	}
	return ""
}

// A holding is what a round needs of a *zkrecipes.Lease.
type holding interface {
	Token() zkrecipes.Token
	Err() error
	Done() <-chan struct{}
	Release(ctx context.Context) error
}

// round takes the lock, reads the counter, works, and writes the counter back: were anybody else to do so meanwhile, an increment would be missing.
// It reports whether the round is finished; one whose lease was lost is not.
func (c *workerConfig) round(ctx context.Context, p *parent, lock func(context.Context) (holding, error)) (finished bool, err error) {
	lease, err := lock(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		// A lost lease has been told, and its znode is the library's business.
		if e := lease.Release(ctx); err == nil && !errors.Is(e, zkrecipes.ErrLost) {
			err = e
		}
	}()
	token := int64(lease.Token())
	r, err := p.say(event{Kind: kindHolds, Token: token})
	if err != nil {
		return false, err
	}
	if r.Refused != 0 {
		return false, p.refused(lease, r)
	}
	n, err := readCounter(c.counter)
	if err != nil {
		return false, err
	}
	hold := time.NewTimer(c.hold)
	defer hold.Stop()
	if r.Hang {
		hold.Stop()
	}
	tick := time.NewTicker(max(c.hold/4, time.Millisecond))
	defer tick.Stop()
	for working := true; working; {
		select {
		case <-tick.C:
		case <-hold.C:
			working = false
		case <-lease.Done():
		case <-ctx.Done():
			return false, ctx.Err()
		}
		if err := lease.Err(); err != nil {
			return false, p.lost(lease, err)
		}
		r, err := p.say(event{Kind: kindWorks, Token: token})
		if err != nil {
			return false, err
		}
		if r.Refused != 0 {
			return false, p.refused(lease, r)
		}
	}
	if err := os.WriteFile(c.counter, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
		return false, err
	}
	r, err = p.say(event{Kind: kindDone, Token: token})
	if err != nil {
		return false, err
	}
	if r.Refused != 0 {
		return false, p.refused(lease, r)
	}
	return true, nil
}

func (p *parent) lost(lease holding, why error) error {
	text := why.Error()
	if l, ok := errors.AsType[*zkrecipes.LostError](why); ok {
		text = l.Reason.String()
	}
	_, err := p.say(event{Kind: kindLost, Token: int64(lease.Token()), Text: text})
	return err
}

// refused decides whether a refusal is as it should be: somebody else may be inside only if this lease was lost before.
func (p *parent) refused(lease holding, r reply) error {
	if err := lease.Err(); err != nil {
		return p.lost(lease, err)
	}
	_, err := p.say(event{Kind: kindBroken, Token: int64(lease.Token()), Text: fmt.Sprintf("the register has seen token %d", r.Refused)})
	return err
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

// noLock grants at once, and believes that it holds.
func noLock(context.Context) (holding, error) { return unlocked(time.Now().UnixNano()), nil }

type unlocked int64

func (u unlocked) Token() zkrecipes.Token      { return zkrecipes.Token(u) }
func (unlocked) Err() error                    { return nil }
func (unlocked) Done() <-chan struct{}         { return nil }
func (unlocked) Release(context.Context) error { return nil }
