package interop

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes"
)

// owner is what a member's znode says, as Inspect reads it.
func (f *fleet) owner(m *member) string {
	f.t.Helper()
	ps := inspect(f.t, f.s, f.path)
	i := slices.IndexFunc(ps, func(p zkrecipes.Participant) bool { return p.Session == m.session })
	require.GreaterOrEqual(f.t, i, 0, m.who)
	return string(ps[i].Owner)
}

// idOf is what a member calls itself where its library has it say so.
func idOf(m *member) string {
	switch c := m.client.(type) {
	case *Peer:
		return c.name
	case onCurators:
		return c.name
	case *ourClient:
		return fmt.Sprintf("ours-%x", m.session)
	}
	return ""
}

// Curator lists the znodes of all, side by side, in the order of the queue.
func TestCuratorListsParticipants(t *testing.T) {
	t.Parallel()
	ctx := within(t, 30*time.Second)
	looks := open(t, Curator)
	list := func(f *fleet, side Side) []string {
		t.Helper()
		nodes, err := looks.Participants(ctx, side, f.path)
		require.NoError(t, err)
		return nodes
	}
	nodes := func(members ...*member) (nodes []string) {
		for _, m := range members {
			nodes = append(nodes, m.node)
		}
		return nodes
	}
	f := newFleet(t)
	for _, who := range []string{"ours mutex", "curator mutex", "kazoo-curator's mutex", "zk mutex", "ours mutex"} {
		f.join(who)
	}
	f.settle()
	require.Equal(t, nodes(f.members...), list(f, Mutex))
	f.drain(nil)

	f = newFleet(t)
	r1, r2, w1 := f.join("ours read"), f.join("curator read"), f.join("ours write")
	w2, r3, r4 := f.join("kazoo-curator's write"), f.join("ours read"), f.join("kazoo-curator's read")
	f.settle()
	require.Equal(t, nodes(r1, r2, r3, r4), list(f, Reader))
	require.Equal(t, nodes(w1, w2), list(f, Writer))
	f.drain(nil)

	f = newFleet(t)
	f.join("ours permit")
	f.join("curator permit")
	f.settle()
	var names []string
	for _, m := range f.members {
		names = append(names, path.Base(m.node))
	}
	require.ElementsMatch(t, names, list(f, Semaphore))
	f.drain(nil)
}

// Curator's Participants have our owners as their ids, and Inspect has theirs; whoever leads is the same one.
func TestCuratorShowsOurLeaders(t *testing.T) {
	t.Parallel()
	ctx := within(t, 30*time.Second)
	looks := open(t, Curator)
	for side, what := range map[Side]string{Latch: "latch", Selector: "selector"} {
		f := newFleet(t)
		for _, who := range []string{"ours " + what, "curator " + what, "ours " + what} {
			f.join(who)
		}
		f.settle()
		for len(f.members) > 0 {
			ids, err := looks.Participants(ctx, side, f.path)
			require.NoError(t, err)
			var want []string
			for i, m := range f.members {
				want = append(want, idOf(m))
				require.Equal(t, want[i], f.owner(m))
			}
			want[0] += ",leads"
			require.Equal(t, want, ids)
			f.leave(f.members[0])
			f.settle()
		}
	}
}

// kazoo's contenders are the data of the znodes: our owners, Curator's addresses, kazoo's identifiers, whichever znodes it makes itself.
func TestKazooListsContenders(t *testing.T) {
	t.Parallel()
	ctx := within(t, 30*time.Second)
	looks := open(t, Kazoo)
	f := newFleet(t)
	for _, who := range []string{"ours mutex", "curator mutex", "kazoo-curator's mutex", "kazoo mutex"} {
		f.join(who)
	}
	var want []string
	for _, m := range f.members {
		want = append(want, f.owner(m))
	}
	f.await(f.members[0])
	require.Equal(t, string(f.members[0].lease(f).Owner()), want[0])
	require.Equal(t, []string{idOf(f.members[2]), idOf(f.members[3])}, want[2:])
	require.NotEmpty(t, want[1])
	for _, side := range []Side{Mutex, CuratorMutex} {
		contenders, err := looks.Contenders(ctx, side, f.path)
		require.NoError(t, err)
		require.Equal(t, want, contenders)
	}
	f.drain(nil)
}

