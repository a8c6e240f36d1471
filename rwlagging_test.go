package zkrecipes

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// TestNestedReadStuckInAPausedFollowerLeavesNoOrphan sends the transaction that makes a nested read's znode to a follower that stands still, and goes
// on with another one, which knows nothing of it, and comes back to the first when that wakes up. What it then finds in its old socket it may
// execute. If the writer is still there a second read znode appears beside the one that was made in its place, and has to go; once the writer has
// gone the transaction must fail: the znode would stand before a writer that may hold by then. What the follower does first when it wakes up is
// chance, and mostly the old request finds that its session has moved; TestNestedReadThatLandsLate has that case every time.
func TestNestedReadStuckInAPausedFollowerLeavesNoOrphan(t *testing.T) {
	t.Parallel()
	const (
		pauses   = 2
		atOnce   = 10 // runs per pause; in every other one the write lease is released meanwhile
		timeout  = 10 * time.Second
		patience = 3 * time.Second
	)
	// The leader must bear with the paused follower; else it comes back with all its connections closed.
	ens := zktest.Start(t, zktest.Servers(3), zktest.SyncLimit(50))
	followers := ens.Followers()
	require.Len(t, followers, 2)
	far, near, leader := followers[0], followers[1], ens.Leader()
	c := adminAt(t, []string{leader.Addr()})
	world := cutWorld{
		rival: dial(t, []string{leader.Addr()}, WithTimeout(timeout)), fresh: dial(t, []string{leader.Addr()}, WithTimeout(timeout)), admin: c,
	}
	late := 0
	var all []*rwRun
	for pause := range pauses {
		var runs []*rwRun
		for range atOnce {
			p := zktest.NewProxy(t, far.Addr())
			s := dial(t, []string{p.Addr()}, WithTimeout(timeout))
			cr := &cutRun{TB: t, cutWorld: world, s: s, p: p}
			cr.at(newPath(t))
			cr.mkdirs()
			_, err := s.Conn().Sync(cr.path) // the follower must have the directory before it stops
			require.NoError(t, err)
			r := rwOf(cr)
			r.write(false)
			r.queue(true)
			_, err = s.Conn().Sync(cr.path)
			require.NoError(t, err)
			r.begin()
			runs = append(runs, r)
		}
		require.NoError(t, far.Pause())
		results, released := make([]lockResult, atOnce), make([]error, atOnce)
		var calls sync.WaitGroup
		for i, r := range runs {
			calls.Go(func() {
				l, err := r.lock.RLock(r.ctx())
				results[i] = lockResult{l, err}
			})
		}
		for i, r := range runs {
			eventually(t, 5*time.Second, "the transaction is on its way", func() bool {
				return slices.ContainsFunc(r.requests(), func(q zktest.Record) bool { return q.Op == zktest.OpMulti && q.Fate == zktest.FateForwarded })
			})
			if i%2 == 1 {
				calls.Go(func() { released[i] = r.w.Release(within(t, 20*time.Second)) })
			}
			r.p.SetTarget(near.Addr())
			r.p.Cut()
		}
		calls.Wait()
		for i, r := range runs {
			_, err := r.s.Conn().Sync(r.path) // the session is on the other one
			require.NoError(t, err)
			require.NoError(t, released[i])
			require.True(t, r.got(results[i].lease, results[i].err))
			require.Equal(t, r.w.Token(), results[i].lease.Token(), "it was first to read in the writer's place")
			r.p.SetTarget(far.Addr())
			r.p.Cut()
		}
		require.NoError(t, far.Resume())
		for i, r := range runs {
			_, err := r.s.Conn().Sync(r.path)
			require.NoError(t, err)
			l := results[i].lease
			require.NoError(t, l.Err())
			// Nobody has come by yet: the writer waits, and there is one read znode.
			if i%2 == 1 {
				r.holds(l)
			} else {
				r.holds(r.w, l)
			}
			require.Nil(t, r.others[0].granted())
			r.gives(l)
			r.gives(r.w)
			r.comes(r.others[0])
			r.exactly()
			next, err := NewRWLock(r.fresh, r.path).Lock(within(t, patience))
			require.NoError(t, err, "%s", ops(r.requests()))
			r.gives(next)
			_, stat, err := c.Get(r.path)
			require.NoError(t, err)
			made := 3 // the writer, the other one, the fresh one
			for _, q := range r.requests() {
				if q.Op == zktest.OpMulti && q.Answered && q.Err == 0 {
					made++
				}
			}
			late += (int(stat.Cversion) - 2*made) / 2
		}
		all = append(all, runs...)
		t.Logf("pause %d: %d of %d transactions have landed late", pause, late, len(all))
	}
	for _, r := range all {
		r.exactly()
	}
}

