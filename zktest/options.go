package zktest

import (
	"fmt"
	"strings"
	"time"
)

// Option changes how [Launch] and [Start] set a server up.
type Option interface{ apply(*settings) }

type optionFunc func(*settings)

func (f optionFunc) apply(s *settings) { f(s) }

// settings are what the options add up to.
type settings struct {
	servers    int
	tick       time.Duration
	initLimit  int
	syncLimit  int
	properties []keyValue    // lines of zoo.cfg, later ones win
	system     []keyValue    // -D arguments, later ones win
	reap       time.Duration // how often a Server looks for what can go
}

type keyValue struct{ key, value string }

// launcherKeys are the lines of zoo.cfg that the launcher must decide itself.
var launcherKeys = []string{"dataDir", "dataLogDir", "clientPort", "clientPortAddress", "secureClientPort", "dynamicConfigFile"}

func newSettings(opts []Option) (*settings, error) {
	s := &settings{servers: 1, tick: 200 * time.Millisecond, initLimit: 20, syncLimit: 10, reap: containerCheck}
	for _, o := range opts {
		o.apply(s)
	}
	switch {
	case s.servers < 1:
		return nil, fmt.Errorf("zktest: Servers(%d): at least one server is needed", s.servers)
	case s.tick < time.Millisecond:
		return nil, fmt.Errorf("zktest: TickTime(%v): ZooKeeper counts in whole milliseconds, at least one", s.tick)
	case s.syncLimit < 1:
		return nil, fmt.Errorf("zktest: SyncLimit(%d): at least one tick is needed", s.syncLimit)
	}
	for _, p := range s.properties {
		for _, own := range launcherKeys {
			if p.key == own {
				return nil, fmt.Errorf("zktest: Property(%q): the launcher sets this line itself", p.key)
			}
		}
		if strings.HasPrefix(p.key, "server.") {
			return nil, fmt.Errorf("zktest: Property(%q): say Servers(n) instead", p.key)
		}
	}
	return s, nil
}

// Servers sets how many servers to run. The default is 1, a standalone server;
// more form a quorum.
func Servers(n int) Option { return optionFunc(func(s *settings) { s.servers = n }) }

// TickTime sets the server's unit of time, 200 ms by default. Sessions may be
// as short as two ticks or 400 ms, whichever is less, and are expired at the
// next full tick.
func TickTime(d time.Duration) Option { return optionFunc(func(s *settings) { s.tick = d }) }

// SyncLimit sets after how many ticks of silence a leader and a follower give
// each other up, 10 by default. It bounds how long a test that pauses a leader
// waits for the next one.
func SyncLimit(ticks int) Option { return optionFunc(func(s *settings) { s.syncLimit = ticks }) }

// Property sets a line of zoo.cfg, in place of the default for that key if
// there is one. Ports, directories and the list of servers cannot be set.
func Property(key, value string) Option {
	return optionFunc(func(s *settings) { s.properties = append(s.properties, keyValue{key, value}) })
}

// SystemProperty sets a Java system property of the server, for what zoo.cfg
// cannot say. By default znode.container.checkIntervalMs is 1000, so that a
// test meets the removal of empty containers instead of outrunning it.
func SystemProperty(key, value string) Option {
	return optionFunc(func(s *settings) { s.system = append(s.system, keyValue{key, value}) })
}
