package core

import (
	"syscall"
	"time"
	"unsafe"
)

// readSuspendClock reads CLOCK_BOOTTIME, which counts suspended time and is never set.
func readSuspendClock() time.Duration {
	const clockBoottime = 7
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
