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
func (s Span) SameConn() bool { return s.Before == s.After && s.Before.Session != 0 }

// SameSession reports that the request was answered in the session in which it began.
func (s Span) SameSession() bool {
	return s.Before.Session == s.After.Session && s.Before.Session != 0
}
