package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/znode"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// Scenes of an hour each: eight members of a double barrier, two in each of four Sessions, enter and leave with and without patience, and four callers set, remove
// and await a barrier, while everything that the server of this process can do happens to them at random.
//
// What is asserted: who passes was in company; who has left leaves nobody inside of its round; a Wait that returns nil had a moment at which the barrier was not
// set, and one that goes on has had none; in the end all enter and leave, and nothing is left.
func TestVirtualBarrierCampaign(t *testing.T) {
	besideWaiters(t)
	seed, began := testSeed(t), time.Now()
	passed, left, waited, n := 0, 0, 0, 0
	for limit := campaignBudget(t); (n == 0 || time.Since(began) < limit) && !t.Failed(); n++ {
		t.Run(fmt.Sprint(seed+uint64(n)), func(t *testing.T) {
			virtual(t, func(t *testing.T, s *zktest.Server) {
				v := newBarrierScene(t, s, seed+uint64(n))
				v.run(campaignTime())
				passed, left, waited = passed+v.passed, left+v.left, waited+v.waited
			})
		})
	}
	t.Logf("%d seeds from %d, %.1f per second, each %v; passed %d times, left %d times, waited %d times", n, seed, float64(n)/time.Since(began).Seconds(),
		campaignTime(), passed, left, waited)
}

type barrierScene struct {
	testing.TB
	server   *zktest.Server
	sessions []*Session
	seed     uint64
	members  int // that open it
	faults   *faults

	mu     sync.Mutex
	stays  []*stay
	now    int // counts what happens
	passed int
	left   int
	waited int
}

// A stay is one Enter, with the Leave if there is one. Its znode may be there from came to gone.
type stay struct {
	owner      Owner
	came, gone int // gone is 0 until then
	passed     int // 0 if it has not
	unsure     bool
	round      int64 // czxid of ready, 0 if that is not certain
	leaves     bool
	node       string
}

func newBarrierScene(t *testing.T, server *zktest.Server, seed uint64) *barrierScene {
	rnd := rand.New(rand.NewPCG(seed, 0))
	v := &barrierScene{TB: t, server: server, seed: seed, members: 2 + rnd.IntN(4)}
	ways := []way{dialed, tracked, observed, dialed}
	if raceEnabled { // go-zookeeper's own race is cured by a wire only
		ways[2] = tracked
	}
	for _, way := range ways {
		v.sessions = append(v.sessions, dial(via{t, way}, []string{"127.0.0.1:2181"}, WithDialer(server.Dialer()), WithTimeout(virtualTimeout)))
	}
	v.faults = strikeAtRandom(t, rnd, virtualTimeout, strikesOn(v, server, v.sessions, "/v", func(int64) {}))
	return v
}

const scenePath, sceneGate = "/v/double", "/v/single/barrier"

func (v *barrierScene) run(d time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	var members, callers sync.WaitGroup
	defer func() { stop(); members.Wait(); callers.Wait() }()
	var bs []*DoubleBarrier
	for i := range 8 {
		b, rnd := NewDoubleBarrier(v.sessions[i%4], scenePath, v.members), rand.New(rand.NewPCG(v.seed, uint64(1+i)))
		bs = append(bs, b)
		members.Go(func() {
			for ctx.Err() == nil {
				v.stay(ctx, b, rnd)
			}
		})
	}
	for i, s := range v.sessions {
		b, rnd := NewBarrier(s, sceneGate), rand.New(rand.NewPCG(v.seed, uint64(100+i)))
		callers.Go(func() {
			for ctx.Err() == nil {
				v.call(ctx, b, rnd)
			}
		})
	}
	time.Sleep(d)
	v.faults.stop()
	stop()
	members.Wait()
	callers.Wait()
	v.company()
	for range 2 {
		enterAll(v, bs...)
		leaveAll(v, bs...)
	}
	require.NoError(v, NewBarrier(v.sessions[0], sceneGate).Remove(within(v, time.Minute)))
	time.Sleep(time.Minute)
	require.Empty(v, znodes(v.server, scenePath))
	require.Empty(v, znodes(v.server, "/v/single"))
	for _, s := range v.sessions {
		require.Empty(v, s.inside)
	}
}

// patience returns a ctx that ends after a while, most often.
func patience(ctx context.Context, rnd *rand.Rand, most time.Duration) (context.Context, context.CancelFunc) {
	if rnd.IntN(4) == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(rnd.Int64N(int64(most))))
}

