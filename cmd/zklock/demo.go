package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/zktest"
)

const (
	workers   = 3
	minRounds = 2 // the victim is killed in its second

	reachWithin = 5 * time.Second  // a session with the ZooKeeper that was named
	leaveWithin = 4 * time.Second  // a worker, when the demo is over or gone; more than a Session needs for its Close by default
	startGrace  = 30 * time.Second // a server that is not up yet when the demo is over
)

const demoHelp = `usage: zklock demo [flags]

Three worker processes contend for one lock on a ZooKeeper. Each line says who waits behind whom and who holds, with which fencing token. The first
worker that holds the lock a second time is killed with SIGKILL; the next one is granted when the session of the dead one has ended.

It exits 0 only if no two held at the same time, the tokens only grew, the lock of the killed one was passed on, and the others finished their rounds.
To judge that, a register refuses every token that is not the greatest it has seen, and each holder reads, and later writes back, a counter in a file
that nothing but the lock protects.

The ZooKeeper is that of -servers, else of $ZKLOCK_SERVERS, else one in the process of the demo, for which nothing has to be installed. With -real it
is a local installation ($ZOOKEEPER_HOME, or the Debian package) or an image of Docker, started on a free port for as long as the demo runs.

flags:
`

// noZooKeeper is the advice to who has none.
const noZooKeeper = `no ZooKeeper to start. Do one of these:
  zklock demo                        without -real, on the one in this process
  make demo DEMOFLAGS=-real          with Docker, or as root on Debian or Ubuntu: gets one, then runs this
  apt-get install --no-install-recommends libzookeeper-java default-jre-headless
  ZOOKEEPER_HOME=/path/to/apache-zookeeper-3.x.y-bin zklock demo -real
  zklock demo -servers host:2181     or with $ZKLOCK_SERVERS: one that runs
`

// runDemo is zklock demo.
func runDemo(ctx context.Context, args []string, stdout, _ io.Writer) error {
	var c workerConfig
	var limit time.Duration
	var real bool
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.StringVar(&c.servers, "servers", "", "connect `string`, such as zk1:2181,zk2:2181/chroot (default $ZKLOCK_SERVERS, else a server in this process)")
	fs.BoolVar(&real, "real", false, "start a real ZooKeeper for the demo, from what is installed")
	fs.IntVar(&c.rounds, "rounds", 3, "how many times each worker takes the lock")
	fs.DurationVar(&c.hold, "hold", 300*time.Millisecond, "how long it is held")
	fs.DurationVar(&c.timeout, "timeout", 2*time.Second, "session timeout: how soon a dead holder is replaced; the server may grant another")
	fs.DurationVar(&limit, "limit", time.Minute, "give up after this long")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), demoHelp)
		fs.PrintDefaults()
	}
	if err := parse(fs, args, stdout); err != nil {
		return err
	}
	switch {
	case c.rounds < minRounds:
		return usageError{fmt.Sprintf("-rounds %d: at least %d, since a worker is killed when it holds for the second time", c.rounds, minRounds)}
	case real && c.servers != "":
		return usageError{"-real starts a ZooKeeper, -servers names one that runs: one of the two"}
	case c.hold <= 0 || c.timeout <= 0 || limit <= 0:
		return usageError{"-hold, -timeout and -limit must be positive"}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not finished within -limit %v", limit))
	defer cancel()

	if !real {
		c.servers = cmp.Or(c.servers, os.Getenv("ZKLOCK_SERVERS"))
	}
	if c.servers != "" {
		return contend(ctx, c, stdout, tidy)
	}
	server, err := serve(ctx, real, stdout)
	if err != nil {
		return err
	}
	c.servers = server.addr
	err = contend(ctx, c, stdout, func(*zkrecipes.Session, workerConfig) {})
	return errors.Join(err, server.close())
}

// A server is one of the demo's own.
type server struct {
	addr  string
	close func() error
}

// serve starts a server, in this process or a real one.
func serve(ctx context.Context, real bool, stdout io.Writer) (server, error) {
	if real {
		e, err := launch(ctx, stdout)
		if err != nil {
			return server{}, err
		}
		return server{strings.Join(e.Addrs(), ","), e.Close}, nil
	}
	s, err := zktest.LaunchServer()
	if err != nil {
		return server{}, err
	}
	fmt.Fprintln(stdout, "The ZooKeeper is one in this process; -real starts a real one for this demo, -servers names one that runs.")
	return server{s.Addr(), func() error { s.Close(); return nil }}, nil
}

// contend runs the demo on a ZooKeeper that should be there, and tidies it up afterwards.
func contend(ctx context.Context, c workerConfig, stdout io.Writer, tidy func(*zkrecipes.Session, workerConfig)) error {
	// To find out early, and in one place, whether there is one.
	reach, cancel := context.WithTimeoutCause(ctx, reachWithin, fmt.Errorf("no answer within %v", reachWithin))
	session, err := dial(reach, c.servers, zkrecipes.WithTimeout(c.timeout))
	cancel()
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }() // it holds nothing

	dir, err := os.MkdirTemp("", "zklock-demo-")
	if err != nil {
		return err
	}
	c.counter = filepath.Join(dir, "counter")
	c.path = fmt.Sprintf("%s/%08x", demoRoot, rand.Uint32())
	if err = os.WriteFile(c.counter, []byte("0"), 0o600); err == nil {
		fmt.Fprintf(stdout, "%d processes take turns at %s on %s, session timeout %v.\n", workers, c.path, c.servers, c.timeout)
		fmt.Fprintf(stdout, "The first to hold it a second time is killed.\n\n")
		err = newDemo(stdout, c).run(ctx)
		tidy(session, c)
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// demoRoot is the directory of the locks of all demos.
const demoRoot = "/zklock-demo"

// tidy removes the directories of the lock from a server that others use. It need not succeed, as when a demo was interrupted while the znode of a killed
// worker was still there: they are containers, which the server removes in time.
func tidy(session *zkrecipes.Session, c workerConfig) {
	_, namespace, err := zkrecipes.ParseConnectString(c.servers)
	if err != nil || session.State() != zkrecipes.StateConnected {
		return
	}
	for _, dir := range []string{c.path, demoRoot} {
		if session.Conn().Delete(namespace+dir, -1) != nil {
			return
		}
	}
}

// launch starts a local installation, or a container.
func launch(ctx context.Context, stdout io.Writer) (*zktest.Ensemble, error) {
	found, err := zktest.Describe()
	if err != nil {
		return nil, fmt.Errorf("%s(%w)", noZooKeeper, err)
	}
	fmt.Fprintf(stdout, "Starting %s for this demo; -servers names one that runs.\n", found)
	type result struct {
		ensemble *zktest.Ensemble
		err      error
	}
	launched := make(chan result, 1)
	go func() {
		e, err := zktest.Launch()
		launched <- result{e, err}
	}()
	select {
	case r := <-launched:
		if r.err != nil && ctx.Err() != nil { // Ctrl-C reached the server, too
			return nil, context.Cause(ctx)
		}
		return r.ensemble, r.err
	case <-ctx.Done():
	}
	// Launch knows no ctx. A server that starts is waited for, to stop it and remove its files; one that takes longer ends with this process.
	grace := time.NewTimer(startGrace)
	defer grace.Stop()
	select {
	case r := <-launched:
		if r.err == nil {
			r.err = r.ensemble.Close()
		}
		return nil, errors.Join(context.Cause(ctx), r.err)
	case <-grace.C:
		return nil, context.Cause(ctx)
	}
}
