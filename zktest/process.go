package zktest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// process is one child, from its start to its end.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and was waited for
	err  error         // of Wait; read it after done
}

// startProcess starts java with both outputs appended to logFile.
func startProcess(java string, args []string, dir, logFile string) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(java, args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttr()
	p := &process{cmd: cmd, done: make(chan struct{})}
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
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("zktest: cannot start %s: %w", java, err)
	}
	return p, nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process at once, paused or not, and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // the only failure is that it has ended
	<-p.done
}

// terminate asks the process to end and waits for it.
func (p *process) terminate() {
	if p.cmd.Process.Signal(syscall.SIGTERM) != nil {
		_ = p.cmd.Process.Kill() // no such signal on this system
	}
	_ = resume(p.cmd.Process) // a paused process would not hear of it
	<-p.done
}

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
