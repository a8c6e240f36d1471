package main

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo answers with what it is sent.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

func TestStretch(t *testing.T) {
	require.NoError(t, inScope(t.Context(), "x", time.Minute, func(_ context.Context, s *scope) {
		w := newStretch(s, echo(t)).(*stretch)
		c, err := net.Dial("tcp", w.address())
		s.must(err)
		s.Cleanup(func() { _ = c.Close() })
		ask := func(words string) time.Duration {
			began := time.Now()
			_, err := io.WriteString(c, words)
			s.must(err)
			answer := make([]byte, len(words))
			_, err = io.ReadFull(c, answer)
			s.must(err)
			require.Equal(t, words, string(answer))
			return time.Since(began)
		}
		ask("there and back")
		require.Equal(t, traffic{bytes: 2 * int64(len("there and back"))}, w.traffic())

		const rtt = 1500 * time.Millisecond
		w.lengthen(rtt)
		took := ask("later")
		require.True(t, took >= rtt && took < rtt+time.Second, "%v", took)
		w.lengthen(0)

		w.ask(false)
		w.ask(true)
		require.Equal(t, 2, w.traffic().requests)
		require.Equal(t, 1, w.traffic().heartbeats)
		(*stretch)(nil).ask(false) // of a session without a wire
	}))
}

// What goes back to back arrives back to back: it is a longer wire, not a slower one.
func TestStretchIsNotSlower(t *testing.T) {
	require.NoError(t, inScope(t.Context(), "x", time.Minute, func(ctx context.Context, s *scope) {
		w := newStretch(s, echo(t))
		const rtt, n = 400 * time.Millisecond, 20
		w.lengthen(rtt)
		c, err := net.Dial("tcp", w.address())
		s.must(err)
		s.Cleanup(func() { _ = c.Close() })
		began := time.Now()
		go func() {
			for range n {
				_, _ = io.WriteString(c, "x")
				_ = pause(ctx, 5*time.Millisecond)
			}
		}()
		_, err = io.ReadFull(c, make([]byte, n))
		s.must(err)
		require.Less(t, time.Since(began), n*rtt/4) // one after the other they would take n*rtt/2
	}))
}
