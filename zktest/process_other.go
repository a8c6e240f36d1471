//go:build !linux

package zktest

import "syscall"

// childAttr is empty: only Linux can tie the life of a child to its parent's.
func childAttr() *syscall.SysProcAttr { return nil }

// halted cannot be asked for here.
func halted(int) bool { return true }

// apart is for what runs on Linux only.
func apart() *syscall.SysProcAttr { return nil }
