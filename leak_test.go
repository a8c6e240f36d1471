package zkrecipes

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// 10,000 cycles, 3,000 where go test is for a first answer, of several owners and sessions on a few paths, a tenth of them cancelled: at rest no goroutine, watch, znode or bookkeeping is left.
func TestNothingIsLeftAfterTenThousandCycles(t *testing.T) {
	server := newTestServer(t, testTick)
	const sessions, workers = 4, 4
	cycles := 10_000
	if quick() {
		cycles = 3_000
	}
	var ss []*Session
	for range sessions {
		ss = append(ss, dial(t, []string{server.addr}, WithTimeout(4*time.Second)))
	}
	path := newPath(t)
	mkdirs(t, ss[0].Conn(), path)
	locks := func(i int) string { return path + "/" + strconv.Itoa(i%3) }
	for i := range 3 {
		mkdirs(t, ss[0].Conn(), locks(i))
	}
	goroutines, before := runtime.NumGoroutine(), server.watches(t)
	var wg sync.WaitGroup
	for w := range sessions * workers {
		s := ss[w%sessions]
		rnd := rand.New(rand.NewPCG(1, uint64(w)))
		wg.Go(func() {
			for i := range cycles / (sessions * workers) {
				m := NewMutex(s, locks(i))
				ctx, cancel := context.WithCancel(context.Background())
				if i%10 == 0 {
					time.AfterFunc(time.Duration(rnd.IntN(2000))*time.Microsecond, cancel)
				}
				l, err := m.Lock(ctx)
				if err == nil {
					err = l.Release(context.Background())
				}
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	for i := range 3 {
		eventually(t, 10*time.Second, "no znode", func() bool { return len(children(t, ss[0].Conn(), locks(i))) == 0 })
	}
	eventually(t, 10*time.Second, "no watch", func() bool { return server.watches(t) <= before })
	eventually(t, 10*time.Second, "no goroutine", func() bool { return runtime.NumGoroutine() <= goroutines })
	for _, s := range ss {
		require.Zero(t, s.engine.Owing())
		require.Empty(t, s.Leases())
		eventually(t, 10*time.Second, "no watch of the engine's", func() bool { return s.engine.Watched() == 0 })
		require.Empty(t, s.holds)
	}
}

// A waiter that Close ended leaves no timer behind that would wake it again and again.
func TestCloseForgetsItsWaiters(t *testing.T) {
	s, holder := dialShared(t), dialShared(t)
	path := newPath(t)
	l, err := NewMutex(holder, path).Lock(context.Background())
	require.NoError(t, err)
	waiting := goLock(context.Background(), NewMutex(s, path))
	waitingFor(t, path, 2)
	eventually(t, 5*time.Second, "it watches", func() bool { return s.engine.Watched() == 2 })
	require.NoError(t, s.Close())
	require.ErrorIs(t, (<-waiting).err, ErrClosed)
	require.Zero(t, s.engine.Watched())
	require.NoError(t, l.Release(context.Background()))
}
