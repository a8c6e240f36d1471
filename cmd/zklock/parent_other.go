//go:build !linux

package main

import "syscall"

// dieWithParent is not to be had here.
func dieWithParent(*syscall.SysProcAttr) {}
