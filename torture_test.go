package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

const (
	tortureTick    = 100 * time.Millisecond
	tortureTimeout = time.Second            // of a session behind a proxy
	tortureFault   = tortureTimeout * 3 / 2 // the longest
	tortureEvery   = tortureTimeout * 3 / 2 // between two faults of one proxy
	tortureHold    = 20 * time.Millisecond  // a lease is held so long at most, by a process that runs
)

// tortureTime is how long a campaign goes on: ZKRECIPES_TORTURE, or 15 s; 5 s on the server of this process.
func tortureTime(t testing.TB) time.Duration {
	s := os.Getenv("ZKRECIPES_TORTURE")
	switch {
	case s == "" && testrun.Real():
		return 15 * time.Second
	case s == "":
		return 3 * time.Second
	}
	d, err := time.ParseDuration(s)
	require.NoError(t, err)
	return d
}

// Fifty readers of ten sessions and one writer, or three, of which one is a Mutex and one reads on when it has written, share a lock for a while.
// Three of the readers' sessions, and the writer that reads on, are behind proxies of their own, to which everything happens that a network does;
// sessions are ended from outside; and a reading process is killed again and again.
//
// What is asserted, exactly:
//
//   - Of two that exclude each other, not both leases say at one moment that they are held (Err is nil), from the return of Lock on and at every access.
//     The one exception is a lease of a session that the test has ended from outside: nobody can know of that before the server's notice, which may come
//     after the next grant; it has to be told within five seconds. The leases of a session that a broken network has cost are told in time.
//   - A resource that knows the tokens sees no harm even so. An access may arrive late: a goroutine may be held up between the look at its lease and the
//     access, which no lock can prevent. Such an access has an old token by the time at which somebody else has been there, and is refused; whoever is
//     refused finds its lease lost, when it looks then. So the number in the register is the count of the writes that it took, what a reader reads twice
//     under one lease is the same, and a writer that reads on reads what it wrote.
//   - Neither side starves. Nobody is overtaken: who comes later has the greater token, and if it were granted first the register would refuse the other
//     one's first access, under a lease that is held. So whoever is not behind a broken network is granted again and again, and waits no longer than for
//     all that may stand before it: the holds, at the worst of holders whose session has to end first, and the hand-overs; and everybody is granted when
//     the networks are healed.
//   - No call ends with an error but those that a broken network excuses, and nothing is left in the end.
//
// Reports: python-zk/kazoo #306.
func TestReadersAndWritersUnderFaults(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	var wg sync.WaitGroup
	server := newTestServer(t, tortureTick)
	for _, writers := range []int{1, 3} {
		wg.Go(func() {
			(&side{TB: t, name: fmt.Sprintf("%d writers", writers)}).run(func(tb testing.TB) {
				c := newCampaign(tb, server, seed, writers)
				c.run(tortureTime(tb))
				t.Logf("%d writers: %v", writers, c)
			})
		})
	}
	wg.Wait()
}

// A scene is one lock with those who use it.
type scene struct {
	testing.TB
	path   string
	actors []*actor
	faults []*faults
	book   *book
	hold   time.Duration // a lease is held so long at most
	step   time.Duration // between two accesses under it
	pause  time.Duration // of a reader between two leases, at most
}

// A campaign is a scene on a server of its own, in real time.
type campaign struct {
	scene
	server  *testServer
	seed    uint64
	writers int
	kills   int
}

// An actor takes a lease again and again.
type actor struct {
	name    string
	s       *Session
	lock    Locker
	take    func(context.Context) (*Lease, error) // lock.Lock if nil; without a lease or an error it gave up, as it meant to
	writes  bool
	reads   *RWLock // a writer that reads on has it
	faulty  bool
	rnd     *rand.Rand
	granted atomic.Int64
	longest atomic.Int64 // wait
	lost    atomic.Int64
}

