package zkrecipes

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// A candidate is what LeaderLatch and LeaderSelector share: one participant in an election, that takes part while run runs.
//
//	idle --run--> waiting --granted--> leading --released, lost--> waiting
//	  ^             |                    |
//	  '---ctx, err--'--------------------'
//
// Only run changes the lease; whoever asks whether it leads asks the lease, which asks the clock.
type candidate struct {
	spec *lockSpec
	once bool

	mu      sync.Mutex
	begun   bool // a run, once
	running bool
	ended   error         // why the last run ended
	lease   *Lease        // nil while it waits
	terms   int           // that began
	changed chan struct{} // closed at the next change
}

// init is a constructor's.
func (c *candidate) init(s *Session, path, marker string, opts []LeaderOption) {
	var cfg leaderConfig
	for _, o := range opts {
		if o != nil {
			o.applyLeader(&cfg)
		}
	}
	if cfg.owner != nil && *cfg.owner == "" { // Curator's default: no id
		cfg.owner = nil
		if !cfg.hasData {
			cfg.data, cfg.hasData = []byte{}, true
		}
	}
	c.spec, c.once, c.changed = newSpec(s, path, marker, cfg.lockConfig), cfg.once, make(chan struct{})
	c.spec.cfg.label = true
}

// startGrace is how long a wait for leadership lets a first Run begin, for `go latch.Run(ctx)` right before it.
const startGrace = 250 * time.Millisecond

// errNotRunning is for who waits for a leadership that nobody tries for.
var errNotRunning = also("Run does not run: this participant takes part only while it does", ErrInvalid)

// begin lets one run at a time.
func (c *candidate) begin() error {
	if c.spec.err != nil {
		return c.spec.err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		return invalid("Run runs already; one participant takes part once")
	}
	c.begun, c.running = true, true
	c.tell()
	return nil
}

func (c *candidate) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.ended, c.lease = false, err, nil
	c.tell()
}

// leads sets the lease, nil for none.
func (c *candidate) leads(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lease = l; l != nil {
		c.terms++
	}
	c.tell()
}

// tell wakes who waits for a change; mu is held.
func (c *candidate) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// current returns the lease if it is held, and what is closed at the next change.
func (c *candidate) current() (l *Lease, terms int, running bool, changed <-chan struct{}) {
	c.mu.Lock()
	l, terms, running, changed = c.lease, c.terms, c.running, c.changed
	c.mu.Unlock()
	if l != nil && l.Err() != nil {
		l = nil
	}
	return l, terms, running, changed
}

func (c *candidate) isLeader() bool {
	l, _, _, _ := c.current()
	return l != nil
}

// run takes part until ctx ends or term says so: it is called with each lease, and returns when that is over.
func (c *candidate) run(ctx context.Context, op string, term func(*Lease) (goOn bool, err error)) (err error) {
	if err := c.begin(); err != nil {
		return &Error{Op: op, Path: c.spec.path, Err: err}
	}
	defer func() { c.end(err) }()
	for last := ""; ; {
		lease, err := c.spec.acquire(ctx, op, false)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil && permanent(err):
			return err
		case err != nil: // a network that is too bad to queue by at this moment, or a server in trouble
			if why := err.Error(); why != last { // a quota, for one, may stay exceeded: somebody has to hear of it
				last = why
				c.spec.s.log.Warn("zkrecipes: cannot take part, and tries again", "path", c.spec.path, "err", why)
			}
			select {
			case <-time.After(candidatePause):
			case <-ctx.Done():
			}
			continue
		}
		last = ""
		goOn, err := c.serve(lease, term)
		if !goOn || ctx.Err() != nil {
			return err
		}
	}
}

// candidatePause is how long a participant waits that could not queue.
const candidatePause = time.Second

// permanent reports whether an error of an acquisition comes back however often it is tried.
func permanent(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrInvalid) || core.Classify(err) == core.Answered
}

// serve is one term. Also when it panics leadership is given up.
func (c *candidate) serve(lease *Lease, term func(*Lease) (bool, error)) (goOn bool, err error) {
	c.leads(lease)
	defer func() {
		c.leads(nil)
		lease.give(callHook) // the reaper sees to the znode
	}()
	return term(lease)
}

// leader returns who leads, as one server sees it now. It reads the names and the znode of the first, however many take part.
func (c *candidate) leader(ctx context.Context) (Participant, error) {
	const op = "leader"
	spec := c.spec
	fail := func(err error) (Participant, error) { return Participant{}, &Error{Op: op, Path: spec.path, Err: err} }
	if spec.err != nil {
		return fail(spec.err)
	}
	for {
		names, err := spec.s.list(ctx, spec.dir)
		if err == nil && len(spec.first(names)) == 0 {
			return fail(ErrNoLeader)
		}
		var ps Participants
		if err == nil {
			ps, err = spec.s.readQueue(ctx, spec.dir, spec.first(names), family(spec.marker))
		}
		switch {
		case err != nil:
			return Participant{}, spec.s.readError(ctx, op, spec.path, err)
		case len(ps) > 0: // else it has gone since
			if len(spec.cfg.data) > 0 {
				ps[0].Owner = ""
			}
			return ps[0], nil
		}
	}
}

