package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// campaignTime is how long one scene of a campaign goes on, in its own time: an hour, or half of one where go test is for a first answer. A schedule that was
// shrunk is one of an hour.
func campaignTime() time.Duration {
	if quick() && os.Getenv("ZKRECIPES_STRIKES") == "" {
		return 30 * time.Minute
	}
	return time.Hour
}

// oneProcessor is for who takes the whole of one.
var oneProcessor sync.Mutex

// besideWaiters is for a test that takes a whole processor, and is about no real time. In make test it runs beside no other test. Where go test is for a first
// answer it runs beside those that wait, one at a time.
func besideWaiters(t *testing.T) {
	if quick() && os.Getenv("ZKRECIPES_STRIKES") == "" {
		t.Parallel()
		oneProcessor.Lock()
		t.Cleanup(oneProcessor.Unlock)
	}
}

// campaignBudget is how long a campaign in virtual time goes on in real time: ZKRECIPES_TORTURE, or 3 s in make test, or for one scene.
func campaignBudget(t testing.TB) time.Duration {
	switch {
	case os.Getenv("ZKRECIPES_STRIKES") != "": // of one schedule
		return 0
	case os.Getenv("ZKRECIPES_TORTURE") != "":
		return tortureTime(t)
	case testrun.Real():
		return 3 * time.Second
	}
	return time.Millisecond
}

// Scenes of an hour each, as many as there is time for: Sessions of all three ways, with readers, writers, writers that read on and a Mutex, on one path;
// everything that the server of this process can do happens to them at random. What is asserted is what TestReadersAndWritersUnderFaults asserts of a
// real server; the limits are in virtual time, so that no machine is too slow for them.
//
// A seed fixes what happens when, not which goroutine runs first.
func TestVirtualCampaign(t *testing.T) {
	besideWaiters(t)
	seed, began := testSeed(t), time.Now()
	total := make(map[string]int)
	leases, n := int64(0), 0
	for limit := campaignBudget(t); (n == 0 || time.Since(began) < limit) && !t.Failed(); n++ {
		t.Run(fmt.Sprint(seed+uint64(n)), func(t *testing.T) {
			virtual(t, func(t *testing.T, s *zktest.Server) {
				v := newVirtualScene(t, s, seed+uint64(n))
				v.run(campaignTime())
				for kind, n := range v.faults[0].struck {
					total[kind] += n
				}
				for _, a := range v.actors {
					leases += a.granted.Load()
				}
			})
		})
	}
	took := time.Since(began)
	t.Logf("%d seeds from %d, %.1f per second, each %v; %d leases; faults: %v", n, seed, float64(n)/took.Seconds(), campaignTime(), leases, total)
}

// A virtualScene is a scene on the server of this process, in virtual time.
type virtualScene struct {
	scene
	server   *zktest.Server
	sessions []*Session
}

func newVirtualScene(t *testing.T, server *zktest.Server, seed uint64) *virtualScene {
	v := &virtualScene{server: server}
	v.scene = scene{TB: t, path: "/v/lock", book: newBook(t), hold: 20 * time.Second, step: time.Second, pause: 5 * time.Second}
	add := func(a *actor) {
		a.rnd = rand.New(rand.NewPCG(seed, uint64(len(v.actors)+1)))
		a.faulty = true
		a.take = a.anyTake
		v.actors = append(v.actors, a)
	}
	ways := []way{dialed, tracked, observed, dialed}
	if raceEnabled { // go-zookeeper's own race is cured by a wire only
		ways[2] = tracked
	}
	for i, way := range ways {
		s := dial(via{t, way}, []string{"127.0.0.1:2181"}, WithDialer(server.Dialer()), WithTimeout(virtualTimeout))
		v.sessions = append(v.sessions, s)
		l := NewRWLock(s, v.path)
		add(&actor{name: fmt.Sprintf("reader %d", i), s: s, lock: l.RLocker()})
		switch i % 3 {
		case 0:
			add(&actor{name: fmt.Sprintf("writer that reads on %d", i), s: s, lock: l, reads: l, writes: true})
		case 1:
			add(&actor{name: fmt.Sprintf("writer %d", i), s: s, lock: l, writes: true})
		case 2:
			add(&actor{name: fmt.Sprintf("mutex %d", i), s: s, lock: NewMutex(s, v.path), writes: true})
		}
	}
	v.faults = []*faults{strikeAtRandom(t, rand.New(rand.NewPCG(seed, 0)), virtualTimeout, v.strikes())}
	return v
}

