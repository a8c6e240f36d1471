package core

import (
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// An Heir is a znode that takes the place of another one: it stands right behind that, and is granted what that had, if both happens in one transaction:
// the other one is deleted, and the heir is found to exist.
type Heir struct {
	Path  string
	Epoch Epoch             // where it was found to stand there; the transaction is sent, and counts, on that connection only
	Told  func(handed bool) // called once, on the engine's goroutines; it must not block
}

// HandOver is Remove, with an heir. What the heir is told is of no consequence for the removal, which goes on as any other:
//
//	sent --succeeded, on the connection of the heir--> gone; handed
//	  |----succeeded, but that connection is over-----> gone; not handed
//	  |----the znode is not there, or may not go------> as a delete that was answered so; not handed
//	  |----the heir is not there, or anything else----> not handed; deleted alone
//	  |----no answer, which decides nothing-----------> not handed; deleted alone, and it may have been gone already
//	not sent: another connection, no session, over----> not handed; deleted alone
//
// There is one attempt. A transaction that comes into effect late deletes what has to go anyway; that it checks the heir changes nothing.
func (e *Engine) HandOver(path string, session int64, heir Heir) *Removal {
	r := e.reaper.known(path, session)
	r.heir = &heir
	got := e.reaper.add(r)
	if got != r { // it is owed already
		heir.Told(false)
	}
	return got
}

// takeHeir returns the heir to whoever will tell it, nil if there is none or somebody has it already.
func (rp *reaper) takeHeir(r *Removal) *Heir {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	heir := r.heir
	r.heir = nil
	return heir
}

// tellHeir tells an heir that nobody has taken.
func (rp *reaper) tellHeir(r *Removal, handed bool) {
	if heir := rp.takeHeir(r); heir != nil {
		heir.Told(handed)
	}
}

// deleteFor makes the attempt with an heir, tells it, and reports whether the znode has yet to be deleted alone.
func (rp *reaper) deleteFor(r *Removal, heir *Heir) (again bool) {
	handed, alone, err := rp.handOver(r, heir)
	if !handed {
		heir.Told(false) // at once: what follows may take long
		return alone || rp.answered(r, err)
	}
	again = rp.answered(r, nil)
	heir.Told(r.err == nil) // else the session has ended first
	return again
}

// handOver sends the transaction. alone says that what is known of the znode is no more than before; else err is as that of a delete.
func (rp *reaper) handOver(r *Removal, heir *Heir) (handed, alone bool, err error) {
	var answers []zk.MultiResponse
	sent := false
	span, err := rp.e.do(rp.e.life, rp.e.life, func(c Conn) (err error) {
		select {
		case <-r.done:
			return nil
		default:
		}
		if rp.e.contact.Epoch() != heir.Epoch {
			return nil
		}
		sent = true
		answers, err = c.Multi(
			&zk.DeleteRequest{Path: znode.Join(r.dir, r.name), Version: -1},
			&zk.CheckVersionRequest{Path: heir.Path, Version: -1},
		)
		return err
	})
	switch {
	case !sent:
		return false, true, nil
	case err == nil && len(answers) == 2 && FailedOp(answers) < 0:
		return span.Before == heir.Epoch && span.After == heir.Epoch, false, nil
	case err != nil && Classify(err) == Answered && FailedOp(answers) == 0:
		return false, false, err
	}
	rp.mu.Lock()
	defer rp.mu.Unlock()
	r.tried = r.tried || err == nil || MayHaveApplied(err)
	return false, true, err
}
