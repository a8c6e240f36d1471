package history

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes"
)

// A record is the history of one path.
type record struct {
	name  string
	model porcupine.Model
	begin time.Time

	mu  sync.Mutex
	ops []porcupine.Operation
}

func newRecord(name string, model porcupine.Model) *record {
	return &record{name: name, model: model, begin: time.Now()}
}

// never is the return of an operation of which nobody knows whether, or when, it came into effect.
const never = math.MaxInt64

func (r *record) at(t time.Time) int64 { return int64(t.Sub(r.begin)) }

func (r *record) add(client int, call, ret int64, in, out any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: ret})
}

// check looks for an order of all operations. Where there is none, it leaves a picture.
func (r *record) check(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	result, info := porcupine.CheckOperationsVerbose(r.model, r.ops, time.Minute)
	t.Logf("%s: %d operations, %s", r.name, len(r.ops), result)
	require.NotEmpty(t, r.ops, r.name)
	if result == porcupine.Ok {
		return
	}
	picture := filepath.Join(os.TempDir(), "history-"+filepath.Base(r.name)+".html")
	if err := porcupine.VisualizePath(r.model, info, picture); err != nil {
		picture = err.Error()
	}
	t.Errorf("%s: %s; see %s", r.name, result, picture)
	placed := 0
	for _, order := range info.PartialLinearizationsOperations()[0] {
		placed = max(placed, len(order))
	}
	byReturn := slices.SortedFunc(slices.Values(r.ops), func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	for _, op := range byReturn[max(0, placed-20):min(len(byReturn), placed+10)] {
		t.Logf("client %d: %v - %v: %s", op.ClientId, time.Duration(op.Call), time.Duration(op.Return), r.model.DescribeOperation(op.Input, op.Output))
	}
}

// A client is one Session and what befalls it.
type client struct {
	id      int
	session *zkrecipes.Session
	rnd     *rand.Rand // of who makes trouble

	mu    sync.Mutex
	ended map[int64]time.Time // ZooKeeper sessions, and when they were ended from outside: their leases are told of that when the notice comes
}

// ends notes that a session is about to be ended from outside.
func (c *client) ends(session int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, again := c.ended[session]; !again {
		c.ended[session] = time.Now()
	}
}

// hold records that a lease of so much was taken by a call, and holds it for a while: until it is given, or lost. What is known to be held at one moment was
// held since the grant; so the give lies after the last moment at which it was asked and still held.
func (c *client) hold(r *record, call time.Time, lease *zkrecipes.Lease, n int, who string, d time.Duration, during func()) {
	r.add(c.id, r.at(call), r.at(time.Now()), amount{n, who}, nil)
	session := c.session.ID()
	until := time.NewTimer(d)
	defer until.Stop()
	tick := time.NewTicker(max(d/20, time.Millisecond))
	defer tick.Stop()
	sure := call // the last moment after which it was certainly held: by now it may be lost
	for held := true; held; {
		asked := time.Now()
		if lease.Err() != nil {
			break
		}
		sure = asked
		if during != nil {
			during()
		}
		select {
		case <-tick.C:
		case <-lease.Done():
		case <-until.C:
			held = false
		}
	}
	if asked := time.Now(); lease.Err() == nil {
		sure = asked
		_ = lease.Release(context.Background())
	}
	c.mu.Lock()
	if at, ok := c.ended[session]; ok && at.Before(sure) {
		sure = at
	}
	c.mu.Unlock()
	r.add(c.id, max(r.at(sure), r.at(call)), r.at(time.Now()), amount{-n, who}, nil)
}

// write writes a value under a lease, to a znode in one transaction with the proof that the lease's znode is there, and records what is known of it.
func (c *client) write(r *record, lease *zkrecipes.Lease, register string, value int64) {
	began := time.Now()
	_, err := c.session.Conn().Multi(lease.Check(), &zk.SetDataRequest{Path: register, Data: encode(value), Version: -1})
	in, out, ret := write{int64(lease.Token()), value}, unknown, int64(never)
	switch {
	case err == nil:
		out, ret = accepted, r.at(time.Now())
	case errors.Is(err, zk.ErrNoNode):
		out, ret = refused, r.at(time.Now())
	}
	r.add(c.id, r.at(began), ret, in, out)
}

// read reads the register as it is: what was not answered is no operation.
func (c *client) read(r *record, register string) {
	began := time.Now()
	if _, err := c.session.Conn().Sync(register); err != nil {
		return
	}
	data, _, err := c.session.Conn().Get(register)
	if err == nil {
		r.add(c.id, r.at(began), r.at(time.Now()), read{}, decode(data))
	}
}
