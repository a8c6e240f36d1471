package zktest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

// A fastConn sends requests and reads answers without a look at them, so that what is measured is the server.
type fastConn struct {
	b   *testing.B
	c   net.Conn
	r   *bufio.Reader
	out []byte
	in  []byte
}

func newFastConn(b *testing.B, dial func() (net.Conn, error)) *fastConn {
	c, err := dial()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	f := &fastConn{b: b, c: c, r: bufio.NewReaderSize(c, 64<<10), in: make([]byte, 64<<10)}
	var e encoder
	e.args(anyFirst)
	f.out = encodeFrame(e.b)
	f.flush()
	f.frame()
	return f
}

// put makes a request, which flush sends.
func (f *fastConn) put(op Op, args ...any) {
	e := encoder{f.out}
	at := len(e.b)
	e.int32(0)
	e.int32(7)
	e.int32(int32(op))
	e.args(args)
	binary.BigEndian.PutUint32(e.b[at:], uint32(len(e.b)-at-4))
	f.out = e.b
}

func (f *fastConn) flush() {
	if _, err := f.c.Write(f.out); err != nil {
		f.b.Fatal(err)
	}
	f.out = f.out[:0]
}

// frame reads one answer or event, which must be none of an error.
func (f *fastConn) frame() []byte {
	head, err := f.r.Peek(4)
	if err != nil {
		f.b.Fatal(err)
	}
	size := 4 + int(binary.BigEndian.Uint32(head))
	for got := 0; got < size; {
		n, err := f.r.Read(f.in[got:size])
		if err != nil {
			f.b.Fatal(err)
		}
		got += n
	}
	return f.in[4:size]
}

func (f *fastConn) answers(n int) {
	for range n {
		if body := f.frame(); binary.BigEndian.Uint32(body[12:]) != 0 {
			f.b.Fatalf("% x", body)
		}
	}
}

func (f *fastConn) call(op Op, args ...any) {
	f.put(op, args...)
	f.flush()
	f.answers(1)
}

// many sends requests together, some at a time.
func (f *fastConn) many(n int, each func(i int)) {
	for i := 0; i < n; {
		k := 0
		for ; k < 100 && i < n; k++ {
			each(i)
			i++
		}
		f.flush()
		f.answers(k)
	}
}

var benchData = []byte("0123456789abcdef0123456789abcdef")

// What one request after the other costs: on the server of this process by TCP and by pipes, and on a real one where one was asked for. The allocations of
// the real one are those of the client alone.
func BenchmarkServer(b *testing.B) {
	s := NewServer(b)
	tcp := func(addr string) func() (net.Conn, error) {
		return func() (net.Conn, error) { return net.Dial("tcp", addr) }
	}
	servers := map[string]func() (net.Conn, error){
		"tcp":  tcp(s.Addr()),
		"pipe": func() (net.Conn, error) { return s.Dialer()("tcp", "any:1", time.Second) },
	}
	if os.Getenv(envReal) != "" {
		servers["real"] = tcp(Start(b).Addrs()[0])
	}
	var paths int
	for _, name := range []string{"pipe", "tcp", "real"} {
		dial := servers[name]
		if dial == nil {
			continue
		}
		run := func(what string, op func(b *testing.B, f *fastConn, dir string)) {
			b.Run(name+"/"+what, func(b *testing.B) {
				f := newFastConn(b, dial)
				paths++
				dir := fmt.Sprint("/bench", paths)
				f.call(OpCreate, dir, benchData, open, 0)
				b.ReportAllocs()
				op(b, f, dir)
				b.StopTimer()
				f.call(OpClose)
			})
		}
		run("create", func(b *testing.B, f *fastConn, dir string) {
			for i := 0; b.Loop(); i++ {
				f.call(OpCreate, fmt.Sprint(dir, "/n", i), benchData, open, 0)
			}
		})
		run("createEphemeralSequential", func(b *testing.B, f *fastConn, dir string) {
			for b.Loop() {
				f.call(OpCreate, dir+"/n-", benchData, open, 3)
			}
		})
		run("getData", func(b *testing.B, f *fastConn, dir string) {
			for b.Loop() {
				f.call(OpGetData, dir, false)
			}
		})
		run("getChildren2", func(b *testing.B, f *fastConn, dir string) {
			f.many(10, func(i int) { f.put(OpCreate, fmt.Sprint(dir, "/n", i), benchData, open, 0) })
			for b.Loop() {
				f.call(OpGetChildren2, dir, false)
			}
		})
		run("setData", func(b *testing.B, f *fastConn, dir string) {
			for b.Loop() {
				f.call(OpSetData, dir, benchData, -1)
			}
		})
		run("delete", func(b *testing.B, f *fastConn, dir string) {
			f.many(b.N, func(i int) { f.put(OpCreate, fmt.Sprint(dir, "/n", i), benchData, open, 0) })
			b.ResetTimer()
			for i := range b.N {
				f.call(OpDelete, fmt.Sprint(dir, "/n", i), -1)
			}
		})
		run("watch", func(b *testing.B, f *fastConn, dir string) {
			for b.Loop() { // set, and told
				f.put(OpExists, dir, true)
				f.put(OpSetData, dir, benchData, -1)
				f.flush()
				f.answers(3)
			}
		})
		run("createAndClose", func(b *testing.B, f *fastConn, dir string) { // of a session with ten ephemerals
			for b.Loop() {
				g := newFastConn(b, dial)
				g.many(10, func(int) { g.put(OpCreate, dir+"/n-", benchData, open, 3) })
				g.call(OpClose)
				g.c.Close()
			}
		})
	}
}
