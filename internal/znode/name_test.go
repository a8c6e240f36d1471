package znode_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/znode"
)

const (
	dashed = "5f0c1e6a-0c8b-4b5e-9d0e-2f6f5d1b7a3c"
	plain  = "5f0c1e6a0c8b4b5e9d0e2f6f5d1b7a3c"
)

var markers = []string{
	znode.LockName, znode.WriteName, znode.ReadName, znode.LatchName, znode.LeaseName, znode.KazooLock, znode.KazooRead,
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		raw, uuid, marker string
		seq               int32
	}{
		// Curator
		{"_c_" + dashed + "-lock-0000000000", dashed, "lock-", 0},
		{"_c_" + dashed + "-__WRIT__0000000000", dashed, "__WRIT__", 0},
		{"_c_" + dashed + "-__READ__0000000001", dashed, "__READ__", 1},
		{"_c_" + dashed + "-latch-0000000007", dashed, "latch-", 7},
		{"_c_" + dashed + "-lease-0000000123", dashed, "lease-", 123},
		// without protection, honoured by Curator as well
		{"lock-0000000001", "", "lock-", 1},
		{"__WRIT__0000000001", "", "__WRIT__", 1},
		{"__READ__0000000001", "", "__READ__", 1},
		// go-zookeeper
		{"_c_" + plain + "-lock-0000000042", plain, "lock-", 42},
		{"_c_" + plain + "-__READ__0000000042", plain, "__READ__", 42},
		// kazoo
		{plain + "__lock__0000000003", plain, "__lock__", 3},
		{plain + "__rlock__0000000004", plain, "__rlock__", 4},
		{"__lock__0000000001", "", "__lock__", 1},
		{"__rlock__-2147483648", "", "__rlock__", math.MinInt32},
		// the counter at its limit, and past it
		{"lock-2147483646", "", "lock-", math.MaxInt32 - 1},
		{"lock-2147483647", "", "lock-", math.MaxInt32},
		{"_c_" + plain + "-lock--2147483648", plain, "lock-", math.MinInt32},
		{"_c_" + dashed + "-lock--2147483647", dashed, "lock-", -math.MaxInt32},
		{"_c_" + dashed + "-lock--1000000000", dashed, "lock-", -1000000000},
		{"_c_" + dashed + "-lock--999999999", dashed, "lock-", -999999999},
		{"_c_" + dashed + "-lock--000000003", dashed, "lock-", -3},
		{"_c_" + dashed + "-__WRIT__-000000001", dashed, "__WRIT__", -1},
		{plain + "__lock__-000000001", plain, "__lock__", -1},
		// letter case
		{"_c_" + strings.ToUpper(dashed) + "-lock-0000000000", dashed, "lock-", 0},
		{"_c_" + strings.ToUpper(plain) + "-lock-0000000000", plain, "lock-", 0},
		{strings.ToUpper(plain) + "__lock__0000000000", plain, "__lock__", 0},
	} {
		got, ok := znode.Parse(c.raw, markers...)
		assert.True(t, ok, c.raw)
		assert.Equal(t, znode.Name{Raw: c.raw, UUID: c.uuid, Marker: c.marker, Seq: c.seq}, got)
	}
}

