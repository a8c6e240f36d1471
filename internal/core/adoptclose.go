package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// close ends an engine on an adopted connection. The connection and the session stay. Whatever the engine has made in it is deleted, which may take
// longer than ctx allows, if only because a create that is under way cannot be taken back; then it goes on in the background, and close returns what
// is left.
func (a *adopted) close(ctx context.Context) error {
	e := a.e
	e.mu.Lock()
	e.wakeWaiting() // closing is looked at first
	e.mu.Unlock()
	e.stop()
	told := make(chan struct{})
	e.tracker.Add(func() {
		e.setState(Closed)
		e.hub.recheck(Recheck)
		close(told)
	})
	<-told
	f := &finish{a: a, since: time.Now(), settled: make(chan error, 1), over: make(chan struct{})}
	go f.run()
	select {
	case err := <-f.settled:
		select { // what is left has nothing to wait for but requests under way
		case <-f.over:
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
		return err
	case <-ctx.Done():
		_, _, d := f.look()
		return f.describe(d)
	}
}

// afterGone is how long a server has to answer that the session of a closed connection is over, where that is seen. It includes an attempt to end the
// session over a connection of its own; see replaced.
const afterGone = 3 * connectTimeout

// A finish sees to what close leaves behind: it is over when all of it has gone, or when the session must be over.
type finish struct {
	a       *adopted
	since   time.Time
	settled chan error // what Close returns, once that is known
	over    chan struct{}

	goneSince time.Time

	probing chan bool // of the probe under way
	probed  time.Time
	closed  int // probes in a row that found the client closed; -1 when that is settled
}

func (f *finish) run() {
	defer close(f.over)
	e := f.a.e
	e.reaper.kick()
	told := false
	tell := func(err error) {
		if !told {
			told = true
			f.settled <- err
		}
	}
	pause := time.Millisecond
	for {
		idle, gone, d := f.look()
		if idle && d.known == d.refused && d.unseen == 0 {
			// There is nothing left to wait for. Creates without an answer were looked for and not found, which is no proof.
			tell(f.describe(d))
			if d.unknown == 0 {
				break
			}
		}
		if gone && f.goneSince.IsZero() {
			f.goneSince = time.Now()
		}
		if gone && (f.a.track == nil || time.Since(f.goneSince) > afterGone) || f.overdue() {
			break
		}
		e.reaper.settle(e.mustBeOver())
		if d.unknown > 0 {
			f.a.wake()
		}
		f.probe()
		time.Sleep(pause) // a poll; there is no single event that says that nothing is left
		pause = min(pause*5/4, 100*time.Millisecond)
	}
	_, _, d := f.look()
	tell(f.describe(d))
	e.mu.Lock()
	e.ended = true
	e.shutGate()
	e.wakeWaiting()
	e.mu.Unlock()
	e.endLife()
	e.end(ErrClosed)
}

// look returns whether nothing is under way that could still make a znode or hand one over, whether the connection was closed, and what is owed.
func (f *finish) look() (idle, gone bool, d debt) {
	e := f.a.e
	e.mu.Lock()
	idle, gone = e.users == 0 && e.making == 0, f.a.gone
	e.mu.Unlock()
	return idle, gone, e.reaper.owes(f.since) // after the above: what was handed over is seen here
}

// overdue reports whether nothing was heard of the session for so long that it must be over.
func (f *finish) overdue() bool {
	_, _, clock, heard := f.a.e.contact.timing()
	if clock.s.after(heard) {
		heard = clock.s
	}
	at := now()
	limit := f.a.e.mustBeOver()
	f.a.e.mu.Lock()
	deaf := f.a.refused > 0 && time.Since(f.a.since) > limit // it says that it is well, and answers nothing
	f.a.e.mu.Unlock()
	return time.Since(f.since) > limit && (deaf || at.since(heard) > limit)
}

// describe returns what is left, as an error.
func (f *finish) describe(d debt) error {
	e := f.a.e
	e.mu.Lock()
	under, gone := e.users+e.making, f.a.gone
	e.mu.Unlock()
	var left []string
	if n := d.known - d.refused; n > 0 {
		left = append(left, fmt.Sprintf("%d of its znodes are not deleted yet", n))
	}
	if under > 0 {
		left = append(left, "requests that may make a znode are not answered yet")
	}
	if d.unknown > 0 {
		left = append(left, fmt.Sprintf("creates without an answer (%d) may yet come into effect", d.unknown))
	}
	var err error
	if len(left) > 0 {
		err = errors.New(strings.Join(left, ", and ") + "; this is seen to in the background")
		if gone {
			err = errors.New(strings.Join(left, ", and ") + ", and its owner has closed the connection; they end with the session")
		}
	}
	if d.refused > 0 {
		err = errors.Join(err, fmt.Errorf("the server does not delete %d of its znodes, which stay until the session ends: %w", d.refused, d.why))
	}
	return err
}

// probe finds out whether the owner has closed the connection, where nothing else tells: a client without a connection keeps a request until it has
// one, or throws it away after a second; one that was closed refuses it at once. The request is one that changes nothing.
func (f *finish) probe() {
	const often, sure = 500 * time.Millisecond, 3
	conn := f.a.given
	if f.closed < 0 || conn.State() == zk.StateHasSession {
		return
	}
	if f.probing != nil {
		select {
		case closed := <-f.probing:
			f.probing = nil
			if !closed {
				f.closed = 0
			} else if f.closed++; f.closed == sure {
				f.closed = -1
				f.a.abandon()
			}
		default:
		}
		return
	}
	if time.Since(f.probed) < often && f.closed == 0 {
		return
	}
	f.probed = time.Now()
	answer := make(chan bool, 1)
	f.probing = answer
	go func() {
		began := time.Now()
		_, err := conn.Sync("/")
		refused := errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrClosing)
		answer <- refused && time.Since(began) < downLook && conn.State() != zk.StateHasSession
	}()
}
