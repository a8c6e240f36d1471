package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{nil, exitUsage, "", "usage: zklock command"},
		{[]string{"help"}, exitOK, "demo ", ""},
		{[]string{"-h"}, exitOK, "demo ", ""},
		{[]string{"dance"}, exitUsage, "", `no command "dance"`},
		{[]string{"help", "dance"}, exitUsage, "", `no command "dance"`},
		{[]string{"help", "run"}, exitOK, "usage: zklock run [flags] PATH -- CMD", ""},
		{[]string{"run", "--help"}, exitOK, "usage: zklock run [flags] PATH -- CMD", ""},
		{[]string{"run", "/lock", "-h", "--", "true"}, exitOK, "usage: zklock run [flags] PATH -- CMD", ""},
		{[]string{"run", "/lock", "--", "-h"}, exitNotFound, "", `"-h"`},
		{[]string{"demo", "-h"}, exitOK, "-servers", ""},

		{[]string{"demo", "-bogus"}, exitUsage, "", "-bogus"},
		{[]string{"demo", "extra"}, exitUsage, "", `"extra"`},
		{[]string{"demo", "-rounds", "1"}, exitUsage, "", "-rounds 1"},
		{[]string{"demo", "-rounds", "many"}, exitUsage, "", "many"},
		{[]string{"demo", "-hold", "-1s"}, exitUsage, "", "positive"},
		{[]string{"demo", "-timeout", "0"}, exitUsage, "", "positive"},
		{[]string{"demo", "-limit", "0s"}, exitUsage, "", "positive"},
		{[]string{"demo", "-real", "-servers", "host:2181"}, exitUsage, "", "one of the two"},
		{[]string{"demo", "-servers", "host:port"}, exitUsage, "", "host:port"},
		{[]string{"demo", "-servers", "h1:2181,h2:2181/a//b"}, exitUsage, "", "/a//b"},

		{[]string{"run"}, exitUsage, "", "no --"},
		{[]string{"run", "/lock"}, exitUsage, "", "no -- before the command to run"},
		{[]string{"run", "/lock", "true"}, exitUsage, "", "no -- before the command to run"},
		{[]string{"run", "/lock", "--"}, exitUsage, "", "no command to run"},
		{[]string{"run", "/lock", "--", ""}, exitUsage, "", "no command to run"},
		{[]string{"run", "--", "true"}, exitUsage, "", "no path"},
		{[]string{"run", "/lock", "/other", "--", "true"}, exitUsage, "", "2 paths given"},
		{[]string{"run", "lock", "--", "true"}, exitUsage, "", `"lock" is no path`},
		{[]string{"run", "-timeout", "soon", "/lock", "--", "true"}, exitUsage, "", "30s or 5m"},
		{[]string{"run", "/lock", "-timeout", "0s", "--", "true"}, exitUsage, "", "-timeout: must be positive"},
		{[]string{"run", "/lock", "-session-timeout", "-1s", "--", "true"}, exitUsage, "", "-session-timeout: must be positive"},
		{[]string{"run", "/lock", "-grace", "-1s", "--", "true"}, exitUsage, "", "-grace -1s"},
		{[]string{"run", "/lock", "-grace", "long", "--", "true"}, exitUsage, "", "-grace"},
		{[]string{"run", "/lock", "-permits", "0", "--", "true"}, exitUsage, "", "-permits 0: at least 1"},
		{[]string{"run", "/lock", "-permits", "-3", "--", "true"}, exitUsage, "", "-permits -3: at least 1"},
		{[]string{"run", "/lock", "-permits", "many", "--", "true"}, exitUsage, "", "many"},
		{[]string{"run", "/lock", "-permits", "2", "-shared", "--", "true"}, exitUsage, "", "one of the two"},
		{[]string{"run", "/lock", "-owner", "", "--", "true"}, exitUsage, "", "-owner is empty"},
		{[]string{"run", "/lock", "-try=perhaps", "--", "true"}, exitUsage, "", "perhaps"},
		{[]string{"run", "/lock", "--", "true"}, exitUsage, "", "ZKLOCK_SERVERS"},
		{[]string{"run", "-servers", "host:port", "/lock", "--", "true"}, exitUsage, "", "host:port"},

		{[]string{"run", "/a//b", "--", "true"}, exitUsage, "", "no empty element"},
		{[]string{"leader", "/a/", "--", "true"}, exitUsage, "", "no / at its end"},
		{[]string{"status", "-watch", "/a/./b"}, exitUsage, "", "no . or .."},
		{[]string{"break", "-yes", "/a/../b"}, exitUsage, "", "no . or .."},
		{[]string{"leader", "/lock", "true"}, exitUsage, "", "zklock leader PATH -- CMD"},
		{[]string{"leader", "/lock", "-backoff", "0s", "--", "true"}, exitUsage, "", "-backoff: must be positive"},
		{[]string{"leader", "/lock", "-backoff", "2m", "--", "true"}, exitUsage, "", "-backoff 2m0s is longer than -backoff-max 1m0s"},
		{[]string{"leader", "/lock", "-backoff-max", "-1s", "--", "true"}, exitUsage, "", "-backoff-max: must be positive"},
		{[]string{"leader", "/lock", "-owner", "", "--", "true"}, exitUsage, "", "-owner is empty"},
		{[]string{"leader", "/lock", "-grace", "-1s", "--", "true"}, exitUsage, "", "-grace -1s"},
		{[]string{"leader", "/lock", "-timeout", "1s", "--", "true"}, exitUsage, "", "-timeout"},

		{[]string{"status"}, exitUsage, "", "no path"},
		{[]string{"status", "/a", "/b"}, exitUsage, "", "2 paths"},
		{[]string{"status", "/a", "--", "-watch"}, exitUsage, "", "2 paths"},
		{[]string{"status", "-json=2", "/a"}, exitUsage, "", "-json"},
		{[]string{"tree"}, exitUsage, "", "no path"},
		{[]string{"tree", "-depth", "0", "/"}, exitUsage, "", "-depth 0: at least 1"},
		{[]string{"tree", "-depth", "-1", "/"}, exitUsage, "", "-depth -1: at least 1"},
		{[]string{"revoke"}, exitUsage, "", "no path"},
		{[]string{"revoke", "node"}, exitUsage, "", `"node" is no path`},
		{[]string{"break", "-yes"}, exitUsage, "", "no path"},
		{[]string{"break", "-older-than", "0s", "/lock"}, exitUsage, "", "-older-than: must be positive"},
		{[]string{"break", "-older-than", "10 minutes", "/lock"}, exitUsage, "", "30s or 5m"},
	} {
		t.Run(fmt.Sprint(tc.args), func(t *testing.T) {
			t.Parallel()
			z := newZklock(t, tc.args...)
			require.Equal(t, tc.code, z.run(t))
			for _, o := range []struct{ got, want string }{{z.stdout.String(), tc.stdout}, {z.stderr.String(), tc.stderr}} {
				if o.want == "" {
					require.Empty(t, o.got)
				}
				require.Contains(t, o.got, o.want)
				require.NotContains(t, o.got, "demo-worker", "it is no command for people")
			}
			if len(tc.args) > 1 && tc.args[0] != "help" && tc.code == exitUsage {
				require.Equal(t, 1, strings.Count(z.stderr.String(), "\n"), "one clear line")
				require.Contains(t, z.stderr.String(), "zklock "+tc.args[0]+" -h explains the flags")
			}
		})
	}
}

