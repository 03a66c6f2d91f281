# The same targets serve people and CI.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X k8s4r.io/k8s4r/internal/protocol/version.Version=$(VERSION)
# What is compiled with and without cgo is not shared: only the race detector needs cgo.
export CGO_ENABLED := 0
GO_BUILD := go build -trimpath -ldflags '$(LDFLAGS)'
# The API server in k8s4r says which Kubernetes it is: Helm and others ask.
KUBERNETES = $(shell cd standalone && go list -m -f '{{.Version}}' k8s.io/kubernetes)
KUBERNETES_LDFLAGS = -X k8s.io/component-base/version.gitVersion=$(KUBERNETES) \
	-X k8s.io/component-base/version.gitMajor=$(word 1,$(subst ., ,$(KUBERNETES:v%=%))) \
	-X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(KUBERNETES:v%=%)))
BIN := $(CURDIR)/bin
# The program of shims, which only the build below embeds into the agent.
SHIM := internal/robot/shim/program/k8s4r-shim
PROGRAMS := k8s4r k8s4r-manager k8s4r-server k8s4r-console k8s4r-agent kubectl-k8s4r

.PHONY: help
help: ## show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

.PHONY: build
build: ## build all programs into bin/
	@$(call with-node,web)
	@mkdir -p $(BIN)
	$(GO_BUILD) -o $(SHIM) ./internal/robot/shim/k8s4r-shim
	gzip -9nf $(SHIM)
	$(GO_BUILD) -tags k8s4r_shim -o $(BIN)/ ./cmd/...
	cd standalone && go build -trimpath -ldflags '$(LDFLAGS) $(KUBERNETES_LDFLAGS)' -o $(BIN)/k8s4r ./cmd/k8s4r

# The programs are built without Node too; their console then says what is missing. Generated files that need it stay as they are.
with-node = if command -v npm >/dev/null; then $(MAKE) -s $(1); else echo "no Node here, so without: make $(1)"; fi

WEB_SOURCES = $(shell find web/src web/public web/scripts -type f) web/index.html web/vite.config.ts web/test/fake.ts web/test/sampleData.ts

.PHONY: web
web: web/dist/index.html ## build the console's pages, which the programs carry; needs Node 20.19 or newer

web/node_modules/.package-lock.json: web/package-lock.json
	cd web && npm ci --prefer-offline --fetch-retries=5 --no-audit --no-fund
	@touch $@

web/dist/index.html: web/node_modules/.package-lock.json $(WEB_SOURCES)
	cd web && npm run build
	@touch $@

.PHONY: web-check
web-check: web/node_modules/.package-lock.json ## types, lint and unit tests of the console's pages
	cd web && npm run -s check

.PHONY: web-test
web-test: web build ## the console in a browser: its pages on made-up data, and a story of a real system
	@hack/deps browser
	cd web && npm test
	hack/console-story

.PHONY: web-measure
web-measure: web ## how smooth 10,000 tasks and a flow of 1,000 steps are in a browser
	@hack/deps browser
	cd web && npm run -s measure

.PHONY: generate
generate: $(BIN)/controller-gen $(BIN)/sqlc ## write all generated files
	$(BIN)/controller-gen object paths=./api/...
	$(BIN)/controller-gen crd:allowDangerousTypes=true,generateEmbeddedObjectMeta=true,maxDescLen=1024 paths=./api/... output:crd:dir=config/crd
	go run ./hack/crds
	$(BIN)/sqlc generate -f internal/archive/sqlc.yaml
	go run ./hack/diagrams
	hack/chart-files
	go run ./hack/metrics
	go run ./hack/openapi
	go run ./hack/docs
	@$(call with-node,web-types)

.PHONY: web-types
web-types: tools/openapi-typescript/node_modules/.package-lock.json ## types of the console's API for its pages, from the document of it
	$(<D)/.bin/openapi-typescript docs/reference/console-openapi.json --root-types --root-types-no-schema-prefix -o web/src/api.gen.ts

# Steps of the three tiers and their order: hack/ci/tiers.go. Each tier ends with a line of JSON.
.PHONY: check
check: ## lint, unit tests, types of the console's pages: under two minutes
	@go run ./hack/ci check

.PHONY: presubmit
presubmit: ## everything that must hold before a change lands: under 25 minutes
	@go run ./hack/ci presubmit

.PHONY: nightly
nightly: ## what takes hours: random input at length, faults, measurements, benchmarks
	@go run ./hack/ci nightly

