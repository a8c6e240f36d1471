package zkrecipes

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// What others write into znodes, and users into configurations, is read without trust.

// FuzzRoll reads ready's data of a double barrier: the names of its members, or of nobody at all.
func FuzzRoll(f *testing.F) {
	const id = "01234567-89ab-cdef-0123-456789abcdef"
	for _, data := range []string{"", id, id + "\n" + id, id + "\n", "\n" + id, id[:35], strings.ToUpper(id), "10.0.0.1", id + "\r\n" + id, "\x00"} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		names := rollNames(data)
		for _, name := range names {
			require.True(t, znode.IsUUID(name), "%q", name)
		}
		if names != nil {
			require.Equal(t, string(data), strings.Join(names, "\n"))
		}
		r := &roll{names: names, data: data}
		if names == nil {
			require.True(t, r.has(id), "another client's ready lets everybody in")
		} else {
			require.Equal(t, slices.Contains(names, id), r.has(id))
		}
		require.Empty(t, r.among(nil))
	})
}

// FuzzCount reads the count of a semaphore, a shared count of Curator's: four bytes, big-endian.
func FuzzCount(f *testing.F) {
	for _, data := range [][]byte{nil, {}, {0, 0, 0, 1}, {0xff, 0xff, 0xff, 0xff}, {0x7f, 0xff, 0xff, 0xff}, {0x80, 0, 0, 0}, {1}, []byte("10.0.0.1"), {0, 0, 0, 0, 0}} {
		f.Add(data)
	}
	m := &Semaphore{countPath: "/count"}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := m.parse(data)
		if len(data) != 4 {
			require.ErrorIs(t, err, ErrInvalid)
			require.Zero(t, n)
			return
		}
		require.NoError(t, err)
		require.Equal(t, data, binary.BigEndian.AppendUint32(nil, uint32(int32(n))))
	})
}

// FuzzParseConnectString reads what stands in configurations. What is taken can be written down again and means the same.
func FuzzParseConnectString(f *testing.F) {
	for _, text := range []string{"", "h", "h:2181", "h1:2181,h2:2181/a/b", "[::1]:2181", "[::1", "::1", " h , i ", "h/", "h//", ",", "h:99999", "h:-1", "h:0", "h/a/../b", "h\x00:1", "/"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		servers, namespace, err := ParseConnectString(text)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.NotEmpty(t, servers)
		for _, server := range servers {
			require.NotEmpty(t, server)
			require.Equal(t, strings.TrimSpace(server), server)
			require.NotContains(t, server, ",")
			require.NotContains(t, server, "/")
		}
		if namespace != "" {
			require.NoError(t, znode.ValidateNamespace(namespace))
		}
		again, same, err := ParseConnectString(strings.Join(servers, ",") + namespace)
		require.NoError(t, err)
		require.Equal(t, servers, again)
		require.Equal(t, namespace, same)
	})
}

// FuzzParticipant reads znodes of others, names and data, into a queue. The order is one, whatever the names are, and no owner is taken from data that cannot be one.
func FuzzParticipant(f *testing.F) {
	const id = "_c_01234567-89ab-cdef-0123-456789abcdef-"
	f.Add("lock-0000000001", id+"lock-0000000000", []byte("me"), int64(1), int64(2))
	f.Add(id+"__READ__2147483647", id+"__WRIT__-2147483648", []byte(revokeMessage), int64(7), int64(7))
	f.Add("0__lock__0000000001", "0__rlock__0000000001", []byte{}, int64(0), int64(-1))
	f.Add("", "_c_", []byte(nil), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, one, two string, data []byte, first, second int64) {
		var queue []member
		for i, raw := range []string{one, two} {
			n, ok := znode.Parse(raw, markers...)
			if !ok {
				continue
			}
			m := member{name: n, p: Participant{Node: "/q/" + raw}}
			m.p.fill(data, &zk.Stat{Czxid: []int64{first, second}[i], EphemeralOwner: 1})
			queue = append(queue, m)
		}
		ps := rank(slices.Clone(queue))
		require.Len(t, ps, len(queue))
		exclusive := 0
		for i, p := range ps {
			require.Equal(t, i, p.Position)
			if p.Owner != "" {
				require.NoError(t, p.Owner.check())
				require.Equal(t, data, []byte(p.Owner))
			}
			if p.Holding && p.Mode == ModeExclusive {
				exclusive++
			}
		}
		if len(queue) > 0 {
			require.True(t, ps[0].Holding, "the first holds")
		}
		if len(queue) == 2 && queue[0].name.Seq != queue[1].name.Seq && first != second {
			require.LessOrEqual(t, exclusive, 1)
			slices.Reverse(queue)
			back := rank(queue)
			require.Equal(t, ps[0].Node, back[0].Node, "the order of the list does not matter")
		}
	})
}
