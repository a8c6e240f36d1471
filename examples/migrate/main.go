// Command migrate runs the executable files of a folder in the order of their names, each once for a whole fleet, however many hosts start it:
//
//	migrate -servers zk1:2181,zk2:2181,zk3:2181 /shop/schema migrations/ && exec shop
//
// It ends with 0 when all of them are done, by this host or another. A file has the fencing token in $TOKEN, and may be run again when a host is lost.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

func main() {
	connect := flag.String("servers", "127.0.0.1:2181", "connect `string`")
	timeout := flag.Duration("session-timeout", 10*time.Second, "how soon a host that died is replaced")
	wait := flag.Duration("wait", 10*time.Minute, "how long to wait for others and to work, in all")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: migrate [flags] PATH FOLDER")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *wait)
	defer cancel()
	if err := run(ctx, *connect, *timeout, flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "migrate:", err)
		os.Exit(1)
	}
	fmt.Println("up to date")
}

func run(ctx context.Context, connect string, timeout time.Duration, path, folder string) error {
	steps, err := files(folder)
	if err != nil {
		return err
	}
	servers, chroot, err := zkrecipes.ParseConnectString(connect)
	if err != nil {
		return err
	}
	session, err := zkrecipes.Dial(ctx, servers, zkrecipes.WithNamespace(chroot), zkrecipes.WithTimeout(timeout))
	if err != nil {
		return err
	}
	defer session.Close()
	m := Migration{Session: session, Lock: zkrecipes.NewMutex(session, path+"/lock"), Marker: chroot + path + "/done", Steps: steps}
	return m.Run(ctx)
}

// files makes a step of each file.
func files(folder string) (steps []Step, err error) {
	entries, err := os.ReadDir(folder) // sorted
	for _, e := range entries {
		file := filepath.Join(folder, e.Name())
		steps = append(steps, Step{Name: e.Name(), Do: func(ctx context.Context, token zkrecipes.Token) error {
			fmt.Printf("%s, token %d\n", filepath.Base(file), token)
			cmd := exec.CommandContext(ctx, file) // killed when the lease is lost
			cmd.Env = append(os.Environ(), fmt.Sprintf("TOKEN=%d", token))
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			return cmd.Run()
		}})
	}
	return steps, err
}
