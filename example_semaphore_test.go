package zkrecipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

// Five exports at once, in all processes together.
func ExampleSemaphore() {
	session := connect()
	defer session.Close()
	exports := zkrecipes.NewSemaphore(session, path("exports"), 5)
	err := zkrecipes.Do(ctx, exports.Locker(1), func(ctx context.Context) error {
		fmt.Println("exporting, with at most four others")
		return ctx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: exporting, with at most four others
}

// Several permits are one lease: all or none.
func ExampleSemaphore_Acquire() {
	session := connect()
	defer session.Close()
	memory := zkrecipes.NewSemaphore(session, path("gigabytes"), 8)
	big, err := memory.Acquire(ctx, 6)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("permits:", len(big.Parts()))

	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = memory.Acquire(ctx, 3)
	fmt.Println("three more:", errors.Is(err, zkrecipes.ErrHeld), errors.Is(err, context.DeadlineExceeded))
	fmt.Println(big.Release(context.WithoutCancel(ctx)))
	// Output:
	// permits: 6
	// three more: true true
	// <nil>
}

// When a permit is lost the whole lease is, and the other permits go back.
func ExampleSemaphore_lost() {
	session := connect()
	defer session.Close()
	lease, err := zkrecipes.NewSemaphore(session, path("licences"), 5).Acquire(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	_ = session.Conn().Delete(lease.Parts()[0].Node(), -1) // somebody tidies up
	<-lease.Done()
	fmt.Println(errors.Is(lease.Err(), zkrecipes.ErrLost))
	fmt.Println(errors.Is(lease.Release(ctx), zkrecipes.ErrLost))
	// Output:
	// true
	// true
}

// Both accounts or none. Whoever takes them in the other order waits, and does not deadlock.
func ExampleNewMultiLock() {
	session := connect()
	defer session.Close()
	from, to := zkrecipes.NewMutex(session, path("account-12")), zkrecipes.NewMutex(session, path("account-07"))
	err := zkrecipes.Do(ctx, zkrecipes.NewMultiLock(from, to), func(ctx context.Context) error {
		lease, _ := zkrecipes.LeaseFromContext(ctx)
		fmt.Println("locks held:", len(lease.Parts()))
		return ctx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: locks held: 2
}
