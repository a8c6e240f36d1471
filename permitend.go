package zkrecipes

import (
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/core"
)

// How the machine of permits.go ends, by a grant or without one, and how it stands in the queue of locks.

// offer makes the lease, unless its caller has left or a clock speaks against it: see hold.granted.
func (p *permits) offer() verdict {
	s, holds := p.s, []*hold{p.h}
	for range p.n - 1 {
		key := p.h.key
		key.permit = permitNo.Add(1)
		holds = append(holds, &hold{s: s, key: key, spec: p.h.spec, limit: p.h.limit})
	}
	own := make([]*core.Sub, p.n)
	for i, m := range p.made {
		own[i] = p.e.Watch(m.Path, core.Data, func(w core.Wake) { holds[i].ownEvent(m.Path, w) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := p.h.stale(p.made[0].Session)
	if v != grantTaken {
		for _, sub := range own {
			sub.Cancel()
		}
		return v
	}
	j := p.h.joiners
	p.h.joiners = nil
	var parts []*Lease
	for i, h := range holds {
		if i > 0 {
			s.holds[h.key] = h
			h.limit.holds = append(h.limit.holds, h)
			p.e.Enter()
		}
		h.token = Token(p.made[i].Token)
		h.stand(newStake(h, p.made[i].Znode, own[i]))
		parts = append(parts, h.grant(j.ctx, j.spec))
	}
	lease := parts[0]
	if p.n > 1 {
		lease = newGroup(j.ctx, s, p.m.spec.path, parts, p.n)
	}
	for _, h := range holds {
		p.looks = append(p.looks, h.look)
	}
	p.leaveQueue() // the caller's next call finds it on its way out
	j.send(result{lease: lease})
	return grantTaken
}

// granted ends the machine: the leases are holds now.
func (p *permits) granted() bool {
	p.close()
	for _, look := range p.looks {
		look()
	}
	return true
}

// end leaves everything and tells the caller: the error, or with none that too few permits are free.
func (p *permits) end(err error) bool {
	removals := p.leave()
	p.close()
	if err == nil {
		p.gone(removals)
		err = &Error{Ahead: p.whoIsAhead(), Err: ErrHeld}
	}
	p.e.Leave()
	p.h.failed(err)
	return true
}

// gone waits until what a trial wrote is gone: it is in others' way until then, and in its own when it tries again.
func (p *permits) gone(removals []*core.Removal) {
	if !p.try {
		return
	}
	for _, r := range removals {
		select {
		case <-r.Done():
		case <-p.ctx.Done():
		case <-r.Refused(): // which was logged
		}
	}
}

// leave gives the own znodes to the reaper.
func (p *permits) leave() (removals []*core.Removal) {
	for _, m := range p.made {
		removals = append(removals, p.e.Remove(m.Path, m.Session))
	}
	p.made = nil
	p.leaveQueue()
	return removals
}

// leaveQueue gives up being first in locks.
func (p *permits) leaveQueue() {
	p.queueMu.Lock()
	first, own := p.first, p.own
	p.first, p.own = nil, nil
	p.queueMu.Unlock()
	if first != nil {
		p.s.heirs.letGo(p.e, first.Path, first.Session)
		own.Cancel()
		p.e.Leave()
	}
}

// close ends what the machine has under way.
func (p *permits) close() {
	p.queueMu.Lock()
	p.shut = true
	queue := p.queue
	p.queueMu.Unlock()
	if queue != nil {
		queue.cancel()
	}
	p.leaveQueue()
	if p.children != nil {
		p.children.Cancel()
	}
	if p.count != nil {
		p.count.Cancel()
	}
}

func (p *permits) wake()  { p.machine.wake(p.e, p) }
func (p *permits) Run()   { p.machine.run(p) }
func (p *permits) idle()  {}
func (p *permits) ended() { p.stop() }

func (p *permits) cancel() {
	p.stop()
	p.queueMu.Lock()
	queue := p.queue
	p.queueMu.Unlock()
	if queue != nil {
		queue.cancel()
	}
	p.wake()
}

func (p *permits) joinable(bool) bool { return false }

func (p *permits) whoIsAhead() Participants {
	p.queueMu.Lock()
	defer p.queueMu.Unlock()
	if p.queue != nil {
		return p.queue.whoIsAhead()
	}
	ahead := slices.Clone(p.ahead)
	for i := range ahead {
		ahead[i].Data = slices.Clone(ahead[i].Data)
	}
	return ahead
}

// queueing is the machine as its contender sees it.
type queueing struct{ *permits }

func (q queueing) granted(made core.Znode, own *core.Sub, _ bool) verdict {
	p := q.permits
	p.queueMu.Lock()
	defer p.queueMu.Unlock()
	switch {
	case p.shut || p.ctx.Err() != nil:
		return grantUnwanted
	case p.e.Left(made.Session) <= 0:
		return grantStale
	}
	p.first, p.own, p.queue = &made, own, nil
	p.wake()
	return grantTaken
}

func (q queueing) failed(err error) {
	p := q.permits
	p.queueMu.Lock()
	p.failure, p.queue = err, nil
	p.queueMu.Unlock()
	p.wake()
}

func (q queueing) data() []byte { return []byte(q.h.key.owner) }

func (q queueing) waiting(ahead int) { q.h.waiting(ahead) }

func (q queueing) ownEvent(string, core.Wake) {
	q.queueMu.Lock()
	queue := q.queue
	q.queueMu.Unlock()
	if queue != nil {
		queue.wake()
		return
	}
	q.permits.wake()
}

func (q queueing) look() {} // the machine looks when it has to wait
