# hostler: `make help` lists what there is to make.

SHELL        := /bin/bash
.SHELLFLAGS  := -euo pipefail -c
GO           ?= go
VERSION      ?= $(shell packaging/version)
LDFLAGS      := -s -w -X main.version=$(VERSION)
# gRPC's request tracing, which nobody can see here, brings in templates; with
# them the linker keeps every method of every type: 5 MB.
TAGS         := grpcnotrace
# All static programs are built with the same flags. With others, go compiles all packages once more.
# With a larger heap, the compiler needs a fifth less time of processors.
STATIC        = CGO_ENABLED=0 GOGC=400 $(GO) build -trimpath -tags $(TAGS)
FUZZTIME     ?= 10s
# What packages are made for.
ARCHITECTURES ?= amd64 arm64
# The version comes from git describe; go's own stamp fails in a clone that
# another user owns.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

# Where `make machine` goes.
RELEASE      ?= 12
BED          ?= container

.DEFAULT_GOAL := build
.PHONY: help build demo demo-fleet machine transcript check sim sim-faults test test-machine test-long test-all test-upstream generate fuzz bench bench-fleet package image fmt lint words vulncheck prepare prerequisites clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## the one static binary, ./hostler
	$(STATIC) -ldflags '$(LDFLAGS)' -o hostler .

demo: build ## the main job on a real containerd and logind, safely; as root
	$(STATIC) -o dist/demo ./test/demo
	dist/demo ./hostler

demo-fleet: build ## a fleet on a real etcd loses a host and gets it back, safely; as root
	$(STATIC) -o dist/demo ./test/demo
	dist/demo -fleet ./hostler

machine: ## a shell in a throwaway Debian with hostler: RELEASE=12|13 BED=container|vm; as root
	$(STATIC) -o dist/machine-shell ./test/machine/shell
	dist/machine-shell -release $(RELEASE) -bed $(BED)

# The record is what a test draws the picture from again.
transcript: build ## docs/demo.txt, docs/demo.cast, docs/demo.svg and docs/shutdown.svg from a new run of the demo; as root
	$(STATIC) -o dist/demo ./test/demo
	$(STATIC) -o dist/shoot ./test/demo/film/shoot
	dist/demo ./hostler docs/shutdown.svg docs/shutdown.json | dist/shoot -cast docs/demo.cast -svg docs/demo.svg >dist/demo.txt
	sed 1d dist/demo.txt >docs/demo.txt

check: ## unit tests: fast, no root
	$(GO) test ./...

# A failure prints the command that replays it.
SIMTIME ?= 1h
sim: ## simulated fleets with new seeds, for SIMTIME
	HOSTLER_SIM_TIME=$(SIMTIME) HOSTLER_SIM_SAME=1 HOSTLER_SIM_SEED=$$(date +%s) $(GO) test -count=1 -timeout 0 -v -run TestFleet ./test/fleetsim

# The faults are test/fleetsim/known/*.patch. FAULTS are texts of which one is in the name of each fault that is run.
TRIES ?= 5
FAULTS ?=
sim-faults: ## put known faults back, and count how often the simulation finds each; TRIES=5, FAULTS=NAME
	TRIES=$(TRIES) nice test/fleetsim/known/run $(FAULTS)

# A real etcd of three members, three servers and 50 agents.
SOAKTIME ?= 1h
soak: prepare ## real servers and agents amid faults, for SOAKTIME; as root
	HOSTLER_TEST_PREPARED=1 HOSTLER_SOAK=$(SOAKTIME) $(GO) test -tags 'integration soak' -count=1 -timeout 0 -v -run '^TestSoak$$' ./test/e2e

GOTESTSUM := $(GO) tool -modfile=test/tools/go.mod gotestsum

# Packages whose tests run daemons or boot machines, and the others.
PACKAGES = $(patsubst hostler.io/hostler%,.%,$(shell $(GO) list -tags integration ./...))
REAL = $(shell grep -rl --include='*_test.go' '^//go:build integration' . | xargs -n 1 dirname | sort -u)

# Tests mostly wait for daemons and grace periods, so that more run than there are
# processors. -count=1: go's cache of test results does not see the programs that tests run.
# The longest begin first. The largest models run without the race detector, which makes them ten times slower.
# test/machine runs alone, and more of it at once, because it waits the most.
LONGEST = ./test/e2e ./test/e2e/docker ./runtime/podman ./runtime/docker ./gc/collect ./controlplane/kubernetes ./test/packages
PARALLEL := $(shell echo $$((1 + $$(nproc))))
# HOSTLER_TEST_PREPARED=1: what a test lacks is missing in test/prepare. make lint vets, not each test.
COMPILED = -race -tags integration
TEST = HOSTLER_TEST_PREPARED=1 $(GOTESTSUM) --format standard-quiet --jsonfile dist/tests-$(1).json -- $(COMPILED) -vet=off -timeout 60m -p $(PARALLEL) -parallel $(PARALLEL)
test: prepare build ## everyday tests: also real daemons and booted Debians, race detector on; as root
	mkdir -p dist
	rm -f dist/tests-*.json
	trap 'echo "The slowest tests:"; cat dist/tests-*.json | $(GOTESTSUM) tool slowest --num 20' EXIT; \
	$(GO) test -count=1 -vet=off -run 'TestEveryOrder|TestRandomHistories' ./controlplane/slots ./controlplane/controllers/reboots; \
	$(call TEST,1) $(filter-out $(REAL),$(PACKAGES)); \
	$(call TEST,2) -count=1 $(LONGEST) $(filter-out $(LONGEST) ./test/machine,$(REAL)); \
	$(call TEST,3) -count=1 -parallel $$((1 + $(PARALLEL))) ./test/machine

