package zkrecipes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// permits is the algorithm of a semaphore: it queues in locks, makes a znode for each permit in leases, waits until all of them are among the first, as many
// as there are permits, and offers the grant. It is one serial state machine, as the contender, which queues for it.
//
//	queueing --the contender is granted--> first --leases are made--> standing --all are among the first--> offered --> granted
//	    ^                                    |                          |  ^                                   |
//	    '------the znode in locks is gone, or its session is another----'  '------stale clock or session------'
//
//	a trial:  looking --enough are free--> leases are made --all are among the first--> offered --> granted
//	              '--------------------------------------'--too few--> over (ErrHeld)
//	any state, cancelled or refused -> over; the znodes are the reaper's
//
// The rule of the grant is safe by itself: what is before a lease can only go, so a lease that was once among the first limit stays there, and there are
// never more than limit of those. The queue in locks decides who comes next, and lets one at a time watch leases. Curator's clients hold that queue
// while they wait, too, and are granted when no more than limit znodes are in leases, which is stricter. So nobody may wait in leases who is not first in
// locks; a trial, which is, is gone at once.
//
// What requests may answer: creates, see core.Engine.Create. List and arming reads: a list that shows all the own leases is proof of what is before them; one
// that does not means that they are gone only if it was asked for after their creates and not shared with an earlier reader.
type permits struct {
	directory // leases
	machine
	s    *Session
	m    *Semaphore
	h    *hold // the first permit's
	n    int
	try  bool
	ctx  context.Context
	stop context.CancelFunc

	// Of the running step alone.
	made     []core.Created
	children *core.Sub // on leases
	count    *core.Sub // on the count, nil for a fixed number
	looks    []func()  // of the leases, once they are holds

	queueMu sync.Mutex
	queue   *contender   // while it queues
	first   *core.Znode  // the own znode in locks, when that is first
	own     *core.Sub    // on that
	failure error        // of the contender
	shut    bool         // no grant of the contender is taken any more
	ahead   Participants // of the leases, nearest first
}

func newPermits(m *Semaphore, h *hold, n int, try bool) *permits {
	s := m.spec.s
	p := &permits{s: s, m: m, h: h, n: n, try: try}
	ctx, stop := context.WithCancel(s.engine.Context())
	p.directory = directory{s.engine, znode.Join(m.spec.dir, leasesDir)}
	p.ctx, p.stop = ctx, stop
	p.e.Enter()
	return p
}

// follow subscribes to what decides about permits, once it is the own turn: those who queue are not woken by it.
func (p *permits) follow() {
	if p.children != nil {
		return
	}
	p.children = p.e.Watch(p.dir, core.Children, func(core.Wake) { p.wake() })
	if p.m.counted != "" {
		p.count = p.e.Watch(p.m.counted, core.Data, func(core.Wake) { p.wake() })
	}
}

// step looks until there is nothing to do but wait (false) or it is over (true).
func (p *permits) step() (over bool) {
	for {
		epoch, err := p.e.Await(p.ctx)
		if err != nil {
			return p.end(err)
		}
		session := epoch.Session
		if p.strayed(session) {
			p.gone(p.leave())
		}
		if !p.try {
			first, err := p.enter()
			if err != nil {
				return p.end(err)
			}
			if !first {
				return false
			}
		}
		p.follow()
		limit, counted, err := p.limit() // before anything is written
		if err != nil {
			return p.end(err)
		}
		if !p.try && p.n > limit && len(p.made) == 0 {
			switch at, err := p.waitForMore(session, counted); {
			case err != nil:
				return p.end(err)
			case at == behind:
				return false
			}
			continue
		}
		if p.try && len(p.made) == 0 {
			if taken, err := p.occupied(); err != nil || taken {
				return p.end(err)
			}
		}
		names, err := p.make()
		if err != nil {
			return p.end(err)
		}
		if p.strayed(session) {
			continue
		}
		var at standing
		if names != nil {
			at, err = p.stand(names, session)
		} else if p.try {
			at, err = p.look(session)
		}
		if err == nil && at != among && !p.try {
			at, err = p.wait(session)
		}
		if err != nil {
			return p.end(err)
		}
		switch {
		case at == among:
			switch p.offer() {
			case grantTaken:
				return p.granted()
			case grantUnwanted:
				return p.end(context.Canceled)
			case grantStale:
				p.e.Prove(p.ctx)
			}
		case at == behind && p.try:
			return p.end(nil)
		case at == behind:
			return false
		}
	}
}

