package zktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// fourLetterTimeout bounds the probes of this package itself.
const fourLetterTimeout = 2 * time.Second

// FourLetter sends one of ZooKeeper's four-letter words ("srvr", "mntr",
// "wchs", "wchc", "wchp", "cons", "dump", ...) and returns the answer. All of
// them are allowed on a launched server; one from outside allows what its
// 4lw.commands.whitelist says.
//
// A server that is stopped or, until ctx ends, paused gives an error, and so does
// one in this process, which knows no words.
func (s *Member) FourLetter(ctx context.Context, word string) (string, error) {
	return fourLetter(ctx, s.addr, word)
}

func fourLetter(ctx context.Context, addr, word string) (string, error) {
	if len(word) != 4 {
		return "", fmt.Errorf("zktest: %q is not a four-letter word", word)
	}
	fail := func(err error) (string, error) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", fmt.Errorf("zktest: %s to %s: %w", word, addr, err)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return fail(err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(conn, word); err != nil {
		return fail(err)
	}
	answer, err := io.ReadAll(conn)
	// The server closes with the word's newline, or whatever else was sent,
	// unread at times, which resets the connection after a whole answer.
	if err != nil && (len(answer) == 0 || ctx.Err() != nil) {
		return fail(err)
	}
	if len(answer) == 0 {
		return fail(errors.New("the connection was closed without an answer"))
	}
	return string(answer), nil
}

// mode is "standalone", "leader", "follower", "observer", or empty when the
// server does not serve.
func (s *Member) mode(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, fourLetterTimeout)
	defer cancel()
	answer, err := fourLetter(ctx, s.addr, "srvr")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(answer) {
		if m, ok := strings.CutPrefix(line, "Mode:"); ok {
			return strings.TrimSpace(m)
		}
	}
	return ""
}
