// Package history records what many clients of the recipes do under faults, and checks each history with porcupine against a model of what was promised: is
// there an order of all the operations, each at one moment between its call and its return, that a lock, a semaphore, a leader or a fenced register could
// have gone through?
//
// It has tests only; the module is its own for the sake of the checker, which the recipes do not need.
package history
