package interop

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// A rival is a client of one library behind a proxy of its own, in a scenario that all go through, and this library without one, which comes next.
type rival struct {
	testing.TB
	library string
	p       *zktest.Proxy
	c       client
	next    *zkrecipes.Session
	look    *zk.Conn
	path    string
}

func newRival(t testing.TB, library string, timeout time.Duration) *rival {
	r := &rival{TB: t, library: library, p: zktest.NewProxy(t, servers(t)[0]), next: dial(t), look: plain(t), path: newPath(t)}
	require.NoError(t, createAll(r.look, r.path))
	r.c = openClient(t, library, []string{r.p.Addr()}, timeout)
	return r
}

const (
	soon = 5 * time.Second // for what takes no wait but that of a busy machine; less than any session here but that of blackHole
	late = 2 * time.Second // beyond its limit a call is late
)

var errNoLimit = errors.New("a wait has no limit")

// lock takes the lock without a limit of its own, and with one of the scenario's, which the library does not know.
func (r *rival) lock() error { return r.lockWithin(soon) }

func (r *rival) lockWithin(d time.Duration) error {
	return r.bounded(d, func(ctx context.Context) error {
		_, err := r.c.Lock(ctx, Mutex, r.path)
		return err
	})
}

func (r *rival) release() error {
	return r.bounded(soon, func(ctx context.Context) error { return r.c.Release(ctx, Mutex, r.path) })
}

var errStuck = errors.New("no answer")

// bounded does not wait longer than d; what is under way then ends with the client.
func (r *rival) bounded(d time.Duration, fn func(ctx context.Context) error) error {
	ctx, done := within(r, time.Minute), make(chan error, 1)
	go func() { done <- fn(ctx) }()
	limit := time.NewTimer(d)
	defer limit.Stop()
	select {
	case err := <-done:
		return err
	case <-limit.C:
		return errStuck
	}
}

// starts lets the client wait for the lock.
func (r *rival) starts() <-chan error {
	ctx, got := within(r, time.Minute), make(chan error, 1)
	go func() {
		_, err := r.c.Lock(ctx, Mutex, r.path)
		got <- err
	}()
	return got
}

// tries waits for the lock for so long, by the library's own clock.
func (r *rival) tries(d time.Duration) (granted bool, err error) {
	switch c := r.c.(type) {
	case *Peer:
		return c.TryFor(within(r, time.Minute), Mutex, r.path, d)
	case *ourClient:
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		_, err := c.Lock(ctx, Mutex, r.path)
		if errors.Is(err, context.DeadlineExceeded) {
			return false, nil
		}
		return err == nil, err
	}
	return false, errNoLimit
}

// holds is what the lock says of itself, and what was told of its connection; zk.Lock says nothing.
func (r *rival) holds() (holds bool, states []string) {
	switch c := r.c.(type) {
	case *Peer:
		holds, states, err := c.Holds(within(r, soon), Mutex, r.path)
		require.NoError(r, err)
		return holds, states
	case *ourClient:
		return c.lastLease().Err() == nil, []string{c.s.State().String()}
	}
	return true, nil
}

// others takes the lock with this library, as the next one, and gives it back.
func (r *rival) others() error {
	ctx := within(r, soon)
	l, err := zkrecipes.NewMutex(r.next, r.path).Lock(ctx)
	if err != nil {
		return fmt.Errorf("nobody can have the lock: %w", err)
	}
	return l.Release(ctx)
}

func (r *rival) holder() *zkrecipes.Lease {
	l, err := zkrecipes.NewMutex(r.next, r.path).Lock(within(r, soon))
	require.NoError(r, err)
	return l
}

// children are the znodes in the directory, or below it, after a sync.
func (r *rival) children(below ...string) []string {
	dir := path.Join(append([]string{r.path}, below...)...)
	_, err := r.look.Sync(dir)
	require.NoError(r, err)
	names, _, err := r.look.Children(dir)
	if !errors.Is(err, zk.ErrNoNode) {
		require.NoError(r, err)
	}
	slices.Sort(names)
	return names
}

// queued waits until so many are in the directory.
func (r *rival) queued(n int) {
	eventually(r, fmt.Sprintf("%d in the queue", n), func() bool { return len(r.children()) == n })
}

// stays watches for a moment that a number of znodes does not change.
func (r *rival) stays(n int) bool {
	for end := time.Now().Add(5 * calm); time.Now().Before(end); time.Sleep(calm / 10) { // a poll of what must not change
		if len(r.children()) != n {
			return false
		}
	}
	return true
}

// cutAfter cuts the connection behind the next create below a path, which is made.
func (r *rival) cutAfter(below string) {
	r.p.OnRequest(zktest.Rule{Times: 1, Do: zktest.CutAfter(), Match: func(f zktest.Frame) bool {
		return slices.Contains([]zktest.Op{zktest.OpCreate, zktest.OpCreate2}, f.Op) && path.Dir(f.Path) == below
	}})
}