// Names that anybody may create beside the contenders. None of them is one.
var foreign = []string{
	"", "0", "content", "zzz", "!foreign", "zforeign", "foo-bar", "ready", "touch", "locks", "leases", "member-1",
	"0000000000", "-", "-0000000001", dashed, plain, "sem-__lock__",
	"queue-0000000000", "qn-0000000000", "queue-|my_id_x|0000000000", "queue-0800000000000000005",
	// a marker without a number, or with something that is none
	"lock", "lock-", "lock--", "lock-abc", "lock-000000000a", "lock-0x00000001", "lock-0b00000001", "lock-0o00000001",
	"lock-+000000001", "lock- 000000001", "lock-000000001 ", "lock-0000000001\n", "lock-0000000_01", "lock-000000001.", "lock-1e00000000",
	"lock-٠٠٠٠٠٠٠٠٠١", "lock-۰۰۰۰۰۰۰۰۰۱", "lock-٠٠٠٠٠", "lock-０００００００００１", "lock-\u2212000000001",
	"lock-----------", "lock---00000001", "lock-00000-0001", "lock-000000000-",
	// numbers that "%010d" does not print
	"lock-0", "lock-1", "lock-000000001", "lock-00000000001", "lock-000000000000000000001", "lock--1", "lock--00000003", "lock--0000000003",
	"lock--000000000", "lock--0000000000", "lock-2147483648", "lock-9999999999", "lock-12345678901", "lock--2147483649", "lock--9999999999",
	"lock--21474836480", "lock--02147483648",
	"_c_" + dashed + "-lock--2147483649", "_c_" + dashed + "-lock-00000000001",
	// something before the marker, or the marker elsewhere
	"foo-lock-0000000001", "-lock-0000000001", "xlock-0000000001", "Lock-0000000001", "LOCK-0000000001", "lock_0000000001", "lock0000000001",
	"lock-lock-0000000001", "lock-0000000001-lock-", "lock-0000000001x", "0000000001lock-", "0000000001", "__writ__0000000001", "__LOCK__0000000001",
	"_c_-lock-0000000001", "_c_x-lock-0000000001", "_c_lock-0000000001", "c_" + dashed + "-lock-0000000001", "_C_" + dashed + "-lock-0000000001",
	// protection that is none
	"_c_", "_c_x", "_c_-", "_c_" + dashed, "_c_" + dashed + "-", "_c_" + plain, "_c_" + plain + "-", "_c_" + dashed[:35], "_c_" + plain[:31],
	"_c_" + dashed + "-0000000000", "_c_" + dashed + "-lock-", "_c_" + dashed + "lock-0000000001", "_c_" + dashed + "--lock-0000000001",
	"_c_" + dashed[:35] + "-lock-0000000001", "_c_" + dashed + "0-lock-0000000001", "_c_" + plain[:31] + "-lock-0000000001", "_c_" + plain + "0-lock-0000000001",
	"_c_" + dashed[:35] + "g-lock-0000000001", "_c_" + plain[:31] + "g-lock-0000000001", "_c_" + strings.ReplaceAll(dashed, "-", "_") + "-lock-0000000001",
	"_c_5f0c1e6a0-c8b-4b5e-9d0e-2f6f5d1b7a3c-lock-0000000001", "_c_" + strings.Repeat("-", 36) + "-lock-0000000001", "_c_{" + dashed[1:35] + "}-lock-0000000001",
	"_c_" + dashed + "-_c_" + dashed + "-lock-0000000001", "_c_" + dashed[:34] + "é-lock-0000000001", "_c_" + dashed + "_lock-0000000001",
	// each client's prefix with the other's marker
	plain + "lock-0000000001", plain + "-lock-0000000001", dashed + "-lock-0000000001", plain + "__READ__0000000001", plain + "__WRIT__0000000001",
	"_c_" + dashed + "-__lock__0000000001", "_c_" + plain + "-__lock__0000000001", "_c_" + plain + "-__rlock__0000000001", "_c_" + plain + "__lock__0000000001",
	dashed + "__lock__0000000001", plain + "-__lock__0000000001", plain[:31] + "__lock__0000000001", plain + "0__lock__0000000001", plain[:31] + "g__lock__0000000001",
	plain + plain + "__lock__0000000001", "x__lock__0000000001", plain + "__lock__", plain + "__lock__1", plain + "__rlock____lock__0000000001",
	// not text
	"\x00", "\xff\xfe", "lock-\xff000000001", "lock-0000000001\x00", "_c_\xff" + dashed[1:] + "-lock-0000000001",
	// long
	strings.Repeat("lock-", 1<<16), "lock-" + strings.Repeat("0", 1<<20), "lock-" + strings.Repeat("0", 1<<20) + "1", strings.Repeat("_c_", 1<<16), strings.Repeat("a", 1<<20) + "lock-0000000001",
}

func TestParseForeign(t *testing.T) {
	for _, raw := range foreign {
		got, ok := znode.Parse(raw, markers...)
		assert.False(t, ok, "%.80q", raw)
		assert.Zero(t, got, "%.80q", raw)
	}
}

