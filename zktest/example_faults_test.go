package zktest_test

import (
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// connected opens a connection that is closed with the example.
func connected(t *tb, addr string) *zk.Conn {
	conn, _, err := zk.Connect([]string{addr}, 5*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		log.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// The second create below a path is refused, and no other request.
func ExampleRule() {
	t := new(tb)
	defer t.done()
	proxy := zktest.NewProxy(t, zktest.NewServer(t).Addr())
	conn := connected(t, proxy.Addr())
	proxy.OnRequest(zktest.Rule{
		Match: zktest.Nth(1, zktest.MatchPath(zktest.OpCreate, "/jobs")),
		Times: 1,
		Do:    zktest.ReplyError(-102), // no authority
	})
	for _, path := range []string{"/jobs", "/other", "/jobs/a", "/jobs/b"} {
		_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		fmt.Println(path, err)
	}
	// Output:
	// /jobs <nil>
	// /other <nil>
	// /jobs/a zk: not authenticated
	// /jobs/b <nil>
}

// A rule of one's own looks at frames.
func ExampleFrame() {
	t := new(tb)
	defer t.done()
	proxy := zktest.NewProxy(t, zktest.NewServer(t).Addr())
	conn := connected(t, proxy.Addr())
	large := make(chan string, 1)
	proxy.OnRequest(zktest.Rule{
		Match: func(f zktest.Frame) bool { return f.Op == zktest.OpCreate && len(f.Bytes) > 1000 },
		Do:    zktest.Call(func(f zktest.Frame) { large <- f.Path }),
	})
	for path, data := range map[string][]byte{"/small": nil, "/large": make([]byte, 2000)} {
		if _, err := conn.Create(path, data, 0, zk.WorldACL(zk.PermAll)); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(<-large)
	// Output: /large
}

// What a client has asked for, and what became of it.
func ExampleRecord() {
	t := new(tb)
	defer t.done()
	proxy := zktest.NewProxy(t, zktest.NewServer(t).Addr())
	conn := connected(t, proxy.Addr())
	_, _, err := conn.Get("/none")
	fmt.Println(err)
	for _, r := range proxy.Requests() {
		if r.Op != zktest.OpConnect && r.Op != zktest.OpPing { // which the client sends by itself
			fmt.Println(r.Op, r.Path, r.Answered, r.Err)
		}
	}
	// Output:
	// zk: node does not exist
	// getData /none true -101
}

// What a call costs, for a test that wants to know when that changes.
func ExampleCounts() {
	t := new(tb)
	defer t.done()
	proxy := zktest.NewProxy(t, zktest.NewServer(t).Addr())
	conn := connected(t, proxy.Addr())
	if _, _, err := conn.Children("/"); err != nil {
		log.Fatal(err)
	}
	counts := proxy.Counts()
	fmt.Println(counts.Total(), counts.Requests[zktest.OpGetChildren2], counts.Events)
	// Output: 1 1 0
}

// A request whose reply never comes.
func ExampleFate() {
	t := new(tb)
	defer t.done()
	proxy := zktest.NewProxy(t, zktest.NewServer(t).Addr())
	conn := connected(t, proxy.Addr())
	proxy.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpGetData), Times: 1, Do: zktest.CutAfter()})
	_, _, err := conn.Get("/")
	fmt.Println(err)
	for _, r := range proxy.Requests() {
		if r.Op == zktest.OpGetData {
			fmt.Println(r.Fate, r.Fate == zktest.FateCutAfter)
		}
	}
	// Output:
	// zk: connection closed
	// cut after true
}

// A server that hears its client, and is not heard.
func ExampleDirection() {
	t := new(tb)
	defer t.done()
	server := zktest.NewServer(t)
	proxy := zktest.NewProxy(t, server.Addr())
	conn := connected(t, proxy.Addr())
	if _, _, err := conn.Children("/"); err != nil {
		log.Fatal(err)
	}
	proxy.Stall(zktest.ToClient)
	created := make(chan error, 1)
	go func() {
		_, err := conn.Create("/heard", nil, 0, zk.WorldACL(zk.PermAll))
		created <- err
	}()
	for there := false; !there; { // on the server
		for znode := range server.Znodes("/") {
			there = there || znode.Path == "/heard"
		}
	}
	select {
	case err := <-created:
		fmt.Println(err)
	default:
		fmt.Println("no answer")
	}
	proxy.Stall(zktest.None)
	fmt.Println(<-created)
	// Output:
	// no answer
	// <nil>
}

// An event that comes late.
func ExampleGate() {
	t := new(tb)
	defer t.done()
	server := zktest.NewServer(t)
	conn := connected(t, server.Addr())
	_, _, events, err := conn.ExistsW("/job")
	if err != nil {
		log.Fatal(err)
	}
	gate := server.Hold(zktest.OpEvent, "/job")
	if _, err := connected(t, server.Addr()).Create("/job", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		log.Fatal(err)
	}
	<-gate.Reached()
	fmt.Println(len(events))
	gate.Open()
	fmt.Println((<-events).Type)
	// Output:
	// 0
	// EventNodeCreated
}

func ExampleOp() {
	fmt.Println(zktest.OpCreate2, zktest.OpGetData, zktest.OpMulti, zktest.Op(4711))
	// Output: create2 getData multi op(4711)
}