.PHONY: deflake
deflake: ## repeat one test under load until it fails: TEST=TestName [PKG=./internal/x] [COUNT=50]
	@go run ./hack/ci deflake $(if $(COUNT),-count $(COUNT)) $(if $(PKG),-package $(PKG)) '$(TEST)'

.PHONY: lint
lint: $(BIN)/golangci-lint ## run the linters over both modules
	$(BIN)/golangci-lint run --allow-parallel-runners ./...
	cd standalone && $(BIN)/golangci-lint run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...

.PHONY: house
house: $(BIN)/dupl ## figures of names, wording, imports and docs; HOUSE='-v -only KEY PATH' lists what counts
	@go run ./hack/house $(HOUSE)

.PHONY: words
words: ## words and phrases that have a plainer replacement; WORDS=internal/cli checks only that
	@go run ./hack/words $(WORDS)

.PHONY: commits
commits: ## subjects of the commits since BASE: "area: summary" in at most 72 characters
	@go run ./hack/commits $(BASE)

.PHONY: unit
unit: archive-deps ## tests that need no API server, under the race detector
	go run ./hack/ci test -race ./api/... ./cmd/... ./config/... ./hack/... ./internal/... ./web
	go run ./hack/ci test -C tools/sbom ./...

.PHONY: test
test: driver-deps archive-deps node-deps build unit $(BIN)/helm ## every test that needs only this machine
	go run ./hack/ci test -p=1 -parallel=4 -timeout=40m ./test/... # one suite at a time
	K8S4R_BIN=$(BIN)/k8s4r go run ./hack/ci test -C standalone -timeout=20m ./...

.PHONY: fuzz
fuzz: ## fuzz every decoder; FUZZTIME=10m for longer than 5 seconds each
	@hack/fuzz $(or $(FUZZTIME),5s)

.PHONY: faults
faults: deps build ## kill and disconnect every part for half an hour; FAULTS='-seed 1 -only agent-kills' repeats one
	go run ./test/faults $(FAULTS)

.PHONY: model
model: ## drive a model of the whole system through thousands of random orders of events
	hack/model 10000

.PHONY: authz
authz: deps build ## try each topic as each client, and each field that a controller copies as users with few rights
	@go run ./hack/authz

.PHONY: parity
parity: deps build ## what users of KubeRay and Volcano meet: their samples, charts, first hour and largest clusters
	@go run ./hack/parity

.PHONY: truth
truth: deps build ## cases in which the system once reported something untrue; TRUTH='-only NAME -share 0.1' runs a part
	go run ./test/truth $(TRUTH)

.PHONY: demo
demo: build ## start everything, run examples/ to the end
	@hack/demo

# With BASELINE=GIT_REF, the benchmark of that commit runs in turn with this one. BENCH has flags of the benchmark.
run-bench = go run $(if $(BASELINE),./hack/sidebyside -baseline '$(BASELINE)' $(if $(filter build,$^),-programs)) ./test/bench/$(1) $(BENCH)

.PHONY: bench-tasks
bench-tasks: build ## tasks a second from submission to completion, against the raw write rate
	$(call run-bench,tasks)

.PHONY: bench-memory
bench-memory: build ## memory of k8s4r up: new, after ten minutes of load, ten minutes later, and of a finished task
	$(call run-bench,memory)

.PHONY: bench-flow
bench-flow: build ## flows a second, overhead an edge, writes a step and CPU of the controllers of flows
	$(call run-bench,flow)

.PHONY: bench-raycluster
bench-raycluster: build ## seconds until RayClusters are ready, CPU, memory and writes of their controller
	$(call run-bench,raycluster)

.PHONY: bench-rollout
bench-rollout: build ## rate and writes of a Rollout on 1000 robots, how far a bad one gets, and how long the way back takes
	$(call run-bench,rollout)

.PHONY: bench-placement
bench-placement: ## decisions a second and time of one cycle of the pure planner
	$(call run-bench,placement)

.PHONY: bench-agent
bench-agent: build ## time from dispatch to process start, starts a second and memory of tasks, against fork and exec
	$(call run-bench,agent)

.PHONY: bench-agent-footprint
bench-agent-footprint: build ## size, memory and traffic of an idle agent
	$(call run-bench,footprint)

