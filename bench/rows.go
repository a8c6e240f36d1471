package main

import "fmt"

// The cells.
const (
	freeLock      = "free lock"
	freeRead      = "free read lock"
	drains        = "drain of one session's waiters"
	readersBehind = "readers behind a writer"
	failedTry     = "failed TryLock"
	reentry       = "re-entry"
	memory        = "memory"
	failover      = "failover"
)

func contended(sessions int) string { return fmt.Sprintf("contended, %d sessions", sessions) }

// What is measured in them.
const (
	perRequests     = "requests"
	perWrites       = "writes"
	perKB           = "kB"
	perTrips        = "round trips"
	perTime         = "time, µs"
	perNanoseconds  = "time, ns"
	perAllocations  = "allocations"
	sameAllocations = "allocations, to those of the same four raw calls"
	perSecond       = "grants a second"
	fairness        = "fairness, most to fewest grants"
	jainIndex       = "fairness, Jain's index"

	exponentBytes = "exponent of the bytes over N"
	exponentTime  = "exponent of the time over N"

	leaseBytes       = "bytes of a lease"
	leaseGoroutines  = "goroutines of a lease"
	waiterBytes      = "bytes of a waiter"
	waiterGoroutines = "goroutines of a waiter, beside the caller's"

	failoverMedian  = "after SIGKILL, in session timeouts"
	failoverSlowest = "after SIGKILL, the slowest"
	orderlyExit     = "after an orderly exit, ms"
)

func drainRequests(n int) string { return fmt.Sprintf("N=%d: requests of a waiter", n) }
func drainKB(n int) string       { return fmt.Sprintf("N=%d: kB of a waiter", n) }
func drainTime(n int) string     { return fmt.Sprintf("N=%d: time of a waiter, in raw cycles", n) }

// The curves.
const (
	curveBytes = "bytes"
	curveTime  = "time"
)

// A row is one line of the table.
type row struct {
	cell, what string
	per        string  // of what it is one
	target     *target // of this library
	ratio      bool    // to raw has a meaning
}

// A target is met by what is not above the limit. heartbeat is what a session may do beside at any time.
type target struct {
	limit     float64
	heartbeat float64
}

func atMost(limit float64) *target { return &target{limit: limit} }

// nearly leaves room for what happens once in a while, of which a count that should be whole has a small part.
func nearly(limit float64) *target { return &target{limit: limit, heartbeat: 0.05} }

func (t target) met(v float64) bool { return v <= t.limit+t.heartbeat }

// drainTargets is how many waiters the targets of a drain are for.
const drainTargets = 1000

// rows are the lines of the table, in its order.
func rows(size sizes) []row {
	rows := []row{
		{cell: freeLock, what: perRequests, per: "cycle", target: nearly(4.1)},
		{cell: freeLock, what: perKB, per: "cycle", ratio: true},
		{cell: freeLock, what: perTrips, per: "cycle", target: atMost(2.3), ratio: true},
		{cell: freeLock, what: perTime, per: "cycle", ratio: true},
		{cell: freeLock, what: perAllocations, per: "cycle", ratio: true},
		{cell: freeLock, what: sameAllocations, target: atMost(1.5)},
		{cell: freeRead, what: perRequests, per: "cycle", target: nearly(4.2)},
		{cell: freeRead, what: perKB, per: "cycle"},
	}
	for _, n := range size.sessions {
		var requests, trips, fair *target
		switch n {
		case 2:
			requests, trips = nearly(5), atMost(1.2)
		case 8:
			requests, trips, fair = nearly(6), atMost(1.7), atMost(1.05)
		}
		cell := contended(n)
		rows = append(rows,
			row{cell: cell, what: perSecond},
			row{cell: cell, what: perRequests, per: "grant", target: requests},
			row{cell: cell, what: perKB, per: "grant"},
			row{cell: cell, what: perTrips, per: "grant", target: trips},
			row{cell: cell, what: fairness, target: fair},
			row{cell: cell, what: jainIndex},
		)
	}
	for _, n := range size.waiters {
		var requests, kB, time *target
		if n == drainTargets {
			requests, kB, time = atMost(1.1), atMost(0.3), atMost(0.6)
		}
		rows = append(rows,
			row{cell: drains, what: drainRequests(n), target: requests},
			row{cell: drains, what: drainKB(n), target: kB},
			row{cell: drains, what: drainTime(n), target: time},
		)
	}
	return append(rows,
		row{cell: drains, what: exponentBytes, target: atMost(1.1)},
		row{cell: drains, what: exponentTime},
		row{cell: readersBehind, what: perRequests, per: "release", target: nearly(2)},
		row{cell: readersBehind, what: perKB, per: "release", target: atMost(6)},
		row{cell: failedTry, what: perRequests, per: "call", target: nearly(1)},
		row{cell: failedTry, what: perWrites, per: "call", target: atMost(0)},
		row{cell: reentry, what: perNanoseconds, per: "cycle", target: atMost(200)},
		row{cell: reentry, what: perAllocations, per: "cycle"},
		row{cell: reentry, what: perRequests, per: "cycle", target: &target{heartbeat: 0.001}},
		row{cell: memory, what: waiterBytes, target: atMost(2048)},
		row{cell: memory, what: waiterGoroutines, target: nearly(0)},
		row{cell: memory, what: leaseBytes},
		row{cell: memory, what: leaseGoroutines},
		row{cell: failover, what: failoverMedian},
		row{cell: failover, what: failoverSlowest, target: atMost(1.15)},
		row{cell: failover, what: orderlyExit, target: atMost(15)},
	)
}
