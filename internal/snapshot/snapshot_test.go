package snapshot

import (
	"encoding/binary"
	"hash/adler32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// file is a snapshot of one znode with data and one without, which is all that matters here.
func file() []byte {
	b := []byte("ZKSN....")
	for path, data := range map[string][]byte{"/a": []byte("data"), "/b": nil} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(path)))
		b = append(b, path...)
		n := int32(-1)
		if data != nil {
			n = int32(len(data))
		}
		b = binary.BigEndian.AppendUint32(b, uint32(n))
		b = append(b, data...)
		b = append(b, make([]byte, beforeCounter)...)
		b = append(b, "CTR"+path[1:]...)
	}
	b = append(b, "rest"...)
	return append(b, "sum.....\x00\x00\x00\x01/"...)
}

func TestSetCounter(t *testing.T) {
	dir := t.TempDir()
	old, newest := filepath.Join(dir, "snapshot.9"), filepath.Join(dir, "snapshot.10")
	require.NoError(t, os.WriteFile(old, file(), 0o644))
	require.NoError(t, os.WriteFile(newest, file(), 0o644))
	require.NoError(t, os.Chtimes(old, time.Time{}, time.Now().Add(-time.Hour)))
	require.NoError(t, SetCounter(dir, "/a", -2))
	require.NoError(t, SetCounter(dir, "/b", 1<<31-1))
	b, err := os.ReadFile(newest)
	require.NoError(t, err)
	require.NotContains(t, string(b), "CTRa")
	require.NotContains(t, string(b), "CTRb")
	require.Contains(t, string(b), "\xff\xff\xff\xfe")
	require.Contains(t, string(b), "\x7f\xff\xff\xff")
	require.Len(t, b, len(file()))
	require.Equal(t, uint64(adler32.Checksum(b[:len(b)-13])), binary.BigEndian.Uint64(b[len(b)-13:]))
	untouched, err := os.ReadFile(old)
	require.NoError(t, err)
	require.Contains(t, string(untouched), "CTRa")

	require.ErrorContains(t, SetCounter(dir, "/none", 1), "/none is not in it")
	require.ErrorContains(t, SetCounter(t.TempDir(), "/a", 1), "no snapshot")
	require.ErrorIs(t, setCounter([]byte("\x00\x00\x00\x02/a\xff\xff\xff\xff and what not else"), "/a", 1), errLayout)
	require.ErrorIs(t, setCounter([]byte("\x00\x00\x00\x02/a\xff\xff\xff\xff...sum.....\x00\x00\x00\x01/"), "/a", 1), errLayout)
	require.ErrorIs(t, setCounter([]byte("\x00\x00\x00\x02/a"), "/a", 1), errLayout)
}

func TestDir(t *testing.T) {
	require.Equal(t, "/x/version-2", Dir("clientPort=1\ndataDir=/x/version-2\ndataLogDir=/y\n"))
	require.Empty(t, Dir("nothing"))
}
