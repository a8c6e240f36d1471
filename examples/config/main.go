// Command config follows a configuration that all instances of a service share, or changes it:
//
//	config -servers zk1:2181,zk2:2181,zk3:2181 follow
//	config -servers zk1:2181,zk2:2181,zk3:2181 set '{"workers": 8}'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

func main() {
	connect := flag.String("servers", "127.0.0.1:2181", "connect `string`")
	path := flag.String("path", "/config/shop", "of the configuration")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *connect, *path, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "config:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, connect, path string, args []string) error {
	servers, chroot, err := zkrecipes.ParseConnectString(connect)
	if err != nil {
		return err
	}
	session, err := zkrecipes.Dial(ctx, servers, zkrecipes.WithNamespace(chroot))
	if err != nil {
		return err
	}
	defer session.Close()
	switch {
	case len(args) == 1 && args[0] == "follow":
		f := Follower{Watcher: zkrecipes.NewWatcher(session, path+"/value"), Note: func(format string, args ...any) { fmt.Printf(format+"\n", args...) }}
		return f.Run(ctx)
	case len(args) == 2 && args[0] == "set":
		ctx, cancel := context.WithTimeout(ctx, time.Minute) // for other editors
		defer cancel()
		e := Editor{Session: session, Lock: zkrecipes.NewMutex(session, path+"/lock"), Znode: chroot + path + "/value"}
		return e.Edit(ctx, func(c *Config) error { return json.Unmarshal([]byte(args[1]), c) }) // what it does not name stays
	}
	return errors.New("usage: config [flags] follow | set JSON")
}
