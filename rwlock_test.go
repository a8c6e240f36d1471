package zkrecipes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// permutations returns every order of the numbers below n.
func permutations(n int) (all [][]int) {
	var grow func(so []int)
	grow = func(so []int) {
		if len(so) == n {
			all = append(all, slices.Clone(so))
			return
		}
		for i := range n {
			if !slices.Contains(so, i) {
				grow(append(so, i))
			}
		}
	}
	grow(nil)
	return all
}

// What one owner may take on top of what it has, with the leases released in every order. After each step another session asks what is left to take.
func TestReadWriteRulesOfOneOwner(t *testing.T) {
	t.Parallel()
	// How a call says that it is the owner's.
	identities := map[string]func(outer *Lease) (context.Context, []LockOption){
		"lease context": func(outer *Lease) (context.Context, []LockOption) {
			if outer == nil {
				return context.Background(), nil
			}
			return outer.Context(), nil
		},
		"owner in ctx": func(*Lease) (context.Context, []LockOption) { return ContextWithOwner(context.Background(), "o"), nil },
		"WithOwner": func(*Lease) (context.Context, []LockOption) {
			return context.Background(), []LockOption{WithOwner("o")}
		},
	}
	for identity, as := range identities {
		for _, tc := range []struct {
			takes  string // R, W, or M for a Mutex on the same path
			queued byte   // what another session waits for, once the first lease is held: 'W', 'R', or nothing
			refuse bool   // the last one, with ErrUpgrade
		}{
			{takes: "WW"}, {takes: "WR"}, {takes: "RR"}, {takes: "WRW"}, {takes: "WRR"}, {takes: "WWR"},
			{takes: "RR", queued: 'W'}, {takes: "RRR", queued: 'W'}, {takes: "WR", queued: 'W'}, {takes: "WRW", queued: 'W'}, {takes: "WR", queued: 'R'},
			{takes: "RW", refuse: true}, {takes: "RM", refuse: true}, {takes: "RRW", refuse: true}, {takes: "RW", queued: 'W', refuse: true},
			{takes: "MM"}, {takes: "MW"}, {takes: "WM"}, {takes: "MR"}, {takes: "MRM"}, {takes: "MRW"}, {takes: "MR", queued: 'W'}, {takes: "MR", queued: 'R'},
		} {
			name := identity + "/" + tc.takes
			if tc.queued != 0 {
				name += " with " + string(tc.queued) + " queued"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, other, c := dialShared(t, calm), dialShared(t, calm), admin(t)
				count := len(tc.takes)
				if tc.refuse {
					count--
				}
				for _, order := range permutations(count) {
					path := newPath(t)
					rule := &ruleOfOne{t: t, path: path, look: c, other: NewRWLock(other, path)}
					for i, kind := range []byte(tc.takes) {
						var outer *Lease
						if i > 0 {
							outer = rule.leases[i-1]
						}
						ctx, opts := as(outer)
						locker := lockerOf(s, path, kind, opts...)
						l, err := locker.TryLock(ctx)
						if i > 0 { // Lock says the same, at once: neither waits
							again, lockErr := locker.Lock(ctx)
							require.Equal(t, err == nil, lockErr == nil, "%v, %v", err, lockErr)
							if lockErr == nil {
								require.Equal(t, l.Token(), again.Token())
								require.NoError(t, again.Release(ctx))
							}
						}
						if tc.refuse && i == count {
							require.ErrorIs(t, err, ErrUpgrade)
							require.NotErrorIs(t, err, ErrHeld)
							require.ErrorContains(t, err, "release it first")
							break
						}
						require.NoError(t, err)
						rule.took(l, kind)
						if i == 0 && tc.queued != 0 {
							rule.queue(tc.queued)
						}
						rule.probe()
					}
					for _, i := range order {
						rule.release(i)
						rule.probe()
					}
					rule.end()
				}
			})
		}
	}
}

func lockerOf(s *Session, path string, kind byte, opts ...LockOption) Locker {
	switch kind {
	case 'M':
		return NewMutex(s, path, opts...)
	case 'W':
		return NewRWLock(s, path, opts...)
	}
	return NewRWLock(s, path, opts...).RLocker()
}

// ruleOfOne is what one owner holds, and what somebody else gets beside it.
type ruleOfOne struct {
	t      testing.TB
	path   string
	look   Conn
	other  *RWLock
	kinds  []byte
	leases []*Lease
	over   []bool
	queued byte
	waiter <-chan lockResult
}

