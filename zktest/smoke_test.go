package zktest_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zkrecipes/zkrecipes/zktest"
)

func TestSmoke(t *testing.T) {
	t0 := time.Now()
	ens := zktest.Start(t)
	t.Log("started", time.Since(t0))
	p := zktest.NewProxy(t, ens.Addrs()[0])
	c, _, err := zk.Connect([]string{p.Addr()}, 4*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Create("/a", nil, 0, zk.WorldACL(zk.PermAll))
	t.Log(err)
	p.OnRequest(zktest.Rule{Match: zktest.MatchPath(zktest.OpCreate, "/b"), Times: 1, Do: zktest.CutAfter()})
	_, err = c.Create("/b", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	t.Log(err)
	ok, _, err := c.Exists("/b")
	t.Log(ok, err)
	t.Log(p.Expire(context.Background()))
	ok, _, err = c.Exists("/b")
	t.Log(ok, err)
	for _, r := range p.Requests() {
		t.Logf("%+v", r)
	}
	t.Log(p.Counts())
}

func TestSmoke3(t *testing.T) {
	t0 := time.Now()
	ens := zktest.Start(t, zktest.Servers(3))
	t.Log("started", time.Since(t0))
	t.Log(ens.Leader().Addr(), len(ens.Followers()))
	ld := ens.Leader()
	t0 = time.Now()
	ld.Kill()
	for ens.Leader() == nil {
	}
	t.Log("new leader", time.Since(t0))
	t0 = time.Now()
	t.Log(ld.Start())
	t.Log(ens.WaitReady(context.Background()))
	t.Log("ready again", time.Since(t0))
}
