package failover

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// Two instances. At 03:00 the network of the one that works breaks for an hour: the other one takes over within the session timeout and what the server adds
// to it, the first has stopped before, and afterwards it stands by.
func TestTheOtherInstanceTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is midnight in here
		const timeout = 12 * time.Second
		server := zktest.NewServer(t, zktest.TickTime(time.Second))
		var log worklog
		first := start(t, server, "first", timeout, &log)
		synctest.Wait() // the first one has the lock
		second := start(t, server, "second", timeout, &log)

		three := time.Now().Add(3 * time.Hour)
		time.Sleep(time.Until(three))
		heal := server.Partition(first.ID())
		time.Sleep(time.Hour)
		if got := log.who(three.Add(-3*time.Hour), three); !slices.Equal(got, []string{"first"}) {
			t.Errorf("before three: %q worked", got)
		}
		// The first one stops two thirds of the timeout after the last proof that its session lives, which is a sixth old at most.
		stopped, began := log.last("first"), log.firstOf("second")
		if limit := three.Add(timeout * 2 / 3); stopped.After(limit) {
			t.Errorf("the first one worked until %v, later than %v", stopped, limit)
		}
		if limit := three.Add(timeout + 2*time.Second + period); began.After(limit) {
			t.Errorf("the second one began at %v, later than %v", began, limit)
		}
		if !began.After(stopped) {
			t.Errorf("the second one began at %v, the first one worked until %v", began, stopped)
		}

		heal()
		time.Sleep(time.Hour)
		if got := log.who(three.Add(time.Minute), time.Now()); !slices.Equal(got, []string{"second"}) {
			t.Errorf("after three: %q worked", got)
		}
		queue, err := zkrecipes.Inspect(t.Context(), second, "/jobs/report")
		if err != nil || len(queue) != 2 || queue[1].Session != first.ID() {
			t.Errorf("the first one should stand by: %v, %v", queue, err)
		}
		if !log.tokensGrow() {
			t.Error("work with an old token")
		}
	})
}

const period = time.Second

// start runs an instance until the test ends.
func start(t *testing.T, server *zktest.Server, name string, timeout time.Duration, log *worklog) *zkrecipes.Session {
	t.Helper()
	session, err := zkrecipes.Dial(t.Context(), []string{"zk:2181"}, zkrecipes.WithDialer(server.Dialer()), zkrecipes.WithTimeout(timeout),
		zkrecipes.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	service := &Service{Mutex: zkrecipes.NewMutex(session, "/jobs/report"), Every: period}
	service.Work = func(_ context.Context, token zkrecipes.Token) error {
		log.add(entry{name, token, time.Now()})
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != context.Canceled {
			t.Error(err)
		}
		if err := session.Close(); err != nil {
			t.Error(err)
		}
	})
	return session
}