func (r *ruleOfOne) took(l *Lease, kind byte) {
	if len(r.leases) > 0 {
		require.Equal(r.t, r.leases[0].Token(), l.Token(), "one owner, one token")
	}
	r.leases, r.kinds, r.over = append(r.leases, l), append(r.kinds, kind), append(r.over, false)
}

func (r *ruleOfOne) queue(kind byte) {
	locker := Locker(r.other)
	if kind == 'R' {
		locker = r.other.RLocker()
	}
	nodes := len(children(r.t, r.look, r.path))
	r.queued, r.waiter = kind, goLock(context.Background(), locker)
	eventually(r.t, 10*time.Second, "it waits", func() bool { return len(children(r.t, r.look, r.path)) == nodes+1 })
}

// holds reports whether a lease of one of these kinds is held. A read under a Mutex keeps that one's znode.
func (r *ruleOfOne) holds(kinds string) bool {
	for i, k := range r.kinds {
		if !r.over[i] && slices.Contains([]byte(kinds), k) {
			return true
		}
	}
	return false
}

func (r *ruleOfOne) alone() bool {
	return r.holds("WM") || r.kinds[0] == 'M' && r.holds("R")
}

func (r *ruleOfOne) release(i int) {
	require.NoError(r.t, r.leases[i].Release(within(r.t, 10*time.Second)))
	require.ErrorIs(r.t, r.leases[i].Err(), ErrReleased)
	r.over[i] = true
}

// probe compares what another owner gets with what it may.
func (r *ruleOfOne) probe() {
	for i, l := range r.leases {
		if !r.over[i] {
			require.NoError(r.t, l.Err())
		}
	}
	granted := !r.alone() && (r.queued == 'R' || !r.holds("R"))
	if r.waiter != nil {
		if !granted {
			select {
			case got := <-r.waiter:
				r.t.Fatalf("the waiting %c returned %v, %v", r.queued, got.lease, got.err)
			default:
			}
		} else {
			l := mustLease(r.t, r.waiter)
			require.NoError(r.t, l.Release(within(r.t, 10*time.Second)))
			r.queued, r.waiter = 0, nil
		}
	}
	ctx := within(r.t, 10*time.Second)
	for _, try := range []struct {
		l    Locker
		want bool
	}{
		{r.other, r.waiter == nil && !r.alone() && !r.holds("R")},
		{r.other.RLocker(), !r.alone() && (r.waiter == nil || r.queued == 'R')},
	} {
		l, err := try.l.TryLock(ctx)
		if !try.want {
			require.ErrorIs(r.t, err, ErrHeld)
			continue
		}
		require.NoError(r.t, err)
		require.NoError(r.t, l.Release(ctx))
	}
}

func (r *ruleOfOne) end() {
	require.Nil(r.t, r.waiter)
	require.Empty(r.t, children(r.t, r.look, r.path))
}

// A writer holds and a second one waits; the first reads, and gives the write lease back. The second must not be let in beside the reader, and a register
// that has seen the reader's token must take the second writer's.
// Reports: CURATOR-276, CURATOR-621, redisson #4217.
func TestDowngradeKeepsQueuedWritersOut(t *testing.T) {
	t.Parallel()
	downgradeKeepsQueuedWritersOut(t)
}

func downgradeKeepsQueuedWritersOut(t testing.TB) {
	for _, first := range []byte("WM") {
		subtest(t, string(first), func(t testing.TB) {
			a, b, c := dialShared(t, calm), dialShared(t, calm), dialShared(t, calm)
			path := newPath(t)
			for range rounds(t, 30) {
				w, err := lockerOf(a, path, first).Lock(within(t, 10*time.Second))
				require.NoError(t, err)
				second := goLock(context.Background(), NewRWLock(b, path))
				waitingFor(t, path, 2)
				third := goLock(context.Background(), NewMutex(c, path))
				waitingFor(t, path, 3)
				r, err := NewRWLock(a, path).RLock(w.Context())
				require.NoError(t, err)
				register := r.Token() // of the reader's last access
				require.NoError(t, w.Release(within(t, 10*time.Second)))
				// The waiter has been woken by now, or is about to be. Whatever it does, what is read while it is not granted is read alone.
				_, err = NewRWLock(b, path).TryRLock(within(t, 10*time.Second))
				require.ErrorIs(t, err, ErrHeld)
				require.NoError(t, r.Err())
				select {
				case got := <-second:
					t.Fatalf("granted beside the reader: %v, %v", got.lease, got.err)
				default:
				}
				released := make(chan error, 1)
				go func() { released <- r.Release(context.Background()) }()
				l2 := mustLease(t, second)
				require.ErrorIs(t, r.Err(), ErrReleased, "it is granted after the reader's end only")
				require.NoError(t, <-released)
				require.Greater(t, l2.Token(), register)
				require.NoError(t, l2.Release(within(t, 10*time.Second)))
				l3 := mustLease(t, third)
				require.Greater(t, l3.Token(), l2.Token())
				require.NoError(t, l3.Release(within(t, 10*time.Second)))
			}
			require.Empty(t, children(t, admin(t), path))
		})
	}
}

