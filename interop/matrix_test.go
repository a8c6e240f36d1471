package interop

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A recipe is a line of the matrix. In its arrivals A is the library that comes first and B the other one; each arrival is a client of its own.
type recipe struct {
	name     string
	arrivals string
	play     play
	peers    []string // the libraries that have it
	first    []string // those of them that can be A, too; nil for all
}

// A play is what happens in a cell. It fails the fleet's test where the libraries do not do what they should.
type play struct {
	turns func(f *fleet, c cell) // while all live
	stand func(f *fleet, c cell) // until those who came first are killed
	after func(f *fleet, c cell) // without them
}

// queue lets them come one by one, and leave in their order.
var queue = queueing(nil)

// queueing is queue with a step before each one leaves.
func queueing(step func(f *fleet, holder *member)) play {
	return play{
		turns: func(f *fleet, c cell) {
			f.t.Helper()
			for _, who := range c.lines() {
				f.join(who)
				f.settle()
			}
			f.drain(step)
		},
		stand: func(f *fleet, c cell) {
			f.t.Helper()
			for _, who := range c.lines() {
				f.join(who)
				for _, m := range f.due() { // before the next one comes: a reader of kazoo's looks at that one, too
					if !m.held {
						f.await(m)
					}
				}
			}
			if step != nil {
				step(f, f.members[0])
			}
		},
		after: func(f *fleet, c cell) {
			f.t.Helper()
			f.members = slices.DeleteFunc(f.members, func(m *member) bool { return m.library == c.first() })
			eventually(f.t, "the sessions of the killed have ended", func() bool {
				for _, p := range inspect(f.t, f.s, f.path+f.members[0].look) {
					if !slices.ContainsFunc(f.members, func(m *member) bool { return m.session == p.Session }) {
						return false
					}
				}
				return true
			})
			f.settle()
			f.drain(nil)
		},
	}
}

// The libraries that have mutexes, and those that have readers and writers.
var (
	mutexes = []string{curator, kazoo, kazooOnCurators, zkLock}
	pairs   = []string{curator, kazoo, kazooOnCurators}
)

// matrix has a line for each recipe that two libraries share.
//
// A reader of kazoo's comes where no writer follows it, for it would wait for that one (TestKazooReaderWaitsForLaterWriters).
var matrix = []recipe{
	{name: "mutex", arrivals: "A mutex, B mutex, A mutex, B mutex", play: queue, peers: mutexes},
	{name: "read lock", arrivals: "A read, B read, B write, A read", play: queue, peers: pairs},
	{name: "write lock", arrivals: "A write, B write, A write, B read", play: queue, peers: pairs},
	{name: "downgrade", arrivals: "A downgraded, B write, A read, B read", play: queue, peers: pairs, first: []string{curator}},
	{name: "semaphore", arrivals: "A permit, B permit, A permit, B permit", play: queue, peers: []string{curator}},
	{name: "semaphore mutex", arrivals: "A semaphoremutex, B semaphoremutex, A semaphoremutex, B semaphoremutex", play: queue, peers: []string{curator}},
	{name: "multi lock", arrivals: "A multilock, B multilock, A multilock, B multilock", play: queue, peers: []string{curator}},
	{name: "revocation", arrivals: "A revocable, B revocable, A revocable, B revocable", play: queueing(askBack), peers: []string{curator}},
	{name: "leader latch", arrivals: "A latch, B latch, A latch, B latch", play: queue, peers: []string{curator}},
	{name: "leader selector", arrivals: "A selector, B selector, A selector, B selector", play: queue, peers: []string{curator}},
}

// askBack lets the library of who is next ask the holder to give back.
func askBack(f *fleet, holder *member) {
	f.t.Helper()
	if len(f.members) < 2 {
		return
	}
	ctx := within(f.t, 20*time.Second)
	asks := openClient(f.t, f.members[1].library, f.servers, sessionTimeout)
	require.NoError(f.t, asks.(revoker).AttemptRevoke(ctx, holder.node))
	require.NoError(f.t, holder.client.(revoker).AwaitRevocation(ctx))
	require.Equal(f.t, holder.node, inspect(f.t, f.s, f.path).Holders()[0].Node, "a request takes nothing away")
}

// A cell is a recipe between this library and another one, with one of them first.
type cell struct {
	recipe
	peer      string
	oursFirst bool
}

