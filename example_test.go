package zkrecipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// exampleTB lets examples use the server that the tests share.
type exampleTB struct{}

func (exampleTB) Helper()                      {}
func (exampleTB) Logf(string, ...any)          {}
func (exampleTB) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (exampleTB) Errorf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (exampleTB) Cleanup(func())               {}
func (exampleTB) Name() string                 { return "example" }

var ctx = context.Background()

// servers is where the examples find a ZooKeeper.
func servers() []string { return zktest.Shared(exampleTB{}).Addrs() }

// path keeps examples of several runs on one server apart.
func path(name string) string { return fmt.Sprintf("/examples/%d/%s", os.Getpid(), name) }

func connect() *zkrecipes.Session {
	s, err := zkrecipes.Dial(ctx, servers(), zkrecipes.WithTimeout(4*time.Second))
	if err != nil {
		panic(err)
	}
	return s
}

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	session, err := zkrecipes.Dial(ctx, servers())
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	mutex := zkrecipes.NewMutex(session, path("nightly-report"))
	err = zkrecipes.Do(ctx, mutex, func(ctx context.Context) error {
		// ctx ends when the lease does. Pass it to everything that must not outlive the lock.
		fmt.Println("only one of us prints this at a time")
		return ctx.Err()
	})
	switch {
	case errors.Is(err, zkrecipes.ErrLost):
		log.Println("lost the lock on the way; somebody else may have started:", err)
	case err != nil:
		log.Println("not done:", err)
	}
	// Output: only one of us prints this at a time
}

func ExampleMutex_Lock() {
	session := connect()
	defer session.Close()

	lease, err := zkrecipes.NewMutex(session, path("inventory")).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(context.WithoutCancel(ctx))

	select {
	case <-lease.Done():
		fmt.Println("stop:", lease.Err())
	default:
		fmt.Println("held, token is set:", lease.Token() > 0)
	}
	// Output: held, token is set: true
}

// A Lock that cannot be had in time says who is in the way.
func ExampleMutex_Lock_timeout() {
	first, second := connect(), connect()
	defer first.Close()
	defer second.Close()
	lease, err := zkrecipes.NewMutex(first, path("busy"), zkrecipes.WithOwner("the first one")).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)

	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = zkrecipes.NewMutex(second, path("busy")).Lock(ctx)
	fmt.Println(errors.Is(err, zkrecipes.ErrHeld), errors.Is(err, context.DeadlineExceeded))
	var e *zkrecipes.Error
	if errors.As(err, &e) {
		fmt.Println("behind", e.Ahead[0].Owner)
	}
	// Output:
	// true true
	// behind the first one
}

func ExampleMutex_TryLock() {
	session := connect()
	defer session.Close()
	mutex := zkrecipes.NewMutex(session, path("once"))
	lease, err := mutex.TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = mutex.TryLock(ctx) // no owner in ctx: somebody else
	fmt.Println(errors.Is(err, zkrecipes.ErrHeld))
	fmt.Println(lease.Release(ctx))
	// Output:
	// true
	// <nil>
}

// A job that every instance starts and one runs.
func ExampleTryDo() {
	session := connect()
	defer session.Close()
	job := zkrecipes.NewMutex(session, path("cron/cleanup"))
	err := zkrecipes.TryDo(ctx, job, func(context.Context) error {
		fmt.Println("cleaning up")
		return nil
	})
	if errors.Is(err, zkrecipes.ErrHeld) {
		fmt.Println("another instance is at it")
	} else if err != nil {
		log.Println(err)
	}
	// Output: cleaning up
}

// Nested calls enter again when they pass the lease's context on.
func ExampleLease_Context() {
	session := connect()
	defer session.Close()
	mutex := zkrecipes.NewMutex(session, path("account-7"))
	debit := func(ctx context.Context) error {
		return zkrecipes.Do(ctx, mutex, func(context.Context) error {
			fmt.Println("debit")
			return nil
		})
	}
	err := zkrecipes.Do(ctx, mutex, func(ctx context.Context) error {
		return debit(ctx) // the same hold
	})
	fmt.Println(err)
	// Output:
	// debit
	// <nil>
}

