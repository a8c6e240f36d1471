package zkrecipes

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// lastNested is where the counter of a directory comes so near to its limit that order by number may end while a read is held.
const lastNested = math.MaxInt32 - 1<<20

// errQueue tells a caller that was to read under its owner's write lock that this one has ended: it has to queue like anybody else.
var errQueue = errors.New("the write lease has ended")

// A nest makes the znode of a read under its owner's write hold. It takes the writer's number, so that it stands where the writer stood when that one has
// gone, and it is made in one transaction with the proof that the writer's znode is still there: after that one's end somebody else may hold.
//
//	creating --made-----------> offered --> granted
//	    |  '--writer is gone--> over: its callers queue (errQueue)
//	    '-----error, cancelled--> over; the znode, if there is one, is the reaper's
//
// While it is creating, the writer's znode stays even if the last write lease is released.
type nest struct {
	h      *hold  // the read hold
	writer *stake // where the write hold stood when this began
	name   string
	ctx    context.Context // ends with cancel
	stop   context.CancelFunc
}

// nestedName is what a read under the write hold of a znode is called; ok is false when it has to share that znode: a mutex's, because a Java mutex would
// not see a read node in its place, or one whose number may soon not tell the order any more.
func nestedName(node string) (name string, ok bool) {
	_, raw := znode.Split(node)
	n, ok := znode.Parse(raw, znode.WriteName)
	if !ok || n.Seq < 0 || n.Seq >= lastNested {
		return "", false
	}
	return fmt.Sprintf("%s%010d", znode.ReadName, n.Seq), true
}

// startUnder starts a read hold under a write hold, with a znode of its own or on the writer's; mu is held.
func (s *Session) startUnder(w *hold, key holdKey, spec *lockSpec) *hold {
	h := s.newHold(key, spec)
	h.token = w.token // its own znode's would be greater than a writer's that waits already
	h.limit = w.limited()
	h.limit.holds = append(h.limit.holds, h)
	name, ok := nestedName(w.stake.node)
	if !ok {
		s.engine.Enter()
		h.stand(w.stake)
		return h
	}
	n := &nest{h: h, writer: w.stake, name: name}
	n.writer.nested = true
	n.ctx, n.stop = context.WithCancel(s.engine.Context())
	h.seeker = n
	if s.engine.Go(n.run) { // else Close has begun, and ends the hold
		n.writer.nests++
		s.engine.Enter()
	}
	return h
}

func (n *nest) run() {
	s := n.h.s
	err := n.make()
	n.stop()
	s.mu.Lock()
	n.writer.nests--
	n.writer.settle()
	s.mu.Unlock()
	if err != nil {
		s.engine.Leave()
		n.h.failed(err)
		return
	}
	n.h.look()
}

// make returns nil when the read was granted.
func (n *nest) make() error {
	h, e := n.h, n.h.s.engine
	made, err := e.CreateBeside(n.ctx, n.writer.node, n.name, h.spec.data(h.key.owner))
	if errors.Is(err, zk.ErrNoNode) {
		// The write hold may not know it yet; while it stands there, its owner's next read would come here again.
		n.writer.missing()
		return errQueue
	}
	if err != nil {
		return err
	}
	own := e.Watch(made.Path, core.Data, func(w core.Wake) { h.ownEvent(made.Path, w) })
	for {
		v := h.granted(made.Znode, own, false)
		if v == grantTaken {
			return nil
		}
		if v == grantStale {
			e.Prove(n.ctx)
			if n.ctx.Err() == nil && !e.Over(made.Session) {
				continue
			}
		}
		e.Remove(made.Path, made.Session)
		own.Cancel()
		return errQueue
	}
}

func (n *nest) cancel() { n.stop() }

func (n *nest) whoIsAhead() Participants { return nil }

func (n *nest) joinable(bool) bool { return true } // nobody can stand in its way
