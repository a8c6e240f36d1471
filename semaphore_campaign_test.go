package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/znode"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// Fifty callers of ten sessions block, try and time out at one semaphore, of one permit, two or five, for a while. Three of the sessions are behind proxies
// to which everything happens that a network does, and are ended from outside.
//
// What is asserted, exactly, but for the leases of a session that was ended from outside, which have to be told within five seconds:
//
//   - Of the leases that say that they are held not more are held at one moment than there are permits. A lease that says so now was held ever since.
//   - Seen from outside: a lease that says that it is held before and after a look at the server has its znode there, and not as many as there are
//     permits stand before it.
//   - A healthy session loses nothing, and no call ends with an error but those that a broken network excuses.
//   - When the networks are healed everybody is granted, and in the end nothing is left, and another session can have all permits at once.
//
// Reports: python-zk/kazoo #214.
func TestSemaphoresUnderFaults(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	server := newTestServer(t, tortureTick)
	var wg sync.WaitGroup
	for _, limit := range []int{1, 2, 5} {
		wg.Go(func() {
			(&side{TB: t, name: fmt.Sprintf("limit %d", limit)}).run(func(tb testing.TB) {
				c := newPermitCampaign(tb, server, seed, limit)
				c.run(tortureTime(tb))
				t.Logf("limit %d: %v", limit, c)
			})
		})
	}
	wg.Wait()
}

// A permitCampaign is a semaphore with those who use it.
type permitCampaign struct {
	*campaign
	limit int
	look  *zk.Conn

	mu     sync.Mutex
	inside map[*Lease]*actor
	looks  int
	seen   int // leases that a look found held
	most   int // permits at once
}

func newPermitCampaign(t testing.TB, server *testServer, seed uint64, limit int) *permitCampaign {
	c := &permitCampaign{campaign: &campaign{server: server, seed: seed}, limit: limit, inside: make(map[*Lease]*actor)}
	c.scene = scene{TB: t, path: newPath(t), book: newBook(t), hold: tortureHold / 2}
	c.look = adminAt(t, []string{server.addr})
	for n := range 10 {
		faulty := n%3 == 1
		addr, timeout := server.addr, WithTimeout(10*time.Second)
		if faulty {
			p := zktest.NewProxy(t, server.addr)
			addr, timeout = p.Addr(), WithTimeout(tortureTimeout)
			c.faults = append(c.faults, strikeAtRandom(t, rand.New(rand.NewPCG(seed, uint64(limit*100+n))), tortureEvery, c.strikes(p)))
		}
		s := dial(t, []string{addr}, timeout)
		for i := range 5 {
			a := &actor{name: fmt.Sprintf("caller %d.%d", n, i), s: s, faulty: faulty, rnd: rand.New(rand.NewPCG(seed, uint64(limit*1000+len(c.actors))))}
			a.take = func(ctx context.Context) (*Lease, error) { return c.take(ctx, a) }
			c.actors = append(c.actors, a)
		}
	}
	return c
}

// take asks in one of the ways there are; without a lease or an error it gave up, as it meant to.
func (c *permitCampaign) take(ctx context.Context, a *actor) (*Lease, error) {
	m, n := NewSemaphore(a.s, c.path, c.limit), 1
	if a.rnd.IntN(3) == 0 {
		n += a.rnd.IntN(c.limit)
	}
	var l *Lease
	var err error
	switch a.rnd.IntN(4) {
	case 0:
		l, err = m.TryAcquire(ctx, n)
	case 1:
		limited, cancel := context.WithTimeout(ctx, time.Duration(a.rnd.Int64N(int64(300*time.Millisecond))))
		defer cancel()
		l, err = m.Acquire(limited, n)
	default:
		return m.Acquire(ctx, n)
	}
	if errors.Is(err, ErrHeld) || errors.Is(err, ErrNoConnection) || errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	return l, err
}

func (c *permitCampaign) run(d time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer func() { stop(); wg.Wait() }()
	for _, a := range c.actors {
		wg.Go(func() { c.act(ctx, a) })
	}
	hungry := func() bool { // of those whose network is good, while those of others are not
		return slices.ContainsFunc(c.actors, func(a *actor) bool { return !a.faulty && a.granted.Load() == 0 })
	}
	for end := time.Now().Add(d); time.Now().Before(end) || hungry() && time.Now().Before(end.Add(time.Minute)); {
		c.fromOutside()
	}
	for _, f := range c.faults {
		f.stop()
	}
	during := make(map[*actor]int64)
	for _, a := range c.actors {
		during[a] = a.granted.Load()
	}
	eventually(c, 30*time.Second, "everybody is granted when the networks are healed", func() bool {
		c.fromOutside()
		return !slices.ContainsFunc(c.actors, func(a *actor) bool { return a.granted.Load() == during[a] })
	})
	stop()
	wg.Wait()
	eventually(c, 10*time.Second, "nothing is left", func() bool {
		return len(children(c, c.look, c.path+"/leases")) == 0 && len(children(c, c.look, c.path+"/locks")) == 0
	})
	all, err := NewSemaphore(dial(c, []string{c.server.addr}, calm), c.path, c.limit).TryAcquire(within(c, 10*time.Second), c.limit)
	require.NoError(c, err)
	require.NoError(c, all.Release(within(c, 10*time.Second)))
	c.clean()
	for _, a := range c.actors {
		if !a.faulty {
			require.Positive(c, during[a], "%s, granted", a.name)
			require.Zero(c, a.lost.Load(), "%s, lost", a.name)
		}
	}
	require.Positive(c, c.seen)
	require.GreaterOrEqual(c, c.most, (c.limit+1)/2, "they hold at once")
}

