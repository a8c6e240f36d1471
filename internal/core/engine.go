package core

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// State is what the engine knows of its standing with the ensemble.
type State int

// The states of an engine.
const (
	Suspended State = iota // no connection, or no session yet
	Connected
	Lost // the session is over, or may be: its clock has run out
	Closed
)

// A Listener is told what ends leases. Its methods are called on the engine's goroutines and must not block.
type Listener interface {
	// SessionOver: the session has ended or was replaced.
	SessionOver(session int64)
	// ClockOut: nothing proves any more that the session lives. It may be told twice.
	ClockOut(session int64)
	// Disconnected: the connection is gone, the session may live on.
	Disconnected()
	// StateChanged is called in order.
	StateChanged(State)
}

// Config is what an engine is made from.
type Config struct {
	Servers  []string
	Timeout  time.Duration
	Dialer   zk.Dialer
	TLS      *tls.Config
	Auth     []Auth
	ACL      []zk.ACL
	Logger   *slog.Logger
	Listener Listener
}

// Auth is one credential.
type Auth struct {
	Scheme string
	Data   []byte
}

// An Engine keeps one client going and answers for its requests.
type Engine struct {
	cfg     Config
	route   route
	contact *Contact
	tracker *Serial
	hub     *hub
	reaper  *reaper
	slots   chan struct{}
	callers chan struct{}
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	wg      sync.WaitGroup
	pulse   chan struct{} // wakes the clock
	fatal   chan error    // an error that Dial must return
	noConts atomic.Bool   // the server has no containers

	mu      sync.Mutex
	client  *client
	open    Epoch         // the epoch for which the gate is open
	opened  chan struct{} // closed when it opens, replaced when it closes
	users   int           // leases and contenders: what the heartbeat goes on for
	holds   int           // leases: what a clock that ran out is told to
	state   State
	session int64 // the tracker's: the session whose end has not been told
	closing bool
}

// New makes an engine that will own its connection; Start begins to connect.
func New(cfg Config) *Engine {
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{
		cfg:     cfg,
		route:   route{newServerList(cfg.Servers), cfg.Dialer, cfg.TLS},
		contact: NewContact(),
		tracker: NewSerial(),
		slots:   make(chan struct{}, queued),
		callers: make(chan struct{}, callerQueued),
		ctx:     ctx,
		stop:    cancel,
		pulse:   make(chan struct{}, 1),
		fatal:   make(chan error, 1),
		opened:  make(chan struct{}),
	}
	e.hub = newHub(e)
	e.reaper = newReaper(e)
	e.contact.notify = func(s signal) { e.tracker.Add(func() { e.handle(s) }) }
	return e
}

// Start begins to connect. The caller waits with Await, and closes the engine whatever comes.
func (e *Engine) Start() error {
	if err := e.newClient(); err != nil {
		return err
	}
	e.wg.Go(e.runClock)
	e.wg.Go(e.runWatchdog)
	return nil
}

// Timeout is the negotiated session timeout, before the first session the one that was asked for.
func (e *Engine) Timeout() time.Duration {
	if _, _, t := e.contact.identity(); t > 0 {
		return t
	}
	return e.cfg.Timeout
}

// Epoch returns the current epoch, or the last one.
func (e *Engine) Epoch() Epoch { return e.contact.Epoch() }

// Left returns how long the session is still certain to live.
func (e *Engine) Left(session int64) time.Duration { return e.contact.Left(session) }

// Over reports whether the session is known to have ended or to have been replaced.
func (e *Engine) Over(session int64) bool { return e.contact.Over(session) }

// ACL is what the engine's own znodes get.
func (e *Engine) ACL() []zk.ACL { return e.cfg.ACL }

// Context ends with the engine.
func (e *Engine) Context() context.Context { return e.ctx }

// Prove asks for an answer that restarts the lease clock.
func (e *Engine) Prove(ctx context.Context) {
	_, _ = e.Do(ctx, func(c Conn) error {
		_, err := c.Sync("/")
		return err
	})
}

// Logger is where the engine logs.
func (e *Engine) Logger() *slog.Logger { return e.cfg.Logger }

// DialError returns why the servers could not be reached, nil when they were.
func (e *Engine) DialError() error { return e.route.servers.Err() }

// Fatal delivers an error that no retry mends.
func (e *Engine) Fatal() <-chan error { return e.fatal }

// State returns the present state.
func (e *Engine) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}

// Go runs fn on a goroutine that Close waits for; false once the engine is closing.
func (e *Engine) Go(fn func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return false
	}
	e.wg.Go(fn)
	return true
}

// Close ends the engine: nobody is let in any more, the session is closed at the server, and when that was not answered in time, over a connection of
// its own, for at most the time that ctx leaves. It returns an error when the server did not confirm: then the session ends with its timeout.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		<-e.ctx.Done()
		return nil
	}
	e.closing = true
	c := e.client
	e.shutGate()
	close(e.opened) // closing is looked at first
	e.mu.Unlock()
	e.tracker.Add(func() { e.hub.recheck(Recheck) })
	if c != nil {
		<-c.made
	}
	if c == nil || c.conn == nil { // never started
		e.stop()
		e.wg.Wait()
		e.tracker.Stop()
		<-e.tracker.Done()
		return nil
	}

	session, passwd, timeout := e.contact.identity()
	_, up, _, _ := e.contact.timing()
	if up {
		c.conn.Close()
	}
	c.lane.poison()
	e.stop()
	discard(c)
	var err error
	if session != 0 {
		select {
		case <-e.contact.closed:
		default:
			if up || e.hasOpenSession() {
				if err = e.route.endSession(ctx, session, passwd, timeout); err != nil {
					err = fmt.Errorf("session %s ends with its timeout of %v: %w", sessionID(session), timeout, err)
				}
			}
		}
	}
	e.tracker.Add(func() { e.setState(Closed) })
	var left error
	if err != nil {
		left = ErrClosed
	}
	e.reaper.close(left)
	e.wg.Wait()
	e.tracker.Stop()
	<-e.tracker.Done()
	e.hub.close()
	return err
}

func (e *Engine) hasOpenSession() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.session != 0
}
