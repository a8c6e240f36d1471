package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLedgerOfARunThatWentWell(t *testing.T) {
	l := newLedger(2, []string{"a", "b"})
	require.True(t, l.enter("a", 5))
	require.True(t, l.access("a", 5))
	require.True(t, l.leave("a", 5))
	require.True(t, l.enter("b", 7))
	require.True(t, l.leave("b", 7))
	require.True(t, l.enter("a", 8))
	require.True(t, l.killed("a"))
	require.True(t, l.enter("b", 9))
	require.True(t, l.leave("b", 9))
	require.Equal(t, 3, l.sections())
	require.NoError(t, l.verdict(3))
	require.EqualValues(t, 5, l.first)
	require.EqualValues(t, 9, l.token)
	require.Equal(t, "a", l.dead)
	require.Equal(t, "b", l.heir)
}

func TestLedgerRefusesATokenThatDidNotGrow(t *testing.T) {
	l := newLedger(1, []string{"a", "b"})
	require.False(t, l.enter("a", 0))
	require.True(t, l.enter("a", 5))
	require.True(t, l.leave("a", 5))
	require.False(t, l.enter("b", 5))
	require.False(t, l.enter("b", 4))
	require.False(t, l.access("b", 4))
	require.True(t, l.enter("b", 6))
}

func TestLedgerRefusesWhoIsOvertaken(t *testing.T) {
	l := newLedger(1, []string{"a", "b"})
	require.True(t, l.enter("a", 5))
	require.True(t, l.enter("b", 6))
	require.False(t, l.access("a", 5))
	require.False(t, l.leave("a", 5))
	require.False(t, l.killed("a"), "it holds no more")
	l.lost("a")
	require.True(t, l.access("b", 6), "the loss of one is not that of the other")
	require.True(t, l.leave("b", 6))
	require.False(t, l.leave("b", 6), "twice")
	require.Zero(t, l.done["a"])
	require.Equal(t, 1, l.done["b"])
}

func TestLedgerDoesNotCountALostRound(t *testing.T) {
	l := newLedger(1, []string{"a"})
	require.True(t, l.enter("a", 5))
	l.lost("a")
	require.False(t, l.leave("a", 5))
	require.Zero(t, l.sections())
}

func TestVerdict(t *testing.T) {
	for name, tc := range map[string]struct {
		counter int
		spoil   func(*ledger)
		says    string
	}{
		"an increment is missing":     {2, func(*ledger) {}, "EXCLUSION BROKEN: 3 critical sections have incremented the counter to 2"},
		"there is one too many":       {4, func(*ledger) {}, "EXCLUSION BROKEN"},
		"nobody was killed":           {3, func(l *ledger) { l.dead = "" }, "no worker was killed"},
		"the lock was not passed on":  {3, func(l *ledger) { l.heir = "" }, "nobody was granted the lock after a was killed"},
		"a survivor did not finish":   {3, func(l *ledger) { l.rounds = 3 }, "b finished 2 of its 3 rounds"},
		"only the dead did not":       {3, func(*ledger) {}, ""},
		"a third one did not even go": {3, func(l *ledger) { l.done["c"] = 0 }, "c finished 0 of its 2 rounds"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{rounds: 2, done: map[string]int{"a": 1, "b": 2}, dead: "a", heir: "b"}
			tc.spoil(l)
			err := l.verdict(tc.counter)
			if tc.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.says)
		})
	}
}
