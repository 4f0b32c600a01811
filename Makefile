VENV := .venv
PYTHON ?= python3
RUN := $(VENV)/bin/python
PIP_INSTALL := $(RUN) -m pip install --quiet --no-compile -c constraints.txt  # compiled when first imported
STAMP := $(VENV)/.installed

# Bytecode is cached in .venv, so that the many processes of the tests do not each compile the libraries again.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache

.DEFAULT_GOAL := help
.PHONY: help install browser demo docs test test-slow coverage lint format structure parity real torture fuzz trust-large audit clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  make -C benchmarks  lists the measurements beside other libraries"

install: $(STAMP)  ## make .venv and install Headway with its developer tools; instant when nothing changed

$(STAMP): pyproject.toml constraints.txt
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) -e '.[dev]'
	@$(MAKE) --no-print-directory browser
	touch $@

APT := $(shell [ "$$(id -u)" = 0 ] || echo sudo -n) env DEBIAN_FRONTEND=noninteractive apt-get -qq

browser:  ## Chromium, in which the pages are tested; from apt, where there is one that may be used
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null \
	|| { $(APT) update && $(APT) install -y --no-install-recommends chromium chromium-driver; } >/dev/null 2>&1 \
	|| echo "no Chromium, and apt-get cannot install it here: the tests that open a page in a browser are skipped"

demo: install  ## a first tour: train, run and look inside a tiny model
	$(VENV)/bin/headway demo

docs: install  ## the documentation site in build/site, with every link checked; installs mkdocs-material
	$(PIP_INSTALL) -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet
	@! grep -rlE '(src|href)="(https?:)?//[^"]*\.(js|css|woff2?|png|svg)"|fonts\.g' build/site --include='*.html' --include='*.css' \
	|| { echo "these pages load something from another host"; exit 1; }
	@echo "build/site/index.html"

# Two processes. Each runs the tests of a file one after the other (worksteal), so that they share the file's fixtures.
PYTEST := $(RUN) -m pytest -n 2 --dist worksteal -q
# Tracing slows tests, so that coverage is measured of the core by its own tests only; `make coverage` measures all.
UNITS := layers models preprocess

test: install  ## every test but the slow ones and those on real data, on two processes; prints the line coverage of the core's own tests
	@$(RUN) -c 'import headway.engine.interpreter'  # compiles its kernels, once for both processes
	$(PYTEST) -m "not slow" --durations=10 $(addprefix --ignore=tests/,$(UNITS) real)
	$(PYTEST) -m "not slow" $(addprefix tests/,$(UNITS)) $(addprefix --cov=headway.,$(UNITS)) --cov-report=
	@$(RUN) -m coverage report --format=total --include='*/headway/layers/*,*/headway/models/*,*/headway/preprocess/*' | sed 's/.*/line coverage of $(UNITS) by their own tests: &%/'

test-slow: install  ## the tests marked slow: full parity grids, fuzzing budgets, two hosts; run before a release
	$(PYTEST) -m slow --durations=10

coverage: install  ## line coverage by every case of every test that is not slow, file by file
	$(PYTEST) -m "not slow" --cov --cov-report=term

lint: install  ## style, types and which package may import which
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: install  ## rewrite the code in the project's style
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

structure: install  ## measures of the source code, as the table in CONTRIBUTING.md
	PYTHONPATH=tests $(RUN) -m support.structure

parity: install  ## our numbers against the reference library's, as the table in docs/parity.md
	$(RUN) tests/parity/table.py > docs/parity.md.new
	mv docs/parity.md.new docs/parity.md
	tail -n 1 docs/parity.md

REAL := $(or $(HEADWAY_REAL_DATA),../shared)

real: install  ## tests on real data (HEADWAY_REAL_DATA, or ../shared)
	$(PYTEST) tests/real

TORTURE_MINUTES ?= 20

torture: install  ## every fault, again and again, for TORTURE_MINUTES (20); the table of docs/trust.md
	PYTHONPATH=tests $(RUN) -m torture.run --minutes $(TORTURE_MINUTES) $(if $(SEED),--seed $(SEED))

INPUTS ?= 1000000

fuzz: install  ## hostile files, INPUTS of them (1,000,000), at every reader; inputs that crash one are kept in runs/fuzz
	PYTHONPATH=tests $(RUN) -m fuzz.run --inputs $(INPUTS) $(if $(SEED),--seed $(SEED))

GIGABYTES ?= 5

trust-large: install  ## a corpus of GIGABYTES (5) prepared in bounded memory, killed half-way, and gone on with
	$(RUN) tests/trust/large.py --gigabytes $(GIGABYTES)

AUDIT := .venv-audit
# A version with published flaws: the database answers if it says so.
FLAWED := https://pypi.org/pypi/pillow/11.0.0/json

audit:  ## pip-audit of every version in constraints.txt, in an environment of its own; needs PyPI's database of flaws
	@test -x $(AUDIT)/bin/python || $(PYTHON) -m venv $(AUDIT)
	@$(AUDIT)/bin/python -m pip install --quiet pip-audit
	@$(AUDIT)/bin/python -c 'import json, urllib.request as r; assert json.load(r.urlopen("$(FLAWED)", timeout=30))["vulnerabilities"]' 2>/dev/null \
	|| { echo "nothing was audited: PyPI's database of published flaws cannot be reached from here"; exit 1; }
	$(AUDIT)/bin/python -m pip_audit --strict --disable-pip --no-deps --requirement constraints.txt

clean:  ## remove caches and build results; keeps .venv and runs
	rm -rf build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
