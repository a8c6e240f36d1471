package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes"
)

// A fakeLease is lost when its channel is closed.
type fakeLease chan struct{}

func (fakeLease) Token() zkrecipes.Token        { return 7 }
func (l fakeLease) Done() <-chan struct{}       { return l }
func (fakeLease) Release(context.Context) error { return nil }

func (l fakeLease) Err() error {
	select {
	case <-l:
		return &zkrecipes.LostError{Path: "/lock", Reason: zkrecipes.ReasonUnconfirmed}
	default:
		return nil
	}
}

// playRound runs one round under a lease with a demo that answers as told. It returns the kinds of the events, those of work left out, the counter,
// which was 41, and whether the round was finished.
func playRound(t *testing.T, lease fakeLease, answer func(event) reply) (kinds []string, counter int, finished bool) {
	t.Helper()
	c := &workerConfig{hold: time.Millisecond, counter: filepath.Join(t.TempDir(), "counter")}
	require.NoError(t, os.WriteFile(c.counter, []byte("41"), 0o600))
	r, w := io.Pipe()
	p := &parent{json.NewEncoder(w), make(chan reply, 1)}
	ended := make(chan error)
	go func() {
		for in := json.NewDecoder(r); ; {
			var e event
			if err := in.Decode(&e); err != nil {
				ended <- err
				return
			}
			if e.Kind != kindWorks {
				kinds = append(kinds, e.Kind)
			}
			p.replies <- answer(e)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	finished, err := c.round(ctx, p, func(context.Context) (holding, error) { return lease, nil })
	require.NoError(t, w.Close())
	require.ErrorIs(t, <-ended, io.EOF)
	require.NoError(t, err)
	counter, err = readCounter(c.counter)
	require.NoError(t, err)
	return kinds, counter, finished
}

func TestRoundIncrementsTheCounter(t *testing.T) {
	kinds, counter, finished := playRound(t, make(fakeLease), func(event) reply { return reply{} })
	require.Equal(t, []string{kindHolds, kindDone}, kinds)
	require.Equal(t, 42, counter)
	require.True(t, finished)
}

func TestRoundEndsWithItsLease(t *testing.T) {
	lease := make(fakeLease)
	kinds, counter, finished := playRound(t, lease, func(e event) reply {
		if e.Kind == kindHolds {
			close(lease)
		}
		return reply{}
	})
	require.Equal(t, []string{kindHolds, kindLost}, kinds)
	require.Equal(t, 41, counter)
	require.False(t, finished)
}

func TestRefusedRoundFindsItsLeaseLost(t *testing.T) {
	for _, kind := range []string{kindHolds, kindWorks} {
		t.Run(kind, func(t *testing.T) {
			lease := make(fakeLease)
			kinds, counter, finished := playRound(t, lease, func(e event) reply {
				if e.Kind != kind {
					return reply{}
				}
				close(lease)
				return reply{Refused: 8}
			})
			require.Equal(t, []string{kindHolds, kindLost}, kinds)
			require.Equal(t, 41, counter)
			require.False(t, finished)
		})
	}
}

func TestRefusedRoundWithoutALossIsABrokenLock(t *testing.T) {
	for _, kind := range []string{kindHolds, kindWorks, kindDone} {
		t.Run(kind, func(t *testing.T) {
			kinds, _, finished := playRound(t, make(fakeLease), func(e event) reply {
				if e.Kind == kind {
					return reply{Refused: 8}
				}
				return reply{}
			})
			require.Equal(t, kindBroken, kinds[len(kinds)-1])
			require.False(t, finished)
		})
	}
}

func TestVictimHoldsOnUntilItIsKilled(t *testing.T) {
	lease := make(fakeLease)
	works := 0
	kinds, _, _ := playRound(t, lease, func(e event) reply {
		if e.Kind == kindWorks {
			if works++; works == 50 { // for many times the hold
				close(lease)
			}
		}
		return reply{Hang: e.Kind == kindHolds}
	})
	require.Equal(t, []string{kindHolds, kindLost}, kinds)
	require.Equal(t, 50, works)
}

func TestWorkerHearsThatTheDemoIsGone(t *testing.T) {
	p := &parent{json.NewEncoder(io.Discard), make(chan reply)}
	close(p.replies)
	_, err := p.say(event{Kind: kindHolds})
	require.ErrorIs(t, err, errGone)
}

func TestCounterThatIsHalfWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counter")
	_, err := readCounter(file)
	require.True(t, errors.Is(err, os.ErrNotExist))
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = readCounter(file)
	require.ErrorContains(t, err, "EXCLUSION BROKEN")
}
