package zktest

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// code is an error of the protocol, 0 for none.
type code int32

const (
	codeOK                    code = 0
	codeRuntimeInconsistency  code = -2
	codeMarshalling           code = -5
	codeUnimplemented         code = -6
	codeBadArguments          code = -8
	codeNoNode                code = -101
	codeNoAuth                code = -102
	codeBadVersion            code = -103
	codeNoChildrenOfEphemeral code = -108
	codeNodeExists            code = -110
	codeNotEmpty              code = -111
	codeSessionExpired        code = -112
	codeInvalidACL            code = -114
	codeAuthFailed            code = -115
	codeNoWatcher             code = -121
	codeReconfigDisabled      code = -123
)

// nodeKind is what becomes of a znode by itself.
type nodeKind uint8

const (
	kindPersistent nodeKind = iota
	kindEphemeral           // goes with its session
	kindContainer           // goes when it has become empty
	kindMortal              // goes when it is empty and was not changed for its time to live
)

// A node is one znode. What is not computed of its Stat is kept as the server keeps it.
type node struct {
	data                []byte
	acl                 []aclEntry
	kind                nodeKind
	owner               int64 // session of an kindEphemeral
	ttl                 time.Duration
	czxid, mzxid, pzxid int64
	ctime, mtime        int64 // ms
	version, aversion   int32
	made                int32 // how many children were ever created: what sequence numbers are taken from
	children            map[string]struct{}
}

// statOf is a Stat as it goes over the wire.
type statOf struct {
	czxid, mzxid, ctime, mtime  int64
	version, cversion, aversion int32
	owner                       int64
	dataLength, numChildren     int32
	pzxid                       int64
}

func (n *node) stat() statOf {
	s := statOf{
		czxid: n.czxid, mzxid: n.mzxid, ctime: n.ctime, mtime: n.mtime, version: n.version, aversion: n.aversion,
		dataLength: int32(len(n.data)), numChildren: int32(len(n.children)), pzxid: n.pzxid,
		// A version that counts deletes as well, computed from the number of creates.
		cversion: n.made*2 - int32(len(n.children)),
	}
	if n.kind == kindEphemeral {
		s.owner = n.owner
	}
	return s
}

// A tree is the znodes by path. Those that go by themselves it knows by what ends them, so that nobody has to look at all.
type tree struct {
	nodes      map[string]*node
	ephemerals map[int64]map[string]struct{} // by session
	mortals    map[string]struct{}           // containers, and those with a time to live
}

func newTree() *tree {
	t := &tree{nodes: make(map[string]*node), ephemerals: make(map[int64]map[string]struct{}), mortals: make(map[string]struct{})}
	for _, path := range []string{"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"} {
		t.nodes[path] = &node{data: []byte{}, acl: worldAll, children: make(map[string]struct{})}
		if path != "/" {
			parent, name := splitPath(path)
			t.nodes[parent].children[name] = struct{}{}
		}
	}
	config := t.nodes["/zookeeper/config"]
	config.acl, config.aversion = []aclEntry{{permRead, "world", "anyone"}}, -1
	return t
}

// put adds a znode to what there is, but for its parent.
func (t *tree) put(path string, n *node) {
	t.nodes[path] = n
	switch n.kind {
	case kindEphemeral:
		if t.ephemerals[n.owner] == nil {
			t.ephemerals[n.owner] = make(map[string]struct{})
		}
		t.ephemerals[n.owner][path] = struct{}{}
	case kindContainer, kindMortal:
		t.mortals[path] = struct{}{}
	}
}

// take is the opposite of put.
func (t *tree) take(path string, n *node) {
	delete(t.nodes, path)
	delete(t.mortals, path)
	if own := t.ephemerals[n.owner]; own != nil {
		delete(own, path)
		if len(own) == 0 {
			delete(t.ephemerals, n.owner)
		}
	}
}

// ephemeralsOf are the ephemeral znodes of a session, by path.
func (t *tree) ephemeralsOf(session int64) []string {
	return slices.Sorted(maps.Keys(t.ephemerals[session]))
}

