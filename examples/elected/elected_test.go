package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/zktest"
)

const timeout = 12 * time.Second

// An instance is a Service that runs, and what it did.
type instance struct {
	*Service
	session *zkrecipes.Session
	stop    func()
	ended   chan error
	pieces  int // of work that were finished
	broken  int // and that were broken off
}

// start runs an instance in virtual time, whose pieces of work take ten seconds.
func start(t *testing.T, server *zktest.Server) *instance {
	t.Helper()
	session, err := zkrecipes.Dial(t.Context(), []string{"zk:2181"}, zkrecipes.WithDialer(server.Dialer()), zkrecipes.WithTimeout(timeout),
		zkrecipes.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	i := &instance{session: session, ended: make(chan error, 1)}
	i.Service = &Service{Election: zkrecipes.NewLeaderSelector(session, "/service"), Work: func(ctx context.Context, _ zkrecipes.Token) error {
		select {
		case <-time.After(10 * time.Second):
			i.pieces++
		case <-ctx.Done():
			i.broken++
		}
		return ctx.Err()
	}}
	ctx, cancel := context.WithCancel(t.Context())
	i.stop = cancel
	go func() { i.ended <- i.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := session.Close(); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return i
}

func (i *instance) health(t *testing.T, status int, body string) {
	t.Helper()
	answer := httptest.NewRecorder()
	i.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	if answer.Code != status || answer.Body.String() != body+"\n" {
		t.Errorf("health: %d %q, want %d %q", answer.Code, answer.Body, status, body)
	}
}

// The leader is asked to stop in the middle of a piece of work. A load balancer hears of it at once; the next instance leads when the piece is finished.
func TestTheLeaderStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := zktest.NewServer(t, zktest.TickTime(time.Second))
		first, second := start(t, server), start(t, server)
		first.health(t, http.StatusOK, "leader")
		second.health(t, http.StatusServiceUnavailable, "standby")
		time.Sleep(14 * time.Second)
		first.stop()
		synctest.Wait()
		first.health(t, http.StatusServiceUnavailable, "stopping")
		second.health(t, http.StatusServiceUnavailable, "standby")
		time.Sleep(6*time.Second - time.Nanosecond)
		synctest.Wait()
		second.health(t, http.StatusServiceUnavailable, "standby")
		if err := <-first.ended; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		second.health(t, http.StatusOK, "leader")
		if first.pieces != 2 || first.broken != 0 {
			t.Errorf("%d pieces, %d broken off", first.pieces, first.broken)
		}
		second.stop()
		if err := <-second.ended; err != nil {
			t.Error(err)
		}
	})
}

// The network of the leader breaks. Its work is broken off and its health says so before the next instance leads; afterwards it stands by.
func TestTheLeaderIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := zktest.NewServer(t, zktest.TickTime(time.Second))
		first, second := start(t, server), start(t, server)
		heal := server.Partition(first.session.ID())
		time.Sleep(timeout * 2 / 3) // as long as a lease lives without proof
		synctest.Wait()
		first.health(t, http.StatusServiceUnavailable, "standby")
		second.health(t, http.StatusServiceUnavailable, "standby")
		if first.broken != 1 {
			t.Errorf("%d broken off", first.broken)
		}
		time.Sleep(timeout)
		synctest.Wait()
		second.health(t, http.StatusOK, "leader")
		heal()
		time.Sleep(time.Hour)
		first.health(t, http.StatusServiceUnavailable, "standby")
		queue, err := zkrecipes.Inspect(t.Context(), second.session, "/service")
		if err != nil || len(queue) != 2 || queue[1].Session != first.session.ID() {
			t.Errorf("the first one should stand by: %v, %v", queue, err)
		}
		for _, i := range []*instance{first, second} {
			i.stop()
			if err := <-i.ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// The whole of it, over a network: the endpoint goes when the work has ended, and not before.
func TestServe(t *testing.T) {
	server := zktest.NewServer(t)
	session, err := zkrecipes.Dial(t.Context(), []string{server.Addr()}, zkrecipes.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	working, finish := make(chan struct{}, 1), make(chan struct{})
	service := &Service{Election: zkrecipes.NewLeaderSelector(session, "/service"), Work: func(context.Context, zkrecipes.Token) error {
		working <- struct{}{}
		<-finish
		return nil
	}}
	health := func() (int, string) {
		t.Helper()
		answer, err := http.Get("http://" + listener.Addr().String() + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- service.Serve(ctx, listener) }()
	<-working
	if code, body := health(); code != http.StatusOK || body != "leader\n" {
		t.Errorf("%d %q", code, body)
	}
	cancel()
	for code, body := health(); body != "stopping\n"; code, body = health() { // context.AfterFunc runs on a goroutine of its own
		if code != http.StatusOK {
			t.Fatalf("%d %q", code, body)
		}
	}
	close(finish)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := http.Get("http://" + listener.Addr().String() + "/healthz"); err == nil {
		t.Error("the endpoint still answers")
	}
	http.DefaultClient.CloseIdleConnections()
}
