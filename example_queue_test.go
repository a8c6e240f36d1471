package zkrecipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/zkrecipes/zkrecipes"
)

// Code that does not care which recipe guards it takes a Locker.
func ExampleLocker() {
	session := connect()
	defer session.Close()
	lockers := []zkrecipes.Locker{
		zkrecipes.NewMutex(session, path("one")),
		zkrecipes.NewRWLock(session, path("shared")).RLocker(),
		zkrecipes.NewSemaphore(session, path("five"), 5).Locker(1),
	}
	lockers = append(lockers, zkrecipes.NewMultiLock(lockers...)) // all of them
	for _, locker := range lockers {
		err := zkrecipes.Do(ctx, locker, func(ctx context.Context) error {
			lease, _ := zkrecipes.LeaseFromContext(ctx)
			fmt.Print(len(lease.Parts()), " ")
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println()
	// Output: 1 1 1 3
}

// Goroutines that have a lease's ctx share its hold. An owner of their own separates them.
func ExampleNewOwner() {
	session := connect()
	defer session.Close()
	mutex := zkrecipes.NewMutex(session, path("shards"))
	count := 0 // nothing but the lock protects it
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			mine := zkrecipes.ContextWithOwner(ctx, zkrecipes.NewOwner())
			if err := zkrecipes.Do(mine, mutex, func(context.Context) error { count++; return nil }); err != nil {
				log.Println(err)
			}
		})
	}
	all.Wait()
	fmt.Println(count)
	// Output: 4
}

// What is behind a fence remembers the greatest token that it has seen.
func ExampleToken() {
	session := connect()
	defer session.Close()
	mutex := zkrecipes.NewMutex(session, path("fenced"))
	var seen zkrecipes.Token
	write := func(token zkrecipes.Token) error {
		if token < seen {
			return errors.New("refused: a newer holder was here")
		}
		seen = token
		return nil
	}
	var tokens []zkrecipes.Token
	for range 2 {
		lease, err := mutex.Lock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		tokens = append(tokens, lease.Token())
		if err := lease.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(write(tokens[0]))
	fmt.Println(write(tokens[1]))
	fmt.Println(write(tokens[0])) // the first holder, paused for a while
	// Output:
	// <nil>
	// <nil>
	// refused: a newer holder was here
}

// Who holds and who waits at a path, whatever client made the znodes.
func ExampleInspect() {
	session := connect()
	defer session.Close()
	lock := zkrecipes.NewRWLock(session, path("seen-by-all"))
	for _, name := range []zkrecipes.Owner{"report", "search"} {
		lease, err := lock.RLock(zkrecipes.ContextWithOwner(ctx, name))
		if err != nil {
			log.Fatal(err)
		}
		defer lease.Release(ctx)
	}
	waiting, leave := context.WithCancel(ctx)
	left := make(chan error)
	go func() {
		_, err := lock.Lock(zkrecipes.ContextWithOwner(waiting, "import"))
		left <- err
	}()
	for {
		participants, err := zkrecipes.Inspect(ctx, session, path("seen-by-all"))
		if err != nil {
			log.Fatal(err)
		}
		if len(participants.Waiters()) == 0 {
			continue // it is on its way
		}
		for _, p := range participants {
			fmt.Println(p.Position, p.Owner, p.Mode, p.Holding)
		}
		break
	}
	leave()
	fmt.Println(errors.Is(<-left, context.Canceled))
	// Output:
	// 0 report shared true
	// 1 search shared true
	// 2 import exclusive false
	// true
}

// Only the session proves who holds; the owner is a label.
func ExampleParticipant() {
	session := connect()
	defer session.Close()
	mutex := zkrecipes.NewMutex(session, path("whose"), zkrecipes.WithOwner("billing"))
	lease, err := mutex.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	participants, err := mutex.Participants(ctx)
	if err != nil {
		log.Fatal(err)
	}
	p := participants[0]
	fmt.Println(p.Owner, p.Session == session.ID(), p.Token == lease.Token(), p.Node == lease.Node())
	// Output: billing true true true
}

func ExampleMode() {
	fmt.Println(zkrecipes.ModeExclusive, zkrecipes.ModeShared)
	// Output: exclusive shared
}

// One term, for a job that is done then.
func ExampleWithoutRequeue() {
	session := connect()
	defer session.Close()
	once := zkrecipes.NewLeaderSelector(session, path("import"), zkrecipes.WithoutRequeue())
	err := once.Run(ctx, func(context.Context) error {
		fmt.Println("imported")
		return nil
	})
	fmt.Println(err)
	// Output:
	// imported
	// <nil>
}