.PHONY: bench-autonomy
bench-autonomy: build ## what a robot does without its server: time from a crash, from its own restart, and to the runs that it made meanwhile
	$(call run-bench,autonomy)

.PHONY: bench-broker
bench-broker: deps ## messages a second, latency and memory of brokers with and without certificates and rules, and how fast 1000 robots come back
	$(call run-bench,broker)

.PHONY: bench-hostile
bench-hostile: build ## what a hostile robot costs 199 others, what idle connections cost, and whether the manager survives the largest numbers
	$(call run-bench,hostile)

.PHONY: bench-fleet
bench-fleet: deps build ## memory, CPU and writes of 20,000 robots, their return after a restart of the broker, and a cycle of 100,000; BENCH=-mosquitto for that broker
	$(call run-bench,fleet)

.PHONY: bench-archive
bench-archive: ## finished jobs a second into the archive, and how long its questions take
	$(call run-bench,archive)

.PHONY: bench-events
bench-events: build ## time from the exit of a process to the events of a hundred readers and to the page of a browser
	@hack/deps browser
	$(call run-bench,events)

.PHONY: images
images: build ## build an image of each program, with docker
	@for p in $(notdir $(basename $(wildcard containers/*.Containerfile))); do \
		docker build -t $$p:$(VERSION) -f containers/$$p.Containerfile $(BIN); \
	done

.PHONY: chart
chart: $(BIN)/helm ## package the Helm chart into dist/
	@mkdir -p dist
	$(BIN)/helm package charts/k8s4r -d dist

.PHONY: sbom
sbom: build $(BIN)/sbom ## write into dist/ what each program is made of, in CycloneDX
	@mkdir -p dist
	$(BIN)/sbom -pages web/dist/packages.json dist $(addprefix $(BIN)/,$(PROGRAMS))

.PHONY: release
release: sbom ## archives, checksums, signature and provenance into dist/release, without a network; RELEASE_KEY=FILE is an Ed25519 key
	go run ./hack/release -key '$(RELEASE_KEY)' -version '$(VERSION)' -bin $(BIN) -out dist/release $(PROGRAMS:%=dist/%.cdx.json)

.PHONY: vulncheck
vulncheck: build $(BIN)/govulncheck ## look for known vulnerabilities in what is linked into the programs; asks vuln.go.dev, fails without unless ALLOW_OFFLINE=1
	@hack/vulncheck $(PROGRAMS)

.PHONY: reproducible
reproducible: ## build twice, from two directories, and compare
	@hack/reproducible

.PHONY: deps
deps: ## install what the tests need from the system's packages
	@hack/deps

.PHONY: archive-deps
archive-deps: ## install also what the tests of the archive need: a PostgreSQL
	@hack/deps archive

.PHONY: driver-deps
driver-deps: ## install also what the tests of the drivers need: a Docker engine and a java
	@hack/deps drivers

.PHONY: node-deps
node-deps: ## install also what the tests of the node need: OpenSSH
	@hack/deps node

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BIN)

# Each tool has a module of its own, so that its requirements do not change those of the programs.
$(BIN)/golangci-lint: tools/golangci-lint/go.mod
	@mkdir -p $(BIN)
	cd $(<D) && go build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(BIN)/controller-gen: tools/controller-gen/go.mod
	@mkdir -p $(BIN)
	cd $(<D) && go build -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(BIN)/sqlc: tools/sqlc/go.mod
	@mkdir -p $(BIN)
	cd $(<D) && go build -o $@ github.com/sqlc-dev/sqlc/cmd/sqlc

$(BIN)/helm: tools/helm/go.mod
	@mkdir -p $(BIN)
	cd $(<D) && go build -o $@ helm.sh/helm/v3/cmd/helm

$(BIN)/govulncheck: tools/govulncheck/go.mod
	@mkdir -p $(BIN)
	cd $(<D) && go build -o $@ golang.org/x/vuln/cmd/govulncheck

$(BIN)/dupl: tools/dupl/go.mod
	@mkdir -p $(BIN)
	cd $(<D) && go build -o $@ github.com/mibk/dupl

$(BIN)/sbom: tools/sbom/main.go tools/sbom/go.mod
	@mkdir -p $(BIN)
	cd $(<D) && go build -o $@ .

tools/openapi-typescript/node_modules/.package-lock.json: tools/openapi-typescript/package-lock.json
	cd $(<D) && npm ci --prefer-offline --fetch-retries=5 --no-audit --no-fund
	@touch $@