// landLate has the server execute a request in a session as if it had come from an earlier connection of it, and returns the error code of the
// answer. The server resets the client's own connection for that, as it does whenever a session comes back.
func landLate(t testing.TB, p *zktest.Proxy, addr string, request []byte) int32 {
	t.Helper()
	gate := zktest.NewGate() // its client is not to come back in between
	defer gate.Open()
	defer p.OnRequest(zktest.Rule{Match: zktest.MatchOp(zktest.OpConnect), Do: zktest.HoldRequest(gate)})()
	id, password, timeout := p.Session()
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
	exchange := func(b []byte) []byte {
		_, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
		require.NoError(t, err)
		size := make([]byte, 4)
		_, err = io.ReadFull(conn, size)
		require.NoError(t, err)
		answer := make([]byte, binary.BigEndian.Uint32(size))
		_, err = io.ReadFull(conn, answer)
		require.NoError(t, err)
		return answer
	}
	connect := binary.BigEndian.AppendUint32(make([]byte, 4+8), uint32(timeout.Milliseconds())) // version, last zxid, timeout
	connect = binary.BigEndian.AppendUint64(connect, uint64(id))
	connect = append(binary.BigEndian.AppendUint32(connect, uint32(len(password))), password...)
	granted := exchange(connect)
	require.Equal(t, uint64(id), binary.BigEndian.Uint64(granted[4+4:]), "the session is over")
	answer := exchange(request)
	require.Equal(t, request[:4], answer[:4], "the answer is to something else")
	const err1 = 4 + 8 + 4 + 4 + 1 // of the first operation, behind the reply's header and its own type and done
	if code := int32(binary.BigEndian.Uint32(answer[4+8:])); code != 0 {
		return code
	}
	return int32(binary.BigEndian.Uint32(answer[err1:]))
}

// TestNestedReadThatLandsLate loses the transaction that makes a nested read's znode on its way, has the call look for the znode in vain and make
// another, or give up, and then has the server find the lost one after all.
func TestNestedReadThatLandsLate(t *testing.T) {
	t.Parallel()
	w := newCutWorld(t)
	ss := newSides(t, 10)
	defer ss.wg.Wait()
	for i := range 20 {
		cancelled, released, lower := i%2 == 1, i/2%2 == 1, i/4%2 == 1
		ss.add(fmt.Sprintf("%d: cancelled=%v, write lease released=%v, read lease too=%v", i, cancelled, released, lower), func(t testing.TB) {
			r := w.newRWRun(t, 10*time.Second)
			r.write(false)
			r.begin()
			r.queue(true)
			lost := make(chan []byte, 1)
			ctx, cancel := context.WithCancel(r.ctx())
			defer cancel()
			r.p.OnRequest(zktest.Rule{Times: 1, Do: zktest.CutBefore(), Match: func(f zktest.Frame) bool {
				if f.Op != zktest.OpMulti {
					return false
				}
				lost <- slices.Clone(f.Bytes)
				if cancelled {
					cancel()
				}
				return true
			}})
			l, err := r.lock.RLock(ctx)
			if cancelled {
				require.ErrorIs(t, err, context.Canceled)
			} else {
				require.True(t, r.got(l, err))
				r.stands(l, r.w)
			}
			if released {
				r.gives(r.w)
			}
			if lower {
				r.gives(l)
			}
			if released && (cancelled || lower) {
				r.comes(r.others[0])
			}
			_, err = r.s.Conn().Sync(r.path)
			for err != nil {
				_, err = r.s.Conn().Sync(r.path)
			}
			const noNode = -101
			code := landLate(t, r.p, zktest.Shared(t).Addrs()[0], <-lost)
			if released {
				require.EqualValues(t, noNode, code, "the writer has gone")
			} else {
				require.Zero(t, code)
			}
			_, err = r.s.Conn().Sync(r.path)
			for err != nil {
				_, err = r.s.Conn().Sync(r.path)
			}
			var ours []*Lease
			for _, o := range []*Lease{r.w, l} {
				if o != nil && o.Err() == nil {
					ours = append(ours, o)
				}
			}
			r.holds(ours...)
			r.probe()
			if len(ours) > 0 {
				require.Nil(t, r.others[0].granted())
			}
			r.gives(l)
			r.gives(r.w)
			r.ends()
		})
	}
}
