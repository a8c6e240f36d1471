# GNU make. Without a target: what there is.

# Another version may find other things: change it on purpose, and look at what is new.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# How long each fuzz target runs.
FUZZTIME ?= 10s
# More arguments for go test: make test TESTFLAGS='-run TestMutex -v'
TESTFLAGS ?=
# More arguments for the demonstration: make demo DEMOFLAGS='-servers host:2181'
DEMOFLAGS ?=

export FUZZTIME

# The steps of a target have an order, and two of them may call apt-get.
.NOTPARALLEL:
.PHONY: help test check demo fuzz bench cover rename zookeeper c-compiler

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | awk -F'|' '{ printf "%-22s %s\n", $$1, $$2 }'

test: zookeeper c-compiler check ## everything, with -race on a real ZooKeeper, which is installed if there is none
	@scripts/test -race $(TESTFLAGS)

check: ## gofmt, go vet and staticcheck only
	scripts/gofmt-check
	go vet ./...
	go run $(STATICCHECK) ./...

demo: zookeeper ## processes contend for a lock, one is killed: the queue, live
	@servers=$$ZKTEST_SERVERS; [ "$$ZKTEST_REAL" != local ] || servers=; set -x; \
	go run ./cmd/zklock demo $${servers:+-servers "$$servers"} $(DEMOFLAGS)

fuzz: ## every fuzz target, FUZZTIME (10s) each
	scripts/fuzz

bench: zookeeper ## the benchmarks of the recipes, on a real ZooKeeper
	go test -run '^$$' -bench . -benchmem $(TESTFLAGS) .

cover: zookeeper ## the tests without -race; cover.out has what they reached
	@scripts/test -coverpkg=./... -coverprofile=cover.out $(TESTFLAGS)
	go tool cover -func=cover.out | tail -n 1

# The path goes through the environment, and as it is: neither make nor a shell reads anything into it.
unexport MODULE
rename: export RENAME_TO = $(value MODULE)
rename: ## MODULE=example.com/team/zkrecipes: changes the module path everywhere
	@go run ./internal/tools/rename "$$RENAME_TO"

zookeeper:
	@scripts/zookeeper

c-compiler:
	@scripts/c-compiler
