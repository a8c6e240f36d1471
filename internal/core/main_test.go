package core

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

func TestMain(m *testing.M) {
	realOnly := []string{"TestServerSetBack", "TestEndSession", "TestCloseLeavesNoSession", "TestMissingNodeLeavesNoWatch", "TestHubUnderChurn"} // the data of a server, its own words
	os.Exit(testrun.Main(m, realOnly, zktest.CloseShared))
}

// testTimeout is the session timeout of most tests: ten ticks of the test server.
const testTimeout = 2 * time.Second

var world = zk.WorldACL(zk.PermAll)

var pathCount atomic.Int64

// newPath returns a path that no other test uses.
func newPath(t testing.TB) string {
	return fmt.Sprintf("/core-%d-%s-%d", os.Getpid(), strings.NewReplacer("/", "_", " ", "_").Replace(t.Name()), pathCount.Add(1))
}

// quiet is a logger whose lines show only when the test fails.
func quiet(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	defer func() { _ = recover() }() // the test is over
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, d time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(d)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", d, what)
		}
		time.Sleep(2 * time.Millisecond) // a poll of a condition with a deadline, not a synchronisation
	}
}

// virtual runs f in virtual time, which the clock that goes on while a machine is suspended follows too. It needs a fake server: nothing in it may wait
// for the outside.
func virtual(t *testing.T, f func(*testing.T)) {
	t.Helper()
	setSuspendClock(t, func() time.Duration { return time.Duration(time.Now().UnixNano()) })
	synctest.Test(t, func(t *testing.T) {
		// A goroutine that is left at the end fails the test; one of a client that was closed in the middle of something is given its second.
		t.Cleanup(func() { pass(5 * time.Second) })
		f(t)
	})
}

// pass lets virtual time pass, and all that happens in it settle.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// setSuspendClock replaces the clock until the test ends, and has it asked each time. Tests of this package do not run in parallel.
func setSuspendClock(t *testing.T, f func() time.Duration) {
	old, since := suspendClock, monotonicSince
	suspendClock, monotonicSince = f, func(time.Time) time.Duration { return fresh }
	t.Cleanup(func() { suspendClock, monotonicSince = old, since })
}

// A recorder is a Listener that notes what it is told, in order.
type recorder struct {
	onState func(State) // called before it is noted

	mu     sync.Mutex
	calls  []string
	states []State
	inside int // calls of StateChanged under way
	nested int // how many of them began during another one
}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *recorder) SessionOver(session int64) { r.note("over %x", session) }
func (r *recorder) ClockOut(session int64)    { r.note("clock %x", session) }
func (r *recorder) Disconnected()             { r.note("disconnected") }

func (r *recorder) StateChanged(s State) {
	r.mu.Lock()
	if r.inside++; r.inside > 1 {
		r.nested++
	}
	r.mu.Unlock()
	if r.onState != nil {
		r.onState(s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside--
	r.states = append(r.states, s)
	r.calls = append(r.calls, stateNames[s])
}

var stateNames = map[State]string{Suspended: "suspended", Connected: "connected", Lost: "lost", Closed: "closed"}

// told returns what was told so far.
func (r *recorder) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.calls...)
}

func (r *recorder) count(call string) (n int) {
	for _, c := range r.told() {
		if c == call {
			n++
		}
	}
	return n
}

func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls, r.states = nil, nil
}

// newEngine makes an engine with defaults for what cfg leaves out, and does not start it.
func newEngine(t testing.TB, cfg Config) (*Engine, *recorder) {
	t.Helper()
	r := &recorder{}
	if cfg.Listener == nil {
		cfg.Listener = r
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = testTimeout
	}
	if cfg.ACL == nil {
		cfg.ACL = world
	}
	if cfg.Logger == nil {
		cfg.Logger = quiet(t)
	}
	return New(cfg), r
}

// start makes an engine that is closed with the test, and starts it.
func start(t testing.TB, cfg Config) (*Engine, *recorder) {
	t.Helper()
	e, r := newEngine(t, cfg)
	require.NoError(t, e.Start())
	t.Cleanup(func() { closeWithin(e, 5*time.Second) })
	return e, r
}

func closeWithin(e *Engine, d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return e.Close(ctx)
}

// connect starts an engine and waits for its session.
func connect(t testing.TB, cfg Config) (*Engine, *recorder) {
	t.Helper()
	e, r := start(t, cfg)
	await(t, e)
	return e, r
}

// await waits for a session, and until the tracker has done with what it was told so far: it wakes all subscribers after it has opened the gate.
func await(t testing.TB, e *Engine) Epoch {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	epoch, err := e.Await(ctx)
	require.NoError(t, err, "%v", e.DialError())
	settled := make(chan struct{})
	if e.tracker.Add(func() { close(settled) }) {
		<-settled
	}
	return epoch
}

// connectShared connects to the server that the tests share, through a proxy.
func connectShared(t testing.TB, cfg Config) (*Engine, *recorder, *zktest.Proxy) {
	t.Helper()
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	cfg.Servers = []string{p.Addr()}
	e, r := connect(t, cfg)
	return e, r, p
}

// do runs a request and fails the test when it fails.
func do(t testing.TB, e *Engine, fn func(Conn) error) Span {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	span, err := e.Do(ctx, fn)
	require.NoError(t, err)
	return span
}

// mk makes a persistent znode.
func mk(t testing.TB, e *Engine, path string, data string) {
	t.Helper()
	do(t, e, func(c Conn) error {
		_, err := c.Create(path, []byte(data), 0, world)
		return err
	})
}

func word(t testing.TB, s *zktest.Member, w string) string {
	t.Helper()
	answer, err := s.FourLetter(within(t, 5*time.Second), w)
	require.NoError(t, err)
	return answer
}

// expire ends the engine's session at the server.
func expire(t testing.TB, p *zktest.Proxy) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	require.NoError(t, p.Expire(ctx))
}

// owner returns the source of an engine that owns its connection.
func owner(e *Engine) *owned { return e.source.(*owned) }
