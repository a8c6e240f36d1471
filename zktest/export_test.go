package zktest

import "path/filepath"

// What the tests of package zktest_test need from inside.

const MaxRecords = maxRecords

var (
	FindJars  = findJars
	FindJava  = findJava
	TakePort  = pool.take
	GivePort  = func(port int) { pool.give(port) }
	FirstPort = firstPort
	LastPort  = lastPort
)

// InDocker tells whether servers are launched in containers when source is
// insisted on.
func InDocker(source string) bool {
	b, err := findBackend(source)
	_, in := b.(Docker)
	return err == nil && in
}

var (
	ProcessName = processName
	Gone        = gone
)

const LabelKey = labelKey

func (s *Member) PID() int {
	p, _ := s.process()
	return p.pid()
}

func (s *Member) DataDir() string { return filepath.Join(s.dir, "data") }

func (e *Ensemble) Dir() string { return e.dir }

// Links is how many connections the proxy has.
func (p *Proxy) Links() int { return len(p.present()) }

// Lost is the directions in which the proxy's connections have lost something in
// a black hole.
func (p *Proxy) Lost() (d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		d |= l.lost
	}
	return d
}

// HoldFaults keeps black holes and stalls from being opened and healed until
// release.
func (p *Proxy) HoldFaults() (release func()) {
	p.faults.Lock()
	return p.faults.Unlock
}

func Outside(addr string) *Ensemble { return outside([]string{addr}) }

var OutsideAddrs = outsideAddrs
