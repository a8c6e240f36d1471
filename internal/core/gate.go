package core

import (
	"context"
	"errors"
)

// queued is how many requests may be inside the client at once. Its own queue has 16 places: what waits there survives an expiry and is executed in the
// next session, and a full one keeps Close from sending its request. One place is the heartbeat's, one is Close's. Callers through Conn may take
// callerQueued of them, so that they cannot keep the engine from its work.
const (
	queued       = 14
	callerQueued = 8
)

// Ready reports whether there is a session that takes requests.
func (e *Engine) Ready() bool {
	epoch, up, _, _ := e.contact.timing()
	e.mu.Lock()
	defer e.mu.Unlock()
	return up && !e.closing && e.open == epoch
}

// Await waits for a session. It returns ErrClosed after Close, and ctx's error.
func (e *Engine) Await(ctx context.Context) (Epoch, error) {
	epoch, _, err := e.await(ctx)
	return epoch, err
}

func (e *Engine) await(ctx context.Context) (Epoch, Conn, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Epoch{}, nil, err
		}
		e.mu.Lock()
		// Asked with mu held: with a reading from before the gate was opened for a newer connection, that gate would be shut here, for good.
		epoch, up, _, _ := e.contact.timing()
		closing, ok, opened := e.closing, up && e.open == epoch, e.opened
		var conn Conn
		if ok {
			conn = e.client.conn
		}
		if !ok && e.open != (Epoch{}) {
			// The wire knows already that this connection is over, the tracker does not yet.
			e.shutGate()
			opened = e.opened
		}
		e.mu.Unlock()
		if closing {
			return Epoch{}, nil, ErrClosed
		}
		if ok {
			return epoch, conn, nil
		}
		select {
		case <-opened:
		case <-ctx.Done():
		case <-e.ctx.Done():
		}
	}
}

// shutGate is called with mu held.
func (e *Engine) shutGate() {
	if e.open != (Epoch{}) {
		e.open = Epoch{}
		e.opened = make(chan struct{})
	}
}

// Do runs one request when there is a session and a place in the client's queue. The request itself is not interrupted: it ends with its answer, with
// its connection, or with Close.
func (e *Engine) Do(ctx context.Context, fn func(Conn) error) (Span, error) {
	select {
	case e.slots <- struct{}{}:
	case <-ctx.Done():
		return Span{}, ctx.Err()
	case <-e.ctx.Done():
		return Span{}, ErrClosed
	}
	defer func() { <-e.slots }()
	epoch, conn, err := e.await(ctx)
	if err != nil {
		return Span{}, err
	}
	err = fn(conn)
	if err != nil && e.ctx.Err() != nil && Classify(err) == Ambiguous {
		err = ErrClosed
	}
	return Span{epoch, e.contact.Epoch()}, err
}

// DoCaller is Do for requests of the user's own.
func (e *Engine) DoCaller(ctx context.Context, fn func(Conn) error) error {
	select {
	case e.callers <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-e.ctx.Done():
		return ErrClosed
	}
	defer func() { <-e.callers }()
	_, err := e.Do(ctx, fn)
	return err
}

// Read runs a request that changes nothing, again after each connection that ended without an answer, until ctx ends. It returns at that moment; the
// request, if one is under way, ends by itself.
func Read[T any](ctx context.Context, e *Engine, fn func(Conn) (T, error)) (T, Span, error) {
	type result struct {
		v    T
		span Span
		err  error
	}
	run := func() (r result) {
		for {
			r.span, r.err = e.Do(ctx, func(c Conn) (err error) {
				r.v, err = fn(c)
				return err
			})
			if r.err == nil || errors.Is(r.err, ErrClosed) || ctx.Err() != nil || Classify(r.err) == Answered {
				return r
			}
		}
	}
	if ctx.Done() == nil {
		r := run()
		return r.v, r.span, r.err
	}
	done := make(chan result, 1)
	if !e.Go(func() { done <- run() }) {
		var none T
		return none, Span{}, ErrClosed
	}
	select {
	case r := <-done:
		return r.v, r.span, r.err
	case <-ctx.Done():
		var none T
		return none, Span{}, ctx.Err()
	}
}

// openGate lets requests in, after it was told that the engine is connected: who gets in has a right to see that. It runs on the tracker.
func (e *Engine) openGate(c *client, epoch Epoch) {
	usable := func() bool { // mu is held
		now, up, _, _ := e.contact.timing()
		return up && now == epoch && !e.closing && e.client == c && e.open != epoch
	}
	e.mu.Lock()
	ok := usable()
	e.mu.Unlock()
	if !ok {
		return
	}
	e.setState(Connected)
	e.mu.Lock()
	if !usable() { // its end is on its way here
		e.mu.Unlock()
		return
	}
	e.shutGate()
	e.open = epoch
	e.client.served = false
	close(e.opened)
	e.mu.Unlock()
	e.cfg.Logger.Info("zkrecipes: connected", "session", sessionID(epoch.Session), "timeout", e.Timeout())
	e.hub.recheck(Recheck)
	e.reaper.kick()
	e.wakeClock()
}
