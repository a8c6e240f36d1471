package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

// A job is CMD, which runs while a lease is held. It may run several times, one after the other.
type job struct {
	file     string // what argv[0] was found to be
	argv     []string
	path     string // of the lock, for its environment
	grace    time.Duration
	terminal bool // CMD gets the terminal at once, not only when it asks for it
	revoke   bool // a request to give the lock back is passed on
	signals  chan os.Signal
	tell     func(format string, args ...any)
}

// An outcome is how a run of CMD ended.
type outcome struct {
	code   int            // its exit code, or 128 and the signal's number
	killed syscall.Signal // what ended it, if a signal did
	lost   error          // the lease's end, if it came first
	asked  []os.Signal    // those that were passed on to it
	ran    time.Duration
	tty    bool // it had the terminal when it ended
}

// killedAfterLoss is the default of -grace. A lease ends two thirds of the session timeout after the last proof of life, so a third is left before anybody
// else is granted. The server may have granted a shorter timeout than was asked for, so it is not taken from a long one.
func killedAfterLoss(timeout time.Duration) time.Duration { return min(timeout/6, 3*time.Second) }

// find looks CMD up before anything is locked for it.
func (j *job) find() error {
	file, err := exec.LookPath(j.argv[0])
	switch {
	case err == nil:
		j.file = file
		return nil
	case errors.Is(err, fs.ErrPermission):
		return exit(exitNotStarted, "%v: no program that may be executed", err)
	}
	return exit(exitNotFound, "%v: see that the command is installed on this host, or give its whole path", err)
}

// environment is this process's, and what a lock's holder wants to know.
func (j *job) environment(lease *zkrecipes.Lease) []string {
	own := map[string]string{
		"ZKLOCK_TOKEN": strconv.FormatInt(int64(lease.Token()), 10),
		"ZKLOCK_OWNER": string(lease.Owner()),
		"ZKLOCK_PATH":  j.path,
	}
	var env []string
	for _, each := range os.Environ() {
		name, _, _ := strings.Cut(each, "=")
		if _, replaced := own[name]; !replaced {
			env = append(env, each)
		}
	}
	for name, value := range own {
		env = append(env, name+"="+value)
	}
	return env
}

// run runs CMD, if the lease is held, until it has ended, and after a loss until nothing of its process group is left. An error says that it did not start.
func (j *job) run(lease *zkrecipes.Lease) (o outcome, err error) {
	if o.lost = lease.Err(); o.lost != nil {
		return o, nil // before it began
	}
	p, err := start(j.file, j.argv, j.environment(lease), j.terminal, j.signals)
	if err != nil {
		return o, exit(exitNotStarted, "%s: %v", j.argv[0], err)
	}
	defer p.close()
	begin := time.Now()
	lost, revoked := lease.Done(), lease.Revoked()
	var kill <-chan time.Time
	for {
		select {
		case c := <-p.changes:
			if !c.ended {
				if p.stopped(c.signal, lost) {
					p.proceed(lease.Err() == nil)
				}
				break
			}
			o.code, o.killed, o.ran = c.code, c.signal, time.Since(begin)
			o.tty = p.withdraw()
			if err := lease.Err(); err != nil && o.lost == nil {
				o.lost = err
			}
			if o.lost != nil {
				p.finish(kill)
			}
			return o, nil
		case s := <-j.signals:
			o.asked = append(o.asked, s)
			p.forward(s)
		case <-p.resumed:
			p.proceed(lease.Err() == nil)
		case <-lost:
			lost, o.lost = nil, lease.Err()
			j.tell("%v; SIGTERM to the command, SIGKILL in %v", reason(o.lost), j.grace)
			p.terminate()
			kill = time.After(j.grace)
		case <-revoked:
			revoked = nil
			if !j.revoke {
				j.tell("somebody asks to give the lock back; without -revocable the command is not told")
				break
			}
			j.tell("somebody asks to give the lock back; SIGTERM to the command")
			p.terminate()
		case <-kill:
			kill = nil
			p.kill()
		}
	}
}

// reason says why a lease ended.
func reason(err error) string {
	if l, ok := errors.AsType[*zkrecipes.LostError](err); ok {
		return "the lease is lost: " + l.Reason.String()
	}
	return fmt.Sprint("the lease is lost: ", err)
}

// A signalled is the cause with which a wait ends that a signal ended.
type signalled struct{ signal os.Signal }

func (s signalled) Error() string { return fmt.Sprintf("%v while waiting", s.signal) }

func (s signalled) exit() error {
	n, _ := s.signal.(syscall.Signal)
	return exit(exitSignal+int(n), "%v", s)
}

// untilSignal returns a ctx that ends with the next signal. When stop has returned it takes none any more; if it took one before, ctx has ended.
func untilSignal(ctx context.Context, signals <-chan os.Signal) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case s := <-signals:
				if !stops(s) {
					cancel(signalled{s})
					return
				}
				stopGroup() // nothing is held yet
			case <-over:
				return
			}
		}
	}()
	var once bool
	return ctx, func() {
		if !once {
			once = true
			close(over)
			<-stopped
		}
	}
}

// interrupted is the exit of a wait that a signal ended, or nil.
func interrupted(ctx context.Context) error {
	if s, ok := errors.AsType[signalled](context.Cause(ctx)); ok {
		return s.exit()
	}
	return nil
}

// exit is how zklock ends after CMD.
func (o outcome) exit() error {
	switch {
	case o.lost != nil && o.ran == 0:
		return exit(exitLost, "%s; the command was not started", reason(o.lost))
	case o.lost != nil:
		return exit(exitLost, "%s; somebody else may have held the lock before the command had ended (exit code %d)", reason(o.lost), o.code)
	case o.code == 0:
		return nil
	case o.tty && o.killed == syscall.SIGINT:
		// Ctrl-C reached CMD's group only. Without it a shell would have got it, too, and would end the loop that this is in.
		return &exitError{code: o.code, raise: o.killed}
	}
	return &exitError{code: o.code}
}
