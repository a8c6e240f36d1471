package interop

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// answerTimeout bounds an answer where the caller's ctx has no deadline: a child that is stuck fails its test.
const answerTimeout = 30 * time.Second

// A Process is one child with clients of one kind. Its methods may be called by any goroutine.
type Process struct {
	kind   Kind
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr tail
	done   chan struct{} // closed when the child has ended and was waited for
	err    error         // how it ended; read it after done

	writing sync.Mutex // not mu, which the reader needs while a write may wait for the child

	mu      sync.Mutex
	calls   int
	waiting map[string]chan string // by id; each takes one answer
	peers   map[string]*Peer
}

// startProcess starts the command.
func startProcess(kind Kind, cmd *exec.Cmd) (*Process, error) {
	p := &Process{kind: kind, cmd: cmd, done: make(chan struct{}), waiting: make(map[string]chan string), peers: make(map[string]*Peer)}
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = &p.stderr
	cmd.SysProcAttr = childAttr()
	cmd.WaitDelay = time.Second
	started := make(chan error)
	go func() {
		// The kernel sends the child its death signal when the thread that forked it ends, not when the process does. So that thread is kept for this
		// goroutine and this goroutine for the child. It is not unlocked: the thread goes with it.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.read(out) // to its end, before Wait closes the pipe
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("interop: cannot start %s: %w", kind, err)
	}
	return p, nil
}

// read takes what the child says.
func (p *Process) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		id, text, _ := strings.Cut(lines.Text(), " ")
		p.mu.Lock()
		if id == "event" {
			name, event, _ := strings.Cut(text, " ")
			if peer := p.peers[name]; peer != nil {
				select {
				case peer.events <- event:
				default: // nobody reads them
				}
			}
		} else if answer := p.waiting[id]; answer != nil {
			delete(p.waiting, id)
			answer <- text
		}
		p.mu.Unlock()
	}
}

// call sends one request and waits for its answer, until ctx is done or, if that has no deadline, answerTimeout has passed, or the child has ended.
func (p *Process) call(ctx context.Context, peer string, words ...string) (string, error) {
	answer := make(chan string, 1)
	p.mu.Lock()
	p.calls++
	id := strconv.Itoa(p.calls)
	p.waiting[id] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.waiting, id)
		p.mu.Unlock()
	}()
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("%s: %s: %w", p.kind, strings.Join(words, " "), err)
	}
	p.writing.Lock()
	_, err := fmt.Fprintln(p.in, id, peer, strings.Join(words, " "))
	p.writing.Unlock()
	if err != nil {
		return fail(errors.Join(err, p.ended()))
	}
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, answerTimeout)
		defer cancel()
	}
	var text string
	select {
	case text = <-answer:
	case <-ctx.Done():
		return fail(fmt.Errorf("no answer: %w", ctx.Err()))
	case <-p.done:
		select {
		case text = <-answer: // the last words
		default:
			return fail(p.ended())
		}
	}
	switch verdict, rest, _ := strings.Cut(text, " "); verdict {
	case "ok":
		return rest, nil
	case "error":
		return fail(errors.New(rest))
	default:
		return fail(fmt.Errorf("answered %q", text))
	}
}

// ended says how the child ended, if it has.
func (p *Process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("the process has ended (%v), standard error:\n%s", p.err, p.stderr.String())
	default:
		return nil
	}
}

// Kill ends the child at once, as a crash would: the sessions of its peers live on until they time out. It waits for the end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // the only failure is that it has ended
	<-p.done
}

// Close ends the child, by the end of its standard input or, if it does not heed that, by force. The sessions of peers that were not closed live on
// until they time out.
func (p *Process) Close() {
	_ = p.in.Close()
	patience := time.NewTimer(5 * time.Second)
	defer patience.Stop()
	select {
	case <-p.done:
	case <-patience.C:
		p.Kill()
	}
}

// tail is the end of what was written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailSize = 8 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if over := len(t.b) - tailSize; over > 0 {
		t.b = bytes.Clone(t.b[over:])
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
