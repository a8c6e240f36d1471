package core

import (
	"context"
	"crypto/tls"
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

// A source is where the engine's connection comes from: owned, a client that the engine made and keeps going, or adopted, one that the service has.
type source interface {
	// start begins.
	start() error
	// conn is what requests are made on; mu is held.
	conn() Conn
	// look brings the Contact up to date with what the connection says of itself, where no wire does.
	look()
	// done is told how a request that was let in for epoch ended, before anybody else is.
	done(epoch Epoch, err error)
	// handle does what the source has to do when a wire saw something, on the tracker and after the engine's part.
	handle(s signal)
	// replaced sees to a session that is over as far as this side knows, until that is certain. On the tracker.
	replaced(session int64)
	// callsBack reports whether watch events are called back; else somebody has to read the channel of each watch.
	callsBack() bool
	// notWatching takes the error with which the client ended a watch that was set in this session. On the tracker.
	notWatching(session int64, err error)
	// unreachable says why there is no session, nil when nothing is known of it.
	unreachable() error
	// close ends what there is; closing is set.
	close(ctx context.Context) error
}

// An Engine keeps one connection useful and answers for its requests.
type Engine struct {
	cfg     Config
	source  source
	contact *Contact
	tracker *Serial
	hub     *hub
	lists   *lists
	reaper  *reaper
	slots   chan struct{}
	callers chan struct{}
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	life    context.Context // ends when nothing is cleaned up any more: of an owned connection with Close, of an adopted one it may be later
	endLife context.CancelFunc
	wg      sync.WaitGroup // what ends with Close
	after   sync.WaitGroup // what may go on until life ends

	unlooked sync.WaitGroup // see Unlooked

	pulse   chan struct{} // wakes the clock
	fatal   chan error    // an error that Dial must return
	noConts atomic.Bool   // the server has no containers

	mu      sync.Mutex
	open    Epoch         // the epoch for which the gate is open
	opened  chan struct{} // closed when it opens, replaced when it closes
	users   int           // leases and contenders: what the heartbeat goes on for
	holds   int           // leases: what a clock that ran out is told to
	making  int           // calls under way that may make a znode
	working int           // goroutines that run tasks,
	tasks   []Task        // and what waits for one
	state   State
	session int64 // the tracker's: the session whose end has not been told
	closing bool  // nobody is let in any more, but to clean up
	ended   bool  // nobody at all
	left    error // why there will never be another session
}

// New makes an engine that will own its connection; Start begins to connect.
func New(cfg Config) *Engine {
	e := newEngineOn(cfg, NewContact())
	e.life, e.endLife = e.ctx, e.stop
	e.source = &owned{e: e, route: route{newServerList(cfg.Servers), cfg.Dialer, cfg.TLS}}
	e.contact.notify = e.notified
	return e
}

func newEngineOn(cfg Config, contact *Contact) *Engine {
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{
		cfg:     cfg,
		contact: contact,
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
	e.lists = newLists(e)
	e.reaper = newReaper(e)
	return e
}

func (e *Engine) notified(s signal) { e.tracker.Add(func() { e.handle(s) }) }

// Start begins to connect. The caller waits with Await, and closes the engine whatever comes.
func (e *Engine) Start() error { return e.source.start() }

// Timeout is the negotiated session timeout, before the first session the one that was asked for.
func (e *Engine) Timeout() time.Duration {
	if _, _, t := e.contact.identity(); t > 0 {
		return t
	}
	return e.cfg.Timeout
}

// Epoch returns the current epoch, or the last one.
func (e *Engine) Epoch() Epoch {
	e.source.look()
	return e.contact.Epoch()
}

// Left returns how long the session is still certain to live.
func (e *Engine) Left(session int64) time.Duration {
	e.source.look()
	return e.contact.Left(session)
}

// Ordered reports whether an event may decide something: a wire sees the connection, so that an Epoch is exact, and events are handed on in the order in which
// the server sent them. Those of an adopted connection come through a channel for each watch, which a goroutine each reads (hub.follow), in any order.
func (e *Engine) Ordered() bool { return e.contact.wired && e.source.callsBack() }

// Behind runs fn, which must not block, behind everything that subscriptions are told of what came before the call; false once the engine has ended.
func (e *Engine) Behind(fn func()) bool { return e.tracker.Add(fn) }

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

// DialError returns why there is no session, as far as that is known; nil when there is one.
func (e *Engine) DialError() error { return e.source.unreachable() }

// Fatal delivers an error that no retry mends.
func (e *Engine) Fatal() <-chan error { return e.fatal }

// State returns the present state.
func (e *Engine) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}

// A Task is work for a goroutine. What is something already, and has this method, need not be made a closure.
type Task interface{ Run() }

type taskFunc func()

func (f taskFunc) Run() { f() }

// run runs t on a goroutine of a group.
func run(wg *sync.WaitGroup, t Task) {
	wg.Add(1)
	go func() {
		defer wg.Done()
		t.Run()
	}()
}

// Go runs fn on a goroutine that Close waits for; false once the engine is closing.
func (e *Engine) Go(fn func()) bool { return e.GoTask(taskFunc(fn)) }

// GoTask is Go for a Task.
func (e *Engine) GoTask(t Task) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return false
	}
	run(&e.wg, t)
	return true
}

