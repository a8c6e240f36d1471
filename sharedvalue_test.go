package zkrecipes

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Eight goroutines use one value of a recipe. What belongs to an acquisition is in its Lease, and not in a field of the value that the next one overwrites while
// the last one gives back (CURATOR-376).
func TestGoroutinesShareOneValue(t *testing.T) {
	t.Parallel()
	const goroutines = 8
	cycles := 240 / oneIn(t)
	s, look := dialShared(t, calm), admin(t)
	top := newPath(t)
	sem := NewSemaphore(s, top+"/semaphore", 2)
	for name, c := range map[string]struct {
		lock Locker
		most int64
	}{
		"mutex":     {NewMutex(s, top+"/mutex"), 1},
		"write":     {NewRWLock(s, top+"/write"), 1},
		"semaphore": {sem.Locker(1), 2},
		"all":       {sem.Locker(2), 1},
		"group":     {NewMultiLock(NewMutex(s, top+"/a"), NewMutex(s, top+"/b")), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var inside, most atomic.Int64
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() {
					for range cycles {
						l, err := c.lock.Lock(within(t, 60*time.Second))
						if err != nil {
							t.Error(err)
							return
						}
						if n := inside.Add(1); n > c.most {
							t.Errorf("%d inside", n)
						} else if n > most.Load() {
							most.Store(n)
						}
						if err := l.Err(); err != nil {
							t.Error(err)
						}
						<-time.After(time.Millisecond) // what it does with it
						inside.Add(-1)
						if err := l.Release(context.Background()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			require.Positive(t, most.Load())
		})
	}
	t.Cleanup(func() {
		require.Empty(t, s.Leases())
		for _, dir := range []string{"/mutex", "/write", "/semaphore/leases", "/semaphore/locks", "/a", "/b"} {
			eventually(t, 5*time.Second, dir, func() bool { return len(children(t, look, top+dir)) == 0 })
		}
	})
}

// Recipes of every kind begin at one moment below parents that are not there, or are, made for good by hand: each makes what is missing and puts up with what is
// there, of either kind (CURATOR-435), and who only looks makes nothing (CURATOR-319).
// Reports: CURATOR-274.
func TestRecipesMakeTheSameParents(t *testing.T) {
	t.Parallel()
	sessions := []*Session{dialShared(t, calm), dialShared(t, calm), dialShared(t, calm)}
	look := admin(t)
	for game := range max(4, 40/oneIn(t)) {
		top := newPath(t)
		dir := top + "/b/c"
		if game%2 == 1 {
			mkdirs(t, look, top+"/b")
		}
		watcher, stop := NewWatcher(sessions[0], dir+"/seen"), make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			defer close(stop)
			for range watcher.Children(ctx) {
			}
		}()
		barrier := NewBarrier(sessions[0], dir+"/barrier")
		var wg sync.WaitGroup
		for i, s := range sessions {
			for j, lock := range []Locker{
				NewMutex(s, fmt.Sprintf("%s/mutex%d", dir, i)), NewRWLock(s, dir+"/rw").RLocker(), NewSemaphore(s, dir+"/semaphore", 3).Locker(1),
				NewMultiLock(NewMutex(s, fmt.Sprintf("%s/x%d", dir, i)), NewMutex(s, fmt.Sprintf("%s/y%d", dir, i))),
			} {
				wg.Go(func() {
					l, err := lock.Lock(within(t, 20*time.Second))
					if err != nil {
						t.Errorf("%d: %v", j, err)
						return
					}
					if err := l.Release(context.Background()); err != nil {
						t.Errorf("%d: %v", j, err)
					}
				})
			}
		}
		wg.Go(func() {
			if err := barrier.Set(within(t, 20*time.Second)); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		ok, _, err := look.Exists(dir + "/seen")
		require.NoError(t, err)
		require.False(t, ok, "who looks makes nothing")
		require.NoError(t, barrier.Remove(within(t, 5*time.Second)))
		cancel()
		<-stop
	}
}
