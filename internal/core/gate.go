package core

import (
	"context"
	"errors"
	"time"
)

// queued is how many requests may be inside the client at once. Its own queue has 16 places: what waits there survives an expiry and is executed in the
// next session, and a full one keeps Close from sending its request. One place is the heartbeat's, one is Close's. Callers through Conn may take
// callerQueued of them, so that they cannot keep the engine from its work.
const (
	queued       = 14
	callerQueued = 8

	unlookedWait = 250 * time.Millisecond
)

// Ready reports whether there is a session that takes requests.
func (e *Engine) Ready() bool {
	e.source.look()
	epoch, up, _, _ := e.contact.timing()
	e.mu.Lock()
	defer e.mu.Unlock()
	return up && !e.closing && e.open == epoch
}

// Reachable reports whether there is a connection with a session, as far as is known, also after Close.
func (e *Engine) Reachable() bool {
	e.source.look()
	_, up, _, _ := e.contact.timing()
	return up
}

// Await waits for a session. It returns ErrClosed after Close, and ctx's error.
func (e *Engine) Await(ctx context.Context) (Epoch, error) {
	epoch, _, err := e.await(ctx, e.ctx)
	return epoch, err
}

// await waits for a session. until is the engine's ctx, or its life for those who clean up after Close.
func (e *Engine) await(ctx, until context.Context) (Epoch, Conn, error) {
	for {
		e.source.look()
		if err := ctx.Err(); err != nil {
			return Epoch{}, nil, err
		}
		e.mu.Lock()
		// Asked with mu held: with a reading from before the gate was opened for a newer connection, that gate would be shut here, for good.
		epoch, up, _, _ := e.contact.timing()
		left, opened := e.left, e.opened
		closing, ok := e.ended || e.closing && until == e.ctx, up && e.open == epoch
		var conn Conn
		if ok {
			conn = e.source.conn()
		}
		if !ok && e.open != (Epoch{}) {
			// The wire knows already that this connection is over, the tracker does not yet.
			e.shutGate()
			opened = e.opened
		}
		e.mu.Unlock()
		switch {
		case closing:
			return Epoch{}, nil, ErrClosed
		case left != nil:
			return Epoch{}, nil, left
		}
		if ok {
			return epoch, conn, nil
		}
		select {
		case <-opened:
		case <-ctx.Done():
		case <-until.Done():
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

// wakeWaiting lets everybody look again who waits for the gate to open; mu is held.
func (e *Engine) wakeWaiting() {
	if e.open == (Epoch{}) {
		close(e.opened)
		e.opened = make(chan struct{})
	}
}

// throttlePause is about how long a request waits to be repeated that the server was too busy for.
const throttlePause = 200 * time.Millisecond

// Do runs one request when there is a session and a place in the client's queue. The request itself is not interrupted: it ends with its answer, with
// its connection, or with Close.
func (e *Engine) Do(ctx context.Context, fn func(Conn) error) (Span, error) {
	return e.do(ctx, e.ctx, fn)
}

// do is Do, for as long as until lasts; see await.
func (e *Engine) do(ctx, until context.Context, fn func(Conn) error) (Span, error) {
	if until.Err() != nil { // who goes on until then is not told that ctx has ended, which may be the same
		return Span{}, ErrClosed
	}
	select {
	case e.slots <- struct{}{}: // mostly: then ctx is not asked for a channel, which may have to be made
	default:
		select {
		case e.slots <- struct{}{}:
		case <-ctx.Done():
			return Span{}, ctx.Err()
		case <-until.Done():
			return Span{}, ErrClosed
		}
	}
	defer func() { <-e.slots }()
	epoch, conn, err := e.await(ctx, until)
	if err != nil {
		return Span{}, err
	}
	err = fn(conn)
	e.source.done(epoch, err)
	if code, ok := Code(err); ok && code == codeThrottled {
		// It says that it has too much to do. Whoever asks again does not do so at once, and until then nobody takes its place.
		select {
		case <-time.After(jitter(throttlePause)):
		case <-ctx.Done():
		case <-until.Done():
		}
	}
	if err != nil && until.Err() != nil && Classify(err) == Ambiguous {
		err = ErrClosed
	}
	return Span{epoch, e.contact.Epoch()}, err
}

// Unlooked runs a CreateContainer or CreateTTL within Do. When the connection is closed under it, go-zookeeper takes the path out of the answer without a
// look whether its receive loop is still writing there, which -race reports. So Close of an owned connection waits a moment for those under way.
func (e *Engine) Unlooked(request func() error) error {
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		return ErrClosed
	}
	e.unlooked.Add(1)
	e.mu.Unlock()
	defer e.unlooked.Done()
	return request()
}

// awaitUnlooked waits for the requests of Unlooked; closing is set.
func (e *Engine) awaitUnlooked(ctx context.Context) {
	done := make(chan struct{})
	go func() { // ends with them, at the latest when the client is closed
		defer close(done)
		e.unlooked.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	case <-time.After(unlookedWait):
	}
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

// Until runs fn on a goroutine that Close waits for, and returns what it returns, or ctx's error at the moment at which ctx ends: then fn, which has the same
// ctx, sees to what it leaves behind.
func (e *Engine) Until(ctx context.Context, fn func() error) error {
	if ctx.Done() == nil {
		return fn()
	}
	done := make(chan error, 1)
	if !e.Go(func() { done <- fn() }) {
		return ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Read runs a request that changes nothing, again after each connection that ended without an answer, until ctx ends. It returns at that moment; the
// request, if one is under way, ends by itself.
func Read[T any](ctx context.Context, e *Engine, fn func(Conn) (T, error)) (T, Span, error) {
	type result struct {
		v    T
		span Span
	}
	read := make(chan result, 1)
	err := e.Until(ctx, func() error {
		for {
			var r result
			var err error
			r.span, err = e.Do(ctx, func(c Conn) (err error) {
				r.v, err = fn(c)
				return err
			})
			if err == nil || errors.Is(err, ErrClosed) || ctx.Err() != nil || Classify(err) == Answered {
				read <- r
				return err
			}
		}
	})
	select {
	case r := <-read:
		return r.v, r.span, err
	default:
		var none result
		return none.v, none.span, err
	}
}

// openGate lets requests in, after it was told that the engine is connected: who gets in has a right to see that. current, called with mu held, says
// whether the source still means it; openGate reports whether it was done. It runs on the tracker.
func (e *Engine) openGate(epoch Epoch, current func() bool) bool {
	usable := func() bool { // mu is held
		now, up, _, _ := e.contact.timing()
		return up && now == epoch && !e.ended && current() && e.open != epoch
	}
	e.mu.Lock()
	ok := usable()
	e.mu.Unlock()
	if !ok {
		return false
	}
	e.setState(Connected)
	e.mu.Lock()
	if !usable() { // its end is on its way here
		e.mu.Unlock()
		return false
	}
	e.shutGate()
	e.open = epoch
	close(e.opened)
	e.mu.Unlock()
	e.cfg.Logger.Info("zkrecipes: connected", "session", sessionID(epoch.Session), "timeout", e.Timeout())
	e.hub.recheck(Recheck)
	e.reaper.kick()
	e.wakeClock()
	return true
}
