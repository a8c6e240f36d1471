package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

// watch shows each change until ctx ends, which is how it is meant to end. On a terminal the picture is drawn in place, each second, for the ages.
func (v *view) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	changed := make(chan struct{}, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	// Who holds depends on which znodes there are alone: in the path, and where it is a semaphore's in its two directories.
	for _, dir := range []string{"", "/leases", "/locks"} {
		watcher := zkrecipes.NewWatcher(v.session, strings.TrimSuffix(v.path, "/")+dir)
		if v.path == "/" && dir == "" {
			watcher = zkrecipes.NewWatcher(v.session, v.path)
		}
		wg.Go(func() {
			for _, err := range watcher.Children(ctx) {
				if err != nil {
					cancel(err)
					return
				}
				select {
				case changed <- struct{}{}:
				default:
				}
			}
		})
	}
	f, _ := v.out.(*os.File)
	screen := f != nil && !v.json && isTerminal(f) && os.Getenv("TERM") != "dumb"
	if screen {
		fmt.Fprint(v.out, "\x1b[2J")
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	if !screen {
		second.Stop()
	}
	var last standing
	known := false
	for {
		select {
		case <-ctx.Done():
			return v.ended(ctx)
		case <-second.C:
			last.age()
		case <-changed:
			st, err := v.look(ctx)
			if err != nil && ctx.Err() != nil {
				return v.ended(ctx)
			}
			if err != nil {
				return failure(err)
			}
			if known && same(st, last) {
				continue
			}
			last, known = st, true
			if !screen {
				if err := v.change(st); err != nil {
					return err
				}
			}
		}
		if screen {
			if err := v.draw(last, known); err != nil {
				return err
			}
		}
	}
}

func (v *view) ended(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !isSignal(err) {
		return failure(err)
	}
	return nil
}

// isSignal tells whether a ctx of signal.NotifyContext has ended by a signal, whose cause has no type.
func isSignal(err error) bool { return strings.HasSuffix(err.Error(), "signal received") }

func same(a, b standing) bool {
	return a.Exists == b.Exists && slices.EqualFunc(a.Participants, b.Participants, func(p, q participant) bool {
		p.Age, q.Age = 0, 0
		return p == q
	})
}

// change prints one of many looks.
func (v *view) change(st standing) error {
	if !v.json {
		if _, err := fmt.Fprintf(v.out, "%s\n", st.Time.Format(time.RFC3339)); err != nil {
			return err
		}
	}
	if err := v.print(st); err != nil || v.json {
		return err
	}
	_, err := io.WriteString(v.out, "\n")
	return err
}

// draw writes over what was drawn before.
func (v *view) draw(st standing, known bool) error {
	var b strings.Builder
	b.WriteString("\x1b[H")
	head := fmt.Sprintf("%s at %s, Ctrl-C ends", shown(v.path), time.Now().Format(time.TimeOnly))
	if v.session.State() != zkrecipes.StateConnected {
		head += "; no connection, this was so at " + st.Time.Format(time.TimeOnly)
	}
	text := head + "\n\n"
	if known {
		text += v.text(st)
	}
	b.WriteString(strings.ReplaceAll(text, "\n", "\x1b[K\n"))
	b.WriteString("\x1b[J")
	_, err := io.WriteString(v.out, b.String())
	return err
}