# A VM takes half a minute to two minutes for each shutdown, a container ten seconds.
test-machine: prepare ## every scenario of test/machine in VMs: hours; as root
	HOSTLER_TEST_BED=vm $(GO) test -tags integration -count=1 -timeout 4h -v ./test/machine

# What make test shortens or skips: packages built again from an empty cache, a thousand containers
# amid collections, collections on each kind of filesystem, a server in a cluster that lacks each
# of its rights, has its manifests or cannot read Leases, a verified cluster, a hostile host, most
# conformance suites of Docker and Podman, each story of test/machine on both Debians, random
# operations on objects with owners on etcd, of which it makes a million. The guard and the reporter, which many call at once, run again and again:
# their tests wait for random times.
test-long: prepare ## the long forms of tests that make test shortens; as root
	$(GO) test -race -count=20 -timeout 60m ./shutdown ./status/report
	HOSTLER_TEST_LONG=1 $(GO) test -count=1 -timeout 10m -run TestServersThatAreKilled ./controlplane/controllers/lifecycle ./controlplane/controllers/eviction
	HOSTLER_TEST_LONG=1 $(GO) test -tags integration -count=1 -timeout 90m -v -run TestRandomOperations ./controlplane/controllers/garbagecollector
	$(MAKE) sim SIMTIME=10m
	HOSTLER_TEST_LONG=1 $(GO) test -count=1 -timeout 60m -run 'TestRandomHistories|TestEveryOrder' ./controlplane/slots ./controlplane/controllers/reboots
	HOSTLER_TEST_LONG=1 $(GO) test -race -tags integration -count=1 -timeout 60m -v -run 'TestTwoBuildsOfOneCommitAreTheSame|TestCollectionBreaksNoConcurrentUse|^Test(Docker|Podman|PodmanOfDebian13)Conforms$$|TestRealFilesystems' ./test/packages ./test/e2e ./runtime/docker ./runtime/podman ./gc/collect
	HOSTLER_TEST_LONG=1 $(GO) test -race -tags integration -count=1 -timeout 90m -v -run 'TestAControllerNames|TestAServerWithThe|TestLeasesThatAreNotRead|TestVerifyingACluster|TestAHostHarmsNobodyElse' ./test/e2e
	HOSTLER_TEST_LONG=1 $(GO) test -race -tags integration -count=1 -timeout 60m -v -parallel $(PARALLEL) ./test/machine

test-all: test test-machine test-long ## all tests, for a release and for changes to shutdown, systemd or packaging; as root

# The suite and all programs are built from modules of Kubernetes, which takes long the first time only.
test-upstream: build ## Kubernetes' own e2e suites for taints and garbage collection, on hostler server and on kube-controller-manager; as root
	$(STATIC) -o dist/upstream-run ./test/upstream
	dist/upstream-run ./hostler

generate: ## the Go of the protocol between hostler and plugins, from its .proto
	$(GO) test -count=1 ./test/generated -update

fuzz: ## each fuzz target for FUZZTIME
	@$(GO) list -f '{{$$p := .}}{{range .TestGoFiles}}{{$$p.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$$p.Dir}}/{{.}}{{"\n"}}{{end}}' ./... \
	| xargs grep -o '^func Fuzz[A-Za-z0-9]*' | sed 's/:func / /' | while read -r file target; do \
		echo "$$target"; $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$(dirname "$$file")"; done

bench: build ## the figures of docs/reference/performance.md; as root
	$(GO) test -tags integration -run '^$$' -bench . -benchtime 1x -timeout 150m -v ./test/bench

# Apart from bench: it wants both processors of a small machine for itself.
bench-fleet: ## how many hosts one etcd and one kube-apiserver carry here, in an hour; as root
	$(GO) test -tags integration -run '^$$' -bench 'Fleet|Server|Garbage|Reboots' -benchtime 1x -timeout 3h -v ./test/bench/fleet

