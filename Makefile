# make demo and make test do all set-up; the rest assumes nothing either.
PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/pip install --quiet --constraint constraints.txt
ARGS ?=

.PHONY: setup demo test test-all check fix bench clean

$(VENV)/base.stamp: pyproject.toml constraints.txt
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/dev.stamp: $(VENV)/base.stamp
	$(PIP) --editable '.[dev]'
	touch $@

setup: $(VENV)/dev.stamp

demo: $(VENV)/base.stamp
	$(VENV)/bin/stepscope demo $(ARGS)

test: setup
	$(VENV)/bin/python -m pytest -n 2 --dist loadgroup $(ARGS)

test-all: setup
	HYPOTHESIS_PROFILE=fresh $(VENV)/bin/python -m pytest -n 2 --dist loadgroup -m '' $(ARGS)

check: setup
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

fix: setup
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(VENV)/base.stamp
	$(VENV)/bin/python -m benchmarks $(ARGS)

clean:
	rm -rf $(VENV) .bench build dist .mypy_cache .ruff_cache .import_linter_cache
