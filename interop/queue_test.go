package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes"
)

// calm is how long a queue is watched for a grant that must not come. Such a grant is made as soon as its client has listed the directory, which on a
// busy machine may be later: then this one look misses it, never the other way round.
const calm = 150 * time.Millisecond

// A fleet is one path and everybody who stands in its queue.
type fleet struct {
	t       testing.TB
	path    string
	servers []string
	s       *zkrecipes.Session                        // looks on
	open    func(t testing.TB, library string) client // how a member's client is opened
	members []*member                                 // in order of arrival
}

// A kind is what a member wants of the path.
type kind struct {
	side   Side
	mode   zkrecipes.Mode // as Inspect says
	shares bool           // it holds beside others of its kind
	moves  bool           // its znode is another one once it holds
	look   string         // below the path, where it queues
}

// The kinds, by the words for them. Who is downgraded has written, reads under that and has given back the write.
var kinds = map[string]kind{
	"mutex":          {side: Mutex},
	"read":           {side: Reader, mode: zkrecipes.ModeShared, shares: true},
	"write":          {side: Writer},
	"downgraded":     {side: Writer, mode: zkrecipes.ModeShared, shares: true, moves: true},
	"permit":         {side: Semaphore, mode: zkrecipes.ModeShared, shares: true, moves: true},
	"semaphoremutex": {side: SemaphoreMutex, mode: zkrecipes.ModeShared, moves: true},
	"multilock":      {side: MultiLock, look: "/a"},
	"revocable":      {side: Mutex},
	"latch":          {side: Latch},
	"selector":       {side: Selector},
}

// A member is one client that takes the path once.
type member struct {
	kind
	who     string
	library string
	client  client
	node    string // as Inspect names it
	session int64
	granted chan string // takes its own word for its znode, when it is granted
	held    bool
	err     error   // read it after granted was closed
	under   *member // the writer that this reads under
	release func() error
}

// lease is that of one of ours, which holds.
func (m *member) lease(f *fleet) *zkrecipes.Lease { return m.client.(*ourClient).lease(m.side, f.path) }

func newFleet(t testing.TB) *fleet { return newFleetAt(t, servers(t), newPath(t)) }

func newFleetAt(t testing.TB, servers []string, path string) *fleet {
	f := &fleet{t: t, path: path, servers: servers, s: dialAt(t, servers)}
	f.open = func(t testing.TB, library string) client { return openClient(t, library, f.servers, sessionTimeout) }
	return f
}

// join lets somebody queue, and waits until its znode is there. who is a library and a kind, such as "curator write".
func (f *fleet) join(who string) *member {
	f.t.Helper()
	library, what, _ := strings.Cut(who, " ")
	k, ok := kinds[what]
	require.True(f.t, ok, who)
	c := f.open(f.t, library)
	m := &member{kind: k, who: who, library: library, client: c, session: c.Session(), granted: make(chan string, 1)}
	ctx := within(f.t, 2*time.Minute) // in which other fleets may come to stand, one after the other
	lock := func() (string, error) { return c.Lock(ctx, m.side, f.path) }
	switch what {
	case "downgraded":
		lock = func() (string, error) {
			if _, err := c.Lock(ctx, Writer, f.path); err != nil {
				return "", err
			}
			node, err := c.Lock(ctx, Reader, f.path)
			if err != nil {
				return "", err
			}
			return node, c.Release(ctx, Writer, f.path)
		}
		m.side = Reader
	case "revocable":
		lock = func() (string, error) {
			if err := c.(revoker).MakeRevocable(ctx, m.side, f.path); err != nil {
				return "", err
			}
			return c.Lock(ctx, m.side, f.path)
		}
	}
	m.release = func() error { return c.Release(ctx, m.side, f.path) }
	f.queue(m, lock)
	return m
}

func (f *fleet) queue(m *member, lock func() (string, error)) {
	f.t.Helper()
	queued, done := make(chan struct{}), make(chan struct{})
	var node string
	go func() {
		defer close(done)
		node, m.err = lock()
		<-queued
		if m.err == nil {
			m.granted <- node
		}
		close(m.granted)
	}()
	eventually(f.t, m.who+" queues", func() bool {
		for _, p := range inspect(f.t, f.s, f.path+m.look) {
			if p.Session == m.session {
				m.node = p.Node
			}
		}
		if m.node != "" {
			return true
		}
		select {
		case <-done:
			require.NoError(f.t, m.err, m.who)
		default:
		}
		return false
	})
	close(queued)
	f.members = append(f.members, m)
	// What waits for ever fails the test by its ctx; what waits when the test ends is ended by the end of its session, which comes before this.
	f.t.Cleanup(func() { _ = m.client.Close(context.Background()) })
}

// leave lets a member that holds release.
func (f *fleet) leave(m *member) {
	f.t.Helper()
	require.True(f.t, m.held, "%s holds", m.who)
	require.NoError(f.t, m.release(), m.who)
	f.members = slices.DeleteFunc(f.members, func(o *member) bool { return o == m })
}