// anyTake asks for the lock in one of the ways there are, two of which may give up.
func (a *actor) anyTake(ctx context.Context) (*Lease, error) {
	var l *Lease
	var err error
	switch a.rnd.IntN(5) {
	case 0:
		l, err = a.lock.TryLock(ctx)
	case 1:
		limited, cancel := context.WithTimeout(ctx, time.Duration(a.rnd.Int64N(int64(30*time.Second))))
		defer cancel()
		l, err = a.lock.Lock(limited)
	default:
		return a.lock.Lock(ctx)
	}
	if errors.Is(err, ErrHeld) || errors.Is(err, ErrNoConnection) || errors.Is(err, context.DeadlineExceeded) {
		time.Sleep(time.Second)
		return nil, nil
	}
	return l, err
}

func (v *virtualScene) strikes() []strike {
	return strikesOn(v, v.server, v.sessions, v.path, v.book.ends)
}

// strikesOn is what may happen to sessions and what they ask for below a path. A session that is about to be ended from outside is told to ends.
func strikesOn(t testing.TB, server *zktest.Server, sessions []*Session, path string, ends func(session int64)) []strike {
	ops := []zktest.Op{zktest.OpCreate, zktest.OpDelete, zktest.OpGetData, zktest.OpGetChildren, zktest.OpExists, zktest.OpSync, zktest.OpMulti, zktest.OpEvent}
	op := func(f *faults) zktest.Op { return ops[f.rnd.IntN(len(ops))] }
	some := func(f *faults) []int64 {
		n := 1 + f.rnd.IntN(2)
		var ids []int64
		for _, i := range f.rnd.Perm(len(sessions))[:n] {
			ids = append(ids, sessions[i].ID())
		}
		return ids
	}
	partition := func(from, to time.Duration) func(*faults, zktest.Direction) {
		return func(f *faults, _ zktest.Direction) {
			heal := server.Partition(some(f)...)
			f.wait(f.between(from, to))
			heal()
		}
	}
	return []strike{
		{"disconnect", func(f *faults, _ zktest.Direction) { server.Disconnect(some(f)...) }},
		{"disconnect all", func(*faults, zktest.Direction) { server.Disconnect() }},
		{"short partition", partition(time.Millisecond, virtualTimeout/2)},
		{"long partition", partition(virtualTimeout/2, 2*virtualTimeout)},
		{"restart", func(f *faults, _ zktest.Direction) {
			server.Stop()
			f.wait(f.between(time.Millisecond, virtualTimeout))
			if err := server.Start(); err != nil {
				t.Error(err)
			}
		}},
		{"expire", func(f *faults, _ zktest.Direction) {
			for _, id := range some(f) {
				ends(id)
				server.Expire(id)
			}
		}},
		{"lost reply", func(f *faults, _ zktest.Direction) { server.LoseReply(op(f), path) }},
		{"held reply", func(f *faults, _ zktest.Direction) {
			gate := server.Hold(op(f), path)
			defer gate.Open()
			f.wait(f.between(time.Millisecond, virtualTimeout))
		}},
		{"throttled", func(f *faults, _ zktest.Direction) { server.Fail(op(f), path, -127) }},
		{"delay", func(f *faults, _ zktest.Direction) {
			server.Delay(f.between(time.Millisecond, virtualTimeout/4))
			f.wait(f.between(time.Second, virtualTimeout))
			server.Delay(0)
		}},
	}
}

func (v *virtualScene) run(d time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer func() { stop(); wg.Wait() }()
	for _, a := range v.actors {
		wg.Go(func() { v.act(ctx, a) })
	}
	time.Sleep(d)
	v.faults[0].stop()
	during := make(map[*actor]int64)
	for _, a := range v.actors {
		during[a] = a.granted.Load()
		require.Positive(v, during[a], a.name)
	}
	// Each waits for all that may stand before it, and gives up now and then.
	waiting := maps.Clone(during)
	for began := time.Now(); len(waiting) > 0; time.Sleep(time.Second) {
		maps.DeleteFunc(waiting, func(a *actor, n int64) bool { return a.granted.Load() > n })
		require.Less(v, time.Since(began), time.Hour, "everybody is granted when all is healed")
	}
	stop()
	wg.Wait()
	for began := time.Now(); len(znodes(v.server, v.path)) > 0; time.Sleep(time.Second) {
		require.Less(v, time.Since(began), time.Minute, "nothing is left: %v", slices.Collect(v.server.Znodes(v.path)))
	}
	v.clean()
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