// A standing is where the own leases are.
type standing int

const (
	unknown standing = iota // look again
	behind                  // at least one has too many before it
	among                   // all are among the first
)

// strayed reports whether a znode is of another session.
func (p *permits) strayed(session int64) bool {
	p.queueMu.Lock()
	defer p.queueMu.Unlock()
	return p.first != nil && p.first.Session != session || slices.ContainsFunc(p.made, func(m core.Created) bool { return m.Session != session })
}

// enter reports whether the own znode is first in locks, and queues there if it has none.
func (p *permits) enter() (first bool, err error) {
	p.queueMu.Lock()
	defer p.queueMu.Unlock()
	if err := p.ctx.Err(); err != nil { // cancel has found no contender here to end, and after Close none can be woken
		return false, err
	}
	if p.failure != nil {
		return false, p.failure
	}
	if p.first == nil && p.queue == nil {
		p.queue = newContender(p.e, &p.s.heirs, znode.Join(p.m.spec.dir, locksDir), znode.LockName, false, queueing{p})
		p.queue.wake()
	}
	return p.first != nil, nil
}

// newest reads how many permits there are, past what earlier readers were given: the answer is no older than that to any request before it.
func (p *permits) newest() (int, error) {
	if p.count == nil {
		return p.m.permits, nil
	}
	data, _, err := core.Read(p.ctx, p.e, func(c core.Conn) ([]byte, error) {
		data, _, err := c.Get(p.m.counted)
		return data, err
	})
	if err != nil {
		return 0, p.m.noCount(err)
	}
	return p.m.parse(data)
}

// limit reads how many permits there are, and follows it.
func (p *permits) limit() (int, core.Span, error) {
	if p.count == nil {
		return p.m.permits, core.Span{}, nil
	}
	for {
		node, span, err := p.count.Arm(p.ctx)
		switch {
		case err == nil:
			n, err := p.m.parse(node.Data)
			return n, span, err
		case errors.Is(err, zk.ErrNoNode):
			return 0, span, p.m.noCount(err)
		case !p.repeat(p.ctx, err):
			return 0, span, err
		}
	}
}

// occupied is the look of a trial before it writes anything: whether fewer permits are free than it and those who queue already, one for each, would take.
//
// Who is granted stands in leases and, for a moment, in locks as well, and is counted twice then. One that waits for permits is not: its leases are more than
// there are permits. So when it is for the queue alone that too few are free, a trial looks again, a few times.
func (p *permits) occupied() (bool, error) {
	for pause := passing; ; pause *= 2 {
		taken, queue, err := p.freeFor()
		if err != nil || !taken || !queue || pause > passing<<2 {
			return taken, err
		}
		select {
		case <-time.After(pause):
		case <-p.ctx.Done():
		}
	}
}

// passing is the first pause of a trial that finds somebody in locks.
const passing = 5 * time.Millisecond

