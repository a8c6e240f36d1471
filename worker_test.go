package zkrecipes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// The tests that need processes run this test binary again; TestMain then calls testWorker instead of the tests. Parent and worker talk by lines: the
// worker prints "ready" when it has a session, is sent "go", and prints its report as JSON when it has done its part. It stops early when its
// standard input ends, so it never outlives its parent.

const (
	workerRole = "ZKRECIPES_TEST_WORKER"
	workerTask = "ZKRECIPES_TEST_TASK"
	// workerLimit bounds a worker that is stuck; the parent's patience ends sooner.
	workerLimit = 100 * time.Second
)

// A task is what a worker is told.
type task struct {
	Servers  []string
	Timeout  time.Duration
	Path     string
	Rounds   int           // 0: until stopped
	Counter  string        // a file with a number, protected by nothing but the lock; empty: none
	Register string        // host:port of a register; empty: none
	Name     string        // who it is to the register
	Way      way           // how it comes to its Session
	Linger   time.Duration // at most, between a read and the write
}

// A report is what a worker answers.
type report struct {
	Rounds  int      // times that fn ran
	Lost    int      // rounds after which Do said that the lease had been lost
	Counted int      // increments of the file
	Written int      // increments that the register took
	Refused int      // accesses that the register refused, from a lease that had been reported lost by then
	GaveUp  []string // errors of Lock that are not the end of ctx
	Wrong   []string // what must never happen
}

func testWorker(role string) int {
	if err := work(role); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func work(role string) error {
	part := map[string]func(task, context.Context, *Session) (report, error){"increment": task.increment, "read": task.read}[role]
	if part == nil {
		return fmt.Errorf("no such role: %q", role)
	}
	var t task
	if err := json.Unmarshal([]byte(os.Getenv(workerTask)), &t); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), workerLimit)
	defer cancel()
	s, closed, err := t.session(ctx, WithName("worker"), WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	if err != nil {
		return err
	}
	defer closed()
	fmt.Fprintln(os.Stdout, "ready")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return fmt.Errorf("before go: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	r, err := part(t, ctx, s)
	if err != nil {
		return err
	}
	_ = s.Close() // what it cannot reach it cannot close
	return json.NewEncoder(os.Stdout).Encode(r)
}

// session opens a Session in the task's way, and waits until it has a session.
func (t task) session(ctx context.Context, opts ...SessionOption) (s *Session, closed func(), err error) {
	if t.Way == dialed {
		dopts := []DialOption{WithTimeout(t.Timeout)}
		for _, o := range opts {
			dopts = append(dopts, o)
		}
		s, err = Dial(ctx, t.Servers, dopts...)
		return s, func() {}, err
	}
	dialer, opt := TrackContact(nil)
	if t.Way == observed {
		dialer, opt = net.DialTimeout, WithTimeout(t.Timeout)
	}
	servers := t.Servers
	for len(servers) < 3 { // a client with one server sleeps a second before each reconnect
		servers = append(slices.Clone(servers), servers[0])
	}
	conn, events, err := zk.Connect(servers, t.Timeout, zk.WithDialer(dialer), zk.WithLogger(discard{}))
	if err != nil {
		return nil, nil, err
	}
	go func() {
		for range events {
		}
	}()
	if s, err = NewSession(conn, nil, append(opts, opt)...); err == nil {
		_, err = s.engine.Await(ctx)
	}
	return s, conn.Close, err
}

// increment increments the counter and the register under the lock.
func (t task) increment(ctx context.Context, s *Session) (r report, err error) {
	var reg *registerClient
	if t.Register != "" {
		if reg, err = dialRegister(t.Register); err != nil {
			return r, err
		}
		defer reg.Close()
	}
	m := NewMutex(s, t.Path)
	for ctx.Err() == nil && (t.Rounds == 0 || r.Rounds < t.Rounds) {
		var fatal error
		ran := false
		err := Do(ctx, m, func(ctx context.Context) error {
			ran = true
			r.Rounds++
			if reg != nil {
				lease, _ := LeaseFromContext(ctx)
				fatal = reg.increment(lease, t, &r)
			}
			if t.Counter != "" && fatal == nil {
				if fatal = incrementFile(t.Counter, t.Linger); fatal == nil {
					r.Counted++
				}
			}
			return nil
		})
		switch {
		case fatal != nil:
			return r, fatal
		case err == nil:
		case ran && errors.Is(err, ErrLost):
			r.Lost++
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		default:
			r.GaveUp = append(r.GaveUp, err.Error())
		}
	}
	return r, nil
}

// read holds the shared side of a read/write lock for a time, again and again.
func (t task) read(ctx context.Context, s *Session) (r report, err error) {
	l := NewRWLock(s, t.Path).RLocker()
	for ctx.Err() == nil && (t.Rounds == 0 || r.Rounds < t.Rounds) {
		err := Do(ctx, l, func(ctx context.Context) error {
			r.Rounds++
			select {
			case <-time.After(t.Linger):
			case <-ctx.Done():
			}
			return nil
		})
		switch {
		case err == nil:
		case errors.Is(err, ErrLost):
			r.Lost++
		case ctx.Err() == nil:
			r.GaveUp = append(r.GaveUp, err.Error())
		}
	}
	return r, nil
}

// incrementFile reads a number and writes it back, plus one. Whoever does so at the same time loses an increment, or reads half a number.
func incrementFile(name string, linger time.Duration) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return fmt.Errorf("the counter was read while it was written: %w", err)
	}
	<-time.After(rand.N(linger + 1))
	return os.WriteFile(name, []byte(strconv.Itoa(n+1)), 0o600)
}

