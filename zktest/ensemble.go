package zktest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// Ensemble is one standalone server or a quorum of several. Its methods may be
// called from several goroutines.
type Ensemble struct {
	servers  []*Member
	backend  backend
	settings *settings
	dir      string
	ports    []int
	inner    *Server // in this process

	mu     sync.Mutex
	closed bool
}

// Start launches an ensemble that is closed with the test. When that is not
// possible the test fails with what to install or with the end of a server's
// log.
func Start(tb TB, opts ...Option) *Ensemble {
	tb.Helper()
	e, err := Launch(opts...)
	if err != nil {
		tb.Fatalf("%v", err)
		return nil
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Errorf("%v", err)
		}
	})
	return e
}

// Launch starts an ensemble and returns when all its servers serve. It runs what
// [Find] finds, or else what [FindDocker] does, unless $ZKTEST_REAL insists on
// one. The caller must Close it.
//
// Errors: one that wraps [ErrNotFound] when there is nothing to run,
// [ErrNotOwned] when $ZKTEST_REAL=addr rules out servers of its own, and others,
// with the end of a log, when a server does not start. Nothing is left running
// then.
func Launch(opts ...Option) (*Ensemble, error) {
	source, err := launchSource()
	if err != nil {
		return nil, err
	}
	set, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	b, err := findBackend(source)
	if err != nil {
		return nil, err
	}
	// Between the moment a port is found free and the moment the server binds
	// it, somebody else can take it.
	const attempts = 5
	for i := 1; ; i++ {
		e, err := launch(b, set)
		if err == nil || i == attempts || !errors.Is(err, errBind) {
			return e, err
		}
	}
}

func launch(b backend, set *settings) (_ *Ensemble, err error) {
	e := &Ensemble{backend: b, settings: set}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	if e.dir, err = os.MkdirTemp("", "zktest-"); err != nil {
		return nil, err
	}
	all := make([]ports, set.servers)
	for i := range all {
		p := &all[i]
		wanted := []*int{&p.client}
		if set.servers > 1 {
			wanted = append(wanted, &p.quorum, &p.election)
		}
		for _, w := range wanted {
			if *w, err = pool.take(); err != nil {
				return nil, err
			}
			e.ports = append(e.ports, *w)
		}
	}
	for i := range all {
		s := &Member{ens: e, id: i, addr: hostPort(all[i].client), dir: filepath.Join(e.dir, strconv.Itoa(i))}
		if err = writeConfig(set, i, s.dir, all); err != nil {
			return nil, err
		}
		e.servers = append(e.servers, s)
	}
	for _, s := range e.servers {
		if err = s.launch(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err = e.WaitReady(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// Addrs are the host:port of all servers, running or not.
func (e *Ensemble) Addrs() []string {
	addrs := make([]string, len(e.servers))
	for i, s := range e.servers {
		addrs[i] = s.addr
	}
	return addrs
}

// Server returns the i-th server, counted from 0.
func (e *Ensemble) Server(i int) *Member { return e.servers[i] }

// Servers returns all servers, running or not.
func (e *Ensemble) Servers() []*Member { return append([]*Member(nil), e.servers...) }

// Leader asks each server and returns the one that leads, a standalone server
// being its own leader. It is nil when none does, as during an election. A
// leader that was paused does not answer, so it is not found.
func (e *Ensemble) Leader() *Member {
	for _, s := range e.inMode("leader", "standalone") {
		return s
	}
	return nil
}

// Followers asks each server and returns those that follow a leader. A follower
// goes on saying so for up to SyncLimit ticks after its leader went silent.
func (e *Ensemble) Followers() []*Member { return e.inMode("follower") }

// inMode asks all servers at once: a silent one costs its timeout only once.
func (e *Ensemble) inMode(modes ...string) []*Member {
	found := make([]string, len(e.servers))
	var wg sync.WaitGroup
	for i, s := range e.servers {
		if _, paused := s.process(); paused || !s.Running() {
			continue
		}
		wg.Go(func() { found[i] = s.mode(context.Background()) })
	}
	wg.Wait()
	var in []*Member
	for i, s := range e.servers {
		for _, m := range modes {
			if found[i] == m {
				in = append(in, s)
			}
		}
	}
	return in
}

// WaitReady returns when every server that runs, and is not paused, serves
// clients; of a quorum that means that it leads or follows. It returns an error
// with the end of a server's log when a server ends meanwhile or ctx does.
func (e *Ensemble) WaitReady(ctx context.Context) error {
	for _, s := range e.servers {
		if s.dir == "" {
			if err := s.awaitOutside(ctx); err != nil {
				return err
			}
			continue
		}
		if !s.Running() && !s.died() {
			continue
		}
		if err := s.await(ctx, s.serves); err != nil {
			return err
		}
	}
	return nil
}

// died tells whether the process was started and ended without being told to.
func (s *Member) died() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc != nil && s.proc.ended()
}

func (e *Ensemble) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// Close kills all servers and removes their data. Further calls do nothing. On
// an ensemble that runs elsewhere it does nothing at all.
func (e *Ensemble) Close() error {
	e.mu.Lock()
	was := e.closed
	e.closed = true
	e.mu.Unlock()
	if was {
		return nil
	}
	for _, s := range e.servers {
		if s.dir == "" {
			continue
		}
		s.turn.Lock() // a Start under way is waited for
		if p, _ := s.process(); p != nil {
			p.kill()
		}
		s.mu.Lock()
		s.proc = nil
		s.mu.Unlock()
		s.turn.Unlock()
	}
	if e.inner != nil {
		e.inner.Close()
	}
	pool.give(e.ports...)
	if e.dir == "" {
		return nil
	}
	return os.RemoveAll(e.dir)
}