// A nested RLock comes while the last write lease is being released, and a writer waits: the reader either keeps the writer's place, or it is somebody
// who queues behind the waiting writer. In no case do both hold.
func TestNestedReadRacesTheLastWriteRelease(t *testing.T) {
	t.Parallel()
	nestedReadRacesTheLastWriteRelease(t)
}

func nestedReadRacesTheLastWriteRelease(t testing.TB) {
	for _, first := range []byte("WM") {
		subtest(t, string(first), func(t testing.TB) {
			a, b := dialShared(t, calm), dialShared(t, calm)
			path := newPath(t)
			kept, queued := 0, 0
			for i := range rounds(t, 150) {
				ctx := ContextWithOwner(within(t, 20*time.Second), Owner(fmt.Sprint("o", i)))
				w, err := lockerOf(a, path, first).Lock(ctx)
				require.NoError(t, err)
				second := goLock(context.Background(), NewRWLock(b, path))
				waitingFor(t, path, 2)
				var wg sync.WaitGroup
				start := make(chan struct{})
				read := make(chan lockResult, 1)
				wg.Go(func() {
					<-start
					l, err := NewRWLock(a, path).RLock(ctx)
					read <- lockResult{l, err}
				})
				released := make(chan error, 1)
				wg.Go(func() {
					<-start
					released <- w.Release(ctx)
				})
				close(start)
				// Whoever is granted first gives the other way.
				for range 2 {
					select {
					case r := <-read:
						require.NoError(t, r.err)
						if second != nil {
							kept++
							require.Equal(t, w.Token(), r.lease.Token())
							select {
							case got := <-second:
								t.Fatalf("the writer holds beside the reader: %v", got)
							default:
							}
						} else {
							queued++
							require.Greater(t, r.lease.Token(), w.Token())
						}
						require.NoError(t, r.lease.Err())
						require.NoError(t, r.lease.Release(ctx))
						read = nil
					case l := <-second:
						require.NoError(t, l.err)
						require.NoError(t, l.lease.Err())
						if read != nil {
							select {
							case got := <-read:
								t.Fatalf("the reader holds beside the writer: %v", got)
							default:
							}
						}
						require.NoError(t, l.lease.Release(ctx))
						second = nil
					case <-time.After(10 * time.Second):
						t.Fatal("neither is granted")
					}
				}
				wg.Wait()
				require.NoError(t, <-released)
			}
			t.Logf("the reader kept the place %d times, and queued %d times", kept, queued)
			require.Empty(t, children(t, admin(t), path))
			require.Empty(t, a.Leases())
		})
	}
}

// A reader behind writer, reader, writer waits for the second writer alone: what those before it do wakes it neither by an event nor by a request.
func TestReaderIsWokenOnceByTheNearestWriter(t *testing.T) {
	t.Parallel()
	a, b, c := dialShared(t, calm), dialShared(t, calm), dialShared(t, calm)
	d, p := dialProxy(t, WithTimeout(20*time.Second)) // no sync comes in between
	path := newPath(t)
	w1, err := NewRWLock(a, path).Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	r1 := goLock(context.Background(), NewRWLock(b, path).RLocker())
	waitingFor(t, path, 2)
	w2 := goLock(context.Background(), NewRWLock(c, path))
	waitingFor(t, path, 3)
	r2 := goLock(context.Background(), NewRWLock(d, path).RLocker())
	waitingFor(t, path, 4)
	armed := func() bool {
		n := 0
		for _, r := range p.Requests() {
			if r.Op == zktest.OpGetData && r.Answered {
				n++
			}
		}
		return n == 2 // the nearest writer and its own
	}
	eventually(t, 10*time.Second, "its watches are set", armed)
	p.ResetCounters()

	require.NoError(t, w1.Release(within(t, 10*time.Second)))
	l1 := mustLease(t, r1)
	require.NoError(t, l1.Release(within(t, 10*time.Second)))
	l2 := mustLease(t, w2)
	require.Zero(t, p.Counts().Events)
	counts := p.Counts()
	require.Zero(t, counts.Total()-counts.Requests[zktest.OpSync], "%v", p.Requests())

	require.NoError(t, l2.Release(within(t, 10*time.Second)))
	l := mustLease(t, r2)
	require.Equal(t, 1, p.Counts().Events)
	t.Logf("requests from the wake-up to the grant, with the watch on the own znode: %v", p.Counts().Requests)
	require.NoError(t, l.Release(within(t, 10*time.Second)))
}

