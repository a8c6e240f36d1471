package zktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// ErrNotOwned is returned by the methods that would stop, start or alter a
// server which was not launched here but named by $ZKTEST_SERVERS.
var ErrNotOwned = errors.New("zktest: this server is not ours to control; a test that stops servers needs Start or Launch")

// errBind is an address already in use; Launch tries other ports then.
var errBind = errors.New("zktest: a port of the server is in use")

const (
	startTimeout = 60 * time.Second // of one server or of a whole ensemble
	pollInterval = 20 * time.Millisecond
)

// Member is one server of an [Ensemble]. Its methods may be called from several
// goroutines; those that start or stop it take turns.
type Member struct {
	ens  *Ensemble
	id   int // from 0
	addr string
	dir  string // configuration, data and log; empty when not owned

	turn sync.Mutex // held while the process is started or stopped

	mu     sync.Mutex
	proc   process // nil before the first start and after a stop
	paused bool
	starts int // names the log: each start has its own
}

// Addr is the server's host:port.
func (s *Member) Addr() string { return s.addr }

// Running tells whether the process runs, paused or not. It is false too after
// the process ended by itself. A server from outside is taken to run.
func (s *Member) Running() bool {
	p, _ := s.process()
	return s.dir == "" || p != nil
}

// process returns the running process, nil if there is none.
func (s *Member) process() (p process, paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.ended() {
		return nil, false
	}
	return s.proc, s.paused
}

// Kill ends the server with SIGKILL, paused or not, and returns when it is
// gone. Its data stays and [Member.Start] goes on from it. A server that does
// not run gives an error.
func (s *Member) Kill() error { return s.end("Kill", process.kill) }

// Stop ends the server with SIGTERM, paused or not, and returns when it is
// gone. Its data stays and [Member.Start] goes on from it. A server that does
// not run gives an error.
func (s *Member) Stop() error { return s.end("Stop", process.terminate) }

func (s *Member) end(verb string, how func(process)) error {
	if s.dir == "" {
		return ErrNotOwned
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	p, _ := s.process()
	if p == nil {
		return s.errorf("%s: it is not running", verb)
	}
	how(p)
	s.mu.Lock()
	s.proc, s.paused = nil, false
	s.mu.Unlock()
	return nil
}

// Start starts a stopped or killed server again, with its data and on the same
// port. A standalone server serves when Start returns; one of a quorum accepts
// connections, and [Ensemble.WaitReady] waits until it serves. A server that
// runs already, or ends during its start, gives an error with the end of its
// log.
func (s *Member) Start() error {
	if s.dir == "" {
		return ErrNotOwned
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	if p, _ := s.process(); p != nil {
		return s.errorf("Start: it is running")
	}
	if s.ens.isClosed() {
		return s.errorf("Start: the ensemble is closed")
	}
	if err := s.launch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if len(s.ens.servers) == 1 {
		return s.await(ctx, s.serves)
	}
	return s.await(ctx, s.accepts)
}

// launch starts the process and waits for nothing.
func (s *Member) launch() error {
	s.mu.Lock()
	s.starts++
	s.mu.Unlock()
	p, err := s.ens.backend.start(s.ens.settings, s.dir, s.log())
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.proc, s.paused = p, false
	s.mu.Unlock()
	return nil
}

// Wipe removes the data of a stopped server, so that it starts as one restored
// from nothing. A running server gives an error.
func (s *Member) Wipe() error {
	if s.dir == "" {
		return ErrNotOwned
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	if p, _ := s.process(); p != nil {
		return s.errorf("Wipe: stop it first")
	}
	// What remains is myid, which says who the server is, not what it knows.
	return os.RemoveAll(filepath.Join(s.dir, "data", "version-2"))
}

// Pause stops the server's process where it stands (SIGSTOP, or docker pause)
// and, on Linux, returns when it does stand. Its port goes on accepting connections, which
// nobody answers. Pausing a paused server does nothing; one that does not run
// gives an error.
func (s *Member) Pause() error { return s.freeze("Pause", true, process.pause) }

// Resume lets a paused server go on. Resuming one that is not paused
// does nothing; one that does not run gives an error.
func (s *Member) Resume() error { return s.freeze("Resume", false, process.resume) }

func (s *Member) freeze(verb string, on bool, how func(process) error) error {
	if s.dir == "" {
		return ErrNotOwned
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	p, paused := s.process()
	if p == nil {
		return s.errorf("%s: it is not running", verb)
	}
	if paused == on {
		return nil
	}
	if err := how(p); err != nil {
		return s.errorf("%s: %w", verb, err)
	}
	s.mu.Lock()
	s.paused = on
	s.mu.Unlock()
	return nil
}

func (s *Member) serves(ctx context.Context) bool { return s.mode(ctx) != "" }

func (s *Member) accepts(ctx context.Context) bool {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// await polls cond until it holds, the process ends or ctx does.
func (s *Member) await(ctx context.Context, cond func(context.Context) bool) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for polls := 1; ; polls++ {
		p, paused := s.process()
		if p == nil {
			return s.failure("ended while it was waited for")
		}
		if paused {
			return nil // it serves no one, by the test's own will
		}
		if cond(ctx) {
			return nil
		}
		if polls%50 == 0 && s.bindFailed() {
			return s.failure("cannot bind a port")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", s.failure("is not ready"), context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// failure is an error with the end of the server's log. It is errBind when the
// log speaks of an address in use.
func (s *Member) failure(what string) error {
	tail := logTail(s.log())
	err := s.errorf("it %s; the end of its log:\n%s", what, tail)
	if s.bindFailed() {
		return fmt.Errorf("%w: %w", errBind, err)
	}
	return err
}

// log is the file with the output of the current or last process.
func (s *Member) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return filepath.Join(s.dir, fmt.Sprintf("server-%d.log", s.starts))
}

// bindFailed looks for an address in use in the log. A server whose quorum port
// is taken does not end, it holds elections for ever.
func (s *Member) bindFailed() bool {
	b, err := os.ReadFile(s.log())
	return err == nil && bytes.Contains(b, []byte("java.net.BindException"))
}

func (s *Member) errorf(format string, args ...any) error {
	return fmt.Errorf("zktest: server %d (%s): "+format, append([]any{s.id, s.addr}, args...)...)
}