// freeFor looks once; queue tells that too few are free for the sake of those in locks.
func (p *permits) freeFor() (taken, queue bool, err error) {
	locks := directory{p.e, znode.Join(p.m.spec.dir, locksDir)}
	type listed struct {
		names []string
		err   error
	}
	others := make(chan listed, 1)
	if !p.e.Go(func() {
		l, err := locks.list(p.ctx)
		others <- listed{slices.DeleteFunc(slices.Clone(l.Names), l.Leaving.Has), err}
	}) {
		return false, false, core.ErrClosed
	}
	l, err := p.list(p.ctx)
	waiting := <-others
	if err = cmp.Or(err, waiting.err); err != nil {
		return false, false, err
	}
	limit, _, err := p.limit()
	if err != nil {
		return false, false, err
	}
	p.e.Seen(p.dir, l.Names)
	p.e.Seen(locks.dir, waiting.names)
	leases, queued := parseAll(l.Names, znode.LeaseName), parseAll(waiting.names, znode.LockName)
	znode.SortBySeq(leases)
	znode.SortBySeq(queued)
	switch {
	case p.n > limit-len(leases):
		p.note(p.dir, leases)
		return true, false, nil
	case p.n > limit-len(leases)-len(queued):
		p.note(locks.dir, queued)
		return true, true, nil
	}
	return false, false, nil
}

func parseAll(names []string, marker string) (all []znode.Name) {
	for _, raw := range names {
		if n, ok := znode.Parse(raw, marker); ok {
			all = append(all, n)
		}
	}
	return all
}

