//go:build unix && !solaris && !illumos && !aix

package main

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// waitSignals end a wait for the lock, or stop it; while CMD runs they and passedSignals are its own.
var (
	waitSignals   = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGTSTP}
	passedSignals = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH}
)

// hear notifies of those signals that were not ignored when this process began, as nohup wants it.
func hear(c chan<- os.Signal, signals []os.Signal) {
	// A line for which there is no reader any more must not end zklock while CMD runs. CMD does not inherit this, as it would what is ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}

// A child is CMD in a process group of its own, of which it is the leader.
//
// With a terminal it is a job within a job: the shell knows zklock's group only. When CMD stops, zklock takes the terminal back and stops itself, so that
// the shell sees its job stopped; when the shell continues zklock, and that still has the lease, CMD gets the terminal again and goes on.
type child struct {
	pid     int
	changes <-chan change
	resumed chan os.Signal // SIGCONT to this process
	tty     *terminal      // nil without one
	wants   bool           // the terminal is for CMD whenever it is for zklock
	stop    bool           // CMD was asked to stop, and has not since
}

// A change is a stop of CMD by signal, or its end.
type change struct {
	ended  bool
	code   int
	signal syscall.Signal
}

// start starts CMD, with this process's standard input and outputs.
func start(file string, argv, env []string, terminal bool, signals chan os.Signal) (*child, error) {
	p := &child{resumed: make(chan os.Signal, 1), tty: openTerminal()}
	attr := &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	dieWithParent(attr.Sys)
	if terminal && p.tty != nil && p.tty.foreground() == p.tty.own {
		p.wants = true
		attr.Sys.Foreground, attr.Sys.Ctty = true, p.tty.fd
	}
	type result struct {
		pid int
		err error
	}
	if p.tty != nil {
		// What is ignored CMD would inherit. Reset does not undo Ignore.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU)
	}
	started, changes := make(chan result), make(chan change)
	go func() {
		// The kernel ends CMD with the thread that started it, not with the process: this one is kept for that long.
		runtime.LockOSThread()
		pid, err := syscall.ForkExec(file, argv, attr)
		started <- result{pid, err}
		if err == nil {
			watch(pid, changes)
		}
	}()
	r := <-started
	if p.tty != nil {
		// For the terminal to be taken back from the background, and for a message not to stop zklock where stty tostop is set.
		signal.Ignore(syscall.SIGTTOU)
	}
	if r.err != nil {
		if p.wants { // it was given before the program turned out not to be one
			p.tty.give(p.tty.own)
		}
		p.close()
		return nil, r.err
	}
	p.pid, p.changes = r.pid, changes
	signal.Notify(p.resumed, syscall.SIGCONT)
	hear(signals, passedSignals)
	return p, nil
}

// watch reports what happens to CMD, which is its reaper's to know.
func watch(pid int, changes chan<- change) {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			changes <- change{ended: true, code: exitOurs}
			return
		case status.Stopped():
			changes <- change{signal: status.StopSignal()}
		case status.Signaled():
			changes <- change{ended: true, code: exitSignal + int(status.Signal()), signal: status.Signal()}
			return
		default:
			changes <- change{ended: true, code: status.ExitStatus()}
			return
		}
	}
}

// close lets go of the terminal, and of the signals that are CMD's only.
func (p *child) close() {
	signal.Stop(p.resumed)
	signal.Reset(passedSignals...)
	if p.tty != nil {
		_ = syscall.Close(p.tty.fd)
	}
}

// forward passes a signal on to the whole group, as a terminal does.
func (p *child) forward(s os.Signal) {
	if n, ok := s.(syscall.Signal); ok {
		p.stop = p.stop || stops(s)
		_ = syscall.Kill(-p.pid, n) // it may have ended
	}
}

// terminate asks the group to end, also one that is stopped.
func (p *child) terminate() {
	p.forward(syscall.SIGTERM)
	p.forward(syscall.SIGCONT)
}

func (p *child) kill() { p.forward(syscall.SIGKILL) }