func newCampaign(t testing.TB, server *testServer, seed uint64, writers int) *campaign {
	c := &campaign{server: server, seed: seed, writers: writers}
	c.scene = scene{TB: t, path: newPath(t), book: newBook(t), hold: tortureHold, step: 2 * time.Millisecond, pause: 10 * time.Millisecond}
	session := func(n int, faulty bool) *Session {
		if !faulty {
			return dial(t, []string{server.addr}, WithTimeout(10*time.Second))
		}
		p := zktest.NewProxy(t, server.addr)
		s := dial(t, []string{p.Addr()}, WithTimeout(tortureTimeout))
		c.faults = append(c.faults, strikeAtRandom(t, rand.New(rand.NewPCG(seed, uint64(writers*100+n))), tortureEvery, c.strikes(p)))
		return s
	}
	add := func(a *actor) {
		a.rnd = rand.New(rand.NewPCG(seed, uint64(writers*1000+len(c.actors))))
		c.actors = append(c.actors, a)
	}
	for n := range 10 {
		s := session(n, n%3 == 1)
		for i := range 5 {
			add(&actor{name: fmt.Sprintf("reader %d.%d", n, i), s: s, lock: NewRWLock(s, c.path).RLocker(), faulty: n%3 == 1})
		}
	}
	s := session(10, false)
	add(&actor{name: "writer", s: s, lock: NewRWLock(s, c.path), writes: true})
	if writers == 3 {
		s := session(11, true)
		l := NewRWLock(s, c.path)
		add(&actor{name: "writer that reads on", s: s, lock: l, reads: l, writes: true, faulty: true})
		s = session(12, false)
		add(&actor{name: "mutex", s: s, lock: NewMutex(s, c.path), writes: true})
	}
	return c
}

// strikes is what may happen to a proxy.
func (c *campaign) strikes(p *zktest.Proxy) []strike {
	const ms = time.Millisecond
	hole := func(from, to time.Duration) func(*faults, zktest.Direction) {
		return func(f *faults, d zktest.Direction) {
			p.BlackHole(d)
			f.wait(f.between(from, to))
			p.BlackHole(zktest.None)
		}
	}
	return []strike{
		{"cut", func(*faults, zktest.Direction) { p.Cut() }},
		{"flap", func(f *faults, _ zktest.Direction) { p.Flap(3, f.between(5*ms, 100*ms)) }},
		{"delay", func(f *faults, _ zktest.Direction) {
			p.Delay(f.between(5*ms, 60*ms))
			f.wait(f.between(100*ms, 500*ms))
			p.Delay(0)
		}},
		{"short black hole", hole(50*ms, tortureTimeout/2)},
		{"long black hole", hole(tortureTimeout+2*tortureTick, tortureFault)},
		{"expire", func(f *faults, _ zktest.Direction) {
			id, _, _ := p.Session()
			c.book.ends(id)
			ctx, cancel := context.WithTimeout(f.ctx, 2*time.Second)
			defer cancel()
			_ = p.Expire(ctx) // the client may come back in between, and keep its session
		}},
	}
}

func (c *campaign) run(d time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer func() { stop(); wg.Wait() }()
	for _, a := range c.actors {
		wg.Go(func() { c.act(ctx, a) })
	}
	enough := int64(d/(10*time.Second)) + 1
	hungry := func() bool { // a wait that is as long as it may be can take up most of a short campaign
		return slices.ContainsFunc(c.actors, func(a *actor) bool { return !a.faulty && a.granted.Load() < enough })
	}
	end := time.Now().Add(d)
	for time.Now().Before(end) || hungry() && time.Now().Before(end.Add(time.Minute)) { // processes come and are killed while they read
		w := startWorker(c, "read", task{Servers: []string{c.server.addr}, Timeout: tortureTimeout, Path: c.path, Linger: tortureHold})
		w.ready(c)
		w.goOn(c)
		<-time.After(d / 8)
		w.kill()
		c.kills++
	}
	for _, f := range c.faults {
		f.stop()
	}
	during := make(map[*actor]int64)
	for _, a := range c.actors {
		during[a] = a.granted.Load()
	}
	eventually(c, 20*time.Second, "everybody is granted when the networks are healed", func() bool {
		return !slices.ContainsFunc(c.actors, func(a *actor) bool { return a.granted.Load() == during[a] })
	})
	stop()
	wg.Wait()
	look := adminAt(c, []string{c.server.addr})
	eventually(c, 10*time.Second, "nothing is left", func() bool { return len(children(c, look, c.path)) == 0 })
	c.clean()

	// Whoever waits has readers before it, who hold at once, and a writer, as many times as there are writers. One that is cut off can give back
	// nothing, and keeps its session for a timeout after the fault at most: in a black hole of one direction the server goes on to hear it. The rest is
	// for hand-overs on a machine that is busy.
	limit := time.Duration(2*c.writers)*(tortureHold+tortureFault+tortureTimeout+3*tortureTick) + 4*time.Second
	for _, a := range c.actors {
		if !a.faulty {
			require.GreaterOrEqual(c, during[a], enough, "%s, granted", a.name)
			require.Less(c, time.Duration(a.longest.Load()), limit, "%s, longest wait", a.name)
			require.Zero(c, a.lost.Load(), "%s, lost", a.name)
		}
	}
}

