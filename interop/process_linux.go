package interop

import "syscall"

// childAttr makes the kernel kill the child when its parent dies, even by SIGKILL, which runs no clean-up.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
