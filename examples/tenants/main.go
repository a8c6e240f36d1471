// Command tenants is a service that does one thing at a time for each tenant, however many instances there are, and different tenants' things side by side.
//
//	tenants -servers zk1:2181,zk2:2181,zk3:2181 -listen :8080 -folder /shared/invoices
//	curl -X POST http://localhost:8080/tenants/acme/invoice
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

func main() {
	s := Service{}
	connect := flag.String("servers", "127.0.0.1:2181", "connect `string`")
	timeout := flag.Duration("session-timeout", 10*time.Second, "how soon what a dead instance holds is free")
	listen := flag.String("listen", ":8080", "`address`")
	room := flag.Int("room", 100, "how many requests may work or wait")
	flag.StringVar(&s.Host, "host", "tenants", "`name` of this instance")
	flag.StringVar(&s.Folder, "folder", ".", "`folder` of the numbers")
	flag.DurationVar(&s.Wait, "wait", 2*time.Second, "how long to wait for a tenant")
	flag.DurationVar(&s.Pause, "work", 100*time.Millisecond, "how long an invoice takes")
	flag.Parse()
	s.Room = make(chan struct{}, *room)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &s, *connect, *timeout, *listen); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, s *Service, connect string, timeout time.Duration, listen string) error {
	servers, chroot, err := zkrecipes.ParseConnectString(connect)
	if err != nil {
		return err
	}
	s.Session, err = zkrecipes.Dial(ctx, servers, zkrecipes.WithNamespace(chroot), zkrecipes.WithTimeout(timeout))
	if err != nil {
		return err
	}
	defer s.Session.Close()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("serving at", listener.Addr())
	mux := http.NewServeMux()
	mux.Handle("POST /tenants/{tenant}/invoice", s)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // requests end, and with them their leases
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
