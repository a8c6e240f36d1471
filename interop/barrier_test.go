package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/zktest"
)

// goes makes a call on a goroutine of its own.
func goes(call func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return done
}

func waits(t testing.TB, calls ...<-chan error) {
	t.Helper()
	select {
	case <-time.After(100 * time.Millisecond):
	case err := <-calls[0]:
		t.Fatalf("it has returned: %v", err)
	}
	for _, c := range calls {
		require.Empty(t, c)
	}
}

func passes(t testing.TB, calls ...<-chan error) {
	t.Helper()
	for _, c := range calls {
		select {
		case err := <-c:
			require.NoError(t, err)
		case <-time.After(15 * time.Second):
			t.Fatal("it does not return")
		}
	}
}

// A barrier is set by one library and waited for by each; any removes it, also when the process that set it was killed.
func TestBarrierAcrossLibraries(t *testing.T) {
	t.Parallel()
	for _, by := range []string{ours, curator, kazoo} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, killed=%v", by, killed), func(t *testing.T) {
				t.Parallel()
				ctx, path := within(t, 30*time.Second), newPath(t)
				setter := openClient(t, by, servers(t), sessionTimeout)
				if killed {
					p := startLibrary(t, by)
					_, err := openIn(t, p, by, servers(t), sessionTimeout).Lock(ctx, Barrier, path)
					require.NoError(t, err)
					p.Kill()
				}
				_, err := setter.Lock(ctx, Barrier, path) // again, or for the first time
				require.NoError(t, err)
				var waiting []<-chan error
				for _, library := range []string{ours, curator, kazoo} {
					c := openClient(t, library, servers(t), sessionTimeout)
					waiting = append(waiting, goes(func() error { _, err := c.Lock(ctx, Gate, path); return err }))
				}
				waits(t, waiting...)
				require.NoError(t, setter.Release(ctx, Barrier, path))
				passes(t, waiting...)
			})
		}
	}
}

// Three members, of Curator and of this library, enter together and leave together, round after round, whoever comes first. One that is killed while it
// waits is none when its session has ended; one that is killed inside keeps the others no longer than that.
func TestDoubleBarrierAcrossLibraries(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{ours, curator, ours}, {curator, ours, curator}, {curator, curator, ours}, {ours, ours, curator}} {
		t.Run(strings.Join(order, " "), func(t *testing.T) {
			t.Parallel()
			ctx, path := within(t, 60*time.Second), newPath(t)
			look := plain(t)
			enter := func(c interface {
				Lock(context.Context, Side, string) (string, error)
			}) <-chan error {
				return goes(func() error { _, err := c.Lock(ctx, DoubleBarrier, path); return err })
			}
			there := func(n int) {
				eventually(t, fmt.Sprint(n, " members"), func() bool {
					names, _, _ := look.Children(path)
					return len(slices.DeleteFunc(names, func(name string) bool { return name == "ready" })) == n
				})
			}
			together := func(library string) (enters, leaves func() <-chan error) {
				c := openClient(t, library, servers(t), sessionTimeout)
				return func() <-chan error { return enter(c) }, func() <-chan error {
					return goes(func() error { return c.Release(ctx, DoubleBarrier, path) })
				}
			}
			var enters, leaves []func() <-chan error
			for _, library := range order {
				e, l := together(library)
				enters, leaves = append(enters, e), append(leaves, l)
			}
			round := func(already ...<-chan error) {
				for i, e := range enters {
					if len(already) == i {
						already = append(already, e())
						there(i + 1)
					}
					if i < 2 {
						waits(t, already...)
					}
				}
				passes(t, already...)
				var left []<-chan error
				for i, l := range leaves {
					left = append(left, l())
					if i < 2 {
						waits(t, left...)
					}
				}
				passes(t, left...)
				eventually(t, "nothing is left", func() bool {
					names, _, _ := look.Children(path)
					return len(names) == 0
				})
			}
			round()
			round()

			p := startLibrary(t, order[0])
			doomed := enter(openIn(t, p, order[0], servers(t), victimTimeout))
			there(1)
			second, third := enters[1](), enters[2]
			there(2)
			p.Kill()
			require.Error(t, <-doomed)
			there(1)
			waits(t, second)
			first := enters[0]()
			there(2)
			waits(t, second, first)
			passes(t, third(), second, first)
			var left []<-chan error
			for _, l := range leaves {
				left = append(left, l())
			}
			passes(t, left...)

			p = startLibrary(t, order[0])
			doomed = enter(openIn(t, p, order[0], servers(t), victimTimeout))
			there(1)
			passes(t, enters[1](), enters[2](), doomed)
			left = []<-chan error{leaves[1](), leaves[2]()}
			waits(t, left...)
			p.Kill()
			passes(t, left...)
		})
	}
}

// Curator 5.4 passes its double barrier on any event, such as a connection that breaks (GH-1290). Ours does not, beside it.
func TestCurator54PassesItsDoubleBarrierAlone(t *testing.T) {
	t.Parallel()
	ctx, path, look := within(t, 30*time.Second), newPath(t), plain(t)
	enters := func(library string) (<-chan error, *zktest.Proxy) {
		p := zktest.NewProxy(t, servers(t)[0])
		c := openClient(t, library, []string{p.Addr()}, sessionTimeout)
		return goes(func() error { _, err := c.Lock(ctx, DoubleBarrier, path); return err }), p
	}
	java, javaProxy := enters(curator)
	mine, mineProxy := enters(ours)
	eventually(t, "both wait", func() bool {
		names, _, _ := look.Children(path)
		return len(names) == 2
	})
	waits(t, java, mine)
	for range 3 {
		mineProxy.Cut()
		waits(t, mine)
	}
	javaProxy.Cut()
	select {
	case err := <-java:
		require.True(t, err == nil || strings.Contains(err.Error(), "ConnectionLoss"), "%v", err)
	case <-time.After(15 * time.Second):
		t.Fatal("Curator waits on: then it is newer than 5.4, and docs/mixed-fleets.md has to change")
	}
	waits(t, mine)
	others := []<-chan error{goes(func() error {
		_, err := openClient(t, ours, servers(t), sessionTimeout).Lock(ctx, DoubleBarrier, path)
		return err
	}), goes(func() error {
		_, err := openClient(t, ours, servers(t), sessionTimeout).Lock(ctx, DoubleBarrier, path)
		return err
	})}
	passes(t, append(others, mine)...)
}