// nest lets the holder of a write lock read under it; ours and a newer Curator's keep its place.
func (f *fleet) nest(w *member) *member {
	f.t.Helper()
	ctx := within(f.t, 10*time.Second)
	node, err := w.client.Lock(ctx, Reader, f.path)
	require.NoError(f.t, err)
	m := &member{kind: kinds["read"], who: w.library + " nested read", library: w.library, client: w.client, node: node, session: w.session, held: true, under: w}
	m.release = func() error { return w.client.Release(ctx, Reader, f.path) }
	f.members = slices.Insert(f.members, slices.Index(f.members, w)+1, m)
	return m
}

// due are those who hold by the rules: nobody exclusive before them but their own writer, and nobody at all before one that is exclusive; of a semaphore
// as many as there are permits.
func (f *fleet) due() (due []*member) {
	for i, m := range f.members {
		if m.side == Semaphore && i >= Permits {
			break
		}
		if i == 0 || m.shares && !slices.ContainsFunc(f.members[:i], func(o *member) bool { return !o.shares && o != m.under }) {
			due = append(due, m)
		}
	}
	return due
}

// settle waits until all who are due are granted, watches that nobody else is, and compares what Inspect says.
func (f *fleet) settle() {
	f.t.Helper()
	due := f.due()
	for _, m := range due {
		if !m.held {
			f.await(m)
		}
	}
	watch := time.NewTimer(calm)
	defer watch.Stop()
	if len(due) < len(f.members) {
		<-watch.C
	}
	for _, m := range f.members {
		if m.held {
			continue
		}
		select {
		case _, ok := <-m.granted:
			require.True(f.t, ok, "%s: %v", m.who, m.err)
			f.t.Fatalf("%s is granted in %s", m.who, f)
		default:
		}
	}
	f.compare(due)
}

// await waits until a member is granted.
func (f *fleet) await(m *member) {
	f.t.Helper()
	patience := time.NewTimer(10 * time.Second)
	defer patience.Stop()
	select {
	case node, ok := <-m.granted:
		require.True(f.t, ok, "%s: %v", m.who, m.err)
		switch {
		case m.moves:
			m.node = node // which it says, or else it is not compared
		case node != "":
			require.Equal(f.t, m.node, node, m.who)
		}
		m.held = true
		if m.side == Semaphore || m.side == SemaphoreMutex { // Inspect, which does not know how many permits there are, goes by that
			eventually(f.t, m.who+" is not in the queue for permits any more", func() bool {
				return !slices.ContainsFunc(inspect(f.t, f.s, f.path+"/locks"), func(p zkrecipes.Participant) bool { return p.Session == m.session })
			})
		}
	case <-patience.C:
		f.t.Fatalf("%s is not granted in %s", m.who, f)
	}
}

// compare asks Inspect for the order, the modes and those who hold.
func (f *fleet) compare(holders []*member) {
	f.t.Helper()
	if len(f.members) == 0 {
		require.Empty(f.t, inspect(f.t, f.s, f.path))
		return
	}
	ps := inspect(f.t, f.s, f.path+f.members[0].look)
	require.Len(f.t, ps, len(f.members), "%s", f)
	for i, m := range f.members {
		p := ps[i]
		if !m.moves || m.held && m.node != "" {
			require.Equal(f.t, m.node, p.Node, "%s in %s", m.who, f)
		}
		require.Equal(f.t, slices.Contains(holders, m), p.Holding, "%s holds in %s", m.who, f)
		if !m.moves || m.held { // who waits for a permit is in a queue of its own
			require.Equal(f.t, m.mode, p.Mode, m.who)
		}
		require.Equal(f.t, m.session, p.Session, m.who)
		require.Equal(f.t, i, p.Position, m.who)
	}
}

// String is the queue, for messages.
func (f *fleet) String() string {
	var b strings.Builder
	for i, m := range f.members {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(m.who)
		if m.held {
			b.WriteString(" (holds)")
		}
	}
	return fmt.Sprintf("[%s]", b.String())
}

// run lets them arrive one by one, and then leave one by one as soon as they are granted. After each step exactly those who are due must hold. Of
// several holders the last one leaves first, so that the others are not woken in the order of their numbers.
func (f *fleet) run(arrivals ...string) {
	f.t.Helper()
	for _, who := range arrivals {
		f.join(who)
		f.settle()
	}
	f.drain(nil)
}

// drain is the second part of run. Before each leaves, step is called with it.
func (f *fleet) drain(step func(f *fleet, holder *member)) {
	f.t.Helper()
	for len(f.members) > 0 {
		due := f.due()
		holder := due[len(due)-1]
		if step != nil {
			step(f, holder)
		}
		f.leave(holder)
		f.settle()
	}
}

// runAll runs each line as a test of its own.
func runAll(t *testing.T, lines ...string) {
	for _, line := range lines {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			newFleet(t).run(strings.Split(line, ", ")...)
		})
	}
}
