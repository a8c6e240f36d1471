package zktest

import (
	"maps"
	"sync"
	"time"
)

// Record is one request that reached the proxy.
type Record struct {
	Time time.Time // when it was about to be forwarded
	Conn int       // which connection of this proxy, counted from 0
	Op   Op
	Xid  int32
	Path string
	Size int // of the whole frame, without the length

	Fate Fate

	// Answered tells that the server's reply has reached the proxy; Err and
	// Zxid are that reply's.
	Answered bool
	Err      int32
	Zxid     int64
}

// Fate is what became of a request at the proxy.
type Fate uint8

// The fates. A record of a request that is still on its way changes in later
// calls of [Proxy.Requests].
const (
	FateWaiting   Fate = iota // held by a gate, a stall or a Call
	FateForwarded             // sent to the server
	FateCutBefore             // not forwarded, connection reset
	FateCutAfter              // forwarded; the reply dropped, connection reset
	FateSwallowed             // lost in a black hole, not forwarded
	FateReplyLost             // forwarded; the reply dropped or lost in a black hole
)

var fateNames = [...]string{"waiting", "forwarded", "cut before", "cut after", "swallowed", "reply lost"}

// String describes the fate in a word or two.
func (f Fate) String() string {
	if int(f) < len(fateNames) {
		return fateNames[f]
	}
	return "unknown"
}

// Counts are the totals since a proxy was made or [Proxy.ResetCounters].
type Counts struct {
	Requests map[Op]int // by kind, whatever their fate
	Events   int        // watch events from the server, whatever their fate
	ToServer int64      // bytes forwarded, lengths included
	ToClient int64
}

// Total is the number of requests but connects and pings: what the client was
// asked to do, without what it does by itself to stay connected.
func (c Counts) Total() int {
	total := 0
	for op, n := range c.Requests {
		if AllRequests(Frame{Op: op}) {
			total += n
		}
	}
	return total
}

// maxRecords is how many requests a proxy remembers.
const maxRecords = 100_000

// journal is what a proxy has seen.
type journal struct {
	mu      sync.Mutex
	ring    []*Record // the last maxRecords, from next on when full
	next    int
	counts  Counts
	session session
}

func (j *journal) reset() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ring, j.next, j.counts = nil, 0, Counts{}
}

func (j *journal) request(r *Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.counts.Requests == nil {
		j.counts.Requests = map[Op]int{}
	}
	j.counts.Requests[r.Op]++
	if len(j.ring) < maxRecords {
		j.ring = append(j.ring, r)
		return
	}
	j.ring[j.next] = r
	j.next = (j.next + 1) % maxRecords
}

func (j *journal) event() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counts.Events++
}

func (j *journal) forwarded(d Direction, bytes int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if d == ToServer {
		j.counts.ToServer += int64(bytes)
	} else {
		j.counts.ToClient += int64(bytes)
	}
}

// update changes a record, which may be nil.
func (j *journal) update(r *Record, change func(*Record)) {
	if r == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	change(r)
}

func (j *journal) fate(r *Record, f Fate) { j.update(r, func(r *Record) { r.Fate = f }) }

func (j *journal) records() []Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := make([]Record, 0, len(j.ring))
	for i := range j.ring {
		all = append(all, *j.ring[(j.next+i)%len(j.ring)])
	}
	return all
}

func (j *journal) totals() Counts {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.counts
	c.Requests = maps.Clone(c.Requests)
	return c
}

func (j *journal) setSession(s session) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.session = s
}

func (j *journal) lastSession() session {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.session
}
