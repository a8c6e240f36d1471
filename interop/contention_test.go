package interop

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

const (
	contentionTick    = 300 * time.Millisecond
	contentionTimeout = 3 * time.Second        // of every session: so long nobody is served after a kill
	contentionHold    = 10 * time.Millisecond  // at most
	contentionPause   = 10 * time.Millisecond  // at most, between two grants
	killEvery         = 5 * time.Second        // one process after the other
	killFirst         = 500 * time.Millisecond // after the start
)

// contentionTime is how long it goes on: ZKRECIPES_TORTURE, or 15 s.
func contentionTime(t testing.TB) time.Duration {
	s := os.Getenv("ZKRECIPES_TORTURE")
	if s == "" {
		return 15 * time.Second
	}
	d, err := time.ParseDuration(s)
	require.NoError(t, err)
	return d
}

// Four sessions of this library, four clients of Curator's on threads of their own and two processes of kazoo's, on Curator's znodes, contend for a mutex,
// with one of zk.Lock's, and as many for a read/write lock, while one process after the other is killed, while it counts, and replaced. What they keep is a ledger in a file, which nothing else
// protects. Asserted is, exactly:
//
//   - Each number in the ledger was written once, over the one before: nobody has counted from what somebody else read, too. One that nobody has reported
//     was written by a process that was killed before it could.
//   - Those who count come in the order of their znodes' creation, so their tokens only grow, whatever the language.
//   - A reader reads the same before and after a while, and that is what the last writer before it, by creation, has written: none that came later, and
//     none that came earlier is missing.
//   - Every client is served.
//
// It runs beside no other test: it needs the machine, and so do those that run against the clock.
func TestContention(t *testing.T) {
	c := &contention{T: t}
	if testrun.Real() {
		c.servers = zktest.Start(t, zktest.TickTime(contentionTick)).Addrs()
	} else {
		c.servers = []string{zktest.NewServer(t, zktest.TickTime(contentionTick)).Addr()}
	}
	for _, name := range []string{"mutex", "read-write"} {
		s := &scene{T: t, name: name, path: newPath(t), ledger: ledger(filepath.Join(t.TempDir(), name)), readers: name == "read-write"}
		require.NoError(t, s.ledger.start())
		c.scenes = append(c.scenes, s)
	}
	crews := []*crew{{library: kazooOnCurators, clients: 1}, {library: curator, clients: 4}, {library: ours, clients: 2}, {library: kazooOnCurators, clients: 1}}
	var starting sync.WaitGroup
	for _, cr := range crews {
		starting.Go(func() { cr.process = startLibrary(t, cr.library) })
	}
	starting.Wait()
	c.until = time.Now().Add(contentionTime(t))
	for _, cr := range append(crews, &crew{library: ours, clients: 2}, &crew{library: zkLock, clients: 1}) {
		c.work(cr)
	}
	end := time.NewTimer(time.Until(c.until))
	defer end.Stop()
	next := time.NewTimer(killFirst)
	defer next.Stop()
	for kills := 0; ; kills++ {
		select {
		case <-next.C:
			victim := crews[kills%len(crews)]
			victim.kill(t, c.until)
			next.Reset(killEvery)
			heir := &crew{library: victim.library, clients: victim.clients, process: startLibrary(t, victim.library)}
			crews[kills%len(crews)] = heir
			c.work(heir)
			continue
		case <-end.C:
		}
		c.working.Wait()
		for _, s := range c.scenes {
			s.check()
			t.Logf("%s: %d grants, %v, %d killed while they counted; %d kills", s.name, len(s.grants), s.served(), len(s.killed), kills)
		}
		return
	}
}

// A contention is what goes on.
type contention struct {
	*testing.T
	servers []string
	scenes  []*scene
	until   time.Time
	working sync.WaitGroup
}

// A crew is a process with so many clients in each scene.
type crew struct {
	library string
	clients int
	process *Process     // nil: this one
	counts  atomic.Int32 // of them hold, and count
	killed  atomic.Bool
	working sync.WaitGroup
}

func (c *contention) work(cr *crew) {
	c.Helper()
	for _, s := range c.scenes {
		if s.readers && cr.library == zkLock { // which has none
			continue
		}
		for range cr.clients {
			var k client
			if cr.process == nil {
				k = openClient(c, cr.library, c.servers, contentionTimeout)
			} else {
				k = openIn(c, cr.process, cr.library, c.servers, contentionTimeout)
			}
			c.working.Add(1)
			cr.working.Go(func() {
				defer c.working.Done()
				s.work(k.(keeper), cr, c.until)
			})
		}
	}
}

// kill kills the process while one of its clients counts, or when they have stopped.
func (cr *crew) kill(t testing.TB, until time.Time) {
	eventually(t, "one of them counts", func() bool { return cr.counts.Load() > 0 || !time.Now().Before(until) })
	cr.killed.Store(true)
	cr.process.Kill()
	cr.working.Wait()
}

