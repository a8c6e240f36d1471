package zktest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// tb stands in for the *testing.T that a test would pass.
type tb struct{ cleanups []func() }

func (t *tb) Helper()                   {}
func (t *tb) Logf(f string, a ...any)   { log.Printf(f, a...) }
func (t *tb) Errorf(f string, a ...any) { log.Printf(f, a...) }
func (t *tb) Fatalf(f string, a ...any) { log.Fatalf(f, a...) }
func (t *tb) Cleanup(f func())          { t.cleanups = append([]func(){f}, t.cleanups...) }
func (t *tb) Name() string              { return "Example" }
func (t *tb) done() {
	for _, f := range t.cleanups {
		f()
	}
}

// A create is executed but its reply is lost, the case that every recipe has to
// survive.
func ExampleNewProxy() {
	t := new(tb)
	defer t.done()
	server := zktest.NewServer(t) // or a real one: zktest.Start(t).Addrs()[0]
	proxy := zktest.NewProxy(t, server.Addr())
	// The client comes back at once when there is another address to try, and after a second else.
	conn, _, err := zk.Connect([]string{proxy.Addr(), proxy.Addr()}, 5*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	proxy.OnRequest(zktest.Rule{
		Match: zktest.MatchPath(zktest.OpCreate, "/job"),
		Times: 1,
		Do:    zktest.CutAfter(),
	})
	_, err = conn.Create("/job", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	fmt.Println("create:", err)
	// The client may refuse what it is asked while it has no connection.
	for conn.State() != zk.StateHasSession {
		time.Sleep(10 * time.Millisecond)
	}
	exists, _, err := conn.Exists("/job")
	fmt.Println("exists:", exists, err)
	for _, r := range proxy.Requests() {
		fmt.Println(r.Conn, r.Op, r.Path, "-", r.Fate)
	}
	// Output:
	// create: zk: connection closed
	// exists: true <nil>
	// 0 connect  - forwarded
	// 0 create /job - cut after
	// 1 connect  - forwarded
	// 1 exists /job - forwarded
}

// A watch event waits at the proxy while the client reads newer data.
func ExampleHoldReply() {
	t := new(tb)
	defer t.done()
	server := zktest.NewServer(t) // or a real one: zktest.Start(t).Addrs()[0]
	proxy := zktest.NewProxy(t, server.Addr())
	connect := func(addr string) *zk.Conn {
		conn, _, err := zk.Connect([]string{addr}, 5*time.Second, zk.WithLogger(silent{}))
		if err != nil {
			log.Fatal(err)
		}
		t.Cleanup(conn.Close)
		return conn
	}
	watcher, other := connect(proxy.Addr()), connect(server.Addr())

	gate := zktest.NewGate()
	proxy.OnRequest(zktest.Rule{
		Match: zktest.MatchPath(zktest.OpEvent, "/"),
		Do:    zktest.HoldReply(gate),
	})
	_, _, events, err := watcher.ExistsW("/a")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := other.Create("/a", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		log.Fatal(err)
	}
	<-gate.Reached()
	fmt.Println("created, events at the watcher:", len(events))
	gate.Open()
	fmt.Println("released:", (<-events).Type)
	// Output:
	// created, events at the watcher: 0
	// released: EventNodeCreated
}

// Without a TB the caller closes the servers.
func ExampleLaunch() {
	ens, err := zktest.Launch(zktest.TickTime(100 * time.Millisecond))
	if errors.Is(err, zktest.ErrNotFound) {
		log.Fatal(err) // says what to install
	}
	if err != nil {
		log.Fatal(err)
	}
	defer ens.Close()
	server := ens.Server(0)
	fmt.Println(ens.Leader() == server)
	fmt.Println(server.Kill(), server.Running())
	fmt.Println(server.Start(), server.Running())
	// Output:
	// true
	// <nil> false
	// <nil> true
}

// A service's test that its work stops when its session ends, without Java and without waiting.
func ExampleNewServer() {
	t := new(tb)
	defer t.done()
	server := zktest.NewServer(t)
	ctx := context.Background()
	session, err := zkrecipes.Dial(ctx, []string{"zk:2181"}, zkrecipes.WithDialer(server.Dialer()), zkrecipes.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	lease, err := zkrecipes.NewMutex(session, "/jobs/report").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	server.Expire(session.ID())
	<-lease.Context().Done()
	fmt.Println(errors.Is(lease.Err(), zkrecipes.ErrLost))
	for znode := range server.Znodes("/jobs/report") {
		fmt.Println(znode.Path)
	}
	// Output:
	// true
	// /jobs/report
}
