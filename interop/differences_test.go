package interop

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/snapshot"
	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// What is here is not wanted: it shows where other clients do not do what a mixed fleet expects of them. docs/mixed-fleets.md has the cause of each, and
// what to do. A test that fails because a newer client does better is good news: that page changes then.

// stillWaits watches for a moment that a member is not granted.
func (f *fleet) stillWaits(m *member) {
	f.t.Helper()
	watch := time.NewTimer(calm)
	defer watch.Stop()
	select {
	case _, ok := <-m.granted:
		f.t.Fatalf("%s waits no longer in %s: %v %v", m.who, f, ok, m.err)
	case <-watch.C:
	}
}

// Curator 5.4's reader that was a writer has a znode at the tail of the queue. Who waited before that one is granted beside it.
func TestCurator54DowngradesAtTheTail(t *testing.T) {
	for _, who := range []string{"ours write", "curator write", "kazoo write"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			w := f.join("curator write")
			f.settle()
			next := f.join(who)
			f.stillWaits(next)
			ctx := within(t, 20*time.Second)
			read, err := w.client.Lock(ctx, Reader, f.path)
			require.NoError(t, err)
			ps := inspect(t, f.s, f.path)
			require.Equal(t, read, ps[len(ps)-1].Node)
			require.NoError(t, w.release())
			f.await(next)
			ps = inspect(t, f.s, f.path)
			require.Len(t, ps, 2)
			require.Equal(t, next.node, ps.Holders()[0].Node)
			require.Equal(t, read, ps.Waiters()[0].Node, "by the order that everybody can see it waits; it does not know")
			require.NoError(t, w.client.Release(ctx, Reader, f.path))
			require.NoError(t, next.release())
		})
	}
}

// Curator waits for any child that sorts before its own, also for one that nobody will remove. Ours knows a lock's znode by its name.
func TestCuratorWaitsForWhatIsNoLock(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	require.NoError(t, createAll(plain(t), f.path+"/!note"))
	m := f.join("ours mutex")
	f.settle()
	f.leave(m)
	theirs := f.join("curator mutex")
	f.stillWaits(theirs)
	require.NoError(t, plain(t).Delete(f.path+"/!note", -1))
	f.settle()
	f.leave(theirs)
}

// Curator counts whatever is among the permits as one that is taken.
func TestCuratorCountsWhatIsNoPermit(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	require.NoError(t, createAll(plain(t), f.path+"/leases/note"))
	f.join("curator permit")
	f.settle()
	second := f.join("curator permit")
	f.stillWaits(second)
	require.NoError(t, plain(t).Delete(f.path+"/leases/note", -1))
	f.settle()
	f.drain(nil)

	require.NoError(t, createAll(plain(t), f.path+"/leases/note"))
	for range Permits {
		f.join("ours permit")
		f.settle()
	}
	f.drain(nil)
}

// kazoo's lock as it comes sees znodes of kazoo's alone.
func TestKazooSeesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("ours mutex")
	f.settle()
	ctx, p := within(t, 20*time.Second), open(t, Kazoo)
	_, err := p.Lock(ctx, PlainMutex, f.path)
	require.NoError(t, err, "beside ours")
	require.NoError(t, p.Release(ctx, PlainMutex, f.path))
	f.drain(nil)
}

// Curator does not see kazoo's znodes, whatever kazoo is told to heed. On Curator's znodes the three are in one queue.
func TestCuratorDoesNotSeeKazoo(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("kazoo mutex")
	f.settle()
	theirs := f.join("curator mutex")
	f.await(theirs)
	require.Len(t, inspect(t, f.s, f.path).Holders(), 1)
	require.NoError(t, theirs.release())
}

// A reader of kazoo's waits for writers that came after it, and they for it.
func TestKazooReaderWaitsForLaterWriters(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.join("kazoo write")
	f.settle()
	reader, writer := f.join("kazoo read"), f.join("kazoo write")
	f.leave(w)
	f.stillWaits(reader)
	f.stillWaits(writer)
	require.NoError(t, writer.client.Close(t.Context()))
	f.members = f.members[:1]
	f.settle()
}

