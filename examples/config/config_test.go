package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/examples/internal/program"
)

func TestMain(m *testing.M) { program.Main(m, main) }

func set(t *testing.T, servers, value string) *program.Process {
	t.Helper()
	return program.Start(t, "-servers", servers, "set", value)
}

// An instance starts before there is anything to follow, loses its connection, and sees what is set meanwhile; one that starts later sees the newest.
func TestFollow(t *testing.T) {
	servers := program.Servers(t)
	proxy, through := program.Through(t, servers)
	early := program.Start(t, "-servers", through, "follow")
	early.Find("there is no configuration at /config/shop/value")
	if code := set(t, servers, `{"workers": 8}`).Exit(); code != 0 {
		t.Fatal("exit code", code)
	}
	early.Find(`version 0: \{Workers:8 Banner:\}`)
	proxy.Refuse(true)
	if code := set(t, servers, `{"banner": "closed today"}`).Exit(); code != 0 {
		t.Fatal("exit code", code)
	}
	proxy.Refuse(false)
	early.Find(`version 1: \{Workers:8 Banner:closed today\}`)
	late := program.Start(t, "-servers", servers, "follow")
	late.Find(`(?m)^version 1: `)
	if strings.Contains(late.Output(), "version 0") {
		t.Error("it has seen the old one")
	}
	late.Signal(os.Interrupt)
	if code := late.Exit(); code != 0 {
		t.Error("exit code", code)
	}
}

// What an editor must not write is refused before it is written; what somebody has written by other means is not used.
func TestABadConfiguration(t *testing.T) {
	servers := program.Servers(t)
	if code := set(t, servers, `{"workers": 3}`).Exit(); code != 0 {
		t.Fatal("exit code", code)
	}
	p := program.Start(t, "-servers", servers, "follow")
	p.Find("version 0: ")
	if bad := set(t, servers, `{"workers": 0}`); bad.Exit() != 1 || !strings.HasSuffix(bad.Output(), "config: workers: 0, at least 1\n") {
		t.Error(bad.Output())
	}
	session := program.Session(t, servers)
	_, chroot, _ := zkrecipes.ParseConnectString(servers)
	f := Follower{Watcher: zkrecipes.NewWatcher(session, "/config/shop/value")}
	seen := make(chan string, 10)
	f.Note = func(format string, args ...any) { seen <- fmt.Sprintf(format, args...) }
	ended := make(chan error, 1)
	go func() { ended <- f.Run(t.Context()) }()
	<-seen
	if _, err := session.Conn().Set(chroot+"/config/shop/value", []byte(`{"workers": -1}`), -1); err != nil {
		t.Fatal(err)
	}
	if note := <-seen; !strings.HasPrefix(note, "version 1 is not used: workers: -1") {
		t.Error(note)
	}
	if c := f.Config(); c.Workers != 3 {
		t.Error("now it is", *c)
	}
	p.Find("version 1 is not used")
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, zkrecipes.ErrClosed) {
		t.Error(err)
	}
}

// Many change it at once, each a little: nothing of that is lost.
func TestEditorsDoNotOverwriteEachOther(t *testing.T) {
	servers := program.Servers(t)
	_, chroot, _ := zkrecipes.ParseConnectString(servers)
	const editors, each = 4, 5
	var all sync.WaitGroup
	var thinking atomic.Int32
	think := func(c *Config) error {
		if thinking.Add(1) != 1 {
			t.Error("two think at once")
		}
		<-time.After(5 * time.Millisecond)
		thinking.Add(-1)
		c.Banner += "x"
		return nil
	}
	for range editors {
		session := program.Session(t, servers)
		e := Editor{Session: session, Lock: zkrecipes.NewMutex(session, "/config/shop/lock"), Znode: chroot + "/config/shop/value"}
		all.Go(func() {
			for range each {
				if err := e.Edit(t.Context(), think); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	p := program.Start(t, "-servers", servers, "follow")
	if banner := p.Find(`Banner:(x*)`)[1]; len(banner) != editors*each {
		t.Error(len(banner), "changes are left")
	}
}

// An editor that thinks for too long: its lease is gone, or somebody wrote without one.
func TestALateEditorIsRefused(t *testing.T) {
	servers := program.Servers(t)
	if code := set(t, servers, `{"workers": 1}`).Exit(); code != 0 {
		t.Fatal("exit code", code)
	}
	session := program.Session(t, servers)
	_, chroot, _ := zkrecipes.ParseConnectString(servers)
	e := Editor{Session: session, Lock: zkrecipes.NewMutex(session, "/config/shop/lock"), Znode: chroot + "/config/shop/value"}
	for name, tc := range map[string]struct {
		meanwhile func() error
		want      error
	}{
		"lost": {func() error { return session.Conn().Delete(session.Leases()[0].Node(), -1) }, zk.ErrNoNode},
		"by other means": {func() error {
			_, err := session.Conn().Set(e.Znode, []byte(`{"workers": 5}`), -1)
			return err
		}, zk.ErrBadVersion},
	} {
		t.Run(name, func(t *testing.T) {
			err := e.Edit(t.Context(), func(c *Config) error { c.Workers = 99; return tc.meanwhile() })
			if !errors.Is(err, tc.want) {
				t.Error(err)
			}
			data, _, err := session.Conn().Get(e.Znode)
			if err != nil || regexp.MustCompile(`99`).Match(data) {
				t.Error(string(data), err)
			}
		})
	}
}
