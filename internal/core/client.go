package core

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"
)

// rebuildAfter is how many session timeouts without a session pass before the engine asks whether the fault is the client's.
const rebuildAfter = 3

// A client is one *zk.Conn and its lane. The engine replaces it when it is stuck.
type client struct {
	conn   *zk.Conn
	lane   *lane
	gone   <-chan zk.Event // closed when the client's goroutines are
	made   chan struct{}   // closed when conn and gone are set
	authed int             // credentials that the client knows; the tracker's
	since  time.Time       // without a session since
	served bool            // a server served meanwhile
}

// newClient makes the current client.
func (e *Engine) newClient() error {
	c := &client{made: make(chan struct{}), since: time.Now()}
	c.lane = newLane(e.ctx, e.route, e.contact, func() time.Duration { return e.Timeout() / 3 })
	e.mu.Lock()
	if e.closing { // Close has ended the client that there was, and ends no other
		e.mu.Unlock()
		c.lane.poison()
		return ErrClosed
	}
	e.client = c
	e.shutGate()
	e.mu.Unlock()
	conn, gone, err := zk.Connect(e.route.servers.names, e.cfg.Timeout,
		zk.WithDialer(c.lane.Dial), zk.WithHostProvider(newHostProvider(c.lane)),
		zk.WithLogInfo(false), zk.WithLogger(clientLogger{e.cfg.Logger}),
		zk.WithMaxConnBufferSize(1<<20),
		zk.WithEventCallback(func(ev zk.Event) { e.tracker.Add(func() { e.event(c, ev) }) }))
	c.conn, c.gone = conn, gone
	close(c.made)
	if err != nil {
		c.lane.poison()
	}
	return err
}

// clientLogger passes what go-zookeeper logs on at debug level: the engine says at its own levels what its user should know.
type clientLogger struct{ l *slog.Logger }

func (c clientLogger) Printf(format string, args ...any) {
	if c.l.Enabled(context.Background(), slog.LevelDebug) {
		c.l.Debug("go-zookeeper: " + fmt.Sprintf(format, args...))
	}
}

// runWatchdog replaces a client that cannot get a session although a server serves: one whose re-authentication is wedged, or whose last zxid lies
// beyond what the servers know since they were set back. First it only asks; a session timeout later, if nothing changed, it ends the old session for
// certain and starts anew.
func (e *Engine) runWatchdog() {
	for {
		t := e.Timeout()
		select {
		case <-e.ctx.Done():
			return
		case <-time.After(max(t/2, 100*time.Millisecond)):
		}
		e.mu.Lock()
		c := e.client
		since, served := c.since, c.served
		e.mu.Unlock()
		if e.Ready() || time.Since(since) < rebuildAfter*t {
			continue
		}
		ctx, cancel := context.WithTimeout(e.ctx, 2*connectTimeout+t)
		if !served {
			if e.route.endSession(ctx, 0, nil, t) == nil {
				e.mu.Lock()
				if c.since == since { // else a connection came and went meanwhile
					c.served, c.since = true, time.Now().Add(-(rebuildAfter-1)*t)
				}
				e.mu.Unlock()
			}
			cancel()
			continue
		}
		e.rebuild(ctx, c)
		cancel()
	}
}

func (e *Engine) rebuild(ctx context.Context, c *client) {
	c.lane.hold()
	session, passwd, timeout := e.contact.identity()
	if e.contact.Left(session) > 0 {
		// The client got through after all, and what is granted since must not be given away before it is told.
		c.lane.release()
		return
	}
	if timeout == 0 {
		timeout = e.cfg.Timeout
	}
	if err := e.route.endSession(ctx, session, passwd, timeout); err != nil {
		c.lane.release()
		e.mu.Lock()
		c.served = false
		e.mu.Unlock()
		return
	}
	c.lane.poison()
	e.cfg.Logger.Error("zkrecipes: no session although a server serves; starting a new client", "session", sessionID(session))
	e.tracker.Add(func() { e.sessionOver(session, true) })
	if err := e.newClient(); err != nil {
		e.cfg.Logger.Error("zkrecipes: new client", "err", err)
		return
	}
	e.wg.Go(func() { discard(c) })
}

// discard closes a client whose lane is poisoned. It frees its callers; a wedged one keeps its goroutine for ever.
func discard(c *client) {
	<-c.made
	go c.conn.Close() // which may wait a second for the answer to a request that nobody will send any more
	select {
	case <-drained(c.gone):
	case <-time.After(time.Second):
	}
}

// drained returns a channel that is closed when events is.
func drained(events <-chan zk.Event) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range events {
		}
	}()
	return done
}