// A grant is what the holder of a lease has seen in the ledger.
type grant struct {
	library string
	reads   bool
	czxid   int64
	before  entry
	after   entry // of a reader
}

// A scene is one path and the ledger that it protects.
type scene struct {
	*testing.T
	name    string
	path    string
	ledger  ledger
	readers bool

	mu     sync.Mutex
	grants []grant
	killed []string // the znodes of those who were killed while they counted
}

// work takes the lock again and again, once at least.
func (s *scene) work(k keeper, cr *crew, until time.Time) {
	for n := 0; n == 0 || time.Now().Before(until); n++ {
		if err := s.once(k, cr); err != nil {
			if !cr.killed.Load() {
				s.Errorf("%s: %s: %v", s.name, cr.library, err)
			}
			return
		}
		<-time.After(rand.N(contentionPause))
	}
}

func (s *scene) once(k keeper, cr *crew) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	side, g := Mutex, grant{library: cr.library}
	if s.readers {
		if side = Writer; rand.IntN(5) < 3 {
			side, g.reads = Reader, true
		}
	}
	node, err := k.Lock(ctx, side, s.path)
	if err != nil {
		return err
	}
	if node == "" {
		node = s.path
	}
	verb := "count"
	if g.reads {
		verb = "look"
	}
	if !g.reads {
		cr.counts.Add(1)
	}
	text, err := k.keep(ctx, verb, s.ledger, node, rand.N(contentionHold))
	if !g.reads {
		cr.counts.Add(-1)
	}
	if err != nil {
		if !g.reads {
			s.mu.Lock()
			s.killed = append(s.killed, node)
			s.mu.Unlock()
		}
		return err
	}
	if err := g.parse(text); err != nil {
		return err
	}
	s.mu.Lock()
	s.grants = append(s.grants, g)
	s.mu.Unlock()
	return k.Release(ctx, side, s.path)
}

func (g *grant) parse(text string) (err error) {
	words := strings.Fields(text)
	if want := map[bool]int{false: 4, true: 7}[g.reads]; len(words) != want {
		return fmt.Errorf("%d words, not %d: %q", len(words), want, text)
	}
	if g.before, err = parseEntry(words[1:4]); err != nil {
		return err
	}
	if g.reads {
		if g.after, err = parseEntry(words[4:]); err != nil {
			return err
		}
	}
	g.czxid, err = strconv.ParseInt(words[0], 10, 64)
	return err
}

// served counts the grants by library.
func (s *scene) served() map[string]int {
	by := make(map[string]int)
	for _, g := range s.grants {
		by[g.library]++
	}
	return by
}

// check compares what all have seen; see TestContention.
func (s *scene) check() {
	s.Helper()
	last, err := s.ledger.read()
	require.NoError(s, err)
	wrote := make(map[int]int64) // the czxid of who wrote a number, as who wrote it says, or else as the next one has read it
	saw := func(e entry) {
		if e.n == 0 {
			return
		}
		if czxid, ok := wrote[e.n]; ok {
			assert.Equal(s, czxid, e.czxid, "%s: who wrote %d", s.name, e.n)
			return
		}
		wrote[e.n] = e.czxid
		assert.Contains(s, s.killed, e.node, "%s: %d was written by nobody who was killed, and nobody has reported it", s.name, e.n)
	}
	for _, g := range s.grants {
		if !g.reads {
			n := g.before.n + 1
			assert.Zero(s, wrote[n], "%s: %d was written twice", s.name, n)
			wrote[n] = g.czxid
		}
	}
	for _, g := range s.grants {
		saw(g.before)
	}
	saw(last)
	numbers := slices.Sorted(maps.Keys(wrote))
	for i, n := range numbers {
		require.Equal(s, i+1, n, "%s: a number is missing", s.name)
		if i > 0 {
			assert.Less(s, wrote[n-1], wrote[n], "%s: %d was written by who came before who wrote %d", s.name, n, n-1)
		}
	}
	assert.Equal(s, len(numbers), last.n, "%s: the count", s.name)
	for _, g := range s.grants {
		if g.reads {
			assert.Equal(s, g.before, g.after, "%s: a reader of %s reads what changes", s.name, g.library)
			assert.Less(s, wrote[g.before.n], g.czxid, "%s: a reader of %s came before who wrote what it read", s.name, g.library)
			if next, ok := wrote[g.before.n+1]; ok {
				assert.Less(s, g.czxid, next, "%s: a reader of %s misses what was written before it came", s.name, g.library)
			}
		}
	}
	libraries, all := s.served(), []string{ours, curator, kazooOnCurators, zkLock}
	if s.readers {
		all = all[:3]
	}
	for _, library := range all {
		assert.NotZero(s, libraries[library], "%s: %s is not served", s.name, library)
	}
}