// Java's mutex and read/write lock on one path do not see each other, nor ours of the other kind.
func TestCuratorMutexAndReadWriteLockAreApart(t *testing.T) {
	for _, pair := range [][2]string{
		{"curator mutex", "curator write"}, {"curator write", "curator mutex"}, {"ours mutex", "curator write"}, {"ours write", "curator mutex"},
	} {
		t.Run(pair[0]+", "+pair[1], func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.join(pair[0])
			f.settle()
			f.await(f.join(pair[1]))
			require.Len(t, inspect(t, f.s, f.path).Holders(), 1)
			for _, m := range f.members {
				require.NoError(t, m.release())
			}
		})
	}
}

// numbered is a server with a directory whose next number a test can change.
type numbered struct {
	addrs []string
	set   func(n int32)
}

func newNumbered(t *testing.T, dir string) *numbered {
	t.Helper()
	var n numbered
	if testrun.Real() {
		e := zktest.Start(t, zktest.SystemProperty("zookeeper.digest.enabled", "false"))
		n.addrs = e.Addrs()
		n.set = func(next int32) {
			require.NoError(t, snapshot.SetCounters(within(t, 20*time.Second), e.Server(0), map[string]int32{dir: next}))
		}
	} else {
		s := zktest.NewServer(t)
		n.addrs = []string{s.Addr()}
		n.set = func(next int32) { require.True(t, s.SetCounter(dir, next)) }
	}
	require.NoError(t, createAll(clientOf(t, n.addrs[0]), dir))
	return &n
}

// After two thousand million children of a directory the numbers are negative, and run backwards as text. Curator and kazoo, which compare them so, enter
// beside those who came before. Ours go by the order of creation.
func TestOrderPastTheLimitOfTheNumbers(t *testing.T) {
	t.Parallel()
	const dir = "/at-the-limit"
	server := newNumbered(t, dir)
	server.set(math.MaxInt32)
	f := newFleetAt(t, server.addrs, dir)
	holder := f.join("ours mutex")
	f.settle()
	require.Contains(t, holder.node, "-lock-2147483647")
	server.set(math.MinInt32)
	second := f.join("curator mutex")
	require.Contains(t, second.node, "-lock--2147483648")
	f.await(second)
	third := f.join("kazoo mutex")
	f.await(third) // before somebody comes with a number that kazoo takes for a lower one
	last := f.join("ours mutex")
	f.stillWaits(last)
	require.NoError(t, holder.lease(f).Err())
	ps := inspect(t, f.s, f.path)
	for i, m := range f.members {
		require.Equal(t, m.session, ps[i].Session, "the order by creation")
		require.Equal(t, i == 0, ps[i].Holding)
	}
	for _, m := range []*member{second, third, holder} {
		f.stillWaits(last)
		require.NoError(t, m.release())
	}
	f.await(last)
	require.NoError(t, last.release())

	// What to do: while nobody is there, let the directory go. A container goes by itself.
	require.NoError(t, clientOf(t, server.addrs[0]).Delete(dir, -1))
	f.members = nil
	f.run("curator mutex", "kazoo-curator's mutex", "ours mutex")
}

// zk.Lock fails beside a child without a number, and leaves a znode that everybody waits for until its session ends.
func TestZkLockFailsBesideOtherChildren(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	require.NoError(t, createAll(plain(t), f.path+"/note"))
	c := openClient(t, zkLock, f.servers, sessionTimeout)
	_, err := c.Lock(t.Context(), Mutex, f.path)
	require.ErrorIs(t, err, strconv.ErrSyntax)
	left := inspect(t, f.s, f.path)
	require.Len(t, left, 1)
	require.Equal(t, c.Session(), left[0].Session)
	m := f.join("ours mutex")
	f.stillWaits(m)
	require.NoError(t, c.Close(t.Context()))
	f.settle()
	f.drain(nil)
}
