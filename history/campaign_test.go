package history

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

func TestMain(m *testing.M) { os.Exit(testrun.Main(m, nil, zktest.CloseShared)) }

func encode(v int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(v)) }
func decode(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// testSeed returns the seed of a campaign, which is logged: SEED=n in front of make torture repeats its choices.
func testSeed(t testing.TB) uint64 {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("ZKRECIPES_TEST_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("ZKRECIPES_TEST_SEED=%d", seed)
	return seed
}

// duration is how long a campaign goes on: in make torture as long as was asked for, else not long.
func duration(t testing.TB, short time.Duration) time.Duration {
	s := os.Getenv("ZKRECIPES_TORTURE")
	if s == "" {
		return short
	}
	d, err := time.ParseDuration(s)
	require.NoError(t, err)
	return d
}

const (
	clients  = 6
	permits  = 4
	readers  = 100 // of whom a writer takes the place
	register = "/history/register"
)

// A campaign is what the clients do, all of them at each recipe.
type campaign struct {
	clients []*client
	seed    uint64
	unit    time.Duration // about how long something is held

	mutex, rw, semaphore, multi, latch, register *record
	values                                       atomic.Int64
}

func newCampaign(seed uint64, unit time.Duration) *campaign {
	return &campaign{
		seed: seed, unit: unit,
		mutex: newRecord("mutex", capacity(1)), rw: newRecord("read-write lock", capacity(readers)), semaphore: newRecord("semaphore", capacity(permits)),
		multi: newRecord("multi-lock", capacity(1)), latch: newRecord("leader", capacity(1)), register: newRecord("fenced register", fenced),
	}
}

func (c *campaign) check(t testing.TB) {
	for _, r := range []*record{c.mutex, c.rw, c.semaphore, c.multi, c.latch, c.register} {
		r.check(t)
	}
}

// take is one way to take something, and how much of it.
type take struct {
	record *record
	n      int
	who    string
	take   func(context.Context) (*zkrecipes.Lease, error)
	during func(rnd *rand.Rand, l *zkrecipes.Lease)
}

// takes are what a client does at a time; each on a goroutine of its own.
func (c *campaign) takes(cl *client, latch *zkrecipes.LeaderLatch) [][]take {
	who := func(what string) string { return fmt.Sprintf("%d's %s", cl.id, what) }
	s := cl.session
	mutex, rw := zkrecipes.NewMutex(s, "/history/mutex"), zkrecipes.NewRWLock(s, "/history/rw")
	semaphore := zkrecipes.NewSemaphore(s, "/history/semaphore", permits)
	multi := zkrecipes.NewMultiLock(zkrecipes.NewMutex(s, "/history/multi/a"), zkrecipes.NewMutex(s, "/history/multi/b"))
	writes := func(rnd *rand.Rand, l *zkrecipes.Lease) {
		switch rnd.IntN(8) {
		case 0:
			cl.write(c.register, l, register, c.values.Add(1))
		case 1:
			cl.read(c.register, register)
		}
	}
	permitsOf := func(n int) take {
		return take{c.semaphore, n, who(fmt.Sprint(n, " permits")), func(ctx context.Context) (*zkrecipes.Lease, error) { return semaphore.Acquire(ctx, n) }, nil}
	}
	return [][]take{
		{{c.mutex, 1, who("mutex"), mutex.Lock, writes}, {c.mutex, 1, who("try"), mutex.TryLock, writes}},
		{{c.rw, 1, who("reader"), rw.RLock, nil}, {c.rw, 1, who("reader"), rw.RLock, nil}, {c.rw, readers, who("writer"), rw.Lock, nil}},
		{permitsOf(1), permitsOf(3), {c.semaphore, 2, who("try for 2"), func(ctx context.Context) (*zkrecipes.Lease, error) { return semaphore.TryAcquire(ctx, 2) }, nil}},
		{{c.multi, 1, who("multi-lock"), multi.Lock, nil}},
		{{c.latch, 1, who("leadership"), latch.Await, nil}},
	}
}

// run lets all clients go on until ctx ends.
func (c *campaign) run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, cl := range c.clients {
		latch := zkrecipes.NewLeaderLatch(cl.session, "/history/latch")
		wg.Go(func() { _ = latch.Run(ctx) })
		for i, kinds := range c.takes(cl, latch) {
			rnd := newRand(c.seed + uint64(1000*cl.id+i))
			wg.Go(func() {
				for ctx.Err() == nil {
					k := kinds[rnd.IntN(len(kinds))]
					patience, cancel := context.WithTimeout(ctx, time.Duration(rnd.Int64N(int64(60*c.unit))))
					call := time.Now()
					lease, err := k.take(patience)
					cancel()
					if err == nil {
						var during func()
						if k.during != nil {
							during = func() { k.during(rnd, lease) }
						}
						cl.hold(k.record, call, lease, k.n, k.who, time.Duration(rnd.Int64N(int64(2*c.unit))), during)
					}
					pause(ctx, time.Duration(rnd.Int64N(int64(c.unit))))
				}
			})
		}
	}
	wg.Wait()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// dial opens a client's Session, by Dial or on a connection of its own with TrackContact.
func dial(t testing.TB, id int, servers []string, timeout time.Duration, dialer zk.Dialer) *client {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	var s *zkrecipes.Session
	var err error
	if id%3 > 0 {
		s, err = zkrecipes.Dial(ctx, servers, zkrecipes.WithTimeout(timeout), zkrecipes.WithDialer(dialer), zkrecipes.WithLogger(log))
	} else {
		tracked, track := zkrecipes.TrackContact(dialer)
		conn, _, cerr := zk.Connect(servers, timeout, zk.WithDialer(tracked), zk.WithLogInfo(false), zk.WithLogger(discard{}), zk.WithEventCallback(func(zk.Event) {}))
		require.NoError(t, cerr)
		t.Cleanup(conn.Close)
		s, err = zkrecipes.NewSession(conn, nil, track, zkrecipes.WithLogger(log))
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return &client{id: id, session: s, ended: make(map[int64]time.Time)}
}

// makeRegister makes the znode that the writes go to.
func makeRegister(t testing.TB, s *zkrecipes.Session) {
	_, err := s.Conn().Create("/history", nil, 0, zk.WorldACL(zk.PermAll))
	if err != zk.ErrNodeExists {
		require.NoError(t, err)
	}
	_, err = s.Conn().Create(register, encode(0), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
}

// Histories of six clients at every recipe, each behind a proxy of its own to which everything happens that a network does, while the server is restarted.
func TestHistories(t *testing.T) {
	const timeout = 1500 * time.Millisecond
	seed := testSeed(t)
	server := start(t)
	c := newCampaign(seed, 5*time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), duration(t, 5*time.Second))
	defer cancel()
	var proxies []*zktest.Proxy
	for i := range clients {
		proxies = append(proxies, zktest.NewProxy(t, server.addr))
		c.clients = append(c.clients, dial(t, i, []string{proxies[i].Addr()}, timeout, net.DialTimeout))
	}
	makeRegister(t, c.clients[0].session)
	var faults sync.WaitGroup
	for i, cl := range c.clients {
		cl.rnd = newRand(seed + uint64(i))
		faults.Go(func() { strikeProxy(ctx, cl, proxies[i], timeout) })
	}
	faults.Go(func() {
		for rnd := newRand(seed + 99); ctx.Err() == nil; {
			pause(ctx, time.Duration(rnd.Int64N(int64(6*time.Second))))
			server.restart(ctx, time.Duration(rnd.Int64N(int64(timeout))))
		}
	})
	c.run(ctx)
	faults.Wait()
	c.check(t)
}

// The same in virtual time, with the faults of the server of this process: some minutes a seed.
func TestVirtualHistories(t *testing.T) {
	seed, began, n := testSeed(t), time.Now(), 0
	for limit := duration(t, 2*time.Second); time.Since(began) < limit && !t.Failed(); n++ {
		var c *campaign
		t.Run(fmt.Sprint(seed+uint64(n)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c = virtualCampaign(t, seed+uint64(n)) })
			if !t.Failed() {
				c.check(t)
			}
		})
	}
	t.Logf("%d seeds from %d", n, seed)
}

func virtualCampaign(t *testing.T, seed uint64) *campaign {
	const timeout = 12 * time.Second
	server := zktest.NewServer(t, zktest.TickTime(time.Second))
	server.Delay(5 * time.Millisecond)
	t.Cleanup(func() { time.Sleep(time.Minute) }) // a Close that goes on in the background ends with its connection
	c := newCampaign(seed, time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for i := range clients {
		c.clients = append(c.clients, dial(t, i, []string{"127.0.0.1:2181"}, timeout, server.Dialer()))
	}
	makeRegister(t, c.clients[0].session)
	var faults sync.WaitGroup
	for i, cl := range c.clients {
		cl.rnd = newRand(seed + uint64(i))
		faults.Go(func() { strikeServer(ctx, cl, server, timeout) })
	}
	c.run(ctx)
	faults.Wait()
	return c
}

// discard is go-zookeeper's logger for a connection that is meant to be in trouble.
type discard struct{}

func (discard) Printf(string, ...any) {}
