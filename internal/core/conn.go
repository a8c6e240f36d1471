package core

import (
	"time"

	"github.com/go-zookeeper/zk"
)

// Conn is what the engine calls on a ZooKeeper connection; *zk.Conn has it.
type Conn interface {
	Create(path string, data []byte, flags int32, acl []zk.ACL) (string, error)
	CreateContainer(path string, data []byte, flags int32, acl []zk.ACL) (string, error)
	CreateTTL(path string, data []byte, flags int32, acl []zk.ACL, ttl time.Duration) (string, error)
	Delete(path string, version int32) error
	Exists(path string) (bool, *zk.Stat, error)
	ExistsW(path string) (bool, *zk.Stat, <-chan zk.Event, error)
	Get(path string) ([]byte, *zk.Stat, error)
	GetW(path string) ([]byte, *zk.Stat, <-chan zk.Event, error)
	Set(path string, data []byte, version int32) (*zk.Stat, error)
	Children(path string) ([]string, *zk.Stat, error)
	ChildrenW(path string) ([]string, *zk.Stat, <-chan zk.Event, error)
	Multi(ops ...any) ([]zk.MultiResponse, error)
	Sync(path string) (string, error)
	State() zk.State
	SessionID() int64
}

var _ Conn = (*zk.Conn)(nil)

// Epoch names one connection of one ZooKeeper session. The zero Epoch is none.
type Epoch struct {
	Session int64  // ZooKeeper session id
	Conn    uint64 // number of the connection, counted over the life of the engine
}

// Span is the epoch in which a request began and the one in which its answer was taken.
type Span struct{ Before, After Epoch }

// SameConn reports that the request was answered on the connection on which it began.
//
// Where no wire sees an adopted connection, a reconnect within the span may have gone unseen. Everybody who asks can bear that, because the client tells
// each server the last zxid it has seen, and none takes it on that has seen less: what is read after an answer is never older than that answer, whatever
// the connection.
//
//   - The list behind a create is not made there (createOnce): nobody knows when the create is out.
//   - A synced list (SyncedChildren) is as new as its sync all the same. That a create is not in it proves nothing anywhere; where reconnects may go
//     unseen such creates are looked for again and again, not only after a reconnect (adopted.sweep).
//   - A znode that was found (recover) is proved to be the session's by its owner, not by the connection.
//   - A watch that was set (hub, contender, Watcher) is set again by the client on its next connection, and its channel goes on. There nothing is granted
//     on an event: a wake-up means to list again. What goes by an event asks Engine.Ordered.
func (s Span) SameConn() bool { return s.Before == s.After && s.Before.Session != 0 }

// SameSession reports that the request was answered in the session in which it began.
func (s Span) SameSession() bool {
	return s.Before.Session == s.After.Session && s.Before.Session != 0
}
