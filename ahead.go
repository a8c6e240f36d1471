package zkrecipes

import (
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/core"
	"github.com/zkrecipes/zkrecipes/internal/znode"
)

// mostNamed is how many of those ahead an error names: every waiter keeps them, and a queue may be long.
const mostNamed = 8

// An aheadNote is who was in a waiter's way when it last looked. It is read when the wait ends in an error, if ever, and every waiter has one: it is kept
// packed.
type aheadNote struct {
	mu    sync.Mutex
	count int      // of all in the way
	names string   // of those who are named, packed, nearest first
	data  []byte   // of the nearest,
	stat  *zk.Stat // nil while it has not been read
}

// note remembers who is ahead, the last one nearest. That is read when its watch is set; before, without a Stat, what is known of it stays.
func (a *aheadNote) note(ahead []znode.Name, nearest core.Node) {
	last := ahead[len(ahead)-1]
	var room [mostNamed * znode.PackedLen]byte
	names := room[:0]
	for i := len(ahead) - 1; i >= max(0, len(ahead)-mostNamed); i-- {
		names = znode.AppendPacked(names, ahead[i])
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if nearest.Stat != nil || !znode.FirstPacked(a.names, last) {
		a.data, a.stat = nearest.Data, nearest.Stat
	}
	if a.count = len(ahead); a.names != string(names) {
		a.names = string(names)
	}
}

// participants returns them, nearest first. They are the caller's.
func (a *aheadNote) participants(dir string) Participants {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ps Participants
	for rest := []byte(a.names); len(rest) > 0; {
		var raw string
		raw, rest = znode.Unpack(rest)
		n, _ := znode.Parse(raw, queueMarkers...)
		ps = append(ps, inQueue(dir, n, a.count-1-len(ps)))
	}
	if len(ps) > 0 && a.stat != nil {
		ps[0].fill(slices.Clone(a.data), a.stat)
	}
	return ps
}

// queueMarkers are the names of everything that may be in somebody's way.
var queueMarkers = append(slices.Clone(markers), znode.LatchName, znode.LeaseName)

// nearestOf returns those of a queue who stand right before its end, nearest first.
func nearestOf(dir string, ahead []znode.Name) Participants {
	ps := make(Participants, 0, min(len(ahead), mostNamed))
	for i := len(ahead) - 1; i >= 0 && len(ps) < mostNamed; i-- {
		ps = append(ps, inQueue(dir, ahead[i], i))
	}
	return ps
}

// inQueue is what a name says of who has it.
func inQueue(dir string, n znode.Name, position int) Participant {
	p := Participant{Node: znode.Join(dir, n.Raw), Position: position}
	switch n.Marker {
	case znode.ReadName, znode.KazooRead, znode.LeaseName:
		p.Mode = ModeShared
	}
	return p
}
