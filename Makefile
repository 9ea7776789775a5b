# Everything runs out of .venv and build/jars; both are made here and remade only when their inputs change.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.8
MVN := mvn -q -B --no-transfer-progress
export PYTHONHASHSEED := 0

$(VENV)/.ready: requirements.lock pyproject.toml
	@echo "[1/3] python packages into $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv==$(UV_VERSION)"
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

build/jars/kafka/.ready: tests/interop/pom.xml
	@echo "[2/3] Apache Kafka's jars into build/jars/kafka ..."
	@rm -rf build/jars/kafka
	@$(MVN) -f tests/interop/pom.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/build/jars/kafka
	@touch $@

build/jars/spark/.ready: pipeline/pom.xml
	@echo "[3/3] Spark's Kafka connector into build/jars/spark ..."
	@rm -rf build/jars/spark
	@$(MVN) -f pipeline/pom.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/build/jars/spark
	@touch $@

.PHONY: setup
setup: $(VENV)/.ready build/jars/kafka/.ready build/jars/spark/.ready ## Prepare .venv and the jars
