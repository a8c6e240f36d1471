package zkcontainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"

	"github.com/zkrecipes/zkrecipes/zktest"
)

const (
	nodes    = 3
	patience = 60 * time.Second // for one request to the engine, and for the ensemble
)

// init runs before testcontainers-go reads its settings, which it does once.
func init() {
	if _, set := os.LookupEnv("TESTCONTAINERS_RYUK_DISABLED"); !set {
		_ = os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
	}
	log.SetDefault(log.NewNoopLogger()) // what matters is in errors
}

// Ensemble is three servers, numbered from 0. Its methods may be called from one goroutine at a time.
type Ensemble struct {
	docker  *testcontainers.DockerClient
	network string // id; empty before it is made
	servers [nodes]*server
}

type server struct {
	addr    netip.Addr
	ct      testcontainers.Container
	running bool
	cut     bool
}

// Start starts an ensemble that is removed with the test. Where that is not possible the test fails and says what is missing.
func Start(tb testing.TB) *Ensemble {
	tb.Helper()
	e, err := launch()
	if e != nil {
		tb.Cleanup(func() {
			if tb.Failed() {
				e.logs(tb)
			}
			if err := e.close(); err != nil {
				tb.Error(err)
			}
		})
	}
	if err != nil {
		tb.Fatalf("zkcontainer: %v", err)
	}
	return e
}

// launch returns an ensemble to close, together with an error if it is not whole.
func launch() (*Ensemble, error) {
	engine, err := zktest.FindDocker()
	if err != nil {
		return nil, err
	}
	label, err := engine.Label()
	if err != nil {
		return nil, err
	}
	key, value, _ := strings.Cut(label, "=")
	labels := map[string]string{key: value}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return nil, err
	}
	e := &Ensemble{docker: docker}
	name, addrs, err := e.makeNetwork(ctx, labels)
	if err != nil {
		return e, err
	}
	// All at once: what takes the time is Java.
	errs := make([]error, nodes)
	var wg sync.WaitGroup
	for i := range nodes {
		e.servers[i] = &server{addr: addrs[i], running: true}
		wg.Go(func() {
			e.servers[i].ct, errs[i] = runServer(ctx, engine, name, labels, i, addrs)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return e, err
	}
	return e, e.WaitReady(ctx)
}

// Addrs are the host:port of all servers, running or not.
func (e *Ensemble) Addrs() []string {
	addrs := make([]string, nodes)
	for i, s := range e.servers {
		addrs[i] = s.clientAddr()
	}
	return addrs
}

// Cut takes a server off the network. It runs on and is told nothing; to its clients and to the other servers it falls silent.
func (e *Ensemble) Cut(node int) error {
	s := e.servers[node]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := e.docker.NetworkDisconnect(ctx, e.network, client.NetworkDisconnectOptions{Container: s.ct.GetContainerID()})
	if err != nil {
		return fmt.Errorf("zkcontainer: cutting server %d off: %w", node, err)
	}
	s.cut = true
	return nil
}

// Heal puts a server that was cut off back on the network, with the address that it had.
func (e *Ensemble) Heal(node int) error {
	s := e.servers[node]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := e.docker.NetworkConnect(ctx, e.network, client.NetworkConnectOptions{
		Container:      s.ct.GetContainerID(),
		EndpointConfig: endpoint(s.addr),
	})
	if err != nil {
		return fmt.Errorf("zkcontainer: putting server %d back: %w", node, err)
	}
	s.cut = false
	return nil
}

// Stop kills a server. Its data stays.
func (e *Ensemble) Stop(node int) error {
	s := e.servers[node]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	noGrace := time.Duration(0)
	if err := s.ct.Stop(ctx, &noGrace); err != nil {
		return fmt.Errorf("zkcontainer: stopping server %d: %w", node, err)
	}
	s.running = false
	return nil
}

// Start starts a server that was stopped, with its data and its address.
func (e *Ensemble) Start(node int) error {
	s := e.servers[node]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.ct.Start(ctx); err != nil {
		return fmt.Errorf("zkcontainer: starting server %d: %w", node, err)
	}
	s.running = true
	return nil
}

// WaitReady returns when every server that runs, and is not cut off, leads or follows.
func (e *Ensemble) WaitReady(ctx context.Context) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for node, s := range e.servers {
		for s.running && !s.cut && !s.serves(ctx) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("zkcontainer: server %d (%s) is not ready: %w", node, s.clientAddr(), context.Cause(ctx))
			case <-ticker.C:
			}
		}
	}
	return nil
}

// logs shows the end of what the servers have printed.
func (e *Ensemble) logs(tb testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for node, s := range e.servers {
		if s == nil || s.ct == nil {
			continue
		}
		r, err := s.ct.Logs(ctx)
		if err != nil {
			continue
		}
		b, _ := io.ReadAll(r)
		_ = r.Close()
		const most = 4096
		tb.Logf("server %d:\n%s", node, b[max(0, len(b)-most):])
	}
}

// close removes all.
func (e *Ensemble) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	errs := make([]error, nodes)
	var wg sync.WaitGroup
	for i, s := range e.servers {
		if s == nil || s.ct == nil {
			continue
		}
		wg.Go(func() { errs[i] = s.ct.Terminate(ctx, testcontainers.StopTimeout(0)) })
	}
	wg.Wait()
	err := errors.Join(errs...)
	if e.network != "" {
		_, removeErr := e.docker.NetworkRemove(ctx, e.network, client.NetworkRemoveOptions{})
		err = errors.Join(err, removeErr)
	}
	return errors.Join(err, e.docker.Close())
}
