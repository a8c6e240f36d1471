package zktest

import "strings"

// A watchMode is what a watch is told of, and how often.
type watchMode uint8

const (
	watchOnce      watchMode = iota // exists, getData, getChildren
	watchLasting                    // addWatch, persistent: everything about one znode
	watchRecursive                  // addWatch, persistent: creates, deletes and data of a znode and all below it
)

// A watchTable is one of the two that the server has: of data, which exists and getData fill, and of children, which getChildren fills. A watch that lasts
// is in both. A connection has one watch of a path in each, in the mode in which it was last set: a getData takes the permanence out of a persistent
// watch, as on ZooKeeper 3.8.
type watchTable struct {
	of        map[string]map[*peer]watchMode
	recursive int // how many are
}

// watches are who has to be told of a change. A watcher is a connection: its watches go with it.
type watches struct{ data, children watchTable }

func newWatches() *watches {
	w := new(watches)
	w.data.of, w.children.of = make(map[string]map[*peer]watchMode), make(map[string]map[*peer]watchMode)
	return w
}

// A watchRef names one watch of a connection.
type watchRef struct {
	table *watchTable
	path  string
}

func (t *watchTable) add(path string, p *peer, mode watchMode) {
	if p.over() {
		return
	}
	t.remove(path, p)
	m := t.of[path]
	if m == nil {
		m = make(map[*peer]watchMode)
		t.of[path] = m
	}
	m[p] = mode
	p.watching[watchRef{t, path}] = struct{}{}
	if mode == watchRecursive {
		t.recursive++
	}
}

func (t *watchTable) remove(path string, p *peer) bool {
	mode, ok := t.of[path][p]
	if !ok {
		return false
	}
	delete(t.of[path], p)
	if len(t.of[path]) == 0 {
		delete(t.of, path)
	}
	delete(p.watching, watchRef{t, path})
	if mode == watchRecursive {
		t.recursive--
	}
	return true
}

// addBoth sets a watch that lasts.
func (w *watches) addBoth(path string, p *peer, mode watchMode) {
	w.data.add(path, p, mode)
	w.children.add(path, p, mode)
}

// forget drops all watches of a connection that has ended.
func (w *watches) forget(p *peer) {
	for ref := range p.watching {
		ref.table.remove(ref.path, p)
	}
}

// contains is what checkWatches asks, which on ZooKeeper 3.8 is whether anybody watches the path, or the connection watches it recursively. It goes up the
// path only when there is a recursive watch, which shows in a path that is none: false and true are answers, an error is one of the server's own.
func (t *watchTable) contains(path string, p *peer) (bool, code) {
	mode := t.of[path][p]
	for at := path; at != ""; {
		above := ""
		if at != "/" {
			i := strings.LastIndexByte(at, '/')
			if i < 0 {
				return false, codeMarshalling
			}
			above = at[:max(i, 1)]
		}
		if at == path && len(t.of[at]) > 0 || mode == watchRecursive {
			return true, codeOK
		}
		if t.recursive == 0 {
			break
		}
		at = above
	}
	return false, codeOK
}

// tell sends the events of a change: first of the znode itself, then of its parent's children. A connection that watches the same thing in several ways
// is told once.
func (w *watches) tell(c change) {
	told := w.data.trigger(c.path, c.event, c.acl, nil)
	if c.event == eventDeleted {
		w.children.trigger(c.path, c.event, c.acl, told)
	}
	if c.event == eventData || c.path == "/" {
		return
	}
	parent, _ := splitPath(c.path)
	w.children.trigger(parent, eventChildren, c.above, nil)
}

// trigger tells those who watch and may read, but for some who have been told, and ends the watches that are good for one event.
func (t *watchTable) trigger(path string, event eventType, acl []aclEntry, but map[*peer]struct{}) map[*peer]struct{} {
	told := make(map[*peer]struct{})
	for p, mode := range t.of[path] {
		if mode == watchRecursive {
			continue
		}
		told[p] = struct{}{}
		if mode == watchOnce {
			t.remove(path, p)
		}
	}
	if t.recursive > 0 && event != eventChildren {
		for at := path; ; at, _ = splitPath(at) {
			for p, mode := range t.of[at] {
				if mode == watchRecursive {
					told[p] = struct{}{}
				}
			}
			if at == "/" {
				break
			}
		}
	}
	for p := range told {
		if _, known := but[p]; !known && allowed(acl, permRead, p.auth) {
			p.event(event, path)
		}
	}
	return told
}