// finish waits for what CMD has left in its group after a loss, and kills it at the end of the grace time; nil: that has come.
func (p *child) finish(kill <-chan time.Time) {
	poll := time.NewTicker(5 * time.Millisecond) // nobody tells of the end of a group
	defer poll.Stop()
	if kill == nil {
		p.kill()
	}
	var enough <-chan time.Time
	for syscall.Kill(-p.pid, 0) == nil {
		if kill == nil && enough == nil {
			enough = time.After(time.Second) // killed, and not reaped by whoever should
		}
		select {
		case <-poll.C:
		case <-kill:
			kill = nil
			p.kill()
		case <-enough:
			return
		}
	}
}

// stopped deals with a stop of CMD, and tells whether it may go on.
func (p *child) stopped(s syscall.Signal, lost <-chan struct{}) bool {
	if p.tty == nil {
		return false // whoever stopped it will continue it, or zklock
	}
	foreground, asked := p.tty.foreground(), p.stop
	p.stop = false
	switch s {
	case syscall.SIGTTIN, syscall.SIGTTOU: // it needs the terminal, and a stop that was asked for meanwhile goes with the SIGCONT
		p.wants = true
		if !asked && (foreground == p.tty.own || foreground == p.pid) {
			return true
		}
	case syscall.SIGTSTP:
	default:
		if foreground != p.pid {
			return false
		}
	}
	p.withdraw()
	p.suspend(lost)
	return true
}

// suspend stops zklock's own group until it is continued. Nothing stops a group that no shell could continue, and then CMD goes on at once; nobody having
// continued it is how that shows.
func (p *child) suspend(lost <-chan struct{}) {
	select {
	case <-p.resumed: // an old one
	default:
	}
	stopGroup()
	nobody := time.NewTimer(time.Second)
	defer nobody.Stop()
	select {
	case <-p.resumed:
	case <-lost:
	case <-nobody.C:
	}
}

// stopGroup stops zklock's own group, as the terminal does. SIGTSTP would do nothing: having been asked to hear it once, Go goes on catching it.
func stopGroup() { _ = syscall.Kill(0, syscall.SIGTTIN) }

// stops tells whether a signal is the terminal's request to stop.
func stops(s os.Signal) bool { return s == syscall.SIGTSTP }

// proceed lets CMD go on where it is stopped, with the terminal if zklock has it.
func (p *child) proceed(held bool) {
	if !held {
		return // it is terminated instead
	}
	if p.tty != nil && p.wants && p.tty.foreground() == p.tty.own {
		p.tty.give(p.pid)
	}
	p.forward(syscall.SIGCONT)
}

// withdraw takes the terminal back, if CMD has it.
func (p *child) withdraw() bool {
	if p.tty == nil || p.tty.foreground() != p.pid {
		return false
	}
	p.tty.give(p.tty.own)
	return true
}

// A terminal is the one that controls this process.
type terminal struct {
	fd  int
	own int // the process group of zklock
}

func openTerminal() *terminal {
	fd, err := syscall.Open("/dev/tty", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd: fd, own: syscall.Getpgrp()}
}

// foreground is the process group that the terminal's keys reach; 0 when it is gone.
func (t *terminal) foreground() int {
	var group int32
	if ioctl(t.fd, syscall.TIOCGPGRP, unsafe.Pointer(&group)) != 0 {
		return 0
	}
	return int(group)
}

func (t *terminal) give(group int) {
	g := int32(group)
	_ = ioctl(t.fd, syscall.TIOCSPGRP, unsafe.Pointer(&g)) // a terminal that is gone needs none
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) syscall.Errno {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
	return errno
}

// isTerminal tells whether somebody sits at a file. A character device need not be one: /dev/null is.
func isTerminal(f *os.File) bool {
	var size [4]uint16
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	yes := false
	err = conn.Control(func(fd uintptr) { yes = ioctl(int(fd), syscall.TIOCGWINSZ, unsafe.Pointer(&size)) == 0 })
	return err == nil && yes
}

// raise ends this process, and its group, by a signal.
func raise(s syscall.Signal) {
	signal.Reset(s)
	_ = syscall.Kill(0, s)
	time.Sleep(time.Second) // it takes effect before that
}