// first returns those of the names in a directory of whom one leads: those with the lowest number, or all if numbers do not tell.
func (spec *lockSpec) first(names []string) (first []string) {
	lowest := int32(0)
	for _, raw := range names {
		n, ok := znode.Parse(raw, family(spec.marker)...)
		switch {
		case !ok:
		case znode.Exhausted(n.Seq):
			return names
		case len(first) == 0 || n.Seq < lowest:
			first, lowest = []string{raw}, n.Seq
		case n.Seq == lowest:
			first = append(first, raw)
		}
	}
	return first
}

// changes yields whether it leads, then each change.
func (c *candidate) changes(ctx context.Context) iter.Seq[bool] {
	return func(yield func(bool) bool) {
		l, terms, _, changed := c.current()
		leads := l != nil
		if !yield(leads) {
			return
		}
		for {
			var over <-chan struct{}
			if l != nil {
				over = l.Context().Done()
			}
			select {
			case <-changed:
			case <-over:
			case <-ctx.Done():
				return
			}
			seen := terms
			l, terms, _, changed = c.current()
			if leads && l != nil && terms != seen && !yield(false) { // a loss lay between
				return
			}
			if next := l != nil; next != leads || next && terms != seen {
				leads = next
				if !yield(leads) {
					return
				}
			}
		}
	}
}

// A LeaderLatch is one participant in the election of a leader among all that run on a path. It takes part while Run runs, and while it leads IsLeader is
// true, here and nowhere else. It has a state and is not copied: make one per participant.
//
// Leadership is a Lease, with all that a lease promises: a leader whose session is in doubt is told before anybody else can lead, and Await's lease has a
// fencing Token. An owner (WithOwner) is the participant's id, a label that others see; an empty one is allowed.
//
// The layout is that of Curator's LeaderLatch: ephemeral sequential znodes `_c_<uuid>-latch-NNNNNNNNNN` under path, with the id as data. Both clients' latches
// are one election.
type LeaderLatch struct{ candidate }

// NewLeaderLatch describes a participant. It touches no network and never fails: a bad argument shows as an *Error matching ErrInvalid from the first call.
func NewLeaderLatch(s *Session, path string, opts ...LeaderOption) *LeaderLatch {
	l := new(LeaderLatch)
	l.init(s, path, znode.LatchName, opts)
	return l
}

// Run takes part in the election until ctx ends, and returns nil then; the participant's znode is gone, or being removed. It returns another error when
// taking part is impossible: ErrClosed, or the server's, such as zk.ErrNoAuth. A disconnect, the end of a session, or a network that drops each of its
// requests is no error: it takes part again, at the tail. A second Run at the same time returns an *Error matching ErrInvalid at once.
func (l *LeaderLatch) Run(ctx context.Context) error {
	return l.run(ctx, "lead", func(lease *Lease) (bool, error) {
		select {
		case <-lease.Context().Done(): // lost, or released by who got it from Await
		case <-ctx.Done():
		}
		return true, nil
	})
}

// IsLeader reports whether this participant leads. It asks the lease clock, costs no request, and is false from the moment at which leadership cannot be
// proved any more.
func (l *LeaderLatch) IsLeader() bool { return l.isLeader() }

// Await waits until this participant leads and returns that leadership's Lease; all callers get the same one. Releasing it gives leadership up: the
// participant takes part again, at the tail. When ctx ends first the *Error matches ctx's error; when Run does not run, or ends meanwhile, ErrInvalid and
// what Run returned. A first Run that is about to begin, as in go latch.Run(ctx) right before, is waited for a moment.
func (l *LeaderLatch) Await(ctx context.Context) (*Lease, error) {
	const op = "await"
	fail := func(err error) (*Lease, error) { return nil, &Error{Op: op, Path: l.spec.path, Err: err} }
	if l.spec.err != nil {
		return fail(l.spec.err)
	}
	grace := time.NewTimer(startGrace)
	defer grace.Stop()
	for {
		l.mu.Lock() // all at once; and before the lease, so that a grant in between is a change
		begun, running, why, changed := l.begun, l.running, l.ended, l.changed
		l.mu.Unlock()
		if lease, _, _, _ := l.current(); lease != nil {
			return lease, nil
		}
		switch {
		case running:
			grace.Stop()
		case begun && why != nil:
			return fail(also(plain(errNotRunning)+"; it ended: "+plain(why), errNotRunning, why))
		case begun:
			return fail(errNotRunning)
		}
		select {
		case <-changed:
		case <-grace.C:
			return fail(errNotRunning)
		case <-ctx.Done():
			return fail(ended(ctx, l.spec.s.noSession() != nil, l.spec.s.engine.DialError(), nil, 0))
		}
	}
}

