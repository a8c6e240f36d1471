package zktest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// harass lets all verbs and many clients meet, until the server is closed in the midst of them. Some clients say little once they have a session, and
// wait for the server to end it; some gates are never opened. Nothing may wait for that.
func harass(t *testing.T, s *Server, dial func() (net.Conn, error), rounds int) {
	var clients, verbs sync.WaitGroup
	for i := range 6 {
		clients.Go(func() {
			for n := range rounds {
				c, err := dial()
				if err != nil { // it is stopped
					time.Sleep(time.Millisecond)
					continue
				}
				d := &dialogue{t: t, dial: func() (net.Conn, error) { return c, nil }, patience: 100 * time.Millisecond}
				r := d.join("a")
				if r.id != 0 {
					r.call(OpGetChildren, "/", true)
					r.call(OpCreate, fmt.Sprintf("/x%d-%d", i, n), []byte("x"), open, 3)
					r.call(OpCreateContainer, fmt.Sprintf("/c%d", i), []byte("x"), open, 4)
					if n%3 == 0 {
						r.call(OpClose)
					}
				}
				c.Close()
			}
		})
	}
	over := make(chan struct{})
	for range 3 {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				c, err := dial()
				if err != nil {
					time.Sleep(time.Millisecond)
					continue
				}
				d := &dialogue{t: t, dial: func() (net.Conn, error) { return c, nil }, patience: 100 * time.Millisecond}
				if r := d.join("idle"); r.id != 0 {
					r.post(OpCreate, fmt.Sprintf("/idle%d", n), []byte("x"), open, 3)
					_ = c.SetReadDeadline(time.Time{})
					_, _ = io.Copy(io.Discard, c)
				}
				c.Close()
			}
		})
	}
	for range 3 {
		verbs.Go(func() {
			var heals []func()
			for range rounds {
				var ids []int64
				for info := range s.Sessions() {
					ids = append(ids, info.ID)
				}
				one := int64(1)
				if len(ids) > 0 {
					one = ids[rand.IntN(len(ids))]
				}
				switch rand.IntN(10) {
				case 0:
					s.Expire(one)
				case 1:
					s.Disconnect(one)
				case 2:
					heals = append(heals, s.Partition(ids...))
				case 3:
					s.Stop()
				case 4:
					s.Hold(OpCreate, "/x").Open()
				case 9:
					s.Hold([]Op{OpGetChildren, OpConnect, OpEvent, OpClose}[rand.IntN(4)], "")
				case 5:
					s.LoseReply(OpGetChildren, "")
				case 6:
					s.Fail(OpCreateContainer, "", -4)
				case 7:
					s.Delay(time.Duration(rand.IntN(3)) * time.Millisecond)
				case 8:
					for range s.Znodes("/") {
						_ = s.Counts()
					}
				}
				if rand.IntN(2) == 0 {
					if err := s.Start(); err != nil {
						t.Error(err)
					}
					for _, heal := range heals {
						heal()
					}
				}
				time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
			}
			for _, heal := range heals {
				defer heal() // also after Close
			}
			s.Close()
			s.mu.Lock()
			defer s.mu.Unlock()
			if n := len(s.peers); n > 0 {
				t.Errorf("%d connections are being written to after Close", n)
			}
		})
	}
	verbs.Wait()
	close(over)
	require.Error(t, func() error {
		c, err := dial()
		if err == nil {
			c.Close()
		}
		return err
	}())
	clients.Wait()
}

// In a bubble a deadlock is an error at once.
func TestServerVerbsRace(t *testing.T) {
	for range 6 {
		bubble(t, func(t *testing.T, s *Server, _ *dialogue) {
			dialer := s.Dialer()
			harass(t, s, func() (net.Conn, error) { return dialer("tcp", "any:1", 0) }, 60)
			synctest.Wait()
		})
	}
}

func TestServerVerbsRaceByTCP(t *testing.T) {
	for range 6 {
		s := NewServer(t)
		addr := s.Addr()
		harass(t, s, func() (net.Conn, error) { return net.Dial("tcp", addr) }, 60)
	}
}
