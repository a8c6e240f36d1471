package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// capacity is the model of everything that is held: take needs room, give makes it. A mutex and leadership have room for one; of a lock's room a writer takes
// all, a reader one; a semaphore has as much as it has permits, and several are taken at once. That what was given had been taken follows from its call coming after
// the return of the taking.
func capacity(limit int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, _ any) (bool, any) {
			inUse := state.(int) + input.(amount).n
			return 0 <= inUse && inUse <= limit, inUse
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprint(input) },
	}
}

// An amount is what is taken, or with a minus given.
type amount struct {
	n   int
	who string
}

func (a amount) String() string {
	if a.n < 0 {
		return fmt.Sprintf("%s gives %d", a.who, -a.n)
	}
	return fmt.Sprintf("%s takes %d", a.who, a.n)
}

// fenced is the model of a register that takes a write only from a holder whose token is not lower than the last one's.
var fenced = porcupine.Model{
	Init: func() any { return cell{} },
	Step: func(state, input, output any) (bool, any) {
		last := state.(cell)
		switch in := input.(type) {
		case write:
			switch out := output.(outcome); {
			case out == accepted:
				return in.token >= last.token, cell(in)
			case out == unknown && in.token >= last.token:
				return true, cell(in) // or never: its return is the end of the history, so it can be last
			}
			return true, last
		default: // a read
			return output.(int64) == last.value, last
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %v", input, output) },
}

type (
	cell  struct{ token, value int64 }
	write cell
	read  struct{}

	outcome string
)

const (
	accepted outcome = "accepted"
	refused  outcome = "refused"
	unknown  outcome = "unknown"
)

// Each model refuses what must not be.
func TestModels(t *testing.T) {
	op := func(call, ret int, in, out any) porcupine.Operation {
		return porcupine.Operation{Call: int64(call), Return: int64(ret), Input: in, Output: out}
	}
	take, give := func(n int) amount { return amount{n, ""} }, func(n int) amount { return amount{-n, ""} }
	for name, c := range map[string]struct {
		model porcupine.Model
		ok    bool
		ops   []porcupine.Operation
	}{
		"one after the other":                 {capacity(1), true, []porcupine.Operation{op(0, 1, take(1), nil), op(2, 3, give(1), nil), op(4, 5, take(1), nil)}},
		"a grant that was waited for":         {capacity(1), true, []porcupine.Operation{op(0, 1, take(1), nil), op(2, 9, give(1), nil), op(0, 5, take(1), nil)}},
		"two hold":                            {capacity(1), false, []porcupine.Operation{op(0, 1, take(1), nil), op(2, 3, take(1), nil), op(4, 5, give(1), nil)}},
		"a loss that was told too late":       {capacity(1), false, []porcupine.Operation{op(0, 1, take(1), nil), op(6, 7, give(1), nil), op(2, 5, take(1), nil)}},
		"readers together":                    {capacity(9), true, []porcupine.Operation{op(0, 1, take(1), nil), op(2, 3, take(1), nil), op(4, 5, give(1), nil)}},
		"a writer beside a reader":            {capacity(9), false, []porcupine.Operation{op(0, 1, take(1), nil), op(2, 3, take(9), nil), op(4, 5, give(1), nil)}},
		"more permits than there are":         {capacity(5), false, []porcupine.Operation{op(0, 1, take(3), nil), op(2, 3, take(3), nil)}},
		"a write that was overtaken":          {fenced, false, []porcupine.Operation{op(0, 1, write{2, 20}, accepted), op(2, 3, write{1, 10}, accepted)}},
		"a write that was refused":            {fenced, true, []porcupine.Operation{op(0, 1, write{2, 20}, accepted), op(2, 3, write{1, 10}, refused), op(4, 5, read{}, int64(20))}},
		"a write that was lost":               {fenced, false, []porcupine.Operation{op(0, 1, write{2, 20}, accepted), op(4, 5, read{}, int64(0))}},
		"an unanswered write that came late":  {fenced, true, []porcupine.Operation{op(0, 99, write{2, 20}, unknown), op(1, 2, read{}, int64(0)), op(4, 5, read{}, int64(20))}},
		"an unanswered write that never came": {fenced, true, []porcupine.Operation{op(0, 99, write{2, 20}, unknown), op(1, 2, read{}, int64(0)), op(4, 5, write{3, 30}, accepted), op(6, 7, read{}, int64(30))}},
		"a read of what nobody wrote":         {fenced, false, []porcupine.Operation{op(0, 1, read{}, int64(7))}},
	} {
		result, _ := porcupine.CheckOperationsVerbose(c.model, c.ops, time.Second)
		require.Equal(t, c.ok, result == porcupine.Ok, name)
	}
}