// Changes yields whether this participant leads, first as it is, then each change, until ctx ends or the loop does. A slow reader sees the latest, and never
// misses that leadership was lost between two terms.
func (l *LeaderLatch) Changes(ctx context.Context) iter.Seq[bool] { return l.changes(ctx) }

// Leader returns who leads, as one server sees it now; an *Error matching ErrNoLeader if nobody does. It costs two requests.
func (l *LeaderLatch) Leader(ctx context.Context) (Participant, error) { return l.leader(ctx) }

// Participants returns all that take part, the leader first, as one server sees them now. A missing path has none.
func (l *LeaderLatch) Participants(ctx context.Context) (Participants, error) {
	return l.spec.participants(ctx)
}

// A LeaderSelector is one participant in an election whose winner works: Run calls a function while it leads. It has a state and is not copied: make one per
// participant.
//
// The layout is that of Curator's LeaderSelector, which is a mutex: ephemeral sequential znodes `_c_<uuid>-lock-NNNNNNNNNN` under path, with the id (WithOwner)
// as data. Both clients' selectors are one election, and a Mutex on the path takes part in it.
type LeaderSelector struct {
	candidate
	resign func() // ends the present term; under mu
}

// NewLeaderSelector describes a participant. It touches no network and never fails: a bad argument shows as an *Error matching ErrInvalid from the first
// call.
func NewLeaderSelector(s *Session, path string, opts ...LeaderOption) *LeaderSelector {
	e := new(LeaderSelector)
	e.init(s, path, znode.LockName, opts)
	return e
}

// ErrResigned is the cause with which the ctx of a leader ends that resigned.
var ErrResigned = errors.New("zkrecipes: leadership resigned")

// Run campaigns, and calls lead on this goroutine while this participant leads. The ctx of lead carries the Lease (LeaseFromContext: Token, Check), and ends
// with leadership, with Run's own ctx, or with Resign; leadership is given up when lead has returned, not before, and what it returns decides:
//
//	nil, or the term was lost or resigned    campaign again, at the tail; with WithoutRequeue Run returns nil, or the *LostError
//	another error                            Run returns it
//
// To release the lease in lead is to resign. A term that is over before lead could be called is lost without a call. When Run's ctx ends it returns nil, or
// what lead returned if that is not the error of its own ctx. It returns another error when taking part is impossible: ErrClosed, or
// the server's. A second Run at the same time returns an *Error matching ErrInvalid at once. A panic in lead gives leadership up.
func (e *LeaderSelector) Run(ctx context.Context, lead func(context.Context) error) error {
	const op = "lead"
	if lead == nil {
		return &Error{Op: op, Path: e.spec.path, Err: invalid("no function to lead")}
	}
	return e.run(ctx, op, func(lease *Lease) (bool, error) {
		var err, cause error
		if lease.Err() == nil && ctx.Err() == nil {
			err, cause = e.term(ctx, lease, lead)
		}
		switch over := lease.Err(); {
		case ctx.Err() != nil, cause == context.DeadlineExceeded: // that of ctx: lead's has a timer of its own, which may be the first
			if errors.Is(err, over) { // lost behind the end of ctx
				err = nil
			}
			return false, err
		case errors.Is(over, ErrLost) && e.once:
			return false, over
		case over != nil, cause == ErrResigned:
			return !e.once, nil
		}
		return err == nil && !e.once, err
	})
}

// term calls lead, and returns why the ctx of lead had ended, nil if it had not. That lead says so is no error of its own.
func (e *LeaderSelector) term(ctx context.Context, lease *Lease, lead func(context.Context) error) (err, cause error) {
	both, cancel := lease.during(ctx)
	defer cancel(nil)
	e.mu.Lock()
	e.resign = func() { cancel(ErrResigned) }
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.resign = nil
		e.mu.Unlock()
	}()
	err = lead(both)
	cause = context.Cause(both)
	if cause != nil && (errors.Is(err, cause) || errors.Is(err, both.Err())) {
		err = nil
	}
	return err, cause
}

// IsLeader reports whether this participant leads; see LeaderLatch.IsLeader. It is true until lead has returned, unless leadership was lost.
func (e *LeaderSelector) IsLeader() bool { return e.isLeader() }

// Resign ends the ctx of lead, with ErrResigned as its cause, if lead runs; when it has returned leadership is given up and the participant campaigns again, at
// the tail. It does not wait.
func (e *LeaderSelector) Resign() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.resign != nil {
		e.resign()
	}
}

// Leader returns who leads, as one server sees it now; an *Error matching ErrNoLeader if nobody does. It costs two requests.
func (e *LeaderSelector) Leader(ctx context.Context) (Participant, error) { return e.leader(ctx) }

// Participants returns all that take part, the leader first, as one server sees them now. A missing path has none.
func (e *LeaderSelector) Participants(ctx context.Context) (Participants, error) {
	return e.spec.participants(ctx)
}
