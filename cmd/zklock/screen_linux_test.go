package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes"
)

// Colours are for a terminal whose user wants them.
func TestStatusOnATerminal(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		env  string
		want string
	}{
		"colours":  {"NO_COLOR=", "0    \x1b\\[32mholds\x1b\\[0m  exclusive  me"},
		"NO_COLOR": {"NO_COLOR=1", "0    holds  exclusive  me"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := sharedServers(t)
			hold(t, observer(t, servers), "/lock", "me")
			z := onServers(t, servers, "status", "/lock")
			z.Env = append(z.Env, "TERM=xterm", tc.env)
			s := attach(t, z.Cmd)
			s.find(tc.want)
			require.Equal(t, exitOK, z.finish(t))
		})
	}
}

// On a terminal the picture is drawn in place, and again each second for the ages, until Ctrl-C.
func TestStatusWatchOnATerminal(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	proxy, through := proxied(t, servers)
	o := observer(t, servers)
	z := onServers(t, through, "status", "-watch", "/lock")
	z.Env = append(z.Env, "TERM=xterm", "NO_COLOR=")
	s := attach(t, z.Cmd)
	s.find("\x1b\\[2J\x1b\\[H/lock at .*\r\n.*\r\n/lock does not exist")
	lease := hold(t, o, "/lock", "me")
	s.find("\x1b\\[H/lock at .*\r\n.*\r\nPOS.*\r\n0    \x1b\\[32mholds\x1b\\[0m  exclusive  me .* \\ds ")
	s.find(`  [1-9]s +/lock/`) // nothing has changed but the time
	proxy.Refuse(true)
	s.find("no connection, this was so at")
	proxy.Refuse(false)
	require.NoError(t, lease.Release(within(t, 20*time.Second)))
	s.find("nobody holds (/lock|it), nobody waits") // its container may be gone, too
	s.enter(ctrlC)
	require.Equal(t, exitOK, z.finish(t))
}

func TestBreakAsksOnATerminal(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	o := observer(t, servers)
	lease := hold(t, o, "/lock", "stuck")
	for _, no := range []string{"\n", "n\n", "yess\n", "\x04", ctrlC} {
		z := onServers(t, servers, "break", "/lock")
		s := attach(t, z.Cmd)
		s.find(`/lock/_c_.*\r\n  of stuck \(session 0x[0-9a-f]+, token \d+\), for \d+`)
		s.find(`Delete this znode\? \[y/N\] `)
		s.enter(no)
		s.find("nothing was deleted")
		require.Equal(t, exitFailed, z.finish(t))
	}
	require.NoError(t, lease.Err())
	z := onServers(t, servers, "break", "/lock")
	s := attach(t, z.Cmd)
	s.find(`\[y/N\] `)
	s.enter("y\n")
	s.find("deleted: /lock/_c_")
	require.Equal(t, exitOK, z.finish(t))
	<-lease.Done()
}

// A znode that goes while it is asked about is not deleted, nor is another that has taken its name.
func TestBreakDeletesWhatItAskedAbout(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	o := observer(t, servers)
	_, namespace, err := zkrecipes.ParseConnectString(servers)
	require.NoError(t, err)
	const name = "/lock/lock-0000000000"
	plant(t, o, servers, name, "first", 0)
	z := onServers(t, servers, "break", "/lock")
	s := attach(t, z.Cmd)
	s.find(`\[y/N\] `)
	require.NoError(t, o.Conn().Delete(namespace+name, -1))
	plant(t, o, servers, name, "second", 0)
	s.enter("yes\n")
	s.find("gone already: " + name + " of first")
	require.Equal(t, exitOK, z.finish(t))
	require.EqualValues(t, "second", queue(t, o, "/lock")[0].Owner)
}

// A terminal behind standard output is none for the question when standard input is a pipe or /dev/null.
func TestBreakAsksNobodyElsewhere(t *testing.T) {
	t.Parallel()
	z := onServers(t, sharedServers(t), "break", "/lock")
	_, tty := openScreen(t)
	z.Stdin, z.Stdout, z.Stderr = nil, tty, &z.stderr
	z.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1}
	require.NoError(t, z.Start())
	require.NoError(t, tty.Close())
	require.Equal(t, exitUsage, z.finish(t))
	require.Contains(t, z.stderr.String(), "-yes")
}
