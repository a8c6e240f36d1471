package zktest

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// java is a server that is a child of this process.
type java struct{ *child }

// kill needs no more than the signal: a stopped process obeys this one.
func (j *java) kill() {
	_ = j.cmd.Process.Kill() // the only failure is that it has ended
	<-j.done
}

func (j *java) terminate() {
	if j.cmd.Process.Signal(syscall.SIGTERM) != nil {
		_ = j.cmd.Process.Kill() // no such signal on this system
	}
	_ = resume(j.cmd.Process) // a paused process would not hear of it
	<-j.done
}

func (j *java) pause() error {
	p := j.cmd.Process
	if err := pause(p); err != nil {
		return err
	}
	return waitHalted(p)
}

func (j *java) resume() error { return resume(j.cmd.Process) }

func waitHalted(p *os.Process) error {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(5 * time.Second); !halted(p.Pid); <-ticker.C {
		if time.Now().After(deadline) {
			return errors.New("the process goes on in spite of SIGSTOP")
		}
	}
	return nil
}
