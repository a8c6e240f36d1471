package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// measureFailover kills processes that hold a lock, and lets as many others end in an orderly way, and takes how long the next one waits. The processes are
// this program once more.
func measureFailover(ctx context.Context, s *stand) {
	timeout, n := s.run.size.timeout, s.run.size.killed
	if s.lib.outside {
		n = min(n, 2) // each is a machine of its own
	}
	waits := make([]time.Duration, 2*n)
	holders := make([]holding, 2*n)
	wires := make([]wire, 2*n)
	next := make([]locker, 2*n)
	for i := range holders {
		path := s.path()
		wires[i] = s.newWire()
		next[i] = s.open(ctx, wires[i], timeout).locker(path)
		hold := s.lib.hold
		if hold == nil {
			hold = startHolder
		}
		h, err := hold(ctx, s, path)
		s.must(err)
		holders[i] = h
		s.Cleanup(h.end)
	}
	s.each(2*n, func(i int) error {
		if err := holders[i].held(ctx); err != nil {
			return err
		}
		before := wires[i].traffic()
		granted := make(chan error, 1)
		go func() { granted <- next[i].lock(ctx) }()
		err := s.allWait(ctx, wires[i:i+1], before, 1)
		// At any moment between two signs of life.
		if err == nil {
			err = pause(ctx, rand.N(timeout/3))
		}
		if err != nil {
			return err
		}
		began := time.Now()
		if i < n {
			holders[i].kill()
		} else if err := holders[i].leave(); err != nil {
			return err
		}
		err = <-granted
		waits[i] = time.Since(began)
		if err != nil {
			return err
		}
		return next[i].unlock(ctx)
	})
	for _, w := range waits[:n] {
		s.add(failoverMedian, w.Seconds()/timeout.Seconds())
	}
	s.add(failoverSlowest, slices.Max(waits[:n]).Seconds()/timeout.Seconds())
	for _, w := range waits[n:] {
		s.add(orderlyExit, w.Seconds()*1000)
	}
}

// holding is a process that holds a lock.
type holding interface {
	held(context.Context) error // waits until it does
	kill()
	leave() error // begins an orderly exit
	end()         // cleans up
}

// A holder is this program once more.
type holder struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	errs strings.Builder
	once sync.Once // for its end
}

const (
	holderRole = "ZKRECIPES_BENCH_HOLDER" // library, server, path and timeout
	lineHeld   = "held\n"
	lineLeave  = "leave\n"
)

func startHolder(ctx context.Context, s *stand, path string) (holding, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h := &holder{cmd: exec.CommandContext(ctx, self)}
	h.cmd.Env = append(os.Environ(), holderRole+"="+strings.Join([]string{s.lib.name, s.server(), path, s.run.size.timeout.String()}, " "))
	h.cmd.Stderr = &h.errs
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h.out = bufio.NewReader(out)
	return h, h.cmd.Start()
}

func (h *holder) held(context.Context) error {
	if line, err := h.out.ReadString('\n'); line != lineHeld {
		h.kill()
		return fmt.Errorf("holder said %q: %v: %s", line, err, h.errs.String())
	}
	return nil
}

// kill is SIGKILL. The end of the process is waited for by its last call.
func (h *holder) kill() {
	_ = h.cmd.Process.Kill() // the only failure is that it has ended
	h.once.Do(func() { _ = h.cmd.Wait() })
}

func (h *holder) end() { h.kill() }

func (h *holder) leave() error {
	_, err := io.WriteString(h.in, lineLeave)
	return err
}

// hold is the process of a holder: it holds the lock until it is told to leave, and ends with whoever started it.
func hold(role string) error {
	words := strings.Fields(role)
	if len(words) != 4 {
		return fmt.Errorf("%s=%q", holderRole, role)
	}
	timeout, err := time.ParseDuration(words[3])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), cellLimit)
	defer cancel()
	opens := map[string]func(context.Context, dialed) (client, error){zkLock: openZKLock, ours: openOurs, etcdName: openEtcd, redsyncName: openRedsync}
	open := opens[words[0]]
	if open == nil {
		return fmt.Errorf("no library %q", words[0])
	}
	c, err := open(ctx, dialed{addr: words[1], timeout: timeout})
	if err != nil {
		return err
	}
	if err := c.locker(words[2]).lock(ctx); err != nil {
		return err
	}
	fmt.Print(lineHeld)
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // its end, too, is the end
	if line != lineLeave {
		return nil
	}
	return c.close()
}