// Writer, reader, second writer, in that order; the first writer releases: the reader is granted. A reader that waited for any writer would wait for one
// that waits for it.
// Reports: python-zk/kazoo #649.
func TestReaderBetweenTwoWriters(t *testing.T) {
	t.Parallel()
	a, b, c := dialShared(t, calm), dialShared(t, calm), dialShared(t, calm)
	path := newPath(t)
	w1, err := NewRWLock(a, path).Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	r := goLock(context.Background(), NewRWLock(b, path).RLocker())
	waitingFor(t, path, 2)
	w2 := goLock(context.Background(), NewRWLock(c, path))
	waitingFor(t, path, 3)
	require.NoError(t, w1.Release(within(t, 10*time.Second)))
	reader := mustLease(t, r)
	require.NoError(t, reader.Release(within(t, 10*time.Second)))
	require.NoError(t, mustLease(t, w2).Release(within(t, 10*time.Second)))
}

// Readers hold together, a writer alone; and who waits is told for whom.
func TestRWLockExcludes(t *testing.T) {
	t.Parallel()
	a, b := dialShared(t, calm), dialShared(t, calm)
	path := newPath(t)
	ctx := within(t, 20*time.Second)
	var readers []*Lease
	for _, s := range []*Session{a, b, a} {
		l, err := NewRWLock(s, path).RLock(ctx)
		require.NoError(t, err)
		readers = append(readers, l)
	}
	ps, err := NewRWLock(a, path).Participants(ctx)
	require.NoError(t, err)
	require.Len(t, ps.Holders(), 3)
	require.Equal(t, ModeShared, ps[0].Mode)
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err = NewRWLock(b, path).Lock(short)
	require.ErrorIs(t, err, ErrHeld)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "lock", e.Op)
	require.Len(t, e.Ahead, 3)
	require.Equal(t, readers[2].Node(), e.Ahead[0].Node)
	require.Equal(t, readers[2].Owner(), e.Ahead[0].Owner)
	require.Equal(t, ModeShared, e.Ahead[0].Mode)
	for _, l := range readers {
		require.NoError(t, l.Release(ctx))
	}
	w, err := NewRWLock(b, path).Lock(ctx)
	require.NoError(t, err)
	short, cancel = context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err = NewRWLock(a, path).RLock(short)
	require.ErrorAs(t, err, &e)
	require.Equal(t, "rlock", e.Op)
	require.Len(t, e.Ahead, 1)
	require.Equal(t, w.Token(), e.Ahead[0].Token)
	require.Equal(t, ModeExclusive, e.Ahead[0].Mode)
	_, err = NewRWLock(a, path).TryRLock(ctx)
	require.ErrorIs(t, err, ErrHeld)
	require.ErrorAs(t, err, &e)
	require.Equal(t, "tryrlock", e.Op)
	require.NoError(t, w.Release(ctx))
	look := admin(t)
	eventually(t, 5*time.Second, "the waits leave nothing, on a connection of their own", func() bool { return len(children(t, look, path)) == 0 })
}

// Reads under a write lease on connections that their owner has.
func TestAdoptedReadUnderWrite(t *testing.T) {
	t.Parallel()
	for _, w := range adoptions {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			t.Run("downgrade", func(t *testing.T) { downgradeKeepsQueuedWritersOut(via{t, w}) })
			t.Run("race", func(t *testing.T) { nestedReadRacesTheLastWriteRelease(via{t, w}) })
		})
	}
}
