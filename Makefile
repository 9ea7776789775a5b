# All targets use .venv and build/jars. Setup makes both, and makes them again when their inputs change.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.8
# Without jansi.noreset, Maven's color library writes an escape sequence at the end of each stream, even into a file.
MVN := MAVEN_OPTS="$$MAVEN_OPTS -Djansi.noreset=true" mvn -q -B --no-transfer-progress -Dstyle.color=never
# Three on two cores: tests with broker processes wait for sessions and timers for about a fifth of their time.
TEST_PROCESSES ?= 3
export PYTHONHASHSEED := 0
COMPILED_PACKAGES := odradek protocol storage runtime coordinator cluster broker client console testing simulation

$(VENV)/.ready: requirements.lock pyproject.toml
	@echo "[1/5] python packages into $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv==$(UV_VERSION)"
	@$(BIN)/uv pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

# kafka: the reference. kafka-4.3: the version before, with tools and Kafka Streams. kafka-3.9: a Java client.
KAFKA_JARS := build/jars/kafka build/jars/kafka-4.3 build/jars/kafka-3.9
STEP_kafka := 2/5
STEP_kafka-4.3 := 3/5
STEP_kafka-3.9 := 4/5

$(KAFKA_JARS:=/.ready): build/jars/%/.ready: tests/interop/poms/%.xml
	@echo "[$(STEP_$*)] Apache Kafka's jars into build/jars/$* ..."
	@rm -rf build/jars/$*
	@$(MVN) -f $< dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/build/jars/$*
	@touch $@

build/jars/spark/.ready: pipeline/pom.xml
	@echo "[5/5] Spark's Kafka connector into build/jars/spark ..."
	@rm -rf build/jars/spark
	@$(MVN) -f pipeline/pom.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/build/jars/spark
	@touch $@

.PHONY: setup
setup: $(VENV)/.ready $(KAFKA_JARS:=/.ready) build/jars/spark/.ready ## Prepare .venv and the jars
	@# With compiled bytecode, brokers and the pytest plugin start in about half the time.
	@# PYTHONDONTWRITEBYTECODE does not prevent it here.
	@# The folders are named one by one because compileall does not follow the symlinks in odradek/.
	@$(BIN)/python -m compileall -q $(COMPILED_PACKAGES)

.PHONY: demo
demo: setup ## Demo: flight data through transactions, process kills and Spark, verified row by row; ARGS=--secure
	@$(BIN)/python -m odradek.pipeline.demo $(ARGS)

.PHONY: console
console: setup ## Three brokers with a transactional load, and the web console; ARGS='--listen 127.0.0.1:9000'
	@$(BIN)/python -m odradek.pipeline.console $(ARGS)

.PHONY: eos
eos: setup ## Exactly-once campaign of the Spark sink: MODE=txn|2pc|kafka|stock MINUTES=10 SEED=7
	@$(BIN)/python -m $(if $(filter kafka,$(MODE)),tests.support.eos_on_kafka,odradek.pipeline.eos_campaign) \
	  --mode $(or $(MODE),txn) --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(ARGS)

# `check` has run tests/test_tidy.py. tests/support/selection.py selects the tests and their order.
PYTEST_ALL := $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal --durations 30 --durations-min 1 --ignore tests/test_tidy.py

.PHONY: test
test: check ## All checks and all tests, with short campaigns; about 13 minutes on two cores
	@$(PYTEST_ALL) $(ARGS)

.PHONY: test-all
test-all: check ## All checks and all tests with full campaigns and matrices; at most 75 minutes on two cores
	@$(PYTEST_ALL) --full $(ARGS)

.PHONY: check
check: setup ## Lint, types, import contracts, tidy rules and spelling, generated files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m pytest -q -p no:randomly tests/test_tidy.py
	@$(BIN)/python -m odradek.protocol.generate --check
	@$(BIN)/python -m odradek.coordinator.txn.transitions_doc --check
	@$(BIN)/python -m odradek.coordinator.group.transitions_doc --check
	@$(BIN)/python -m odradek.broker.dispatch.doc --check
	@$(BIN)/python -m odradek.broker.config.doc --check
	@$(BIN)/python -m odradek.broker.metrics.doc --check
	@$(BIN)/python -m odradek.commands.doc --check
	@$(BIN)/python -m tests.support.invariant_page --check

.PHONY: sim
sim: setup ## Deterministic simulation: make sim SEED=7 replays one seed, make sim SEEDS=0..1000 a range
	@$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),0..200)) $(ARGS)

.PHONY: sim-app
sim-app: setup ## Simulation of a correct application with aiokafka, 2,000 seeds; SEEDS=0..200
	@$(BIN)/python -m odradek.simulation tests.simulation.apps.copy:correct --seeds $(or $(SEEDS),0..2000) $(ARGS)

.PHONY: chaos
chaos: setup ## Secured brokers and clients under faults for MINUTES=10, then checks; SEED=7 repeats the same faults
	@$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(ARGS)
	@echo "Failure detection: time from kill -9 or SIGSTOP to the failure declaration, and wrong declarations (docs/membership.md has the recorded figures)"
	@$(BIN)/python -m tests.chaos.detection --repetitions 2 --minutes 1

.PHONY: fuzz
fuzz: setup ## Damaged inputs for decoders, files, recovery and logs; MINUTES=5, TARGET=name, SEED=7
	@$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),5) $(if $(TARGET),--target $(TARGET)) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: bench
bench: setup ## Benchmark against Apache Kafka on this machine, in alternating rounds; prints ratios
	@$(BIN)/python -m benchmarks $(ARGS)

.PHONY: spark-source
spark-source: setup ## Throughput of the source for Spark against Spark's own Kafka source; ARGS=1000000 sets the rows
	@$(BIN)/python -m benchmarks.spark_source $(ARGS)

.PHONY: floods
floods: setup ## Memory of a broker after floods of joins, producer ids, offsets and sessions
	@$(BIN)/python -m benchmarks.floods $(ARGS)

.PHONY: growth
growth: setup ## Three brokers with 1,000 to 10,000 partitions: latency, callbacks, stop, start, gaps; ARGS='1000 --kafka'
	@$(BIN)/python -m benchmarks.growth $(ARGS)

.PHONY: brokers-per-host
brokers-per-host: setup ## Requests per second with one to four brokers on this host; ARGS='1 2 8'
	@$(BIN)/python -m benchmarks.brokers_per_host $(ARGS)

.PHONY: docs
docs: setup ## Documentation site in build/site, links and anchors checked
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "build/site/index.html"

.PHONY: dist
dist: setup ## Build sdist and wheel, check them, and use the wheel in a new environment
	@$(BIN)/python -m tests.dist

.PHONY: lock
lock: ## Resolve pyproject.toml into the lock files; ARGS=--upgrade selects the newest versions
	@$(BIN)/uv pip compile --quiet --universal --no-header --no-emit-index-url --no-emit-find-links --all-extras --generate-hashes $(ARGS) pyproject.toml -o requirements.lock
	@$(BIN)/uv pip compile --quiet --no-header --no-emit-index-url --no-emit-find-links --no-annotate --generate-hashes --constraint requirements.lock pyproject.toml -o requirements-broker.lock

.PHONY: clean
clean: ## Remove build output and caches, but not .venv
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10