// find knows the root's other name, which is empty, as well.
func (t *tree) find(path string) *node {
	if path == "" {
		path = "/"
	}
	return t.nodes[path]
}

// A txn is one write, or the writes of a multi: all of them or none.
type txn struct {
	zxid    int64
	now     int64 // ms
	undo    []func()
	changes []change
	made    map[*node]int32 // counters as the transaction's further creates see them
}

// A change is what watches are told of. Who may not read the znode is told nothing, nor of its children, and has had his watch all the same.
type change struct {
	event      eventType
	path       string
	acl, above []aclEntry // of the znode and of its parent, at the time
}

type eventType int32

const (
	eventCreated  eventType = 1
	eventDeleted  eventType = 2
	eventData     eventType = 3
	eventChildren eventType = 4
)

func (tx *txn) rollback() {
	for _, undo := range slices.Backward(tx.undo) {
		undo()
	}
	tx.undo, tx.changes, tx.made = nil, nil, nil
}

// splitPath cuts a valid path.
func splitPath(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return "/", path[i+1:]
	}
	return path[:i], path[i+1:]
}

// isSpecial reports whether a path is the server's own.
func isSpecial(path string) bool {
	switch path {
	case "/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota":
		return true
	}
	return false
}

// validPath is the server's PathUtils.
func validPath(path string) bool {
	if path == "/" {
		return true
	}
	if path == "" || path[0] != '/' || path[len(path)-1] == '/' {
		return false
	}
	for _, r := range path {
		switch {
		case r < 0x20, 0x7f <= r && r <= 0x9f, 0xd800 <= r && r <= 0xf8ff, 0xfff0 <= r:
			return false
		}
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

// A creation is what a create asks for.
type creation struct {
	path       string
	data       []byte
	acl        []aclEntry
	kind       nodeKind
	sequential bool
	ttl        time.Duration
	session    int64
	auth       []identity
}

// create makes a znode and returns its path.
func (t *tree) create(tx *txn, c creation) (string, *node, code) {
	i := strings.LastIndexByte(c.path, '/')
	if i < 0 || strings.IndexByte(c.path, 0) >= 0 {
		return "", nil, codeBadArguments
	}
	acl, err := fixACL(c.acl, c.auth)
	if err != codeOK {
		return "", nil, err
	}
	above := c.path[:max(i, 1)]
	parent := t.nodes[above]
	if parent == nil {
		return "", nil, codeNoNode
	}
	if !allowed(parent.acl, permCreate, c.auth) {
		return "", nil, codeNoAuth
	}
	number, counted := tx.made[parent]
	if !counted {
		number = parent.made
	}
	path := c.path
	if c.sequential {
		path += sequence(number)
	}
	switch {
	case !validPath(path):
		return "", nil, codeBadArguments
	case t.nodes[path] != nil:
		return "", nil, codeNodeExists
	case parent.kind == kindEphemeral:
		return "", nil, codeNoChildrenOfEphemeral
	}
	n := &node{
		data: c.data, acl: acl, kind: c.kind, ttl: c.ttl, czxid: tx.zxid, mzxid: tx.zxid, pzxid: tx.zxid, ctime: tx.now, mtime: tx.now,
		children: make(map[string]struct{}),
	}
	if c.kind == kindEphemeral {
		n.owner = c.session
	}
	_, name := splitPath(path)
	made, pzxid := parent.made, parent.pzxid
	t.put(path, n)
	parent.children[name] = struct{}{}
	// The next number wraps, but what is kept only grows: at the limit it stays, and numbers repeat from one transaction to the next, while within one
	// they go on with negative ones.
	number++
	if tx.made == nil {
		tx.made = make(map[*node]int32)
	}
	tx.made[parent] = number
	if number > parent.made {
		parent.made, parent.pzxid = number, tx.zxid
	}
	tx.undo = append(tx.undo, func() {
		t.take(path, n)
		delete(parent.children, name)
		parent.made, parent.pzxid = made, pzxid
	})
	tx.changes = append(tx.changes, change{eventCreated, path, acl, parent.acl})
	return path, n, codeOK
}

// sequence prints a parent's counter as the server does.
func sequence(n int32) string {
	s := strconv.Itoa(int(n))
	if n < 0 {
		digits := s[1:]
		return "-" + strings.Repeat("0", max(9-len(digits), 0)) + digits
	}
	return strings.Repeat("0", max(10-len(s), 0)) + s
}

// remove deletes a znode for a client.
func (t *tree) remove(tx *txn, path string, version int32, auth []identity) code {
	i := strings.LastIndexByte(path, '/')
	if i < 0 || strings.IndexByte(path, 0) >= 0 || isSpecial(path) {
		return codeBadArguments
	}
	above := path[:max(i, 1)]
	parent, n := t.nodes[above], t.nodes[path]
	switch {
	case parent == nil:
		return codeNoNode
	case !allowed(parent.acl, permDelete, auth):
		return codeNoAuth
	case n == nil:
		return codeNoNode
	case version != -1 && version != n.version:
		return codeBadVersion
	case len(n.children) > 0:
		return codeNotEmpty
	}
	t.drop(tx, path)
	return codeOK
}

// drop deletes a znode that is there and has no children.
func (t *tree) drop(tx *txn, path string) {
	above, name := splitPath(path)
	parent, n := t.nodes[above], t.nodes[path]
	pzxid := parent.pzxid
	t.take(path, n)
	delete(parent.children, name)
	parent.pzxid = tx.zxid
	tx.undo = append(tx.undo, func() {
		t.put(path, n)
		parent.children[name] = struct{}{}
		parent.pzxid = pzxid
	})
	tx.changes = append(tx.changes, change{eventDeleted, path, n.acl, parent.acl})
}

// set replaces the data of a znode.
func (t *tree) set(tx *txn, path string, data []byte, version int32, auth []identity) (*node, code) {
	if !validPath(path) {
		return nil, codeBadArguments
	}
	n := t.nodes[path]
	switch {
	case n == nil:
		return nil, codeNoNode
	case !allowed(n.acl, permWrite, auth):
		return nil, codeNoAuth
	case version != -1 && version != n.version:
		return nil, codeBadVersion
	}
	old := *n
	n.data, n.mzxid, n.mtime, n.version = data, tx.zxid, tx.now, n.version+1
	tx.undo = append(tx.undo, func() { n.data, n.mzxid, n.mtime, n.version = old.data, old.mzxid, old.mtime, old.version })
	tx.changes = append(tx.changes, change{eventData, path, n.acl, nil})
	return n, codeOK
}

// setACL replaces who may do what with a znode.
func (t *tree) setACL(path string, acl []aclEntry, version int32, auth []identity) (*node, code) {
	if !validPath(path) {
		return nil, codeBadArguments
	}
	acl, err := fixACL(acl, auth)
	if err != codeOK {
		return nil, err
	}
	n := t.nodes[path]
	switch {
	case n == nil:
		return nil, codeNoNode
	case !allowed(n.acl, permAdmin, auth):
		return nil, codeNoAuth
	case version != -1 && version != n.aversion:
		return nil, codeBadVersion
	}
	n.acl, n.aversion = acl, n.aversion+1
	return n, codeOK
}

// check is the part of a multi that only asks for a version.
func (t *tree) check(path string, version int32, auth []identity) code {
	if !validPath(path) {
		return codeBadArguments
	}
	n := t.nodes[path]
	switch {
	case n == nil:
		return codeNoNode
	case !allowed(n.acl, permRead, auth):
		return codeNoAuth
	case version != -1 && version != n.version:
		return codeBadVersion
	}
	return codeOK
}

// childNames are the children in an order of their own.
func (n *node) childNames() []string { return slices.Sorted(maps.Keys(n.children)) }
