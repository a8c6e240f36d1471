package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
)

// Exit codes. Those of run and leader stand between what a command ends with and 128+signal, so that they are not taken for the command's own; 124 to 127
// are what timeout(1), env(1) and shells mean by them.
const (
	exitOK           = 0
	exitFailed       = 1
	exitUsage        = 2
	exitLost         = 120 // the lease was lost while the command ran
	exitNoConnection = 121
	exitHeld         = 122 // -try, and somebody else holds the lock
	exitTimeout      = 124
	exitOurs         = 125 // zklock failed, not the command
	exitNotStarted   = 126
	exitNotFound     = 127
	exitSignal       = 128 // and the signal's number
)

// A usageError is the caller's.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func wrong(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// An exitError ends the process with a code of its own.
type exitError struct {
	code  int
	err   error          // nil: there is nothing to say
	raise syscall.Signal // not 0: the process ends by that signal instead
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func exit(code int, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...)}
}

// exitCode tells what went wrong and what the process ends with.
func (c command) exitCode(err error, stderr io.Writer) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if _, wrong := errors.AsType[usageError](err); wrong {
		fmt.Fprintf(stderr, "zklock %s: %v; zklock %s -h explains the flags\n", c.name, err, c.name)
		return exitUsage
	}
	own, ok := errors.AsType[*exitError](err)
	if !ok || own.err != nil {
		fmt.Fprintf(stderr, "zklock %s: %v\n", c.name, err)
	}
	if !ok {
		return c.failed
	}
	if own.raise != 0 {
		raise(own.raise)
	}
	return own.code
}

// failure makes of what a call of the library returned what a person is told, with what to do about it, and the exit code.
func failure(err error) error {
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(err.Error(), "zkrecipes: ")
	switch untrusted, ok := errors.AsType[*tls.CertificateVerificationError](err); {
	case errors.Is(err, zkrecipes.ErrInvalid):
		return usageError{text}
	case ok && untrusted != nil:
		return exit(exitNoConnection, "%s; -tls-ca names the file of who signed the server's certificate, -tls-name the name in it", text)
	case errors.Is(err, zkrecipes.ErrNoConnection), errors.Is(err, zk.ErrNoServer):
		return exit(exitNoConnection, "%s; see that the servers run and that -servers, or ZKLOCK_SERVERS, names them", text)
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("%s: the ACL of a znode does not allow it; ZKLOCK_AUTH or -auth-file give a credential that it does allow", text)
	case errors.Is(err, zk.ErrAuthFailed):
		return fmt.Errorf("%s: the server does not know the scheme of a credential; one of ZKLOCK_AUTH, -auth or -auth-file is digest:user:password", text)
	}
	return errors.New(text)
}
