# The same targets serve people and CI.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X k8s4r.io/k8s4r/internal/version.Version=$(VERSION)
GO_BUILD := CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)'
BIN := $(CURDIR)/bin

.PHONY: help
help: ## show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

.PHONY: build
build: ## build all programs into bin/
	@mkdir -p $(BIN)
	$(GO_BUILD) -o $(BIN)/ ./cmd/...
	cd standalone && $(GO_BUILD) -o $(BIN)/k8s4r ./cmd/k8s4r

.PHONY: generate
generate: $(BIN)/controller-gen ## write all generated files anew
	$(BIN)/controller-gen object paths=./api/...
	$(BIN)/controller-gen crd:allowDangerousTypes=true,maxDescLen=1024 paths=./api/... output:crd:dir=config/crd
	go run ./hack/diagrams

.PHONY: check
check: lint unit ## lint and unit tests, in about a minute

.PHONY: lint
lint: $(BIN)/golangci-lint ## run the linters over both modules
	$(BIN)/golangci-lint run ./...
	cd standalone && $(BIN)/golangci-lint run --config $(CURDIR)/.golangci.yml ./...

.PHONY: unit
unit: deps ## tests that need no API server
	go test ./api/... ./cmd/... ./config/... ./internal/...

.PHONY: test
test: deps build unit ## every test that needs only this machine
	go test -p 1 -count=1 -timeout 40m ./test/... # one system at a time
	cd standalone && K8S4R_BIN=$(BIN)/k8s4r go test -count=1 -timeout 20m ./...

.PHONY: race
race: deps ## unit tests under the race detector
	go test -race ./internal/...

.PHONY: faults
faults: deps build ## kill and cut parts of the system in the middle of a job
	go test -count=1 -timeout 20m -v -run 'TestJobSurvivesKills|TestSeparatePrograms' ./test/e2e

.PHONY: model
model: ## drive a model of the whole system through thousands of random orders of events
	go test -count=1 -timeout 20m -run TestNoJobIsStuckAndNothingRunsTwice ./internal/bridge -rapid.checks=10000

.PHONY: demo
demo: build ## start everything, run examples/ to the end
	@hack/demo

.PHONY: bench-tasks
bench-tasks: build ## tasks a second from submission to completion, against the raw write rate
	go run ./test/bench/tasks

.PHONY: bench-placement
bench-placement: ## decisions a second and time of one cycle of the pure planner
	go run ./test/bench/placement

.PHONY: bench-agent-footprint
bench-agent-footprint: build ## size, memory and traffic of an idle agent
	go run ./test/bench/footprint

.PHONY: deps
deps: ## install what the tests need from the system's packages
	@hack/deps

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BIN)

# Each tool has a module of its own, so that its requirements meet nobody else's.
$(BIN)/golangci-lint: tools/golangci-lint/go.mod
	@mkdir -p $(BIN)
	cd $(<D) && go build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(BIN)/controller-gen: tools/controller-gen/go.mod
	@mkdir -p $(BIN)
	cd $(<D) && go build -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen
