# Two commands for users: `make run` and `make test`. Everything else serves those who change the code.
# Each target sets up what it needs by itself; see CONTRIBUTING.md.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM_VENV ?= $(abspath $(VENV)-vllm)
STAMP := $(VENV)/.installed
COMPILED := $(VENV)/.compiled

FUZZ_SECONDS ?= 60
MUTATIONS ?= 14300
FAULTS ?= 200

# Tests start hundreds of processes. Without files of bytecode, each of them compiles all our modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install run test browser attacks slow walk nightly lowest lint docs bench bench-learner fuzz faults lock sbom audit dist clean

help:
	@echo "make run     start a node in the starter swarm (Ctrl-C ends it; nothing is lost)"
	@echo "make test    lint, types, import rules and all quick tests"
	@echo "make slow    tests that take long or need multicast"
	@echo "make walk    types the commands of the pages for newcomers in a terminal, for as long as a person would"
	@echo "make attacks every attack in small"
	@echo "make nightly these three, the tests of research/, the quick tests with more examples, MUTATIONS changed vectors, on which both readers of the standard must agree, FAULTS, and half an hour of each fuzzer"
	@echo "make lowest  the tests with the oldest dependencies that are allowed (fetches gigabytes)"
	@echo "make docs    build/site/html: all pages as a site, with a reference written from the code; warnings are errors"
	@echo "make bench   measurements, each a ratio taken side by side in one run"
	@echo "make bench-learner  a round of the learner beside TRL's GRPOTrainer, and its generation beside transformers' batching; MODEL=smollm2, DEVICE=cuda, GROUPS, TOKENS and ROUNDS choose others"
	@echo "make fuzz    FUZZ_SECONDS of coverage-guided fuzzing of each part that reads foreign bytes"
	@echo "make faults  FAULTS kills, power cuts, full and slow disks, and jumps of the clock in a training swarm of three"
	@echo "make lock    requirements.lock again, from pyproject.toml and constraints.txt"
	@echo "make sbom    build/sbom.json: what is installed in the virtual environment, as CycloneDX"
	@echo "make audit   compares all pins with known advisories, or with the snapshot ADVISORIES=all.zip"
	@echo "make dist    dist/: wheel and sdist of the last commit, the same bytes each time, and their SHA-256 sums"
	@echo "make install only the virtual environment"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt requirements.lock scripts/system-packages
	@PYTHON=$(PYTHON) scripts/system-packages
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip uv
	# Each file of each package is compared with the hashes in the lock. uv takes a third of the time that pip takes; where
	# it cannot reach the index that pip is configured for, pip does the same. The lock is complete, so neither looks for
	# dependencies, and Python compiles the files that it imports. torch is installed beside them. Each platform has its
	# own build of it, so no hash holds. Without the pin, pip may fetch gigabytes of another build.
	$(BIN)/python -m pip install --quiet --no-compile --no-deps --constraint constraints.txt torch & torch=$$!; \
		$(BIN)/uv pip install --quiet --system-certs --python $(BIN)/python --require-hashes --no-deps --requirement requirements.lock || \
		$(BIN)/python -m pip install --quiet --no-compile --require-hashes --no-deps --requirement requirements.lock; \
		locked=$$?; wait $$torch && exit $$locked
	# This also brings what the build of torch needs. hatchling comes from the lock: pip need not fetch another one to
	# build ourselves.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[load,gguf]' --group dev
	touch $(STAMP)

run: $(STAMP)
	$(BIN)/sapo-node start --key node.key

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/pins.py

# One thread to a process: more threads than cores make torch slower, by far. Files stay together for their fixtures, and
# in their order: those that wait for real processes begin, and leave a third of two cores to one worker more.
test: $(STAMP)
	@$(MAKE) --no-print-directory --jobs 3 lint $(COMPILED) browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# Beside the lint and the browser, after an install: this compiles the tests and all that they import, once for all