// clean checks what must be so in the end.
func (c *scene) clean() {
	c.Helper()
	for _, a := range c.actors {
		require.Empty(c, a.s.Leases(), a.name)
	}
	c.book.mu.Lock()
	defer c.book.mu.Unlock()
	require.Empty(c, c.book.wrong)
	require.Equal(c, c.book.taken, c.book.value)
}

func (c *campaign) String() string {
	var b strings.Builder
	struck := make(map[string]int)
	for _, f := range c.faults {
		for kind, n := range f.struck {
			struck[kind] += n
		}
	}
	var reads, writes, lost int64
	var reader, writer time.Duration
	for _, a := range c.actors {
		lost += a.lost.Load()
		wait := time.Duration(a.longest.Load())
		switch {
		case a.writes:
			writes += a.granted.Load()
		default:
			reads += a.granted.Load()
		}
		switch {
		case a.faulty:
		case a.writes:
			writer = max(writer, wait)
		default:
			reader = max(reader, wait)
		}
	}
	fmt.Fprintf(&b, "%d read and %d write leases, %d lost; longest wait of the healthy: reader %v, writer %v; ",
		reads, writes, lost, reader.Round(time.Millisecond), writer.Round(time.Millisecond))
	fmt.Fprintf(&b, "%d accesses refused; faults: %v, %d processes killed", c.book.refused, struck, c.kills)
	return b.String()
}

// act is an actor's life.
func (c *scene) act(ctx context.Context, a *actor) {
	for ctx.Err() == nil {
		begin := time.Now()
		take := a.take
		if take == nil {
			take = a.lock.Lock
		}
		l, err := take(ctx)
		wait := time.Since(begin)
		if wait > time.Duration(a.longest.Load()) {
			a.longest.Store(int64(wait)) // also of a wait that ctx ended
		}
		if err != nil {
			if ctx.Err() == nil && !(a.faulty && strings.Contains(err.Error(), "connection lost 3 times running")) {
				c.book.note("%s: %v", a.name, err)
			}
			continue
		}
		if l == nil {
			continue
		}
		a.granted.Add(1)
		leave := c.book.enter(a, l)
		c.work(a, l)
		if a.reads != nil && l.Err() == nil {
			c.readOn(ctx, a, l)
		}
		leave()
		if err := l.Release(context.Background()); err != nil {
			switch {
			case errors.Is(err, ErrLost):
				a.lost.Add(1)
			case a.faulty && errors.Is(err, ErrNoConnection):
			default:
				c.book.note("%s, release: %v", a.name, err)
			}
		}
		if !a.writes {
			<-time.After(time.Duration(a.rnd.Int64N(int64(c.pause)))) // what it does in between
		}
	}
}

// work is what an actor does under its lease: some accesses, until it is lost.
func (c *scene) work(a *actor, l *Lease) {
	value, ok := c.book.read(a, l)
	for end := time.Now().Add(time.Duration(a.rnd.Int64N(int64(c.hold)))); ok && time.Now().Before(end); {
		<-time.After(c.step)
		var again int
		if again, ok = c.book.read(a, l); ok && again != value {
			c.book.note("%s, token %d: read %d and then %d under one lease", a.name, l.Token(), value, again)
		}
	}
	if ok && a.writes {
		c.book.write(a, l, value+1)
	}
}

// readOn reads under a writer's lease, releases that, and reads what the writer left.
func (c *scene) readOn(ctx context.Context, a *actor, w *Lease) {
	value, wrote := c.book.read(a, w)
	r, err := a.reads.RLock(readUnder(ctx, w))
	if err != nil {
		if ctx.Err() == nil && !strings.Contains(err.Error(), "connection lost 3 times running") {
			c.book.note("%s, nested: %v", a.name, err)
		}
		return
	}
	reader := &actor{name: a.name + ", reading", s: a.s, rnd: a.rnd}
	leave := c.book.enter(reader, r)
	nested := r.Token() == w.Token() // else the write lease was lost, and it queued
	_ = w.Release(context.Background())
	if read, ok := c.book.read(reader, r); ok && wrote && nested && read != value {
		c.book.note("%s, token %d: wrote %d, read %d", a.name, r.Token(), value, read)
	}
	c.work(reader, r)
	leave()
	_ = r.Release(context.Background())
}