// act is a caller's life.
func (c *permitCampaign) act(ctx context.Context, a *actor) {
	for ctx.Err() == nil {
		l, err := a.take(ctx)
		if err != nil {
			if ctx.Err() == nil && !(a.faulty && strings.Contains(err.Error(), "connection lost 3 times running")) {
				c.book.note("%s: %v", a.name, err)
			}
			continue
		}
		if l == nil {
			<-time.After(time.Duration(a.rnd.Int64N(int64(20 * time.Millisecond)))) // what it does in between
			continue
		}
		a.granted.Add(1)
		c.mu.Lock()
		c.inside[l] = a
		c.mu.Unlock()
		c.counted()
		hold := time.Duration(a.rnd.Int64N(int64(c.hold)))
		if a.faulty && a.rnd.IntN(8) == 0 { // long enough to be lost
			hold = 20 * c.hold
		}
		select {
		case <-l.Done():
		case <-time.After(hold):
		}
		c.counted()
		c.mu.Lock()
		delete(c.inside, l)
		c.mu.Unlock()
		err = l.Release(context.Background())
		switch {
		case errors.Is(err, ErrLost):
			a.lost.Add(1)
		case err == nil, a.faulty && errors.Is(err, ErrNoConnection):
		default:
			c.book.note("%s, release: %v", a.name, err)
		}
	}
}

// held are the leases inside that say that they are held, and how many permits those are.
func (c *permitCampaign) held() (leases map[*Lease]*actor, permits int) {
	c.mu.Lock()
	leases = maps.Clone(c.inside)
	c.mu.Unlock()
	maps.DeleteFunc(leases, func(l *Lease, _ *actor) bool { return l.Err() != nil })
	for l := range leases {
		permits += len(l.Parts())
	}
	return leases, permits
}

// counted checks that not more are held than there are. Those that were asked first may have ended when the last is asked, but all were held when the
// first was.
func (c *permitCampaign) counted() {
	leases, n := c.held()
	c.mu.Lock()
	c.most = max(c.most, min(n, c.limit))
	c.mu.Unlock()
	if n <= c.limit {
		return
	}
	var who []string
	for l, a := range leases {
		if c.told(l) {
			n -= len(l.Parts())
		}
		who = append(who, fmt.Sprintf("%s (%d permits, token %d)", a.name, len(l.Parts()), l.Parts()[0].Token()))
	}
	if n > c.limit {
		c.book.note("%d permits held: %s", n, strings.Join(who, ", "))
	}
}

// told waits for the loss of a lease whose session was ended from outside; false if it was not, or is not told.
func (c *permitCampaign) told(l *Lease) bool { return c.book.told(l.Parts()[0]) }

// fromOutside looks at the znodes of those that say that they are held before and after.
func (c *permitCampaign) fromOutside() {
	before, _ := c.held()
	names := children(c, c.look, c.path+"/leases")
	all := parseAll(names, znode.LeaseName)
	znode.SortBySeq(all)
	place := make(map[string]int)
	for i, n := range all {
		place[c.path+"/leases/"+n.Raw] = i
	}
	c.looks++
	for l, a := range before {
		if l.Err() != nil {
			continue
		}
		c.seen++
		for _, p := range l.Parts() {
			i, ok := place[p.Node()]
			if ok && i < c.limit || c.told(l) {
				continue
			}
			c.book.note("%s (token %d) says that it holds %s, which is at %d (there: %v) of %v", a.name, p.Token(), p.Node(), i, ok, names)
		}
	}
}

func (c *permitCampaign) String() string {
	struck := make(map[string]int)
	for _, f := range c.faults {
		for kind, n := range f.struck {
			struck[kind] += n
		}
	}
	var grants, lost int64
	for _, a := range c.actors {
		grants, lost = grants+a.granted.Load(), lost+a.lost.Load()
	}
	return fmt.Sprintf("%d grants, %d lost; %d looks from outside at %d held leases; faults: %v", grants, lost, c.looks, c.seen, struck)
}