// make makes the leases that are missing, all at once, and returns a list that shows all of them, nil when there is none. When the session changes under
// it some are of another one.
func (p *permits) make() (names []string, err error) {
	missing := p.n - len(p.made)
	made, errs := make([]core.Created, missing), make([]error, missing)
	var wg sync.WaitGroup
	for i := range missing {
		wg.Go(func() { made[i], errs[i] = p.e.Create(p.ctx, p.dir, znode.LeaseName, p.h.spec.data(p.h.key.owner)) })
	}
	wg.Wait()
	for i, m := range made {
		if errs[i] != nil {
			err = cmp.Or(err, errs[i])
		} else {
			p.made = append(p.made, m)
		}
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(p.made, func(a, b core.Created) int { return cmp.Compare(a.Token, b.Token) })
	for _, m := range made {
		if m.List.Names != nil && !slices.ContainsFunc(p.made, func(own core.Created) bool { return !slices.Contains(m.List.Names, own.Name()) }) {
			return m.List.Names, nil
		}
	}
	return nil, nil
}

// stand finds out where the own leases are in a list. It asks how many permits there are now: that may have changed since the leases were asked for, which
// can be long ago.
func (p *permits) stand(names []string, session int64) (standing, error) {
	p.e.Seen(p.dir, names)
	limit, _, err := p.limit()
	if err != nil {
		return unknown, err
	}
	all := parseAll(names, znode.LeaseName)
	if slices.ContainsFunc(all, func(n znode.Name) bool { return znode.Exhausted(n.Seq) }) {
		if all, err = p.byCzxid(p.ctx, all, session); err != nil {
			return unknown, err
		}
	} else {
		znode.SortBySeq(all)
	}
	found, last := 0, -1
	for i, n := range all {
		if p.owns(n.Raw) {
			found, last = found+1, i
		}
	}
	switch {
	case found < p.n:
		return unknown, nil
	case last < limit:
		// A list only ages to the good: what is before can only go. A number can also go down, so that on which it goes was asked for after the list.
		if limit, err = p.newest(); err != nil {
			return unknown, err
		}
		if last < limit {
			return among, nil
		}
	}
	p.note(p.dir, slices.DeleteFunc(all[:last], func(n znode.Name) bool { return p.owns(n.Raw) }))
	p.h.waiting(last + 1 - limit)
	return behind, nil
}

func (p *permits) owns(name string) bool {
	return slices.ContainsFunc(p.made, func(m core.Created) bool { return m.Name() == name })
}

// wait sets the watches on leases, on the own znode in locks and on the count, and looks. It reports behind only when all of them are outstanding on one
// connection. No event is lost in between: the subscriptions stand before the reads that set the watches.
func (p *permits) wait(session int64) (standing, error) {
	type listed struct {
		node core.Node
		span core.Span
		err  error
	}
	list := make(chan listed, 1)
	if !p.e.Go(func() {
		node, span, err := p.children.Arm(p.ctx)
		list <- listed{node, span, err}
	}) {
		return unknown, core.ErrClosed
	}
	own, err := p.watchOwn(session)
	leases := <-list
	switch {
	case err != nil || own == core.Span{}:
		return unknown, err
	case errors.Is(leases.err, zk.ErrNoNode):
		_, err := p.look(session)
		return unknown, err
	case leases.err != nil && !p.repeat(p.ctx, leases.err):
		return unknown, leases.err
	case leases.err != nil:
		return unknown, nil
	}
	_, counted, err := p.limit()
	if err != nil {
		return unknown, err
	}
	at, err := p.stand(leases.node.Children, session)
	if err != nil || at == among {
		return at, err
	}
	if at == unknown {
		// What an earlier reader was given may be older than the own leases. Then the event that they caused is on its way.
		if at, err = p.look(session); err != nil || at != behind {
			return at, err
		}
	}
	if !own.SameConn() || leases.span != own || p.count != nil && counted != own {
		return unknown, nil
	}
	p.describe()
	return behind, nil
}

// waitForMore waits for a count of as many permits as are asked for, first in locks and without leases, which could not be granted.
func (p *permits) waitForMore(session int64, counted core.Span) (standing, error) {
	p.note(p.dir, nil)
	own, err := p.watchOwn(session)
	switch {
	case err != nil || own == core.Span{}:
		return unknown, err
	case !counted.SameConn() || own != counted:
		return unknown, nil
	}
	return behind, nil
}

// watchOwn sets the watch on the own znode in locks. When somebody deleted that somebody else is first: everything is given up, and there is no span.
func (p *permits) watchOwn(session int64) (core.Span, error) {
	p.queueMu.Lock()
	own := p.own
	p.queueMu.Unlock()
	_, span, err := own.Arm(p.ctx)
	switch {
	case err == nil:
		return span, nil
	case errors.Is(err, zk.ErrNoNode) && span.SameSession() && span.After.Session == session:
		p.leave()
	case !errors.Is(err, zk.ErrNoNode) && !p.repeat(p.ctx, err):
		return core.Span{}, err
	}
	return core.Span{}, nil
}

// look lists, and drops the leases that somebody has deleted: they are gone for good, and so are their places.
func (p *permits) look(session int64) (standing, error) {
	l, err := p.list(p.ctx)
	if err != nil {
		return unknown, err
	}
	at, err := p.stand(l.Names, session)
	if at == unknown && err == nil && l.Span.SameSession() && l.Span.After.Session == session {
		p.made = slices.DeleteFunc(p.made, func(m core.Created) bool { return !slices.Contains(l.Names, m.Name()) })
	}
	return at, err
}

// note remembers who is ahead, for the error of a wait that ends without a grant; what is known of the nearest stays.
func (p *permits) note(dir string, ahead []znode.Name) {
	ps := nearestOf(dir, ahead)
	p.queueMu.Lock()
	defer p.queueMu.Unlock()
	if len(ps) > 0 && len(p.ahead) > 0 && p.ahead[0].Node == ps[0].Node {
		position := ps[0].Position
		ps[0] = p.ahead[0]
		ps[0].Position = position
	}
	p.ahead = ps
}

// describe reads who is nearest ahead, once.
func (p *permits) describe() {
	p.queueMu.Lock()
	var nearest Participant
	if len(p.ahead) > 0 {
		nearest = p.ahead[0]
	}
	p.queueMu.Unlock()
	if nearest.Node == "" || nearest.Session != 0 {
		return
	}
	_, err := p.e.Do(p.ctx, func(c core.Conn) error {
		data, stat, err := c.Get(nearest.Node)
		if err == nil {
			nearest.fill(data, stat)
		}
		return err
	})
	if err != nil {
		return
	}
	p.queueMu.Lock()
	defer p.queueMu.Unlock()
	if len(p.ahead) > 0 && p.ahead[0].Node == nearest.Node {
		p.ahead[0] = nearest
	}
}