// A register is a number in a database that knows fencing tokens: it takes a read or a write only with a token that is not smaller than the greatest
// it has seen, so a read by the next holder shuts the last one out. A read and the write that follows it are two accesses; nothing but the lock keeps
// others from coming in between.
type register struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex
	token   Token
	value   int
	written map[string]int // by name
	refused int
	conns   []net.Conn
}

func newRegister(t testing.TB) *register {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := &register{listener: l, written: make(map[string]int)}
	g.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			g.mu.Lock()
			g.conns = append(g.conns, c)
			g.mu.Unlock()
			g.wg.Go(func() { g.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		g.mu.Lock()
		for _, c := range g.conns {
			_ = c.Close()
		}
		g.mu.Unlock()
		g.wg.Wait()
	})
	return g
}

func (g *register) writtenBy(name string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.written[name]
}

// serve answers "read TOKEN" and "write TOKEN VALUE NAME" with "ok VALUE" or "old TOKEN".
func (g *register) serve(c net.Conn) {
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		if _, err := fmt.Fprintln(c, g.access(lines.Text())); err != nil {
			return
		}
	}
}

func (g *register) access(line string) string {
	var verb, name string
	var token Token
	var value int
	_, _ = fmt.Sscan(line, &verb, &token, &value, &name) // a read ends early
	g.mu.Lock()
	defer g.mu.Unlock()
	if token < g.token {
		g.refused++
		return fmt.Sprintf("old %d", g.token)
	}
	g.token = token
	if verb == "write" {
		g.value = value
		g.written[name]++
	}
	return fmt.Sprintf("ok %d", g.value)
}

// A registerClient is a worker's connection to the register.
type registerClient struct {
	net.Conn
	in *bufio.Reader
}

func dialRegister(addr string) (*registerClient, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &registerClient{c, bufio.NewReader(c)}, nil
}

// call makes one access; took is false when the token was refused as old.
func (c *registerClient) call(format string, args ...any) (value int, took bool, err error) {
	if _, err := fmt.Fprintf(c, format+"\n", args...); err != nil {
		return 0, false, err
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		return 0, false, err
	}
	verb, number, _ := strings.Cut(strings.TrimSpace(line), " ")
	value, err = strconv.Atoi(number)
	return value, verb == "ok", err
}

// increment reads the register and writes it back, plus one, some time later; meanwhile it goes on reading, and takes no notice of its lease.
func (c *registerClient) increment(lease *Lease, t task, r *report) error {
	value, took, err := c.call("read %d", lease.Token())
	for end := time.Now().Add(rand.N(t.Linger + 1)); err == nil && took && time.Now().Before(end); {
		<-time.After(min(t.Linger, 2*time.Millisecond))
		value, took, err = c.call("read %d", lease.Token())
	}
	if err == nil && took {
		if _, took, err = c.call("write %d %d %s", lease.Token(), value+1, t.Name); err == nil && took {
			r.Written++
		}
	}
	if err != nil || took {
		return err
	}
	// The register has heard from a later holder. That one was granted before it spoke, so this lease must have been reported lost before now, and
	// the question comes after the answer.
	if lost := lease.Err(); lost == nil {
		r.Wrong = append(r.Wrong, fmt.Sprintf("token %d was refused as old while its lease was still held", lease.Token()))
	} else if !errors.Is(lost, ErrLost) {
		r.Wrong = append(r.Wrong, fmt.Sprintf("token %d was refused as old: %v", lease.Token(), lost))
	}
	r.Refused++
	return nil
}

// A worker is a process of this test binary.
type worker struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr lockedBuffer
	once   sync.Once
	err    error // of the process, when it has ended
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// startWorker starts a process that ends with the test.
func startWorker(t testing.TB, role string, what task) *worker {
	t.Helper()
	exe := binaryFor(t, what.Way)
	text, err := json.Marshal(what)
	require.NoError(t, err)
	w := &worker{cmd: exec.Command(exe)}
	w.cmd.Env = append(os.Environ(), workerRole+"="+role, workerTask+"="+string(text))
	w.cmd.Stderr = &w.stderr
	w.in, err = w.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := w.cmd.StdoutPipe()
	require.NoError(t, err)
	w.out = bufio.NewReader(out)
	require.NoError(t, w.cmd.Start())
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		_ = w.wait()
		if t.Failed() {
			t.Logf("worker %d: %v, standard error:\n%s", w.cmd.Process.Pid, w.err, w.stderr.String())
		}
	})
	return w
}

func (w *worker) wait() error {
	w.once.Do(func() { w.err = w.cmd.Wait() })
	return w.err
}

// ready waits until the worker has a session.
func (w *worker) ready(t testing.TB) {
	t.Helper()
	line, err := w.out.ReadString('\n')
	require.NoError(t, err, "%s", w.stderr.String())
	require.Equal(t, "ready\n", line)
}

func (w *worker) goOn(t testing.TB) {
	t.Helper()
	_, err := io.WriteString(w.in, "go\n")
	require.NoError(t, err)
}

// kill ends a worker as kill -9 does.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.wait()
}

// stop ends a worker that runs until it is stopped.
func (w *worker) stop() { _ = w.in.Close() }

// report waits for the worker to end by itself, as it should.
func (w *worker) report(t testing.TB, limit time.Duration) (r report) {
	t.Helper()
	kill := time.AfterFunc(limit, func() { _ = w.cmd.Process.Kill() })
	defer kill.Stop()
	text, rerr := io.ReadAll(w.out)
	require.NoError(t, w.wait(), "worker %d, standard error:\n%s", w.cmd.Process.Pid, w.stderr.String())
	require.NoError(t, rerr)
	require.NoError(t, json.Unmarshal(text, &r), "%s", text)
	return r
}
