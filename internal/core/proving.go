package core

import (
	"time"

	"github.com/go-zookeeper/zk"
)

// A provingConn is an adopted connection that no wire sees. Those of its requests that the leader has to answer prove by their success that the session
// was alive after they were begun: a sync, and a write as well, which passes the leader as a transaction of the session. Reads prove nothing; a follower
// answers them by itself. Errors prove nothing here: which of them came from the leader cannot be told.
type provingConn struct {
	Conn
	contact *Contact
}

// prove runs a request. The session id is the same before and after only if the whole of it happened in that session: ids do not come back.
func (c provingConn) prove(request func() error) error {
	began, session := now(), c.Conn.SessionID()
	err := request()
	if err == nil && c.Conn.SessionID() == session {
		c.contact.proved(session, began)
	}
	return err
}

func (c provingConn) Create(path string, data []byte, flags int32, acl []zk.ACL) (made string, err error) {
	err = c.prove(func() (err error) { made, err = c.Conn.Create(path, data, flags, acl); return err })
	return made, err
}

func (c provingConn) CreateContainer(path string, data []byte, flags int32, acl []zk.ACL) (made string, err error) {
	err = c.prove(func() (err error) { made, err = c.Conn.CreateContainer(path, data, flags, acl); return err })
	return made, err
}

func (c provingConn) CreateTTL(path string, data []byte, flags int32, acl []zk.ACL, ttl time.Duration) (made string, err error) {
	err = c.prove(func() (err error) { made, err = c.Conn.CreateTTL(path, data, flags, acl, ttl); return err })
	return made, err
}

func (c provingConn) Delete(path string, version int32) error {
	return c.prove(func() error { return c.Conn.Delete(path, version) })
}

func (c provingConn) Set(path string, data []byte, version int32) (stat *zk.Stat, err error) {
	err = c.prove(func() (err error) { stat, err = c.Conn.Set(path, data, version); return err })
	return stat, err
}

func (c provingConn) Multi(ops ...any) (results []zk.MultiResponse, err error) {
	err = c.prove(func() (err error) { results, err = c.Conn.Multi(ops...); return err })
	return results, err
}

func (c provingConn) Sync(path string) (synced string, err error) {
	err = c.prove(func() (err error) { synced, err = c.Conn.Sync(path); return err })
	return synced, err
}
