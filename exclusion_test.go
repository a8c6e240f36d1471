package zkrecipes

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

const processes = 8

// newCounter returns a file that holds 0.
func newCounter(t testing.TB) string {
	name := filepath.Join(t.TempDir(), "counter")
	require.NoError(t, os.WriteFile(name, []byte("0"), 0o600))
	return name
}

func readCounter(t testing.TB, name string) int {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	n, err := strconv.Atoi(string(text))
	require.NoError(t, err)
	return n
}

// Eight processes increment a number in a file 200 times each, on the server of this process 50 times. Reading it and writing it back are two steps, which only the lock keeps together, and
// there is some time in between: a lock that two hold for as long as a hand-over takes would not be found out otherwise.
func TestProcessesExcludeEachOther(t *testing.T) {
	t.Parallel()
	processesExcludeEachOther(t, dialed)
}

// The same with processes that adopt connections among those that dial.
func TestAdoptedProcessesExcludeEachOther(t *testing.T) {
	t.Parallel()
	processesExcludeEachOther(t, dialed, tracked, observed)
}

func processesExcludeEachOther(t *testing.T, ways ...way) {
	each := rounds(t, 200)
	counter, path := newCounter(t), newPath(t)
	var ws []*worker
	for i := range processes {
		ws = append(ws, startWorker(t, "increment", task{
			Servers: zktest.Shared(t).Addrs(), Timeout: 10 * time.Second, Path: path, Rounds: each, Counter: counter, Linger: 2 * time.Millisecond,
			Way: ways[i%len(ways)],
		}))
	}
	for _, w := range ws {
		w.ready(t)
	}
	for _, w := range ws {
		w.goOn(t)
	}
	for _, w := range ws {
		r := w.report(t, 60*time.Second)
		require.Empty(t, r.Wrong)
		require.Empty(t, r.GaveUp)
		require.Zero(t, r.Lost)
		require.Equal(t, each, r.Counted)
	}
	require.Equal(t, processes*each, readCounter(t, counter))
	require.Empty(t, children(t, admin(t), path))
}

// One of the eight sits behind a proxy that breaks its connection every 200 ms. Its session is so short that it loses leases by that, and it takes
// its time between reading and writing, without a look at its lease, but reads again and again.
//
// The seven increment a file, as above: exact, whatever becomes of the eighth. It does not touch the file: a write of a process that was held up
// after it had last looked at its lease comes too late whatever a lock does. That is what tokens are for, so all eight also increment a register that
// refuses old ones. What is asked of it:
//
//   - The seven are never refused, and lose no lease.
//   - Whoever is refused has by then been told that its lease is lost: an access with an old token arrives after a later holder's first access, hence
//     after that one's grant. So the register sees no old token from a holder who believes in its lease.
//   - An increment of the eighth counts only if the register took it, and the number is the count of those taken: a lease that had been lost without a
//     later access yet does no harm, and one with a later access is refused. That holds because a later grant has the greater token.
func TestProcessBehindABrokenNetworkHarmsNobody(t *testing.T) {
	t.Parallel()
	processBehindABrokenNetworkHarmsNobody(t, dialed)
}

func TestAdoptedProcessBehindABrokenNetworkHarmsNobody(t *testing.T) {
	t.Parallel()
	for _, w := range adoptions {
		t.Run(w.String(), func(t *testing.T) { processBehindABrokenNetworkHarmsNobody(t, w) })
	}
}

func processBehindABrokenNetworkHarmsNobody(t *testing.T, way way) {
	wanted := rounds(t, 32) // faults
	counter, path, reg := newCounter(t), newPath(t), newRegister(t)
	// Its tick allows the eighth a session that the longest of the faults ends at the server.
	server := newTestServer(t, 100*time.Millisecond)
	proxy := zktest.NewProxy(t, server.addr)
	healthy := task{Servers: []string{server.addr}, Timeout: 10 * time.Second, Path: path, Counter: counter, Register: reg.listener.Addr().String(), Name: "healthy"}
	faulty := healthy
	faulty.Servers, faulty.Timeout, faulty.Counter, faulty.Linger, faulty.Name = []string{proxy.Addr()}, 300*time.Millisecond, "", time.Second, "faulty"
	faulty.Way = way
	eighth := startWorker(t, "increment", faulty)
	var ws []*worker
	for range processes - 1 {
		ws = append(ws, startWorker(t, "increment", healthy))
	}
	all := append(slices.Clone(ws), eighth)
	for _, w := range all {
		w.ready(t)
	}
	faults := breakAtRandom(t, proxy, 200*time.Millisecond)
	for _, w := range all {
		w.goOn(t)
	}
	eventually(t, 50*time.Second, "enough faults, and some increments in spite of them", func() bool {
		return faults.total() >= wanted && reg.writtenBy("faulty") >= 3
	})
	for _, w := range ws {
		w.stop()
	}
	counted, written := 0, 0
	for _, w := range ws {
		r := w.report(t, 20*time.Second)
		require.Empty(t, r.Wrong)
		require.Empty(t, r.GaveUp)
		require.Zero(t, r.Lost)
		require.Zero(t, r.Refused)
		require.Positive(t, r.Rounds)
		require.Equal(t, r.Rounds, r.Counted)
		require.Equal(t, r.Rounds, r.Written)
		counted += r.Counted
		written += r.Written
	}
	require.Equal(t, counted, readCounter(t, counter))
	faults.stop()
	eighth.stop()
	r := eighth.report(t, 20*time.Second)
	require.Empty(t, r.Wrong)
	for _, err := range r.GaveUp { // the one error besides the end of ctx that a bad network may bring
		require.Contains(t, err, "connection lost 3 times running by creating a znode")
	}
	require.LessOrEqual(t, r.Refused, r.Lost)
	written += r.Written
	reg.mu.Lock()
	defer reg.mu.Unlock()
	t.Logf("faults: %v; the eighth: %d rounds, %d written, %d refused, %d leases lost, gave up: %q; %d written by the seven", faults.struck,
		r.Rounds, r.Written, r.Refused, r.Lost, r.GaveUp, counted)
	require.Equal(t, r.Written, reg.written["faulty"])
	require.Equal(t, written, reg.value)
	require.Equal(t, r.Refused, reg.refused)
}