// stay is a round of one member, or an attempt at it.
func (v *barrierScene) stay(ctx context.Context, b *DoubleBarrier, rnd *rand.Rand) {
	time.Sleep(time.Duration(rnd.Int64N(int64(10 * time.Second))))
	st := &stay{owner: NewOwner()}
	v.mu.Lock()
	v.now++
	st.came = v.now
	v.stays = append(v.stays, st)
	v.mu.Unlock()
	enters, cancel := patience(ctx, rnd, time.Minute)
	err := b.Enter(ContextWithOwner(enters, st.owner))
	cancel()
	switch {
	case err == nil:
		v.inside(st, b.in.made.Path)
		time.Sleep(time.Duration(rnd.Int64N(int64(10 * time.Second))))
		v.mu.Lock()
		st.leaves = true
		v.mu.Unlock()
		leaves, cancel := patience(ctx, rnd, 30*time.Second)
		if err = b.Leave(leaves); err == nil {
			v.outside(st)
		} else if !errors.Is(err, ErrLost) && (leaves.Err() == nil || !errors.Is(err, leaves.Err())) {
			v.Errorf("seed %d: %v", v.seed, err)
		}
		cancel()
	case enters.Err() == nil || !errors.Is(err, enters.Err()):
		v.Errorf("seed %d: %v", v.seed, err)
	default:
		st.unsure = strings.Contains(err.Error(), "not known")
	}
	for v.has(func(z zktest.ZnodeInfo) bool { return string(z.Data) == string(st.owner) }) {
		time.Sleep(100 * time.Millisecond)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.now++
	st.gone = v.now
}

// has reports whether there is such a znode at the double barrier.
func (v *barrierScene) has(such func(zktest.ZnodeInfo) bool) bool {
	return slices.ContainsFunc(slices.Collect(v.server.Znodes(scenePath)), such)
}

func (v *barrierScene) isThere(node string) bool {
	return v.has(func(z zktest.ZnodeInfo) bool { return z.Path == node })
}

// inside notes that a member has passed with this znode, and in which round it is: that of the ready that names it, if it is there.
func (v *barrierScene) inside(st *stay, node string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.now++
	v.passed++
	st.passed, st.node = v.now, node
	for z := range v.server.Znodes(scenePath + "/" + readyName) {
		if _, name := znode.Split(st.node); slices.Contains(rollNames(z.Data), name) {
			st.round = z.Czxid
		}
	}
	if st.round == 0 && v.isThere(node) {
		v.Errorf("seed %d: %s has passed and is in no round: %v", v.seed, node, znodes(v.server, scenePath))
	}
}

// outside asserts that nobody is inside of the round that a member has left.
func (v *barrierScene) outside(st *stay) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.left++
	for _, o := range v.stays {
		if st.round != 0 && o.round == st.round && !o.leaves && v.isThere(o.node) {
			v.Errorf("seed %d: %s has left, but %s is inside", v.seed, st.node, o.node)
		}
	}
}

// company asserts that who passed was in company: so many were there at a moment of its Enter, or it came in to one of whom that is true.
func (v *barrierScene) company() {
	there := make([]int, v.now+2)
	for _, st := range v.stays {
		for k := st.came; k < st.gone; k++ {
			there[k]++
		}
	}
	full := func(from, to int) bool {
		return slices.ContainsFunc(there[from:to+1], func(n int) bool { return n >= v.members })
	}
	inCompany := make(map[*stay]bool)
	for grown := true; grown; {
		grown = false
		for _, st := range v.stays {
			until := st.passed
			if st.unsure {
				until = st.gone - 1
			}
			if until == 0 || inCompany[st] {
				continue
			}
			if full(st.came, until) || slices.ContainsFunc(v.stays, func(o *stay) bool { return inCompany[o] && o.came <= until && o.gone > st.came }) {
				inCompany[st], grown = true, true
			}
		}
	}
	for _, st := range v.stays {
		if st.passed != 0 && !inCompany[st] {
			v.Errorf("seed %d: %s has passed alone", v.seed, st.owner)
		}
	}
}

// call sets, removes or awaits the barrier.
func (v *barrierScene) call(ctx context.Context, b *Barrier, rnd *rand.Rand) {
	time.Sleep(time.Duration(rnd.Int64N(int64(5 * time.Second))))
	ctx, cancel := patience(ctx, rnd, 2*time.Minute)
	defer cancel()
	var err error
	switch before := v.gate(); rnd.IntN(4) {
	case 0:
		err = b.Set(ctx)
	case 1:
		err = b.Remove(ctx)
	default:
		err = b.Wait(ctx)
		now := v.gate()
		switch v.mu.Lock(); {
		case err == nil && before != 0 && before == now:
			v.Errorf("seed %d: a Wait has returned, but the barrier was set all the time", v.seed)
		case err == nil:
			v.waited++
		}
		v.mu.Unlock()
	}
	if err != nil && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		v.Errorf("seed %d: %v", v.seed, err)
	}
}

// gate returns the czxid of the barrier, 0 when it is not set.
func (v *barrierScene) gate() int64 {
	for z := range v.server.Znodes(sceneGate) {
		return z.Czxid
	}
	return 0
}

// In an hour's worth of quiet nothing is missed: each Remove lets everybody pass who waits, however soon the barrier is set again.
func TestVirtualBarrierFlickers(t *testing.T) {
	virtual(t, func(t *testing.T, server *zktest.Server) {
		a, _ := dialVirtual(t, server)
		b, _ := dialVirtual(t, server)
		setter, rnd := NewBarrier(a, sceneGate), newRand(testSeed(t))
		for range 100 {
			require.NoError(t, setter.Set(t.Context()))
			var waits []<-chan error
			for range 5 {
				waits = append(waits, goCall(func() error { return NewBarrier(b, sceneGate).Wait(t.Context()) }))
			}
			time.Sleep(time.Duration(rnd.Int64N(int64(time.Minute))))
			require.NoError(t, setter.Remove(t.Context()))
			require.NoError(t, setter.Set(t.Context()))
			for _, w := range waits {
				require.NoError(t, next(t, w))
			}
		}
	})
}
