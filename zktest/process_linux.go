package zktest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// childAttr makes the kernel kill the child when its parent dies, even by
// SIGKILL, which runs no clean-up.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// apart puts a child where signals to this process's group do not reach it.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// halted tells whether every thread of a process has obeyed a SIGSTOP. The
// signal is only queued when kill returns; a thread on another core can still
// answer a request after that.
func halted(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range stats {
		b, err := os.ReadFile(name)
		// pid (name of the thread) state ...
		if i := bytes.LastIndexByte(b, ')'); err != nil || i < 0 || i+2 >= len(b) || b[i+2] != 'T' {
			return false
		}
	}
	return true
}
