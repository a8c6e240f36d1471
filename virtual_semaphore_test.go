package zkrecipes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/znode"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// Scenes of an hour each: sixteen callers of four Sessions take permits, of a fixed number or of one that changes, while everything that the server of this
// process can do happens to them at random.
//
// What is asserted, at every grant and in between: a permit whose lease says that it is held has its znode among the first, as many as there are permits, on
// the server; the exceptions are those of a session that was ended from outside, which has to be told, and, of a number that was made smaller, those that
// were granted before. In the end every permit can be had, and nothing is left.
func TestVirtualSemaphoreCampaign(t *testing.T) {
	besideWaiters(t)
	seed, began := testSeed(t), time.Now()
	leases, n := 0, 0
	for limit := campaignBudget(t); (n == 0 || time.Since(began) < limit) && !t.Failed(); n++ {
		t.Run(fmt.Sprint(seed+uint64(n)), func(t *testing.T) {
			virtual(t, func(t *testing.T, s *zktest.Server) {
				v := newPermitScene(t, s, seed+uint64(n))
				v.run(campaignTime())
				leases += v.leases
			})
		})
	}
	t.Logf("%d seeds from %d, %.1f per second, each %v; %d leases", n, seed, float64(n)/time.Since(began).Seconds(), campaignTime(), leases)
}

type permitScene struct {
	testing.TB
	server   *zktest.Server
	sessions []*Session
	path     string
	sem      func(*Session) *Semaphore
	most     int // permits
	faults   *faults

	mu     sync.Mutex
	ended  map[int64]bool
	held   map[*Lease]bool // parts
	limit  int             // permits that there may be
	leases int
	wrong  []string
}

func newPermitScene(t *testing.T, server *zktest.Server, seed uint64) *permitScene {
	v := &permitScene{TB: t, server: server, path: "/v/sem", ended: make(map[int64]bool), held: make(map[*Lease]bool)}
	rnd := rand.New(rand.NewPCG(seed, 0))
	v.most = []int{1, 2, 5}[rnd.IntN(3)]
	v.limit = v.most
	counted := rnd.IntN(2) == 0
	v.sem = func(s *Session) *Semaphore {
		if counted {
			return NewCountedSemaphore(s, v.path, "/count")
		}
		return NewSemaphore(s, v.path, v.most)
	}
	ways := []way{dialed, tracked, observed, dialed}
	if raceEnabled { // go-zookeeper's own race is cured by a wire only
		ways[2] = tracked
	}
	for _, way := range ways {
		v.sessions = append(v.sessions, dial(via{t, way}, []string{"127.0.0.1:2181"}, WithDialer(server.Dialer()), WithTimeout(virtualTimeout)))
	}
	strikes := strikesOn(v, server, v.sessions, v.path, v.ends)
	if counted {
		other, _ := dialVirtual(t, server)
		c := other.Conn()
		number := func(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
		_, err := c.Create("/count", number(v.most), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		strikes = append(strikes, strike{"count", func(f *faults, _ zktest.Direction) {
			n := f.rnd.IntN(v.most + 1)
			v.mu.Lock()
			v.limit = v.most // for as long as it is not known to have arrived
			v.mu.Unlock()
			for _, n := range []int{n, v.most} {
				for { // the connection may be away
					if _, err := c.Set("/count", number(n), -1); err == nil || !f.wait(time.Second) {
						break
					}
				}
				f.wait(f.between(time.Second, 2*virtualTimeout))
			}
		}})
		t.Cleanup(func() { require.NoError(t, c.Delete("/count", -1)) })
	}
	v.faults = strikeAtRandom(t, rnd, virtualTimeout, strikes)
	return v
}

func (v *permitScene) ends(session int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended[session] = true
}

func (v *permitScene) run(d time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer func() { stop(); wg.Wait() }()
	for i := range 16 {
		rnd := rand.New(rand.NewPCG(uint64(i), uint64(d)))
		s := v.sessions[i%len(v.sessions)]
		wg.Go(func() {
			for ctx.Err() == nil {
				v.once(ctx, s, rnd)
			}
		})
	}
	time.Sleep(d)
	v.faults.stop()
	stop()
	wg.Wait()
	time.Sleep(time.Minute)
	for _, z := range znodes(v.server, v.path) {
		require.Contains(v, []string{v.path + "/leases", v.path + "/locks"}, z, "nothing is left")
	}
	require.Empty(v, v.wrong)
	for _, s := range v.sessions {
		require.Empty(v, s.Leases())
		if v.sem(s).counted == "" {
			all, err := v.sem(s).TryAcquire(within(v, time.Minute), v.most)
			require.NoError(v, err, "every permit can be had")
			require.NoError(v, all.Release(within(v, time.Minute)))
		}
	}
}

// once is one call of one kind or another, and what follows.
func (v *permitScene) once(ctx context.Context, s *Session, rnd *rand.Rand) {
	m, n := v.sem(s), 1+rnd.IntN(v.most)
	var l *Lease
	var err error
	switch rnd.IntN(4) {
	case 0:
		l, err = m.TryAcquire(ctx, n)
	case 1:
		limited, cancel := context.WithTimeout(ctx, time.Duration(rnd.Int64N(int64(30*time.Second))))
		defer cancel()
		l, err = m.Acquire(limited, n)
	default:
		l, err = m.Acquire(ctx, n)
	}
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, ErrHeld) && !errors.Is(err, ErrNoConnection) && !errors.Is(err, context.DeadlineExceeded) &&
			!strings.Contains(err.Error(), "connection lost 3 times running") {
			v.note("%v", err)
		}
		time.Sleep(time.Second)
		return
	}
	v.mu.Lock()
	v.leases++
	for _, p := range l.Parts() {
		v.held[p] = true
	}
	if len(l.Parts()) != n {
		v.mu.Unlock()
		v.note("%d permits, not %d", len(l.Parts()), n)
		return
	}
	v.mu.Unlock()
	v.check()
	time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Second))))
	v.check()
	v.mu.Lock()
	for _, p := range l.Parts() {
		delete(v.held, p)
	}
	v.mu.Unlock()
	if err := l.Release(context.Background()); err != nil && !errors.Is(err, ErrLost) && !errors.Is(err, ErrNoConnection) {
		v.note("release: %v", err)
	}
	time.Sleep(time.Duration(rnd.Int64N(int64(5 * time.Second))))
}

func (v *permitScene) note(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.wrong) < 10 {
		v.wrong = append(v.wrong, fmt.Sprintf(format, args...))
	}
}

// check looks at every lease that is held.
func (v *permitScene) check() {
	v.mu.Lock()
	defer v.mu.Unlock()
	var order []znode.Name
	for _, node := range znodes(v.server, v.path+"/leases") {
		_, raw := znode.Split(node)
		n, ok := znode.Parse(raw, znode.LeaseName)
		if !ok {
			v.wrong = append(v.wrong, "a znode of another form: "+raw)
			continue
		}
		order = append(order, n)
	}
	znode.SortBySeq(order)
	place := make(map[string]int)
	for i, n := range order {
		place[v.path+"/leases/"+n.Raw] = i
	}
	for l := range v.held {
		at, there := place[l.Node()]
		if l.Err() != nil || there && at < v.limit || v.ended[l.hold.stake.session] {
			continue
		}
		if len(v.wrong) < 10 {
			v.wrong = append(v.wrong, fmt.Sprintf("%s is held, at place %d (%t) of %d", l.Node(), at, there, v.limit))
		}
	}
}