// Each flag that a command's help names is told apart when it has no value, or when it takes yes or no and gets something else, or a value of no such kind.
func TestBadUseOfEveryFlag(t *testing.T) {
	t.Parallel()
	kinds := map[string]string{"duration": "soon", "time": "soon", "timeout": "soon", "pause": "soon", "int": "many", "number": "many", "levels": "many"}
	for _, c := range commands {
		if c.hidden {
			continue
		}
		help := newZklock(t, "help", c.name)
		require.Equal(t, exitOK, help.run(t))
		flags := regexp.MustCompile(`(?m)^  -(\S+)(?: (\S+))?(?:\t|$)`).FindAllStringSubmatch(help.stdout.String(), -1)
		require.NotEmpty(t, flags)
		for _, f := range flags {
			name, kind := f[1], f[2]
			bad := [][]string{{"-" + name}}
			if kind == "" {
				bad = [][]string{{"-" + name + "=perhaps"}}
			}
			if value := kinds[kind]; value != "" {
				bad = append(bad, []string{"-" + name, value}, []string{"-" + name + "="})
			}
			for _, args := range bad {
				t.Run(fmt.Sprint(c.name, args), func(t *testing.T) {
					t.Parallel()
					z := newZklock(t, append([]string{c.name}, args...)...)
					require.Equal(t, exitUsage, z.run(t))
					require.Empty(t, z.stdout.String())
					require.Equal(t, 1, strings.Count(z.stderr.String(), "\n"), "one clear line: %s", z.stderr.String())
					require.Regexp(t, `^zklock.* -`+name+`\b.*zklock `+c.name+` -h explains the flags`, z.stderr.String())
				})
			}
		}
	}
}

// The manual has what the commands print about themselves, word for word.
func TestManualHasTheHelp(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/zklock.md")
	require.NoError(t, err)
	manual := string(b)
	for _, c := range append([]command{{}}, commands...) {
		if c.hidden {
			continue
		}
		args := []string{"help", c.name}
		if c.name == "" {
			args = args[:1]
		}
		z := newZklock(t, args...)
		require.Equal(t, exitOK, z.run(t))
		require.Contains(t, manual, "```text\n"+z.stdout.String()+"```\n", "docs/zklock.md: the output of zklock %s", strings.Join(args, " "))
	}
}

// Its table of exit codes has all of them, and no other.
func TestManualHasTheExitCodes(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/zklock.md")
	require.NoError(t, err)
	var rows []string
	for line := range strings.Lines(string(b)) {
		if code, ok := strings.CutPrefix(line, "| `"); ok {
			code, _, _ = strings.Cut(code, "`")
			rows = append(rows, code)
		}
	}
	var want []string
	for _, code := range []int{exitOK, exitFailed, exitUsage, exitLost, exitNoConnection, exitHeld, exitTimeout, exitOurs, exitNotStarted, exitNotFound} {
		want = append(want, fmt.Sprint(code))
	}
	require.Equal(t, append(want, fmt.Sprintf("%d + n", exitSignal)), rows)
}