// Reports: go-zookeeper/zk #65.
func TestParseMarkers(t *testing.T) {
	const raw = "_c_" + dashed + "-latch-0000000005"
	for _, ms := range [][]string{nil, {""}, {znode.LockName}, {"latch"}, {"atch-"}, {znode.LeaseName, znode.KazooLock}} {
		_, ok := znode.Parse(raw, ms...)
		assert.False(t, ok, "%q", ms)
	}
	_, ok := znode.Parse(raw, znode.LockName, znode.LatchName)
	assert.True(t, ok)

	_, ok = znode.Parse("0000000005", "")
	assert.False(t, ok, "an empty marker fits nothing")

	got, ok := znode.Parse("qn-0000000005", "qn-")
	assert.True(t, ok, "any other marker will do")
	assert.Equal(t, znode.Name{Raw: "qn-0000000005", Marker: "qn-", Seq: 5}, got)

	// Only markers of one's own can be read in two ways; the first one wins.
	got, _ = znode.Parse("a-1000000000", "a-", "a")
	assert.Equal(t, int32(1000000000), got.Seq)
	got, _ = znode.Parse("a-1000000000", "a", "a-")
	assert.Equal(t, int32(-1000000000), got.Seq)
}

// Every int32, in every form, survives being printed as the server prints it.
func TestParseRoundTrip(t *testing.T) {
	numbers := []int32{math.MinInt32, math.MaxInt32}
	for _, n := range []int64{0, 1, 9, 10, 99999999, 100000000, 999999999, 1000000000, 2000000000, math.MaxInt32 - 2} {
		for d := int64(-2); d <= 2; d++ {
			numbers = append(numbers, int32(n+d), int32(-n+d))
		}
	}
	for range 3000 {
		n := int32(rand.Uint32())
		numbers = append(numbers, n, n>>rand.IntN(32))
	}
	for _, n := range numbers {
		number := fmt.Sprintf("%010d", n)
		for _, marker := range markers {
			prefixes := map[string]string{"": "", "_c_" + dashed + "-": dashed, "_c_" + plain + "-": plain}
			if marker == znode.KazooLock || marker == znode.KazooRead {
				prefixes = map[string]string{"": "", plain: plain}
			}
			for prefix, uuid := range prefixes {
				raw := prefix + marker + number
				got, ok := znode.Parse(raw, markers...)
				want := znode.Name{Raw: raw, UUID: uuid, Marker: marker, Seq: n}
				if !ok || got != want {
					t.Fatalf("%q: %+v, %v", raw, got, ok)
				}
			}
		}
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	names := []string{"_c_" + dashed + "-lock-0000000001", plain + "__lock__0000000001", "_c_" + dashed + "-foreign"}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		for _, raw := range names {
			znode.Parse(raw, markers...)
		}
	}), "lists of 10,000 waiters are parsed at every wake-up")
}

func TestUUIDOf(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"_c_" + dashed + "-lock-0000000000", dashed},
		{"_c_" + dashed + "-n0000000000", dashed},
		{"_c_" + dashed + "-anything", dashed},
		{"_c_" + dashed + "-", dashed},
		{"_c_" + dashed + "-_c_" + plain + "-x", dashed},
		{"_c_" + plain + "-lock-0000000000", plain},
		{"_c_" + plain + "-", plain},
		{"_c_" + plain + "-" + dashed, plain},
		{"_c_" + strings.ToUpper(dashed) + "-lock-0000000000", dashed},
		{"_c_" + strings.ToUpper(plain) + "-lock-0000000000", plain},
		{znode.Protected(dashed, "lock-"), dashed},
		{znode.Protected(dashed, ""), dashed},

		{"_c_" + dashed, ""},
		{"_c_" + plain, ""},
		{"_c_" + dashed + "_lock-", ""},
		{plain + "__lock__0000000000", ""},
		{dashed + "-lock-0000000000", ""},
		{"x_c_" + dashed + "-lock-0000000000", ""},
	} {
		assert.Equal(t, c.want, znode.UUIDOf(c.name), c.name)
	}
	// Not long enough for the prefix it starts with: cut at every place.
	for name := "_c_" + dashed; name != ""; name = name[:len(name)-1] {
		assert.Empty(t, znode.UUIDOf(name), name)
		assert.Empty(t, znode.UUIDOf(strings.ToUpper(name)), name)
	}
}

