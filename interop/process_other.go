//go:build !linux

package interop

import "syscall"

// childAttr is empty: only Linux can tie the life of a child to its parent's. A child that is not stuck notices the end of its standard input.
func childAttr() *syscall.SysProcAttr { return nil }