func (c cell) first() string {
	if c.oursFirst {
		return ours
	}
	return c.peer
}

// lines are the arrivals with the names of the libraries.
func (c cell) lines() []string {
	a, b := ours, c.peer
	if !c.oursFirst {
		a, b = b, a
	}
	return strings.Split(strings.NewReplacer("A ", a+" ", "B ", b+" ").Replace(c.arrivals), ", ")
}

func (c cell) String() string {
	order := "ours first"
	if !c.oursFirst {
		order = "theirs first"
	}
	return c.name + ", " + c.peer + ", " + order
}

// cells are all of the matrix.
func cells() (all []cell) {
	for _, r := range matrix {
		for _, peer := range r.peers {
			all = append(all, cell{r, peer, true})
			if r.first == nil || slices.Contains(r.first, peer) {
				all = append(all, cell{r, peer, false})
			}
		}
	}
	return all
}

// What two libraries do at one path, recipe by recipe, whichever comes first:
//
//   - in turn: after each arrival and each departure exactly those hold who should, so each keeps the other out, and the queue is served in its order;
//   - killed: the process of who came first, which holds, and which waits in the middle of the queue as well, is killed. The others go on, in their order.
//
// The table in docs/mixed-fleets.md is what this has shown.
func TestMatrix(t *testing.T) {
	t.Parallel()
	shown := make(map[string]map[cellKey]bool)
	var mu sync.Mutex
	show := func(t *testing.T, how string, c cell) {
		if !t.Failed() {
			mu.Lock()
			defer mu.Unlock()
			if shown[how] == nil {
				shown[how] = make(map[cellKey]bool)
			}
			shown[how][c.key()] = true
		}
	}
	t.Run("all", func(t *testing.T) {
		t.Run("in turn", func(t *testing.T) {
			t.Parallel()
			runCells(t, cellsAtOnce, func(t *testing.T, c cell) {
				defer show(t, "in turn", c)
				c.play.turns(newFleet(t), c)
			})
		})
		t.Run("killed", func(t *testing.T) {
			t.Parallel()
			killed(t, func(t *testing.T, c cell) { show(t, "killed", c) })
		})
	})
	if t.Failed() {
		return
	}
	checkMatrix(t, shown["in turn"], shown["killed"])
}

// cellKey is what identifies a cell.
type cellKey struct {
	recipe, peer string
	oursFirst    bool
}

func (c cell) key() cellKey { return cellKey{c.name, c.peer, c.oursFirst} }

// victimTimeout is that of the sessions of those who are killed: so long the others have to wait.
const victimTimeout = 4 * time.Second

// killed lets all cells queue, kills the processes of those who came first, and lets the others go on.
func killed(t *testing.T, show func(*testing.T, cell)) {
	var mu sync.Mutex
	victims := make(map[string]*Process)
	var starting sync.WaitGroup
	for _, library := range []string{ours, zkLock, curator, kazoo} {
		starting.Go(func() { // of which each takes a second
			p := startLibrary(t, library)
			mu.Lock()
			defer mu.Unlock()
			victims[library] = p
		})
	}
	starting.Wait()
	require.Len(t, victims, 4, "not all have started")
	victims[kazooOnCurators] = victims[kazoo]
	fleets := make(map[string]*fleet)
	for _, c := range cells() {
		f := newFleet(t)
		f.open = func(t testing.TB, library string) client {
			if library == c.first() {
				return openIn(t, victims[library], library, f.servers, victimTimeout)
			}
			return openClient(t, library, f.servers, sessionTimeout)
		}
		c.play.stand(f, c)
		fleets[c.String()] = f
	}
	for _, p := range victims {
		p.Kill()
	}
	runCells(t, len(fleets), func(t *testing.T, c cell) {
		defer show(t, c)
		f := fleets[c.String()]
		f.t = t
		c.play.after(f, c)
	})
}

// cellsAtOnce is how many take turns at once: nearly all of them wait.
const cellsAtOnce = 8

// runCells runs all cells as tests, so many at once. They do not wait for room among the parallel tests: a peer that waits for too long gives up.
func runCells(t *testing.T, n int, run func(*testing.T, cell)) {
	room := make(chan struct{}, n)
	var running sync.WaitGroup
	for _, c := range cells() {
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			t.Run(c.String(), func(t *testing.T) { run(t, c) })
		})
	}
	running.Wait()
}
