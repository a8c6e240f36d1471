package zktest_test

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// A session may be as short as two ticks of the server.
func ExampleTickTime() {
	t := new(tb)
	defer t.done()
	server := zktest.NewServer(t, zktest.TickTime(time.Second))
	conn := connected(t, server.Addr()) // asks for 5 s
	if _, _, err := conn.Children("/"); err != nil {
		log.Fatal(err)
	}
	for s := range server.Sessions() {
		fmt.Println(s.Timeout)
	}
	// Output: 5s
}

// What is left of a session, and what a test should find when its service has ended: nothing.
func ExampleSessionInfo() {
	t := new(tb)
	defer t.done()
	server := zktest.NewServer(t)
	conn := connected(t, server.Addr())
	if _, _, _, err := conn.ExistsW("/job"); err != nil {
		log.Fatal(err)
	}
	for s := range server.Sessions() {
		fmt.Println(s.ID == conn.SessionID(), s.Connected, "watches:", s.Watches)
	}
	// Output: true true watches: 1
}

// The tree, without a client.
func ExampleZnodeInfo() {
	t := new(tb)
	defer t.done()
	server := zktest.NewServer(t)
	conn := connected(t, server.Addr())
	if _, err := conn.Create("/job", []byte("7"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		log.Fatal(err)
	}
	for z := range server.Znodes("/job") {
		fmt.Printf("%s %s %v\n", z.Path, z.Data, z.Owner == conn.SessionID())
	}
	// Output: /job 7 true
}

// The server that tests share, here one: where it is, and that it runs. Kill, Pause and the like are for a server of one's own, see Start.
func ExampleMember() {
	t := new(tb)
	defer t.done()
	member := zktest.Shared(t).Server(0)
	fmt.Println(member.Addr() == zktest.Shared(t).Addrs()[0], member.Running())
	// Output: true true
}

// A program that is no test has no *testing.T: it brings what it has.
func ExampleTB() {
	t := new(tb) // Helper, Logf, Fatalf, Errorf, Cleanup, Name
	server := zktest.NewServer(t)
	fmt.Println(server.Addr() != "")
	t.done() // its clean-up closes the server
	// Output: true
}

// Where there is nothing to launch the error says what to install.
func ExampleFind() {
	install, err := zktest.Find()
	if err == nil {
		log.Println("would launch", install)
	}
	fmt.Println(err == nil || errors.Is(err, zktest.ErrNotFound))
	// Output: true
}

func ExampleFindDocker() {
	docker, err := zktest.FindDocker()
	if err == nil {
		log.Println("would run", docker)
	}
	fmt.Println(err == nil || errors.Is(err, zktest.ErrNotFound))
	// Output: true
}