// What Curator 5.4 and this library write, recipe by recipe. Nothing but the identifiers differs, where nothing is said. DATA is Curator's address of the
// client, or our owner; the ids of leaders are what those call themselves.
func TestLayouts(t *testing.T) {
	t.Parallel()
	for _, layout := range []struct {
		name string
		who  []string // of LIBRARY
		then func(f *fleet)
		want []string
		ours []string // if it differs
	}{
		{"mutex", []string{"LIBRARY mutex"}, nil, []string{`_c_uuid-lock-0000000000 ephemeral "DATA"`}, nil},
		{"read lock", []string{"LIBRARY read"}, nil, []string{`_c_uuid-__READ__0000000000 ephemeral "DATA"`}, nil},
		{"write lock", []string{"LIBRARY write"}, nil, []string{`_c_uuid-__WRIT__0000000000 ephemeral "DATA"`}, nil},
		{
			"read under a write lock", []string{"LIBRARY write"}, func(f *fleet) {
				_, err := f.members[0].client.Lock(within(f.t, 10*time.Second), Reader, f.path)
				require.NoError(f.t, err)
			},
			[]string{`_c_uuid-__READ__0000000001 ephemeral "DATA"`, `_c_uuid-__WRIT__0000000000 ephemeral "DATA"`},
			[]string{`_c_uuid-__READ__0000000000 ephemeral "DATA"`, `_c_uuid-__WRIT__0000000000 ephemeral "DATA"`}, // as Curator from 5.5 on
		},
		{
			"semaphore", []string{"LIBRARY permit", "LIBRARY permit"}, nil, []string{
				`leases persistent ""`, `leases/_c_uuid-lease-0000000000 ephemeral "DATA"`, `leases/_c_uuid-lease-0000000001 ephemeral "DATA"`,
				`locks persistent ""`,
			}, nil,
		},
		{
			"semaphore mutex", []string{"LIBRARY semaphoremutex"}, nil,
			[]string{`leases persistent ""`, `leases/_c_uuid-lease-0000000000 ephemeral "DATA"`, `locks persistent ""`}, nil,
		},
		{
			"multi lock", []string{"LIBRARY multilock"}, nil, []string{
				`a persistent ""`, `a/_c_uuid-lock-0000000000 ephemeral "DATA"`, `b persistent ""`, `b/_c_uuid-lock-0000000000 ephemeral "DATA"`,
			}, nil,
		},
		{
			"revocable mutex", []string{"LIBRARY revocable"}, nil, []string{`_c_uuid-lock-0000000000 ephemeral ""`},
			[]string{`_c_uuid-lock-0000000000 ephemeral "DATA"`}, // every lease of ours can be asked for
		},
		{
			"revoked mutex", []string{"LIBRARY revocable", "LIBRARY mutex"}, func(f *fleet) { askBack(f, f.members[0]) },
			[]string{`_c_uuid-lock-0000000000 ephemeral "__REVOKE__"`, `_c_uuid-lock-0000000001 ephemeral "DATA"`}, nil,
		},
		{"leader latch", []string{"LIBRARY latch"}, nil, []string{`_c_uuid-latch-0000000000 ephemeral "ID"`}, nil},
		{"leader selector", []string{"LIBRARY selector"}, nil, []string{`_c_uuid-lock-0000000000 ephemeral "ID"`}, nil},
	} {
		for _, library := range []string{curator, ours} {
			t.Run(layout.name+", "+library, func(t *testing.T) {
				t.Parallel()
				f := newFleet(t)
				if slices.Contains(layout.want, `locks persistent ""`) {
					require.NoError(t, createAll(plain(t), f.path+"/locks")) // a container goes while nobody is in it
				}
				for _, who := range layout.who {
					f.join(strings.ReplaceAll(who, "LIBRARY", library))
				}
				f.settle()
				if layout.then != nil {
					layout.then(f)
				}
				want := layout.want
				if library == ours && layout.ours != nil {
					want = layout.ours
				}
				require.Equal(t, want, layoutOf(f))
			})
		}
	}
}

// layoutOf are the znodes of a fleet, with words for the data that differ from run to run.
func layoutOf(f *fleet) []string {
	lines := left(f.t, plain(f.t), f.path, false)
	for i, line := range lines {
		name, data, ok := strings.Cut(line, ` "`)
		data = strings.TrimSuffix(data, `"`)
		switch {
		case !ok || data == "" || data == "__REVOKE__":
		case slices.ContainsFunc(f.members, func(m *member) bool { return data == idOf(m) }):
			lines[i] = name + ` "ID"`
		default:
			lines[i] = name + ` "DATA"`
		}
	}
	slices.Sort(lines)
	return lines
}
