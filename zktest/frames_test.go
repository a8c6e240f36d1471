package zktest

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func frameOf(body ...byte) []byte { return encodeFrame(body) }

func TestReadFrame(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 2<<20/16)
	stream := bytes.Join([][]byte{frameOf(1, 2, 3), frameOf(), encodeFrame(big), frameOf(9)}, nil)
	readers := map[string]func(io.Reader) io.Reader{
		"at once":      func(r io.Reader) io.Reader { return r },
		"byte by byte": iotest.OneByteReader,
		"halves":       iotest.HalfReader,
		"data and EOF": iotest.DataErrReader,
	}
	for name, wrap := range readers {
		t.Run(name, func(t *testing.T) {
			r := wrap(bytes.NewReader(stream))
			for _, want := range [][]byte{frameOf(1, 2, 3), frameOf(), encodeFrame(big), frameOf(9)} {
				got, err := readFrame(r)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, got))
			}
			rest, err := readFrame(r)
			require.Equal(t, io.EOF, err)
			require.Empty(t, rest)
		})
	}
}

func TestReadFrameUnfinished(t *testing.T) {
	whole := encodeFrame(make([]byte, 200<<10))
	for _, n := range []int{1, 3, 4, 5, 64 << 10, 100 << 10, len(whole) - 1} {
		rest, err := readFrame(bytes.NewReader(whole[:n]))
		require.Equal(t, io.EOF, err, n)
		require.Equal(t, whole[:n], rest, n)
	}
	broken := errors.New("broken")
	rest, err := readFrame(io.MultiReader(bytes.NewReader(whole[:9]), iotest.ErrReader(broken)))
	require.Equal(t, broken, err)
	require.Equal(t, whole[:9], rest)
}

func TestReadFrameLength(t *testing.T) {
	for _, head := range []string{"ruok", "\xff\xff\xff\xff", "\x80\x00\x00\x00", "\x04\x00\x00\x01"} {
		_, err := readFrame(bytes.NewReader([]byte(head)))
		require.ErrorIs(t, err, errNotAFrame, "%q", head)
	}
	// The largest length is taken, but not believed before the bytes are there.
	allocated := testing.AllocsPerRun(1, func() {
		rest, err := readFrame(bytes.NewReader([]byte("\x04\x00\x00\x00abc")))
		require.Equal(t, io.EOF, err)
		require.Less(t, cap(rest), 1<<20)
	})
	require.Less(t, allocated, 100.0)
}

// FuzzReadFrame checks that, however the stream is cut into pieces, what comes
// out put together is what went in.
func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{}, uint16(1))
	f.Add(append(frameOf(1, 2, 3), frameOf()...), uint16(1))
	f.Add(append(frameOf(1, 2, 3), 0, 0, 0, 9, 1), uint16(5))
	f.Add([]byte("ruok"), uint16(2))
	f.Add(encodeFrame(make([]byte, 70<<10)), uint16(1000))
	f.Fuzz(func(t *testing.T, stream []byte, piece uint16) {
		r := io.Reader(&piecewise{stream, int(piece)%4096 + 1})
		var out []byte
		for {
			frame, err := readFrame(r)
			out = append(out, frame...)
			if err == nil {
				require.Equal(t, frame, encodeFrame(frame[4:]))
				// The parsers take any frame.
				parseRequest(frame[4:], true)
				parseRequest(frame[4:], false)
				parseReply(frame[4:])
				parseConnectReply(frame[4:])
				continue
			}
			require.True(t, bytes.HasPrefix(stream, out))
			if errors.Is(err, errNotAFrame) {
				return
			}
			require.Equal(t, io.EOF, err)
			require.Equal(t, len(stream), len(out))
			return
		}
	})
}

type piecewise struct {
	b    []byte
	most int
}

func (p *piecewise) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.most)], p.b)
	p.b = p.b[n:]
	return n, nil
}

func TestParseRequest(t *testing.T) {
	header := func(xid, op byte) []byte { return []byte{0, 0, 0, xid, 0, 0, 0, op} }
	path := []byte{0, 0, 0, 2, '/', 'a'}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	part := []byte{0, 0, 0, 13, 0, 0xff, 0xff, 0xff, 0xff} // check, not the end, no error
	end := []byte{0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff}
	for name, tc := range map[string]struct {
		body []byte
		want Frame
	}{
		"with path":      {join(header(7, 1), path), Frame{Op: OpCreate, Xid: 7, Path: "/a"}},
		"without path":   {header(7, 101), Frame{Op: OpSetWatches, Xid: 7}},
		"path cut short": {join(header(7, 1), path[:5]), Frame{Op: OpCreate, Xid: 7}},
		"null path":      {join(header(7, 1), []byte{0xff, 0xff, 0xff, 0xff}), Frame{Op: OpCreate, Xid: 7}},
		"multi":          {join(header(7, 14), part, path), Frame{Op: OpMulti, Xid: 7, Path: "/a"}},
		"empty multi":    {join(header(7, 14), end), Frame{Op: OpMulti, Xid: 7}},
		"unknown op":     {header(7, 99), Frame{Op: 99, Xid: 7}},
		"too short":      {header(7, 1)[:7], Frame{}},
		"empty":          {[]byte{}, Frame{}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.want.Bytes = tc.body
			require.Equal(t, tc.want, parseRequest(tc.body, false))
			require.Equal(t, Frame{Op: OpConnect, Bytes: tc.body}, parseRequest(tc.body, true))
		})
	}
}

func TestParseReply(t *testing.T) {
	got := parseReply([]byte{0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0xff, 0xff, 0xff, 0x92, 'x'})
	got.Bytes = nil
	require.Equal(t, Frame{Xid: 5, Zxid: 6, Err: -110}, got)
	got = parseReply([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0,
		0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 2, '/', 'e'})
	got.Bytes = nil
	require.Equal(t, Frame{Op: OpEvent, Xid: -1, Zxid: -1, EventType: 2, Path: "/e"}, got)
	require.Equal(t, Frame{Bytes: []byte{1}}, parseReply([]byte{1}))
}

func TestOpString(t *testing.T) {
	require.Equal(t, "createTTL", OpCreateTTL.String())
	require.Equal(t, "closeSession", OpClose.String())
	require.Equal(t, "op(77)", Op(77).String())
	require.Equal(t, "op(-2147483648)", Op(math.MinInt32).String())
}
