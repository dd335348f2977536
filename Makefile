# Two commands for users: `make run` and `make test`. Everything else serves those who change the code.
# Each target sets up what it needs by itself; see CONTRIBUTING.md.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install run test slow lint bench clean

help:
	@echo "make run     start a node in the starter swarm (Ctrl-C ends it; nothing is lost)"
	@echo "make test    lint, types, import rules and all quick tests"
	@echo "make slow    tests that take minutes or need multicast"
	@echo "make bench   measurements, each a ratio taken side by side in one run"
	@echo "make install only the virtual environment"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt scripts/system-packages
	@PYTHON=$(PYTHON) scripts/system-packages
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	# torch first and pinned: anything looser may fetch gigabytes of another build.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable . --group dev
	touch $(STAMP)

run: $(STAMP)
	$(BIN)/sapo-node start --key node.key

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest

slow: $(STAMP)
	$(BIN)/python -m pytest -m slow --timeout 1800

bench: $(STAMP)
	$(BIN)/python -m pytest -m bench -s --timeout 1800 tests/benchmarks

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
