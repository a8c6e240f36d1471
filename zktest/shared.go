package zktest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	envServers = "ZKTEST_SERVERS"
	envReal    = "ZKTEST_REAL"

	sourceAny    = ""
	sourceLocal  = "local"
	sourceDocker = "docker"
	sourceAddr   = "addr"
)

// realSource reads which source of a ZooKeeper is insisted on.
func realSource() (string, error) {
	switch v := os.Getenv(envReal); v {
	case sourceAny, sourceLocal, sourceDocker:
		return v, nil
	case sourceAddr:
		if len(outsideAddrs()) == 0 {
			return "", fmt.Errorf("zktest: $%s=%s needs $%s=host:port[,host:port...]", envReal, v, envServers)
		}
		return v, nil
	default:
		return "", fmt.Errorf("zktest: $%s=%q is unknown; it may be %q (a server that runs already, named by $%s), %q (launched from this machine's ZooKeeper), %q (launched in containers), or unset",
			envReal, v, sourceAddr, envServers, sourceLocal, sourceDocker)
	}
}

// outsideAddrs are the servers that $ZKTEST_SERVERS names.
func outsideAddrs() []string {
	var addrs []string
	for _, a := range strings.Split(os.Getenv(envServers), ",") {
		if a = strings.TrimSpace(a); a == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(a); err != nil {
			a = net.JoinHostPort(strings.Trim(a, "[]"), "2181")
		}
		addrs = append(addrs, a)
	}
	return addrs
}

var shared struct {
	mu  sync.Mutex
	ens *Ensemble
	err error
}

// Shared returns one ensemble for all the tests of the process, so that those
// which only need some ZooKeeper do not wait for one each. It is the servers named
// by $ZKTEST_SERVERS, or one launched with the default options where $ZKTEST_REAL
// says from what ("local" or "docker"), or else, as where nothing but Go is
// installed, a [Server] in this process. The same tests run on all of them. They
// must keep to paths of their own, and must not stop it: methods that control a
// server from outside return [ErrNotOwned].
//
// A TestMain must call [CloseShared] after the tests. When the ZooKeeper that was
// named is not to be had, every test that asks for it fails with the reason.
func Shared(tb TB) *Ensemble {
	tb.Helper()
	shared.mu.Lock()
	if shared.ens == nil && shared.err == nil {
		shared.ens, shared.err = openShared()
	}
	ens, err := shared.ens, shared.err
	shared.mu.Unlock() // before Fatalf, which may not return
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return ens
}

func openShared() (*Ensemble, error) {
	source, err := realSource()
	if err != nil {
		return nil, err
	}
	addrs := outsideAddrs()
	switch {
	case source == sourceLocal || source == sourceDocker:
		return Launch()
	case len(addrs) == 0:
		return inProcess()
	}
	e := outside(addrs)
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := e.WaitReady(ctx); err != nil {
		return nil, fmt.Errorf("%w; $%s=%s", err, envServers, os.Getenv(envServers))
	}
	return e, nil
}

// inProcess is an ensemble of one server in this process.
func inProcess() (*Ensemble, error) {
	s, err := LaunchServer()
	if err != nil {
		return nil, err
	}
	addr, err := s.open()
	if err != nil {
		s.Close()
		return nil, err
	}
	e := outside([]string{addr})
	e.inner = s
	return e, nil
}

// outside is an ensemble that is not ours to control.
func outside(addrs []string) *Ensemble {
	e := &Ensemble{}
	for i, a := range addrs {
		e.servers = append(e.servers, &Member{ens: e, id: i, addr: a})
	}
	return e
}

// CloseShared closes what [Shared] has opened, if anything. Call it in TestMain
// after the tests have run and before a check for leaked goroutines.
func CloseShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	e := shared.ens
	shared.ens, shared.err = nil, nil
	if e == nil {
		return nil
	}
	return e.Close()
}

// awaitOutside waits until a server from outside opens a session. Four-letter
// words may be forbidden there.
func (s *Member) awaitOutside(ctx context.Context) error {
	ticker := time.NewTicker(10 * pollInterval)
	defer ticker.Stop()
	for {
		err := probe(ctx, s.addr)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return s.errorf("no session within the time given: %w", errors.Join(context.Cause(ctx), err))
		case <-ticker.C:
		}
	}
}
