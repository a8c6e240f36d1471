package zkrecipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes"
)

// Many read a table together; who changes it is alone.
func ExampleRWLock() {
	session := connect()
	defer session.Close()
	lock := zkrecipes.NewRWLock(session, path("prices"))

	err := zkrecipes.Do(ctx, lock.RLocker(), func(ctx context.Context) error {
		fmt.Println("reading, beside other readers")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	err = zkrecipes.Do(ctx, lock, func(ctx context.Context) error {
		fmt.Println("writing, alone")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// reading, beside other readers
	// writing, alone
}

// Downgrade: read under the write lease, give the write lease back, and go on reading. No writer comes in between.
func ExampleRWLock_RLock_downgrade() {
	session := connect()
	defer session.Close()
	lock := zkrecipes.NewRWLock(session, path("index"))

	write, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("built the index")
	read, err := lock.RLock(write.Context()) // the same owner: at once
	if err != nil {
		log.Fatal(err)
	}
	if err := write.Release(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("reading what I wrote:", read.Err() == nil && read.Token() == write.Token())

	// The other way round would wait for itself.
	_, err = lock.Lock(read.Context())
	fmt.Println("refused:", errors.Is(err, zkrecipes.ErrUpgrade))
	if err := read.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// built the index
	// reading what I wrote: true
	// refused: true
}

// Who holds a lock, whatever client it uses, and a request to give it back.
func ExampleRevoke() {
	session := connect()
	defer session.Close()
	lease, err := zkrecipes.NewMutex(session, path("batch"), zkrecipes.WithOwner("batch-7")).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	// Somebody else, who has something urgent:
	participants, err := zkrecipes.Inspect(ctx, session, path("batch"))
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range participants.Holders() {
		fmt.Println("asking", p.Owner)
		if err := zkrecipes.Revoke(ctx, session, p.Node); err != nil {
			log.Fatal(err)
		}
	}

	// The holder, between two pieces of work. It may also go on: this is a request.
	<-lease.Revoked()
	fmt.Println("giving way:", lease.Release(ctx) == nil)
	// Output:
	// asking batch-7
	// giving way: true
}
