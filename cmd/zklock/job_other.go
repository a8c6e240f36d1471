//go:build !unix || solaris || illumos || aix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Here CMD has no process group of its own, and there is no job control: signals reach CMD only.

var waitSignals, passedSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}, []os.Signal(nil)

func hear(c chan<- os.Signal, signals []os.Signal) {
	for _, s := range signals {
		signal.Notify(c, s)
	}
}

type child struct {
	*os.Process
	changes <-chan change
	resumed chan os.Signal
}

type change struct {
	ended  bool
	code   int
	signal syscall.Signal
}

func start(file string, argv, env []string, _ bool, _ chan os.Signal) (*child, error) {
	attr := &os.ProcAttr{Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{}}
	dieWithParent(attr.Sys)
	p, err := os.StartProcess(file, argv, attr)
	if err != nil {
		return nil, err
	}
	changes := make(chan change)
	go func() {
		c := change{ended: true, code: exitOurs}
		if state, err := p.Wait(); err == nil {
			c.code = state.ExitCode()
			if c.code < 0 {
				c.code = exitOurs
			}
		}
		changes <- c
	}()
	return &child{Process: p, changes: changes}, nil
}

func (p *child) close() {}

func (p *child) forward(s os.Signal) {
	if p.Signal(s) != nil { // Windows knows no other
		_ = p.Kill()
	}
}

func (p *child) terminate()                                   { p.forward(syscall.SIGTERM) }
func (p *child) kill()                                        { _ = p.Kill() }
func (p *child) finish(<-chan time.Time)                      {}
func (p *child) stopped(syscall.Signal, <-chan struct{}) bool { return false }
func (p *child) proceed(bool)                                 {}
func (p *child) withdraw() bool                               { return false }

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}

func raise(syscall.Signal) {}

func stopGroup()           {}
func stops(os.Signal) bool { return false }
