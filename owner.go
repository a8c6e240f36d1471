package zkrecipes

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
)

// An Owner makes acquisitions re-entrant: within one Session, equal owners share one hold of a path. It is written into the znode as its data, where
// people and other clients can read it; it is a label, and others can forge it. Two Sessions never share a hold, whatever their owners.
type Owner string

const (
	maxOwner      = 64 << 10
	revokeMessage = "__REVOKE__" // Curator's; as an owner it would read as a request to give the lock back
)

// NewOwner returns an Owner that nobody else has.
func NewOwner() Owner { return Owner("owner-" + rand.Text()) }

type ownerKey struct{}

// ContextWithOwner returns a ctx whose acquisitions belong to o. It overrides WithOwner, and the lease that ctx may descend from: use
// ContextWithOwner(ctx, NewOwner()) for a goroutine that shall exclude its siblings.
func ContextWithOwner(ctx context.Context, o Owner) context.Context {
	return context.WithValue(ctx, ownerKey{}, o)
}

// OwnerFromContext returns the Owner that ContextWithOwner put into ctx.
func OwnerFromContext(ctx context.Context) (Owner, bool) {
	o, ok := ctx.Value(ownerKey{}).(Owner)
	return o, ok
}

func (o Owner) check() error {
	switch {
	case o == "":
		return invalid("empty owner")
	case o == revokeMessage:
		return invalid("owner %q: that is the message that asks a holder to give a lock back", revokeMessage)
	case len(o) > maxOwner:
		return invalid("owner of %d bytes, at most %d", len(o), maxOwner)
	}
	return nil
}

// holdKey is the identity of a hold in a Session. Made-up owners are their own, so that a given owner with the same text does not share their hold.
type holdKey struct {
	dir    string
	owner  Owner
	madeUp bool
	shared bool
	permit uint64 // not 0 where an owner is a label: each is its own
}

// other is the key of the hold that the same owner may have in the other mode.
func (k holdKey) other() holdKey {
	k.shared = !k.shared
	return k
}

var madeUp atomic.Uint64

// permitNo makes the keys of holds different whose owners are labels.
var permitNo atomic.Uint64

// makeOwner makes an owner up: the session's label, the pid, a counter.
func (s *Session) makeOwner() Owner {
	return Owner(s.label + strconv.FormatUint(madeUp.Add(1), 10))
}

// ownerLabel is what the owners that are made up in a session have in common.
func ownerLabel(name string) string {
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			name = "unknown"
		}
	}
	return fmt.Sprintf("%s/%d#", name, os.Getpid())
}

// identify decides who acquires: the owner in ctx, WithOwner, the lease of that path from which ctx descends, or a new one. Where an owner is a label it is
// another one each time, whatever the label says.
func (s *Session) identify(ctx context.Context, spec *lockSpec) (holdKey, error) {
	key := holdKey{dir: spec.dir, shared: spec.shared()}
	if spec.cfg.label {
		key.permit = permitNo.Add(1)
	}
	if o, ok := OwnerFromContext(ctx); ok {
		key.owner = o
		return key, o.check()
	}
	if spec.cfg.owner != nil {
		key.owner = *spec.cfg.owner
		return key, nil
	}
	if !spec.cfg.label {
		for l, ok := LeaseFromContext(ctx); ok && l != nil; l, ok = LeaseFromContext(l.from) {
			for _, leaf := range l.leaves() {
				if leaf.hold.s == s && leaf.hold.key.dir == spec.dir && leaf.hold.key.permit == 0 && leaf.Err() == nil {
					key.owner, key.madeUp = leaf.hold.key.owner, leaf.hold.key.madeUp
					return key, nil
				}
			}
		}
	}
	key.owner, key.madeUp = s.makeOwner(), true
	return key, nil
}
