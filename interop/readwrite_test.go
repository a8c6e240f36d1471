package interop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes"
)

// Curator's InterProcessReadWriteLock and RWLock on one path: writers exclude everybody, readers share, first come, first served.
func TestCuratorReadWriteExcludes(t *testing.T) {
	runAll(t,
		"ours write, curator read",
		"curator write, ours read",
		"curator read, ours read, curator read",
		"ours write, curator read, ours read, curator write, ours read, curator read, ours write",
		"curator write, ours read, curator read, ours write, curator read, ours read, curator write",
	)
}

// A read under a write lease keeps the writer's place when that one is released, whether it was taken before or after somebody else queued: a writer
// waits for its end, and a reader reads beside it.
func TestDowngradeKeepsItsPlace(t *testing.T) {
	for _, next := range []string{"curator write", "curator read", "kazoo write"} {
		for _, order := range []string{"queued before the read", "queued after the read"} {
			t.Run(next+" "+order, func(t *testing.T) {
				t.Parallel()
				f := newFleet(t)
				w := f.join("ours write")
				f.settle()
				var r *member
				if order == "queued after the read" {
					r = f.nest(w)
				}
				f.join(next)
				f.settle()
				if r == nil {
					r = f.nest(w)
					f.settle()
				}
				f.leave(w)
				f.settle()
				f.join("ours read")
				f.settle()
				f.leave(r)
				f.settle()
			})
		}
	}
}

// A read under a mutex lease shares its znode, which a Java mutex waits for, so that one is kept out until both are released.
func TestReadUnderMutexKeepsCuratorOut(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	m := f.join("ours mutex")
	f.settle()
	f.join("curator mutex")
	l, err := zkrecipes.NewRWLock(m.client.(*ourClient).s, f.path).RLock(m.lease(f).Context())
	require.NoError(t, err)
	require.Equal(t, m.node, l.Node())
	require.NoError(t, m.lease(f).Release(t.Context()))
	f.settle()
	m.release = func() error { return l.Release(t.Context()) }
	f.leave(m)
	f.settle()
}
