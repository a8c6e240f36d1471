# GNU make. Without a target: what there is.

# Another version may find other things: change it on purpose, and look at what is new.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# How long each fuzz target runs.
FUZZTIME ?= 10s
# How long each campaign under faults goes on in make torture, and what its choices come from (none: the time).
DURATION ?= 60s
SEED ?=
# More arguments for go test: make test TESTFLAGS='-run TestMutex -v'
TESTFLAGS ?=
# More arguments for the demonstration: make demo DEMOFLAGS=-real, or DEMOFLAGS='-servers host:2181'
DEMOFLAGS ?=
# More arguments for shrink: make shrink TEST=TestVirtualCampaign SEED=7 SHRINKFLAGS='-tries 50 -within 1h'
SHRINKFLAGS ?=
# More arguments for the comparison: make bench BENCHFLAGS=-write
BENCHFLAGS ?=

export FUZZTIME

# Its driver, a database that was translated from C, takes minutes to compile with -race, and to be looked through.
HEAVY := ./examples/fencedrow

# The steps of a target have an order, and two of them may call apt-get.
.NOTPARALLEL:
.PHONY: help test interop test-launch torture shrink check demo diagrams recording fuzz bench bench-full bench-growth microbench cover rename zookeeper commands peers c-compiler

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | awk -F'|' '{ printf "%-22s %s\n", $$1, $$2 }'

test: commands peers c-compiler check ## everything: on the server of the test's process, and with -race on a real ZooKeeper, in Docker if that works
	@status=0; \
	env -u ZKTEST_REAL -u ZKTEST_SERVERS scripts/test $(TESTFLAGS) || status=1; \
	LEAVE_OUT=$(HEAVY) scripts/zookeeper scripts/test -race -parallel 4 $(TESTFLAGS) || status=1; \
	exit $$status

interop: peers c-compiler ## Curator, kazoo and this library in one queue: on the server of the test's process, and on a real ZooKeeper
	cd interop && env -u ZKTEST_REAL -u ZKTEST_SERVERS GOWORK=off go test -count=1 $(TESTFLAGS) ./...
	cd interop && GOWORK=off ../scripts/zookeeper go test -race -count=1 $(TESTFLAGS) ./...

# The rest of the tests see an address only.
test-launch: c-compiler ## what depends on where the servers come from: the launcher, and the recipes on three nodes
	scripts/zookeeper go test -race -count=1 -timeout 4m ./zktest
	scripts/zookeeper go test -race -count=1 -timeout 4m -run '^TestRecipes$$' .

check: ## gofmt, go vet and staticcheck only
	scripts/gofmt-check
	scripts/modules go vet ./...
	LEAVE_OUT=$(HEAVY) scripts/modules go run $(STATICCHECK) ./...

demo: ## processes contend for a lock, one is killed: the queue, live. DEMOFLAGS=-real: on a real ZooKeeper
	$(if $(filter -real,$(DEMOFLAGS)),scripts/zookeeper )go run ./cmd/zklock demo $(DEMOFLAGS)

diagrams: ## draws the pictures of docs/concepts.md
	go run ./internal/tools/diagrams

recording: ## runs the demonstration and draws what a terminal showed: docs/demo.svg
	go run ./internal/tools/recording

torture: export ZKRECIPES_TORTURE = $(DURATION)
torture: export ZKRECIPES_TEST_SEED = $(SEED)
torture: peers c-compiler ## campaigns under faults, DURATION (60s) long each, from SEED: adopted connections, histories, other clients, virtual time, load
	scripts/zookeeper go test -race -count=1 -timeout 12h -run 'UnderFaults$$|^TestAdopted|WhateverIs|AfterABlackHole$$|AtAnyRequest$$|Loss' -v $(TESTFLAGS) .
	ZKRECIPES_SHORTCUTS=off scripts/zookeeper go test -race -count=1 -timeout 12h -run 'UnderFaults$$|WhateverIs|AfterABlackHole$$|AtAnyRequest$$|Loss' -v $(TESTFLAGS) .
	cd history && GOWORK=off ../scripts/zookeeper go test -race -count=1 -timeout 12h -v $(TESTFLAGS) .
	cd interop && GOWORK=off ../scripts/zookeeper go test -race -count=1 -timeout 12h -run '^TestContention$$' -v $(TESTFLAGS) .
	go test -count=1 -timeout 12h -run '^TestVirtual.*Campaign$$|^TestLoad' -v $(TESTFLAGS) .

shrink: ## the shortest schedule of faults with which a campaign in virtual time fails: make shrink TEST=TestVirtualCampaign SEED=number
	go run ./internal/tools/shrink $(SHRINKFLAGS) $(TEST) $(SEED)

fuzz: ## every fuzz target, FUZZTIME (10s) each
	scripts/fuzz

bench: ## what the locks cost, beside raw calls and zk.Lock, on a real ZooKeeper. BENCHFLAGS=-write: docs/speed.md; -json
	@cd bench && GOWORK=off ../scripts/zookeeper go run . $(BENCHFLAGS)

bench-full: peers ## the same, and beside it Java Curator, kazoo, etcd and redsync; BENCHFLAGS as above
	@{ command -v etcd && command -v redis-server; } >/dev/null || scripts/apt-install etcd-server redis-server
	@cd bench && GOWORK=off ../scripts/zookeeper go run . -full $(BENCHFLAGS)

bench-growth: ## how cost grows with waiters, lock paths and sessions, in some eight minutes, by hand; BENCHFLAGS=-write: docs/growth.md and docs/capacity.md
	@cd bench && GOWORK=off ../scripts/zookeeper go run . -growth $(BENCHFLAGS)

microbench: ## the benchmarks of go test, on a real ZooKeeper
	scripts/zookeeper go test -run '^$$' -bench . -benchmem $(TESTFLAGS) .

cover: peers ## the tests without -race; cover.out has what they reached
	@scripts/zookeeper scripts/test -coverpkg=./... -coverprofile=cover.out $(TESTFLAGS)
	go tool cover -func=cover.out | tail -n 1

# The path goes through the environment, and as it is: neither make nor a shell reads anything into it.
unexport MODULE
rename: export RENAME_TO = $(value MODULE)
rename: ## MODULE=example.com/team/zkrecipes: changes the module path everywhere
	@go run ./internal/tools/rename "$$RENAME_TO"

zookeeper: ## finds or installs what the tests need, and says what it is
	@scripts/zookeeper

peers: ## the other clients that the tests in interop need: finds them, or installs them
	@scripts/peers

commands:
	@scripts/commands

c-compiler:
	@scripts/c-compiler
