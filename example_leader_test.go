package zkrecipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

// A leader with a health endpoint, by which a load balancer finds it, and a graceful end.
func ExampleLeaderLatch() {
	session := connect()
	defer session.Close()
	latch := zkrecipes.NewLeaderLatch(session, path("api"), zkrecipes.WithOwner("node-7"))

	health := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !latch.IsLeader() { // local: asked as often as one likes
			http.Error(w, "standby", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "leader")
	}))
	defer health.Close()

	ctx, shutdown := context.WithCancel(ctx)
	defer shutdown()
	done := make(chan error, 1)
	go func() { done <- latch.Run(ctx) }()
	if _, err := latch.Await(ctx); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		answer, err := http.Get(health.URL)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer.StatusCode)
		answer.Body.Close()
		shutdown() // gives leadership up
		if err := <-done; err != nil {
			log.Fatal(err)
		}
		done <- nil
	}
	// Output:
	// 200
	// 503
}

func ExampleLeaderSelector() {
	session := connect()
	defer session.Close()
	enough := errors.New("enough for today")
	term := 0
	err := zkrecipes.NewLeaderSelector(session, path("indexer")).Run(ctx, func(ctx context.Context) error {
		lease, _ := zkrecipes.LeaseFromContext(ctx)
		fmt.Println("leading, with a token to fence what is written:", lease.Token() > 0)
		if term++; term == 2 {
			return enough // ends Run
		}
		return ctx.Err() // nil: campaign again
	})
	fmt.Println(err == enough)
	// Output:
	// leading, with a token to fence what is written: true
	// leading, with a token to fence what is written: true
	// true
}

// A job that a scheduler starts on each instance, and that runs on exactly one. TryDo does not decide that: an instance whose clock is a moment late comes
// when the first has finished, and runs it again. A leader is the same at every tick.
func ExampleLeaderLatch_IsLeader() {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ran, skipped := 0, 0
	var ticks []func() // one instance's each
	for range 3 {
		session := connect() // its own process, really
		defer session.Close()
		latch := zkrecipes.NewLeaderLatch(session, path("nightly"))
		go latch.Run(ctx)
		ticks = append(ticks, func() {
			if !latch.IsLeader() { // asks no server
				skipped++
				return
			}
			soon, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			lease, err := latch.Await(soon) // at once, unless leadership was lost just now
			if err != nil {
				skipped++
				return
			}
			report := func(ctx context.Context, fence zkrecipes.Token) error { ran++; return ctx.Err() }
			if err := report(lease.Context(), lease.Token()); err != nil {
				log.Println("broken off: another instance may lead by now:", err)
			}
		})
		if len(ticks) == 1 { // somebody leads before the first tick
			if _, err := latch.Await(ctx); err != nil {
				log.Fatal(err)
			}
		}
	}
	for range 4 { // nights
		for _, tick := range ticks {
			tick()
		}
	}
	fmt.Println("ran:", ran, "skipped:", skipped)
	// Output: ran: 4 skipped: 8
}
