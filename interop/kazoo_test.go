package interop

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// kazoo's WriteLock and ReadLock, told to heed the names of others, and RWLock on one path. A reader of kazoo 2.8 waits for any writer in the queue,
// also for one behind it (TestKazooReaderWaitsForLaterWriters), so it is asked for what is right only where no writer comes behind a reader of kazoo's that
// waits.
func TestKazooReadWriteExcludes(t *testing.T) {
	runAll(t,
		"ours write, kazoo read",
		"kazoo write, ours read",
		"kazoo read, ours read, kazoo read, ours write, kazoo write",
		"ours write, kazoo write, ours read, kazoo write, ours write",
		"kazoo write, ours write, kazoo read, ours read",
	)
}

// A writer holds, a reader waits, and a second writer waits behind the reader. Our reader waits for the nearest writer before it, so it is granted, and so
// is kazoo's on Curator's znodes.
func TestReaderDoesNotWaitForLaterWriters(t *testing.T) {
	runAll(t,
		"kazoo write, ours read, ours read, kazoo write, ours read, ours write",
		"curator write, ours read, curator write, ours read",
		"ours write, kazoo-curator's read, kazoo-curator's write, kazoo-curator's read, curator write",
	)
}

// Once the second writer has given up, kazoo's reader goes on: what it did meanwhile kept nobody else waiting who was before it.
func TestOurReaderPassesAStuckKazooReader(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.join("kazoo write")
	f.settle()
	theirs, ours := f.join("kazoo read"), f.join("ours read")
	second := f.join("kazoo write")
	f.leave(w)
	f.await(ours) // and not for what is behind it
	f.leave(ours)
	require.NoError(t, second.client.Close(t.Context()))
	f.members = f.members[:1]
	require.Equal(t, theirs, f.members[0])
	f.settle()
}

// A mutex path with everybody who has a mutex there. kazoo's Lock heeds the others because it is told to; Curator's mutex does not see kazoo's
// znodes (TestCuratorDoesNotSeeKazoo), so those two are in one queue only where kazoo is on Curator's.
func TestMutexesExclude(t *testing.T) {
	runAll(t,
		"ours mutex, curator mutex, zk mutex, ours mutex",
		"curator mutex, zk mutex, ours mutex, curator mutex",
		"zk mutex, kazoo-curator's mutex, curator mutex, ours mutex, kazoo-curator's mutex, curator mutex",
		"kazoo mutex, ours mutex, kazoo mutex, zk mutex",
		"ours mutex, kazoo mutex, zk mutex, kazoo mutex, ours mutex",
	)
}

// Readers and writers of three languages, where all see all.
func TestReadersAndWritersOfThreeLanguages(t *testing.T) {
	runAll(t,
		"curator read, kazoo-curator's read, ours write, kazoo-curator's write, curator read, ours read, kazoo-curator's read, curator write",
		"kazoo-curator's write, curator write, ours read, kazoo-curator's read, curator read, kazoo-curator's write, ours write",
	)
}