// workers is how many tasks of Soon run at once. They keep all places of the client's queue busy. With a goroutine for each, ten thousand calls that begin to wait
// at once take some forty thousand for a moment, and the run-time keeps what describes them, half a kilobyte each, for ever.
const workers = 3 * queued

// Soon is GoTask, but after others if there are many. The task waits for the network most of the time, and for other tasks of Soon never.
func (e *Engine) Soon(t Task) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closing:
		return false
	case e.working == workers:
		e.tasks = append(e.tasks, t)
	default:
		e.working++
		e.wg.Add(1)
		go e.work(t)
	}
	return true
}

// work runs t, and then what has come to wait.
func (e *Engine) work(t Task) {
	defer e.wg.Done()
	for {
		t.Run()
		e.mu.Lock()
		if len(e.tasks) == 0 {
			e.working--
			e.mu.Unlock()
			return
		}
		t = e.tasks[0]
		e.tasks[0] = nil
		if e.tasks = e.tasks[1:]; len(e.tasks) == 0 {
			e.tasks = nil
		}
		e.mu.Unlock()
	}
}

// goOn runs fn, which cleans up, on a goroutine that may outlive Close where the connection does; false once life has ended.
func (e *Engine) goOn(fn func()) bool { return e.goOnTask(taskFunc(fn)) }

// goOnTask is goOn for a Task.
func (e *Engine) goOnTask(t Task) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return false
	}
	run(&e.after, t)
	return true
}

// Making counts the calls that may make a znode. Close of an adopted connection has to know of those that are not over.
func (e *Engine) Making() {
	e.mu.Lock()
	e.making++
	e.mu.Unlock()
}

// Made takes a Making back.
func (e *Engine) Made() {
	e.mu.Lock()
	e.making--
	e.mu.Unlock()
}

// Close ends the engine: nobody is let in any more. Of an owned connection the session is closed at the server, and when that was not answered in time,
// over a connection of its own, for at most the time that ctx leaves; an error says that the server did not confirm: then the session ends with its
// timeout. Of an adopted connection the engine's znodes are deleted; an error says that this goes on in the background, or cannot be done.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		<-e.ctx.Done()
		return nil
	}
	e.closing = true
	e.mu.Unlock()
	return e.source.close(ctx)
}

// end stops what is left when nothing uses the engine any more; what the reaper still has ends with err.
func (e *Engine) end(err error) {
	e.reaper.close(err)
	e.wg.Wait()
	e.after.Wait()
	e.tracker.Stop()
	<-e.tracker.Done()
	e.hub.close()
}
