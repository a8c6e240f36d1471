package zkrecipes

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// Mode is the way in which a participant holds or wants to hold.
type Mode int

// The modes.
const (
	ModeExclusive Mode = iota // nobody else may hold
	ModeShared                // other shared ones may hold too
)

func (m Mode) String() string {
	if m == ModeShared {
		return "shared"
	}
	return "exclusive"
}

// A Participant is one znode in the queue of a lock.
type Participant struct {
	Node     string // absolute path of its znode
	Owner    Owner  // what its data says; empty once revoked or with WithData. Only Session proves who it is
	Data     []byte
	Session  int64
	Since    time.Time // when it was created, by the server's clock
	Token    Token
	Mode     Mode
	Holding  bool
	Position int // in the queue, from 0
}

// Participants is one snapshot in queue order.
type Participants []Participant

// Holders returns those who hold.
func (p Participants) Holders() Participants { return p.filter(true) }

// Waiters returns those who wait.
func (p Participants) Waiters() Participants { return p.filter(false) }

func (p Participants) filter(holding bool) Participants {
	return slices.DeleteFunc(slices.Clone(p), func(q Participant) bool { return q.Holding != holding })
}

// fill takes what a read of the znode returned.
func (p *Participant) fill(data []byte, stat *zk.Stat) {
	p.Data, p.Session, p.Token, p.Since = data, stat.EphemeralOwner, Token(stat.Czxid), time.UnixMilli(stat.Ctime)
	if o := Owner(data); o.check() == nil {
		p.Owner = o
	}
}

// participants reads a lock's queue.
func (spec *lockSpec) participants(ctx context.Context) (Participants, error) {
	const op = "participants"
	if spec.err != nil {
		return nil, &Error{Op: op, Path: spec.path, Err: spec.err}
	}
	ps, err := spec.s.readQueue(ctx, spec.dir)
	if err != nil {
		if ctx.Err() != nil {
			err = ended(ctx, spec.s.noSession() != nil, spec.s.engine.DialError(), nil, 0)
		}
		return nil, callError(op, spec.path, err)
	}
	if spec.cfg.hasData {
		for i := range ps {
			ps[i].Owner = ""
		}
	}
	return ps, nil
}

// readers is how many znodes of a queue are read at once.
const readers = 8

func (s *Session) readQueue(ctx context.Context, dir string) (Participants, error) {
	names, _, err := core.Read(ctx, s.engine, func(c core.Conn) ([]string, error) {
		names, _, err := c.Children(dir)
		return names, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.engine.Seen(dir, names)
	var queue []znode.Name
	for _, raw := range names {
		if n, ok := znode.Parse(raw, markers...); ok {
			queue = append(queue, n)
		}
	}
	znode.SortBySeq(queue)
	type read struct {
		data []byte
		stat *zk.Stat
		err  error
	}
	reads := make([]read, len(queue))
	var wg sync.WaitGroup
	places := make(chan struct{}, readers)
	for i, n := range queue {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			r, _, err := core.Read(ctx, s.engine, func(c core.Conn) (r read, err error) {
				r.data, r.stat, err = c.Get(znode.Join(dir, n.Raw))
				return r, err
			})
			r.err = err
			reads[i] = r
		})
	}
	wg.Wait()
	var ps Participants
	byCzxid := false
	for i, n := range queue {
		r := reads[i]
		if errors.Is(r.err, zk.ErrNoNode) {
			continue // gone since
		}
		if r.err != nil {
			return nil, r.err
		}
		p := Participant{Node: znode.Join(dir, n.Raw)}
		p.fill(r.data, r.stat)
		if !n.Exclusive() {
			p.Mode = ModeShared
		}
		byCzxid = byCzxid || znode.Exhausted(n.Seq)
		ps = append(ps, p)
	}
	if byCzxid {
		slices.SortStableFunc(ps, func(a, b Participant) int { return int(min(max(a.Token-b.Token, -1), 1)) })
	}
	writers := 0
	for i := range ps {
		ps[i].Position = i
		ps[i].Holding = i == 0 || ps[i].Mode == ModeShared && writers == 0
		if ps[i].Mode == ModeExclusive {
			writers++
		}
	}
	s.labelOwn(ps)
	return ps, nil
}

// labelOwn corrects the owners of this session's own holds, whose data may be no owner.
func (s *Session) labelOwn(ps Participants) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := make(map[string]*hold)
	for _, h := range s.holds {
		if h.phase == held {
			own[h.node] = h
		}
	}
	for i := range ps {
		if h := own[ps[i].Node]; h != nil && h.spec.cfg.hasData {
			ps[i].Owner = ""
		}
	}
}