// lists matches the search for a znode.
func (r *rival) lists(f zktest.Frame) bool {
	return slices.Contains([]zktest.Op{zktest.OpGetChildren, zktest.OpGetChildren2}, f.Op) && f.Path == r.path
}

func (r *rival) expire() { require.NoError(r, r.p.Expire(within(r, soon))) }

func lostReplyAndSearch(r *rival) error {
	r.cutAfter(r.path)
	r.p.OnRequest(zktest.Rule{Match: r.lists, Times: 1, Do: zktest.CutBefore()})
	if err := r.lockWithin(time.Minute); err == nil { // given up sooner, a lock that comes yet would be in the way of the others
		require.NoError(r, r.release())
	}
	return r.others()
}

func waiterIsCut(r *rival) error {
	first := r.holder()
	r.cutAfter(r.path)
	got := r.starts()
	r.queued(2)
	if !r.stays(2) {
		return fmt.Errorf("it has %v", r.children())
	}
	require.NoError(r, first.Release(within(r, soon)))
	if err := <-got; err != nil {
		return fmt.Errorf("it is not granted: %w", err)
	}
	return errors.Join(r.release(), r.others())
}

func permitIsCut(r *rival) error {
	r.cutAfter(r.path + "/leases")
	ctx := within(r, time.Minute)
	err := r.bounded(soon, func(context.Context) error {
		_, err := r.c.Lock(ctx, Semaphore, r.path)
		return err
	})
	if err != nil {
		return fmt.Errorf("no permit: %w", err)
	}
	if names := r.children("leases"); len(names) != 1 {
		return fmt.Errorf("the permit has %d znodes", len(names))
	}
	require.NoError(r, r.c.Release(ctx, Semaphore, r.path))
	eventually(r, "no permit is taken", func() bool { return len(r.children("leases")) == 0 })
	return nil
}

func foreignChild(r *rival) error {
	require.NoError(r, createAll(r.look, r.path+"/!note"))
	if err := r.lock(); err != nil {
		return fmt.Errorf("the lock cannot be had: %w", err)
	}
	return r.release()
}

func sessionOfAHolderEnds(r *rival) error {
	require.NoError(r, r.lock())
	r.expire()
	for end := time.Now().Add(soon); ; <-time.After(10 * time.Millisecond) {
		switch holds, states := r.holds(); {
		case !holds:
			return nil
		case slices.Contains(states, "LOST"):
			return errors.New("its connection is told, the lock is not")
		case time.Now().After(end):
			return errors.New("the lock is not told")
		}
	}
}

func blackHole(r *rival) error {
	require.NoError(r, r.lock())
	got := make(chan error, 1)
	var l *zkrecipes.Lease
	go func() {
		var err error
		l, err = zkrecipes.NewMutex(r.next, r.path).Lock(within(r, 30*time.Second))
		got <- err
	}()
	r.queued(2)
	r.p.BlackHole(zktest.Both)
	defer r.p.BlackHole(zktest.None)
	require.NoError(r, <-got)
	holds, states := r.holds()
	r.Logf("when the next one is granted: held %v, connection %v", holds, states)
	require.NoError(r, l.Release(within(r, soon)))
	if holds {
		return errors.New("the lock says that it is held")
	}
	return nil
}

func holderIsDeleted(r *rival) error {
	require.NoError(r, r.lock())
	require.NoError(r, r.look.Delete(r.path+"/"+r.children()[0], -1))
	l := r.holder()
	defer func() { require.NoError(r, l.Release(within(r, soon))) }()
	for end := time.Now().Add(late); ; <-time.After(10 * time.Millisecond) { // it is told as soon as the server's notice arrives
		if holds, _ := r.holds(); !holds {
			return nil
		}
		if time.Now().After(end) {
			return errors.New("the lock says that it is held")
		}
	}
}

func waiterIsDeleted(r *rival) error {
	first := r.holder()
	got := r.starts()
	r.queued(2)
	require.NoError(r, r.look.Delete(r.path+"/"+r.waiter(first), -1))
	require.NoError(r, first.Release(within(r, soon)))
	select {
	case err := <-got:
		if err != nil {
			return fmt.Errorf("it is not granted: %w", err)
		}
	case <-time.After(soon):
		return errors.New("it waits for ever")
	}
	if len(r.children()) != 1 {
		return errors.New("it is granted without a znode")
	}
	return errors.Join(r.release(), r.others())
}

// waiter is the znode that is not that of a lease.
func (r *rival) waiter(l *zkrecipes.Lease) string {
	names := slices.DeleteFunc(r.children(), func(name string) bool { return name == path.Base(l.Node()) })
	require.Len(r, names, 1)
	return names[0]
}

func againAfterTheEnd(r *rival) error {
	require.NoError(r, r.lock())
	r.expire()
	require.NoError(r, r.others()) // its znode has gone
	_ = r.release()
	var err error
	for end := time.Now().Add(soon); time.Now().Before(end); <-time.After(50 * time.Millisecond) { // it may have no session yet
		if err = r.lock(); err == nil {
			return errors.Join(r.release(), r.others())
		}
	}
	return fmt.Errorf("it cannot be locked again: %w", err)
}

