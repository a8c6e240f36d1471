package zktest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// child is a process whose life is tied to this one's where the system can.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and was waited for
}

type childSpec struct {
	name  string
	args  []string
	dir   string
	log   string                 // both outputs are appended to this file
	stdin *os.File               // may be nil
	after func(*os.ProcessState) // runs after the end and before done; may be nil
}

// startChild starts a child and returns when it has been forked.
func startChild(spec childSpec) (*child, error) {
	log, err := os.OpenFile(spec.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(spec.name, spec.args...)
	cmd.Dir = spec.dir
	cmd.Stdout, cmd.Stderr = log, log
	if spec.stdin != nil {
		cmd.Stdin = spec.stdin // a nil *os.File would not be a nil reader
	}
	cmd.SysProcAttr = childAttr()
	c := &child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends the child its death signal when the thread that
		// forked it ends, not when the process does. So that thread is kept
		// for this goroutine and this goroutine for the child. It is not
		// unlocked: the thread goes with it.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
			if spec.after != nil {
				spec.after(cmd.ProcessState)
			}
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("zktest: cannot start %s: %w", spec.name, err)
	}
	return c, nil
}

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// logTail is the end of a log file, for an error message.
func logTail(name string) string {
	const most = 4096
	f, err := os.Open(name)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > most {
		if _, err := f.Seek(-most, io.SeekEnd); err != nil {
			return "(no log: " + err.Error() + ")"
		}
	}
	b, _ := io.ReadAll(f)
	if len(b) == most {
		if _, rest, ok := strings.Cut(string(b), "\n"); ok {
			return rest
		}
	}
	return string(b)
}
