package zktest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/snapshot"
)

// atLimits are directories by their counters. The counter counts to 2147483647 and then stays there, but for what is prepared before it is done with.
var atLimits = map[string]int32{"/near": 1<<31 - 4, "/at": 1<<31 - 1, "/multi": 1<<31 - 3, "/failed": 1<<31 - 2, "/negative": -1 << 31, "/minus": -12, "/burst": 1<<31 - 4}

// startAtLimits starts a real server and one of this process with the directories. A server of its own makes no digests, which a snapshot could not have.
func startAtLimits(t *testing.T) (theirs, ours string) {
	e := Start(t, SystemProperty("zookeeper.digest.enabled", "false"))
	theirs = e.Addrs()[0]
	s := NewServer(t)
	for _, addr := range []string{theirs, s.Addr()} {
		d := &dialogue{t: t, dial: func() (net.Conn, error) { return net.Dial("tcp", addr) }}
		r := d.join("r")
		for _, dir := range slices.Sorted(maps.Keys(atLimits)) {
			r.call(OpCreate, dir, []byte("x"), open, 0)
		}
		d.finish()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conf, err := e.Server(0).FourLetter(ctx, "conf")
	require.NoError(t, err)
	require.NoError(t, e.Server(0).Stop())
	require.NoError(t, e.Server(0).Start()) // writes a snapshot
	require.NoError(t, e.Server(0).Stop())
	for dir, n := range atLimits {
		require.NoError(t, snapshot.SetCounter(snapshot.Dir(conf), dir, n))
		require.True(t, s.SetCounter(dir, n))
	}
	require.NoError(t, e.Server(0).Start())
	return theirs, s.Addr()
}

// At the limit of the counter of children, and below nothing, names, versions and Stats are those of the real server.
func TestConformanceAtTheLimit(t *testing.T) {
	theirs, ours := startAtLimits(t)
	x := []byte("x")
	scenario := func(d *dialogue, a, b *rawConn) {
		for _, dir := range slices.Sorted(maps.Keys(atLimits)) {
			if dir == "/burst" {
				continue
			}
			one := func(flags int) part { return in(OpCreate2, dir+"/n", x, open, flags) }
			b.call(OpAddWatch, dir, 1)
			a.call(OpExists, dir, false)
			switch dir {
			case "/multi":
				a.multi(one(2), one(3), one(2), one(2), in(OpCreate, dir+"/plain", x, open, 0), one(2))
			case "/failed":
				a.multi(one(2), one(2), one(2), in(OpDelete, "/none", -1))
			}
			for i := range 6 {
				a.call(OpCreate2, dir+"/n", x, open, 2+i%2)
				a.call(OpExists, dir, false)
				a.call(OpCreate, dir+"/plain"+fmt.Sprint(i), x, open, i%2)
				b.call(OpPing)
			}
			a.call(OpGetChildren2, dir, false)
			a.call(OpDelete, dir+"/n2147483647", -1)
			a.call(OpCreate, dir+"/n", x, open, 2)
			a.multi(one(2), one(2))
			a.multi(one(2), in(OpCreateContainer, dir+"/c", x, open, 2), in(OpCreateTTL, dir+"/t", x, open, 6, int64(1000000)))
			a.multi(one(2), in(OpDelete, dir+"/n2147483647", -1), one(2))
			a.call(OpCreateContainer, dir+"/box", x, open, 2)
			a.call(OpCreateTTL, dir+"/ttl", x, open, 6, int64(1000000))
			a.call(OpGetChildren2, dir, false)
			b.call(OpPing)
		}
	}
	want, _ := converse(t, theirs, scenario)
	got, _ := converse(t, ours, scenario)
	if diff := compare(want, got); diff != nil {
		t.Error(diff)
	}
	t.Logf("%d answers compared", len(want))
	for _, addr := range []string{theirs, ours} {
		burstAtTheLimit(t, addr)
	}
}

// A burst at the limit: on a real server some creates are prepared before the ones in front of them are done with, and take negative numbers, as in a
// multi; the others find the number taken. Which of them is a matter of time. The server of this process does one after the other, which is one of the ways
// in which it may go.
func burstAtTheLimit(t *testing.T, addr string) {
	const limit = 1<<31 - 1
	d := &dialogue{t: t, dial: func() (net.Conn, error) { return net.Dial("tcp", addr) }}
	a := d.join("a")
	d.begin(a)
	var burst []part
	for range 40 {
		burst = append(burst, in(OpCreate, "/burst/n", []byte("x"), open, 2))
	}
	a.burst(burst...)
	names := make(map[string]bool)
	for i, line := range d.lines[1:] {
		_, answer, _ := strings.Cut(line, "]: ")
		var code int
		var zxid, path string
		n, _ := fmt.Sscan(strings.TrimSuffix(answer, " +0"), &code, &zxid, &path)
		switch {
		case i < 4:
			require.Equal(t, fmt.Sprintf("/burst/n%d", limit-3+i), path, line)
		case n == 3 && code == 0:
			require.Regexp(t, `^/burst/n-21474836\d\d$`, path, line)
		default:
			require.Equal(t, int(codeNodeExists), code, line)
		}
		require.Equal(t, fmt.Sprintf("z+%d", i+1), zxid, "each is a transaction")
		require.False(t, path != "" && names[path], "%s twice", path)
		names[path] = true
	}
	t.Logf("%s: %d names", addr, len(names))
	d.finish()
}
