VENV := .venv
PYTHON ?= python3
RUN := $(VENV)/bin/python
PIP_INSTALL := $(RUN) -m pip install --quiet -c constraints.txt
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test lint format parity real bench bench-peers clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP)  ## make .venv and install Headway with its developer tools; instant when nothing changed

$(STAMP): pyproject.toml constraints.txt
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) -e '.[dev]'
	touch $@

demo: install  ## a first tour: train, run and look inside a tiny model
	$(VENV)/bin/headway demo

test: install  ## the whole test suite, on two processes
	$(RUN) -m pytest -n 2 -q

lint: install  ## style, types and the walls between the rooms
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: install  ## rewrite the code in the house style
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

parity: install  ## our numbers against the reference implementations
	$(RUN) -m pytest -n 2 -q tests/parity

real: install  ## tests on real data (HEADWAY_REAL_DATA, or ../shared)
	$(RUN) -m pytest -n 2 -q tests/real

bench: install  ## Headway's own speed
	$(RUN) -m benchmarks

bench-peers: install  ## Headway's speed beside its peers, as ratios
	$(RUN) -m benchmarks.peers

clean:  ## remove caches and build results; keeps .venv and runs
	rm -rf build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
