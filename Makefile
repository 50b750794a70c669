# Homeostat. The two commands of the README are `make up` and `make test`; everything sets itself up.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
UV := .venv/bin/uv
RUN := .venv/bin/

help: ## Show what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# requirements.lock decides which versions are installed, by hash; pip brings uv, uv brings the rest.
.venv/ready: pyproject.toml requirements.lock
	@test -x $(UV) || $(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and \
	  "$(PYTHON) is Python %d.%d, and 3.11 or later is needed: say which with PYTHON=..." % v[:2])'
	@test -x $(UV) || { $(PYTHON) -m venv .venv && $(RUN)pip install --quiet --disable-pip-version-check uv; }
	@VIRTUAL_ENV=$(CURDIR)/.venv $(UV) pip install --quiet --compile-bytecode --require-hashes -r requirements.lock
	@VIRTUAL_ENV=$(CURDIR)/.venv $(UV) pip install --quiet --no-deps --editable .
	@$(RUN)python -m compileall -q src
	@touch $@

lock: .venv/ready ## Choose the newest versions that fit, and pin them
	@$(UV) lock --quiet --upgrade
	@$(UV) export --quiet --frozen --no-emit-project --no-header --no-annotate --format requirements-txt -o requirements.lock
	@$(UV) export --quiet --frozen --only-group docs --no-header --no-annotate --format requirements-txt -o requirements-docs.lock

up: .venv/ready ## Start the control plane with a live example
	@$(RUN)homeostat up --demo

tools: .venv/ready
	@scripts/test-tools

test: tools ## Install what the tests need, and run them all
	@$(RUN)python -m compileall -q src  # hundreds of processes start: none of them compiles what was edited, also where Python may not write bytecode
	@$(RUN)python -m pytest -n 3 --dist worksteal --reruns 1 --reruns-delay 3 -rfER  # a third of the time tests wait; real processes on a busy machine: what fails is tried once more, and told

check: .venv/ready ## Lint, types, import contracts; every test module can be read
	@$(RUN)ruff check src tests benchmarks scripts
	@$(RUN)mypy
	@$(RUN)lint-imports
	@told=$$($(RUN)python -m pytest --collect-only -qq) || { echo "$$told"; exit 1; }

.venv/docs: .venv/ready requirements-docs.lock
	@VIRTUAL_ENV=$(CURDIR)/.venv $(UV) pip install --quiet --require-hashes -r requirements-docs.lock
	@touch $@

docs: .venv/docs ## Build the site of docs/ into site/; it needs no server and no network to be read
	@NO_MKDOCS_2_WARNING=1 $(RUN)mkdocs build --quiet --strict
	@echo "open site/index.html"

bench: .venv/ready ## Measure; prints a table and writes JSON under benchmarks/results/
	@$(RUN)python benchmarks/store.py
	@$(RUN)python benchmarks/run.py
	@$(RUN)python benchmarks/loop.py
	@$(RUN)python benchmarks/gitops.py
	@$(RUN)python benchmarks/dashboard.py
	@$(RUN)python benchmarks/governor.py
	@$(RUN)python benchmarks/openb.py
	@$(RUN)python benchmarks/kueue.py

torture: .venv/ready ## Kill the store, and the control plane with its processes, again and again (minutes)
	@HOMEOSTAT_TORTURE=200 $(RUN)python -m pytest tests/store/test_torture.py -q --timeout=0
	@HOMEOSTAT_TORTURE=80 $(RUN)python -m pytest tests/api/test_history.py -k killed -q --timeout=0
	@HOMEOSTAT_TORTURE=50 $(RUN)python -m pytest tests/providers/process/test_torture.py -q --timeout=0

fuzz: .venv/ready ## Throw hostile requests at the API (minutes)
	@HOMEOSTAT_FUZZ_REQUESTS=200000 $(RUN)python -m pytest tests/fuzz -q --timeout=3600

gpu-weeks: .venv/ready ## A thousand random weeks of a GPU fleet, in virtual time (an hour)
	@HOMEOSTAT_GPU_WEEKS=1000 $(RUN)python -m pytest tests/gpu/test_simulation.py -k no_week -q --timeout=0

SEEDS ?= 100000
sim: .venv/ready ## A death at every step of the reference stories, then storms by seed: SEEDS of them (a night)
	@$(RUN)python -m homeostat.sim --stories --jobs 2
	@$(RUN)python -m homeostat.sim --seeds 0:$(SEEDS) --jobs 2
	@$(RUN)python -m homeostat.sim --gpu --seeds 0:$$(($(SEEDS) / 20)) --jobs 2

clean: ## Forget the environment and caches
	@rm -rf .venv site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

.PHONY: help lock up tools test check docs bench torture fuzz gpu-weeks sim clean
