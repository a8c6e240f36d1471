package main

import "syscall"

// dieWithParent lets the kernel kill CMD when zklock has died, however it did: nobody would renew the lease, nor tell CMD of its end.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