func releaseWithoutAConnection(r *rival) error {
	require.NoError(r, r.lock())
	r.p.Refuse(true)
	done := make(chan error, 1)
	go func() { done <- r.c.Release(within(r, time.Minute), Mutex, r.path) }()
	limit := time.Second
	if r.library == zkLock {
		limit = time.Minute // it fails what it cannot send, but only once in a round of attempts, and sends what is left when there is a connection
	}
	select {
	case err := <-done:
		r.Logf("the release returns without a connection: %v", err)
	case <-time.After(limit):
		r.Log("the release waits for a connection")
	}
	r.p.Refuse(false)
	return r.others()
}

func waitIsGivenUp(r *rival) error {
	first := r.holder()
	began := time.Now()
	granted, err := r.tries(200 * time.Millisecond)
	if err != nil {
		return err
	}
	require.False(r, granted)
	if took := time.Since(began); took > late {
		return fmt.Errorf("it returns %v after its limit", took)
	}
	eventually(r, "its znode goes", func() bool { return len(r.children()) == 1 })
	return first.Release(within(r, soon))
}

func waitIsGivenUpWithoutAConnection(r *rival) error {
	first := r.holder()
	r.p.ResetCounters()
	const limit = 2 * time.Second
	type outcome struct {
		granted bool
		err     error
	}
	done := make(chan outcome, 1)
	began := time.Now()
	go func() {
		granted, err := r.tries(limit)
		done <- outcome{granted, err}
	}()
	if r.library != zkLock {
		r.queued(2)
		r.p.Refuse(true)
		defer r.p.Refuse(false)
	}
	select {
	case o := <-done:
		require.False(r, o.granted)
		if errors.Is(o.err, errNoLimit) {
			return o.err
		}
		r.Logf("it returns after %v: %v", time.Since(began), o.err)
	case <-time.After(limit + late):
		r.p.Refuse(false)
		r.Logf("connected again, it returns: %+v", <-done)
		return errors.New("it returns when there is a connection again")
	}
	r.p.Refuse(false)
	eventually(r, "its znode goes", func() bool { return len(r.children()) == 1 })
	return first.Release(within(r, soon))
}

func tryWithoutAConnection(r *rival) error {
	r.p.Refuse(true)
	defer r.p.Refuse(false)
	done := make(chan error, 1)
	began := time.Now()
	go func() {
		granted, err := r.tries(200 * time.Millisecond)
		if granted {
			err = errors.New("granted")
		}
		done <- err
	}()
	select {
	case err := <-done:
		if errors.Is(err, errNoLimit) {
			return err
		}
		r.Logf("it returns after %v: %v", time.Since(began), err)
	case <-time.After(late):
		r.p.Refuse(false)
		r.Logf("connected again, it returns: %v", <-done)
		return errors.New("it returns when there is a connection again")
	}
	r.p.Refuse(false)
	return r.others()
}

func readerBetweenWriters(r *rival) error {
	f := newFleetAt(r, servers(r), r.path)
	w := f.join(r.library + " write")
	f.settle()
	reader := f.join(r.library + " read")
	f.join(r.library + " write")
	f.leave(w)
	select {
	case _, ok := <-reader.granted:
		require.True(r, ok, "%v", reader.err)
		return nil
	case <-time.After(late):
		return errors.New("the reader waits for the later writer")
	}
}

func downgrade(r *rival) error {
	f := newFleetAt(r, servers(r), r.path)
	w := f.join(r.library + " write")
	f.settle()
	second := f.join(r.library + " write")
	ctx := within(r, time.Minute)
	_, err := w.client.Lock(ctx, Reader, r.path)
	require.NoError(r, err)
	require.NoError(r, w.release())
	select {
	case <-second.granted:
		return errors.New("the writer is granted beside the reader")
	case <-time.After(soon): // so long because it is expected of a library
	}
	require.NoError(r, w.client.Release(ctx, Reader, r.path))
	_, ok := <-second.granted
	require.True(r, ok, "%v", second.err)
	return nil
}

func candidatesAreCut(r *rival) error {
	ctx := within(r, time.Minute)
	_, err := r.c.Lock(ctx, Latch, r.path)
	require.NoError(r, err)
	p := zktest.NewProxy(r, servers(r)[0])
	second := openClient(r, r.library, []string{p.Addr()}, sessionTimeout)
	got := make(chan error, 1)
	go func() {
		_, err := second.Lock(ctx, Latch, r.path)
		got <- err
	}()
	r.queued(2)
	before := r.children()
	for _, p := range []*zktest.Proxy{r.p, p} {
		p.ResetCounters()
		p.Cut()
		eventually(r, "it is back", func() bool { return p.Counts().Requests[zktest.OpConnect] > 0 })
	}
	for end := time.Now().Add(10 * calm); time.Now().Before(end); <-time.After(calm / 10) {
		if !slices.Equal(before, r.children()) {
			return errors.New("they make new znodes")
		}
	}
	return nil
}
