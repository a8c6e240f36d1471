package zkrecipes

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/adler32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// setCounter sets the child counter of a znode in a stopped server's newest snapshot. The layout is the server's own (DataTree, SnapStream): a path, the
// data, the ACL's number, then the persisted stat; at the end an Adler-32 of everything before it and a "/".
func setCounter(t *testing.T, version2, path string, counter int32) {
	t.Helper()
	snaps, err := filepath.Glob(filepath.Join(version2, "snapshot.*"))
	require.NoError(t, err)
	require.NotEmpty(t, snaps)
	slices.SortFunc(snaps, func(a, b string) int {
		x, _ := os.Stat(a)
		y, _ := os.Stat(b)
		return x.ModTime().Compare(y.ModTime())
	})
	newest := snaps[len(snaps)-1]
	b, err := os.ReadFile(newest)
	require.NoError(t, err)
	at := bytes.Index(b, append(binary.BigEndian.AppendUint32(nil, uint32(len(path))), path...))
	require.Positive(t, at, "%s is in the snapshot", path)
	at += 4 + len(path)
	if n := int32(binary.BigEndian.Uint32(b[at:])); n > 0 {
		at += int(n)
	}
	at += 4 + 8   // data, ACL
	at += 8*4 + 4 // czxid, mzxid, ctime, mtime, version
	binary.BigEndian.PutUint32(b[at:], uint32(counter))
	seal := len(b) - 8 - 4 - 1
	require.Equal(t, []byte{0, 0, 0, 1, '/'}, b[seal+8:])
	binary.BigEndian.PutUint64(b[seal:], uint64(adler32.Checksum(b[:seal])))
	require.NoError(t, os.WriteFile(newest, b, 0o644))
}

// A directory whose counter is at its limit, on the real server: numbers stick, repeat, and run backwards in a burst (experiment B77). Nobody may
// overtake a holder, and waiters are granted in the order of their creation.
func TestRealDirectoryAtTheLimit(t *testing.T) {
	e := zktest.Start(t, zktest.SystemProperty("zookeeper.digest.enabled", "false"))
	const dir = "/at-the-limit"
	c := adminAt(t, e.Addrs())
	put(t, c, dir)
	server := e.Server(0)
	conf, err := server.FourLetter(within(t, 5*time.Second), "conf")
	require.NoError(t, err)
	_, version2, ok := strings.Cut(conf, "dataDir=")
	require.True(t, ok, conf)
	version2, _, _ = strings.Cut(version2, "\n")
	require.NoError(t, server.Stop())
	require.NoError(t, server.Start()) // writes a snapshot
	require.NoError(t, server.Stop())
	setCounter(t, version2, dir, 1<<31-4)
	require.NoError(t, server.Start())

	bg := context.Background()
	var sessions []*Session
	for range 4 {
		sessions = append(sessions, dial(t, e.Addrs(), WithTimeout(4*time.Second)))
	}
	numbers := make(map[string]bool)
	var mu sync.Mutex
	var tokens []Token
	inside := 0
	enter := func(l *Lease) {
		mu.Lock()
		defer mu.Unlock()
		inside++
		if inside != 1 {
			t.Error("two holders")
		}
		tokens = append(tokens, l.Token())
		numbers[l.Node()[len(l.Node())-11:]] = true
	}
	leave := func() {
		mu.Lock()
		inside--
		mu.Unlock()
	}
	first, err := NewMutex(sessions[0], dir).Lock(within(t, 10*time.Second))
	require.NoError(t, err)
	enter(first)
	var wg sync.WaitGroup
	work := func(i int) {
		wg.Go(func() {
			l, err := NewMutex(sessions[i%len(sessions)], dir).Lock(bg)
			if err != nil {
				t.Error(err)
				return
			}
			enter(l)
			if err := l.Err(); err != nil {
				t.Error(err)
			}
			leave()
			if err := l.Release(bg); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range 6 { // one at a time: the number sticks
		work(i)
		eventually(t, 10*time.Second, "queued", func() bool { return len(children(t, sessions[0].Conn(), dir)) == i+2 })
	}
	for i := range 12 { // a burst: the counter wraps
		work(i)
	}
	eventually(t, 10*time.Second, "all queued", func() bool { return len(children(t, sessions[0].Conn(), dir)) == 19 })
	_, err = NewMutex(sessions[1], dir).TryLock(bg)
	require.ErrorIs(t, err, ErrHeld)
	ps, err := NewMutex(sessions[1], dir).Participants(bg)
	require.NoError(t, err)
	require.Equal(t, first.Node(), ps[0].Node)
	leave()
	require.NoError(t, first.Release(bg))
	wg.Wait()
	require.Len(t, tokens, 19)
	require.IsIncreasing(t, tokens)
	require.True(t, numbers["-2147483647"], "the limit was reached: %v", numbers)
	require.Empty(t, children(t, sessions[0].Conn(), dir))
}