# The same commit makes the same bytes: nothing of this host, its paths or its clock gets
# in. The variables that say what a processor can do would.
package image: export SOURCE_DATE_EPOCH ?= $(shell git -c safe.directory='*' log -1 --format=%ct)
package image: export GOFLAGS := -buildvcs=false
package image: export GOEXPERIMENT :=
package image: export GOFIPS140 := off
package image: export GOAMD64 := v1
package image: export GOARM64 := v8.0
package: ## deb and rpm for amd64 and arm64, bills of materials and checksums, in dist/packages
	rm -rf dist/packages dist/made
	mkdir -p dist/packages
	$(STATIC) -o dist/made/write ./packaging/made/write
	for arch in $(ARCHITECTURES); do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) list -deps -tags $(TAGS) -f '{{with .Module}}{{if not .Main}}{{.Path}}@{{.Version}} {{.Dir}}{{end}}{{end}}' .; \
	done | LC_ALL=C sort -u >dist/made/modules
	echo "go@$$($(GO) env GOVERSION) $$($(GO) env GOROOT)" >>dist/made/modules
	dist/made/write -version '$(VERSION)' -modules dist/made/modules -to dist/made
	mkdir dist/made/deb dist/made/rpm
	for script in deb/postinst deb/server-postinst rpm/post rpm/server-post; do \
		sed -e '/^# make package inserts/{' -e 'r packaging/restart.sh' -e 'd' -e '}' packaging/$$script >dist/made/$$script; \
	done
	for arch in $(ARCHITECTURES); do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o dist/made/$$arch/hostler .; \
		dist/made/write -version '$(VERSION)' -bill dist/made/$$arch/hostler >'dist/packages/hostler_$(VERSION)_'$$arch.cdx.json; \
		for format in deb rpm; do for file in nfpm nfpm-server; do \
			ARCH=$$arch VERSION='$(VERSION)' PACKAGE_VERSION="$$(echo '$(VERSION)' | sed s/-/~/)-1" \
				$(GO) tool -modfile=packaging/tools/go.mod nfpm package -f packaging/$$file.yaml -p $$format -t dist/packages; \
		done; done; \
	done
	cd dist/packages && LC_ALL=C && sha256sum * >SHA256SUMS

image: ## an OCI image of hostler server for amd64 and arm64, in dist/image; needs no daemon
	rm -rf dist/image
	mkdir -p dist/image
	cd packaging/image && $(STATIC) -o ../../dist/made/image .
	for arch in $(ARCHITECTURES); do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o dist/made/$$arch/hostler .; \
	done
	dist/made/image -version '$(VERSION)' -revision "$$(git -c safe.directory='*' rev-parse HEAD 2>/dev/null || true)" \
		-to 'dist/image/hostler-server_$(VERSION).oci.tar' $(foreach arch,$(ARCHITECTURES),$(arch)=dist/made/$(arch)/hostler)

fmt: ## format the code
	$(GO) tool gofumpt -w $$(git ls-files '*.go')

lint: ## formatting, vet, static analysis, import rules, plain words
	@unformatted=$$($(GO) tool gofumpt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; fi
	@# with cgo, which a test of runc needs
	$(GO) vet ./...
	$(GO) vet -tags 'integration soak' ./...
	$(GO) tool staticcheck -tags 'integration soak' ./...
	@# go list, which it runs, is not seen by the cache of test results
	$(GO) test -count=1 ./test/arch
	$(MAKE) --no-print-directory words

# Vale is built with a C compiler.
words: prerequisites ## plain words: docs, and the texts that the program prints
	$(GO) build -modfile=test/tools/go.mod -o dist/vale github.com/vale-cli/vale/v3/cmd/vale
	$(GO) run ./test/words dist/vale *.md $$(find docs -name '*.md' | LC_ALL=C sort)

# The database is on the network. Without bounds govulncheck would wait for it, and with -version it
# names the database's date only if it reached it.
vulncheck: ## known vulnerabilities of code that hostler calls; skipped if their database is out of reach
	@if ! timeout 300 $(GO) build -modfile=test/tools/go.mod -o dist/govulncheck golang.org/x/vuln/cmd/govulncheck; then \
		echo "vulncheck: skipped, govulncheck cannot be built"; exit; fi; \
	case "$$(timeout 30 dist/govulncheck -version)" in \
	*"DB updated:"*) timeout 600 dist/govulncheck -tags $(TAGS) . ;; \
	*) echo "vulncheck: skipped, the vulnerability database is out of reach" ;; \
	esac

# No test competes with a compiler or a download. A line for each part, and nothing to do the next time.
prepare: prerequisites ## what make test builds and fetches, without the tests; as root
	@echo "prepare: compiling test/prepare, a minute the first time"
	@$(STATIC) -o dist/prepare ./test/prepare
	@dist/prepare $(COMPILED)

prerequisites: # the race detector wants a C compiler, what makes Debian roots is a Perl program
	@if ! command -v gcc >/dev/null || ! command -v perl >/dev/null; then apt-get update -q && apt-get install -qy --no-install-recommends gcc libc6-dev perl; fi

clean: ## what was built here; caches stay
	rm -rf hostler dist
