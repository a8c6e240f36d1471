// Command elected is a service of which one instance works: the leader. Each has a health endpoint, by which a load balancer finds the leader, and ends
// gracefully: what it is at is finished under its leadership, which only then passes on.
//
//	elected -servers zk1:2181,zk2:2181,zk3:2181 -listen :8080
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

func main() {
	connect := flag.String("servers", "127.0.0.1:2181", "connect `string`")
	timeout := flag.Duration("session-timeout", 10*time.Second, "how soon a leader that died is replaced")
	listen := flag.String("listen", ":8080", "`address` of /healthz")
	piece := flag.Duration("piece", 2*time.Second, "how long one piece of work takes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *connect, *timeout, *listen, *piece); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, connect string, timeout time.Duration, listen string, piece time.Duration) error {
	servers, chroot, err := zkrecipes.ParseConnectString(connect)
	if err != nil {
		return err
	}
	session, err := zkrecipes.Dial(ctx, servers, zkrecipes.WithNamespace(chroot), zkrecipes.WithTimeout(timeout))
	if err != nil {
		return err
	}
	defer session.Close()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("health at", listener.Addr())
	service := &Service{Election: zkrecipes.NewLeaderSelector(session, "/elected"), Work: func(ctx context.Context, token zkrecipes.Token) error {
		fmt.Println("a piece, token", token)
		select {
		case <-time.After(piece):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
	return service.Serve(ctx, listener)
}
