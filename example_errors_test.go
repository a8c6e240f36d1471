package zkrecipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

// Errors say which call failed, at which path, and match what they are about. Mistakes show at the first call, not when a recipe is made.
func ExampleError() {
	session := connect()
	defer session.Close()
	_, err := zkrecipes.NewMutex(session, "locks/without/a/slash").Lock(ctx)
	fmt.Println(errors.Is(err, zkrecipes.ErrInvalid))
	if e, ok := errors.AsType[*zkrecipes.Error](err); ok {
		fmt.Println(e.Op, e.Path)
	}
	// Output:
	// true
	// lock locks/without/a/slash
}

// Why a lease ended without its holder's doing.
func ExampleLostError() {
	session := connect()
	lease, err := zkrecipes.NewMutex(session, path("closing")).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	session.Close()
	<-lease.Done()
	if lost, ok := errors.AsType[*zkrecipes.LostError](lease.Err()); ok {
		fmt.Println(lost.Reason == zkrecipes.ReasonSessionClosed, errors.Is(lost, zkrecipes.ErrLost))
	}
	// The work's ctx says the same.
	fmt.Println(context.Cause(lease.Context()) == lease.Err())
	// Output:
	// true true
	// true
}

// Who works under a lock may want to know whether to try again.
func ExampleLossReason() {
	again := func(reason zkrecipes.LossReason) bool {
		switch reason {
		case zkrecipes.ReasonUnconfirmed, zkrecipes.ReasonSessionExpired: // the network, or a pause
			return true
		case zkrecipes.ReasonNodeDeleted: // somebody wanted that: zklock break
			return false
		default: // ReasonHoldLimit, ReasonSessionClosed: it was us
			return false
		}
	}
	fmt.Println(zkrecipes.ReasonNodeDeleted, again(zkrecipes.ReasonNodeDeleted))
	fmt.Println(zkrecipes.ReasonSessionExpired, again(zkrecipes.ReasonSessionExpired))
	// Output:
	// its znode was deleted false
	// session expired true
}

// A limit for a holder that is alive and stuck.
func ExampleWithMaxHold() {
	session := connect()
	defer session.Close()
	mutex := zkrecipes.NewMutex(session, path("stuck"), zkrecipes.WithMaxHold(50*time.Millisecond))
	err := zkrecipes.Do(ctx, mutex, func(ctx context.Context) error {
		<-ctx.Done() // a query that never returns, but listens to its ctx
		return ctx.Err()
	})
	lost, _ := errors.AsType[*zkrecipes.LostError](err)
	fmt.Println(lost.Reason == zkrecipes.ReasonHoldLimit)
	// Output: true
}