// A write to ZooKeeper that passes only while the lease is held.
func ExampleLease_Check() {
	session := connect()
	defer session.Close()
	lease, err := zkrecipes.NewMutex(session, path("config-lock")).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)

	create := &zk.CreateRequest{Path: path("config"), Data: []byte("v2"), Acl: zk.WorldACL(zk.PermAll)}
	_, err = session.Conn().Multi(lease.Check(), create)
	fmt.Println(err)
	// Output: <nil>
}

func ExampleContextWithOwner() {
	session := connect()
	defer session.Close()
	mutex := zkrecipes.NewMutex(session, path("order-42"))
	ctx := zkrecipes.ContextWithOwner(ctx, "checkout/42")
	first, err := mutex.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	second, err := mutex.Lock(ctx) // the same owner: no waiting
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first.Owner(), first.Token() == second.Token())
	fmt.Println(second.Release(ctx), first.Release(ctx))
	// Output:
	// checkout/42 true
	// <nil> <nil>
}

func ExampleMutex_Participants() {
	session := connect()
	defer session.Close()
	mutex := zkrecipes.NewMutex(session, path("seen"), zkrecipes.WithOwner("billing"))
	lease, err := mutex.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	ps, err := mutex.Participants(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range ps.Holders() {
		fmt.Println(p.Owner, "holds", p.Mode, p.Token == lease.Token())
	}
	// Output: billing holds exclusive true
}

func ExampleWatcher_Data() {
	session := connect()
	defer session.Close()
	flag := fmt.Sprintf("/example-flag-%d", os.Getpid())
	for z, err := range zkrecipes.NewWatcher(session, flag).Data(ctx) {
		switch {
		case err != nil:
			log.Fatal(err)
		case !z.Exists():
			fmt.Println("not there yet")
			if _, err := session.Conn().Create(flag, []byte("on"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
				log.Fatal(err)
			}
		default:
			fmt.Println(string(z.Data))
			return
		}
	}
	// Output:
	// not there yet
	// on
}

// A service that has a connection, and reads its events, goes on with both.
func ExampleNewSession() {
	const timeout = 4 * time.Second // within what the server allows: it is what the session gets
	conn, events, err := zk.Connect(servers(), timeout, zk.WithLogger(quiet{}))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	go func() {
		for range events { // the service's own loop
		}
	}()

	session, err := zkrecipes.NewSession(conn, nil, zkrecipes.WithTimeout(timeout))
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close() // before the connection
	err = zkrecipes.Do(ctx, zkrecipes.NewMutex(session, path("adopted")), func(context.Context) error {
		fmt.Println("held in the session of the service:", session.ID() == conn.SessionID())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: held in the session of the service: true
}

// With a dialer that reads along, the timeout need not be known, and the lease clock is exact.
func ExampleTrackContact() {
	dialer, track := zkrecipes.TrackContact(nil)
	conn, _, err := zk.Connect(servers(), 4*time.Second, zk.WithDialer(dialer), zk.WithLogger(quiet{}))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	session, err := zkrecipes.NewSession(conn, nil, track)
	if err != nil {
		log.Fatal(err)
	}
	lease, err := zkrecipes.NewMutex(session, path("tracked")).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("closed:", session.Close())
	fmt.Println("lost:", errors.Is(lease.Err(), zkrecipes.ErrLost))
	ok, _, err := conn.Exists(lease.Node())
	fmt.Println("the connection goes on, the znode is gone:", !ok, err)
	// Output:
	// closed: <nil>
	// lost: true
	// the connection goes on, the znode is gone: true <nil>
}

// quiet is a logger of go-zookeeper's that says nothing.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

func ExampleSession_States() {
	session := connect()
	go session.Close()
	var last zkrecipes.State
	for st := range session.States(ctx) {
		last = st
	}
	fmt.Println(last)
	// Output: closed
}

func ExampleParseConnectString() {
	servers, namespace, err := zkrecipes.ParseConnectString("zk1:2181,zk2:2181,zk3:2181/payments")
	fmt.Println(servers, namespace, err)
	// Output: [zk1:2181 zk2:2181 zk3:2181] /payments <nil>
}
