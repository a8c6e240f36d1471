package zkrecipes_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// What is no recipe goes through the session's connection: there is no need for another one.
func ExampleConn() {
	session := connect()
	defer session.Close()
	conn := session.Conn()
	name := fmt.Sprintf("/example-greeting-%d", os.Getpid()) // absolute: a namespace does not count here
	_, err := conn.Create(name, []byte("hello"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	if err != nil {
		log.Fatal(err)
	}
	data, stat, err := conn.Get(name)
	fmt.Println(string(data), stat.EphemeralOwner == session.ID(), err)
	_, err = conn.Create(name+"/below", nil, 0, zk.WorldACL(zk.PermAll))
	fmt.Println(err) // the client's own errors
	// Output:
	// hello true <nil>
	// zk: ephemeral nodes may not have children
}

// Connections that are made in another way than by TCP: here to a server in this process, which a test would do.
func ExampleWithDialer() {
	server, err := zktest.LaunchServer()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	session, err := zkrecipes.Dial(ctx, []string{"zk:2181"}, zkrecipes.WithDialer(server.Dialer()))
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	fmt.Println(session.State())
	// Output: connected
}

// Metrics: how many waited, what was lost. Hooks that are not set cost nothing.
func ExampleTrace() {
	var granted, waited, lost atomic.Int64
	lossTold := make(chan bool, 1)
	trace := &zkrecipes.Trace{
		Waiting: func(_ context.Context, _, _ string, ahead int) { waited.Add(1) },
		AcquireDone: func(_ context.Context, _, _ string, lease *zkrecipes.Lease, err error) {
			if err == nil {
				granted.Add(1)
			}
		},
		Lost: func(lease *zkrecipes.Lease, err *zkrecipes.LostError) {
			lost.Add(1)
			lossTold <- true
		},
	}
	session, err := zkrecipes.Dial(ctx, servers(), zkrecipes.WithTrace(trace))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := zkrecipes.NewMutex(session, path("traced")).Lock(ctx); err != nil {
		log.Fatal(err)
	}
	session.Close() // with a lease: it is lost
	<-lossTold
	fmt.Println("granted:", granted.Load(), "waited:", waited.Load(), "lost:", lost.Load())
	// Output: granted: 1 waited: 0 lost: 1
}

func ExampleState() {
	session := connect()
	fmt.Println(session.State(), session.State() == zkrecipes.StateConnected)
	session.Close()
	fmt.Println(session.State())
	// Output:
	// connected true
	// closed
}

// A missing znode is a value, and so is an empty one.
func ExampleZnode() {
	session := connect()
	defer session.Close()
	name := fmt.Sprintf("/example-znode-%d", os.Getpid())
	show := func(name string) {
		for znode, err := range zkrecipes.NewWatcher(session, name).Data(ctx) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("%v %q\n", znode.Exists(), znode.Data)
			return // or go on, and see each change
		}
	}
	if _, err := session.Conn().Create(name, []byte("on"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		log.Fatal(err)
	}
	show(name)
	show(name + "/none")
	// Output:
	// true "on"
	// false ""
}
