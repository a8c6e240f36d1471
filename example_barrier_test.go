package zkrecipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

// Consumers wait while a migration is under way, whatever becomes of the process that announced it.
func ExampleBarrier() {
	session := connect()
	defer session.Close()
	migration := zkrecipes.NewBarrier(session, path("migration"), zkrecipes.WithOwner("schema 42"))
	if err := migration.Set(ctx); err != nil {
		log.Fatal(err)
	}

	consumer := make(chan error)
	go func() { consumer <- migration.Wait(ctx) }()

	fmt.Println("migrating")
	if err := migration.Remove(ctx); err != nil {
		log.Fatal(err)
	}
	if err := <-consumer; err != nil {
		log.Fatal(err)
	}
	fmt.Println("consuming")
	// Output:
	// migrating
	// consuming
}

// Two phases: workers load their shards, begin to serve when all have loaded, and close their stores when none serves any more. Each would be a process of
// its own.
func ExampleDoubleBarrier() {
	const workers = 3
	var mu sync.Mutex
	loaded, serving := 0, 0
	worker := func(ctx context.Context, phase *zkrecipes.DoubleBarrier) error {
		mu.Lock()
		loaded++ // phase one: this worker's shard
		mu.Unlock()
		if err := phase.Enter(ctx); err != nil {
			return err // not all have come in time: start again, or without the others
		}
		mu.Lock()
		if loaded != workers {
			return errors.New("serving before all had loaded")
		}
		serving++ // phase two
		mu.Unlock()
		return phase.Leave(ctx) // all are done
	}

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			session := connect()
			defer session.Close()
			if err := worker(ctx, zkrecipes.NewDoubleBarrier(session, path("phases"), workers)); err != nil {
				log.Fatal(err)
			}
		})
	}
	all.Wait()
	fmt.Println(serving, "served, after all had loaded")
	// Output:
	// 3 served, after all had loaded
}
