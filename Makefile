# Everything that a person does with a clone. `make` alone says what there is.
VENV ?= .venv
SEEDS ?= 200
# Two more than the cores of a small machine: the tests with real processes mostly wait.
JOBS ?= 4

# The newest Python that really runs: some version managers leave commands behind that only print an error.
PYTHON ?= $(shell for each in python3.13 python3.12 python3.11 python3; do \
	if $$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$each; break; fi; done)

# What it takes to run Buoy, and what it takes to work on it.
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready

.PHONY: help venv demo test check bench sim mutants reliability clean
.DEFAULT_GOAL := help

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(READY) ## make the environment; again only when pyproject.toml changed

$(RUNS): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Buoy needs Python 3.11 or newer; name one with make PYTHON=..." >&2; exit 1; }
	@echo "Making the virtual environment $(VENV) and installing Buoy with its six dependencies. This takes about 20 seconds."
	@$(VENV)/bin/python -c '' 2>/dev/null || $(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(READY): $(RUNS)
	@echo "Installing the tools for tests and checks. This takes about a minute."
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@if command -v npm >/dev/null 2>&1; then \
		npm install --silent --no-audit --no-fund --prefix $(VENV)/node pyright@1.1 || \
		echo "pyright could not be installed; the test that asks it is skipped" >&2; fi
	@touch $@

demo: $(RUNS) ## kill a workflow in the middle and watch it come back
	@$(VENV)/bin/python examples/demo.py

test: $(READY) ## run all tests
	$(VENV)/bin/python -m tests.suite -n $(JOBS)

check: $(READY) ## format, lint, types, layers
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

bench: $(READY) ## measure against the raw disk and DBOS (in an environment of its own); ARGS=--quick for one round
	@sh benchmarks/setup_dbos.sh
	@$(VENV)/bin/python benchmarks/bench.py $(ARGS)

sim: $(READY) ## crash simulated runs at every point, SEEDS=200 times; TIME=8h JOBS=2 for so long, from where it ended
	@$(VENV)/bin/python -m simulator $(if $(TIME),--time $(TIME) --jobs $(JOBS),--seeds $(SEEDS))

mutants: $(READY) ## plant each known kind of bug, and see that the simulator finds it; long, since it looks for the unfound
	@$(VENV)/bin/python -m simulator --mutants

reliability: $(READY) ## crash simulated and real processes, and write docs/reliability.md; ARGS="--seeds 20000" for more
	@PYTHONPATH=. $(VENV)/bin/python benchmarks/reliability.py $(ARGS)

clean: ## remove caches; the environment and all data stay
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
