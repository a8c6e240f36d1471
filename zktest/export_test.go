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

func (s *Server) PID() int {
	p, _ := s.process()
	return p.cmd.Process.Pid
}

func (s *Server) DataDir() string { return filepath.Join(s.dir, "data") }

func (e *Ensemble) Dir() string { return e.dir }

// Links is how many connections the proxy has.
func (p *Proxy) Links() int { return len(p.present()) }

func Outside(addr string) *Ensemble { return outside([]string{addr}) }

var OutsideAddrs = outsideAddrs
