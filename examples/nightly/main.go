// Command nightly runs a command once in each period on one host of a fleet, when cron starts it on all of them:
//
//	0 3 * * *  nightly -servers zk1:2181,zk2:2181,zk3:2181 /cron/report report --daily
//
// It ends with 0 when the command has succeeded, or was left to another host.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

func main() {
	connect := flag.String("servers", "127.0.0.1:2181", "connect `string`")
	timeout := flag.Duration("session-timeout", 10*time.Second, "how soon a host that died is replaced")
	every := flag.Duration("every", 24*time.Hour, "the period; it begins at midnight UTC")
	flag.Parse()
	if flag.NArg() < 2 {
		fmt.Fprintln(os.Stderr, "usage: nightly [flags] PATH COMMAND [ARG...]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, *connect, *timeout, *every, flag.Arg(0), flag.Args()[1:])
	switch {
	case errors.Is(err, errBusy), errors.Is(err, errDone):
		fmt.Println("skipped:", err)
	case err != nil:
		fmt.Fprintln(os.Stderr, "nightly:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, connect string, timeout, every time.Duration, path string, argv []string) error {
	servers, chroot, err := zkrecipes.ParseConnectString(connect)
	if err != nil {
		return err
	}
	session, err := zkrecipes.Dial(ctx, servers, zkrecipes.WithNamespace(chroot), zkrecipes.WithTimeout(timeout))
	if err != nil {
		return err
	}
	defer session.Close()
	job := &Job{Session: session, Lock: zkrecipes.NewMutex(session, path+"/lock"), Marker: chroot + path + "/done", Every: every}
	job.Work = func(ctx context.Context, token zkrecipes.Token) error {
		fmt.Println("running, token", token)
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) // killed when the lease is lost
		cmd.Env = append(os.Environ(), fmt.Sprintf("TOKEN=%d", token))
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		return cmd.Run()
	}
	return job.Run(ctx, time.Now())
}