func TestNewUUID(t *testing.T) {
	v4 := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 1000 {
		uuid := znode.NewUUID()
		require.Regexp(t, v4, uuid)
		require.False(t, seen[uuid])
		seen[uuid] = true

		name := znode.Protected(uuid, znode.LockName)
		require.Equal(t, "_c_"+uuid+"-lock-", name)
		require.Equal(t, uuid, znode.UUIDOf(name))
		got, ok := znode.Parse(name+"0000000009", znode.LockName)
		require.True(t, ok)
		require.Equal(t, uuid, got.UUID)
	}
}

func TestExclusive(t *testing.T) {
	want := map[string]bool{znode.LockName: true, znode.WriteName: true, znode.KazooLock: true}
	for _, marker := range append([]string{"", "qn-"}, markers...) {
		assert.Equal(t, want[marker], znode.Name{Marker: marker}.Exclusive(), "%q", marker)
	}
	assert.Equal(t, "exclusive", znode.Exclusive.String())
	assert.Equal(t, "shared", znode.Shared.String())
	assert.Equal(t, "Kind(7)", znode.Kind(7).String())
}

func TestExhausted(t *testing.T) {
	for seq, want := range map[int32]bool{
		0: false, 1: false, math.MaxInt32 - 1: false, math.MaxInt32: true, math.MinInt32: true, -3: true, -1: true,
	} {
		assert.Equal(t, want, znode.Exhausted(seq), seq)
	}
}

// The grammar of Parse in another notation; the numbers are checked by printing
// them again.
var grammar = regexp.MustCompile(`^(?:` +
	`(?:_c_([0-9A-Fa-f]{32}|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})-)?(lock-|__WRIT__|__READ__|latch-|lease-)` +
	`|([0-9A-Fa-f]{32})?(__r?lock__))` +
	`(-?[0-9]{9,10})$`)

func FuzzParse(f *testing.F) {
	for _, raw := range foreign {
		if len(raw) < 200 {
			f.Add(raw)
		}
	}
	for _, marker := range markers {
		for _, n := range []int32{0, 1, -1, math.MaxInt32, math.MinInt32} {
			number := fmt.Sprintf("%010d", n)
			f.Add(marker + number)
			f.Add("_c_" + dashed + "-" + marker + number)
			f.Add("_c_" + plain + "-" + marker + number)
			f.Add(plain + marker + number)
		}
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var want znode.Name
		var wantOK bool
		if m := grammar.FindStringSubmatch(raw); m != nil {
			var n int64
			if _, err := fmt.Sscan(strings.TrimLeft(strings.TrimPrefix(m[5], "-"), "0")+" ", &n); err != nil {
				n = 0 // all zeros
			}
			if m[5][0] == '-' {
				n = -n
			}
			if n == int64(int32(n)) && fmt.Sprintf("%010d", n) == m[5] {
				want, wantOK = znode.Name{Raw: raw, UUID: strings.ToLower(m[1] + m[3]), Marker: m[2] + m[4], Seq: int32(n)}, true
			}
		}
		got, ok := znode.Parse(raw, markers...)
		if got != want || ok != wantOK {
			t.Fatalf("%q: got %+v, %v, want %+v, %v", raw, got, ok, want, wantOK)
		}
	})
}

func FuzzUUIDOf(f *testing.F) {
	for _, name := range foreign {
		if len(name) < 200 {
			f.Add(name)
		}
	}
	for _, uuid := range []string{dashed, plain, strings.ToUpper(dashed)} {
		f.Add("_c_" + uuid + "-lock-0000000000")
		f.Add("_c_" + uuid + "-")
		f.Add("_c_" + uuid)
	}
	prefix := regexp.MustCompile(`^_c_([0-9A-Fa-f]{32}|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})-`)
	f.Fuzz(func(t *testing.T, name string) {
		var want string
		if m := prefix.FindStringSubmatch(name); m != nil {
			want = strings.ToLower(m[1])
		}
		if got := znode.UUIDOf(name); got != want {
			t.Fatalf("%q: got %q, want %q", name, got, want)
		}
	})
}
