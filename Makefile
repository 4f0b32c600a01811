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

parity: install  ## our numbers against the reference library's, as the table in docs/parity.md
	$(RUN) tests/parity/table.py > docs/parity.md.new
	mv docs/parity.md.new docs/parity.md
	tail -n 1 docs/parity.md

REAL := $(or $(HEADWAY_REAL_DATA),../shared)

real: install  ## tests on real data (HEADWAY_REAL_DATA, or ../shared)
	$(RUN) -m pytest -n 2 -q tests/real

bench: install  ## side by side with peers, ratios last (NANOGPT=folder runs nanoGPT itself)
	$(RUN) -m benchmarks.forward
	$(RUN) -m benchmarks.load
	$(RUN) -m benchmarks.shakespeare $(REAL)/data/tinyshakespeare/input.txt $(if $(NANOGPT),--nanogpt $(NANOGPT))
	$(RUN) -m benchmarks.finetune $(REAL)/data

bench-peers: install  ## what `make bench` compares with, besides the developer tools
	$(PIP_INSTALL) accelerate

clean:  ## remove caches and build results; keeps .venv and runs
	rm -rf build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