# workers.
$(COMPILED): $(STAMP)
	-@$(BIN)/python -m pytest --collect-only -q > /dev/null
	@touch $@

# After the install: apt-get cannot run twice at a time.
browser: $(STAMP)
	@PYTHON=$(PYTHON) scripts/system-packages browser

attacks: $(STAMP)
	$(BIN)/sapo-adversary matrix quick --output build/attacks

docs: $(STAMP)
	$(BIN)/python scripts/site.py
	$(BIN)/zensical build --strict

# Where vLLM or the model cannot be installed, the test of --generate is skipped, and says so.
slow: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[load,cluster,tensorboard]'
	-scripts/vllm-environment $(VLLM_VENV)
	-$(BIN)/sapo-node model fetch smollm2
	VLLM_VENV=$(VLLM_VENV) $(BIN)/python -m pytest -m slow --timeout 1800

# What each terminal printed is in build/walk/ afterwards.
walk: $(STAMP)
	@PYTHON=$(PYTHON) scripts/system-packages tmux
	$(BIN)/python -m pytest -m walk -s -v tests/walk

nightly: $(STAMP)
	$(MAKE) slow attacks walk
	$(BIN)/python -m pytest -m 'slow or not slow' --timeout 1800 research/tests
	HYPOTHESIS_PROFILE=nightly OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist loadfile --timeout 1800
	MUTATIONS=$(MUTATIONS) $(BIN)/python -m pytest -s --timeout 1800 tests/spec/test_both_readers.py
	$(MAKE) faults
	$(MAKE) fuzz FUZZ_SECONDS=1800

lowest: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt uv
	$(BIN)/uv venv --quiet --seed --allow-existing $(VENV)-lowest
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(VENV)-lowest --resolution lowest-direct --editable '.[load,gguf]' --group test
	OMP_NUM_THREADS=1 $(VENV)-lowest/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

bench: $(STAMP)
	$(BIN)/python -m pytest -m bench -s --timeout 1800 tests/benchmarks

bench-learner: $(STAMP)
	$(BIN)/python tests/benchmarks/bench_learner.py $(or $(MODEL),seed) $(or $(DEVICE),cpu) "$(GROUPS)" "$(TOKENS)" "$(ROUNDS)"

fuzz: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group fuzz
	for harness in tests/fuzz/fuzz_*.py; do \
		$(BIN)/python tests/fuzz/run.py "$$(basename "$$harness" .py | cut -d_ -f2-)" \
			-max_total_time=$(FUZZ_SECONDS) -timeout=20 -print_final_stats=1 || exit 1; \
	done

faults: $(STAMP)
	mkdir -p results
	$(BIN)/python tests/support/faulty_swarm.py $(FAULTS) results

# The override leaves torch out, with all that only torch needs.
lock: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt uv
	echo "torch ; sys_platform == 'none'" | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
		--generate-hashes --no-annotate --no-header --constraint constraints.txt --override - \
		--no-emit-package torch --no-emit-package networkx --no-emit-package setuptools \
		--extra load --extra gguf --group dev --output-file requirements.lock pyproject.toml

# The tool has an environment of its own, so that the list holds nothing of it.
sbom: $(STAMP)
	test -x $(VENV)-sbom/bin/python || $(PYTHON) -m venv $(VENV)-sbom
	$(VENV)-sbom/bin/python -m pip install --quiet --constraint constraints.txt cyclonedx-bom
	mkdir -p build
	$(VENV)-sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --of JSON -o build/sbom.json $(BIN)/python

# It ends with 3 where no advisories can be read, so that an audit without an answer is no audit that passed.
audit: $(STAMP)
	$(BIN)/python scripts/audit.py $(ADVISORIES)

dist: $(STAMP)
	PYTHON=$(abspath $(BIN)/python) scripts/dist

clean:
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-sbom $(VENV)-vllm .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
