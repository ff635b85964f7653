# Two commands do all the set-up: `make estimate` and `make test`. Each makes its own environment when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SOURCES := pyproject.toml README.md $(shell find src -name '*.py' -o -name '*.toml' 2>/dev/null)
export PYTHONDONTWRITEBYTECODE :=

.PHONY: estimate test test-fast test-torch lint types docs numbers bench bench-rivals clean

# Sets up, then estimates Llama 3 70B on 512 H100s from its config.json.
estimate: $(VENV)/installed
	$(BIN)/ironlaw estimate examples/llama-3-70b-512-h100.toml

# Sets up and runs everything a change must pass.
test: lint types test-fast test-torch numbers bench

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev $(VENV)/installed
	$(BIN)/mypy

# All tests but the torch group, against the installed package.
test-fast: $(VENV)/dev $(VENV)/installed
	$(BIN)/python -m pytest

# The laws against what torch counts.
test-torch: $(VENV)/torch $(VENV)/installed
	$(BIN)/python -m pytest tests/torch

# Whole processes and library calls against their budgets.
bench: $(VENV)/dev $(VENV)/installed
	$(BIN)/python tools/bench.py
	$(BIN)/python tools/bench_search.py
	$(BIN)/python tools/bench_traces.py

# Traces of 55 MB and 1 GB, also against HolisticTraceAnalysis in an environment of its own; takes minutes, 10 GB of memory and 2 GB of disk.
bench-rivals: $(VENV)/dev $(VENV)/installed $(VENV)-rivals/installed
	$(BIN)/python tools/bench_traces.py --full --rival $(VENV)-rivals/bin/python

# What the change moves of the held-out errors, family by family; fails where one grew.
numbers: $(VENV)/dev $(VENV)/installed
	$(BIN)/python tools/ratchet.py --check

docs: $(VENV)/dev $(VENV)/installed
	$(BIN)/python tools/docs.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python $(SOURCES)
	$(PIP) install .
	$(BIN)/python -m compileall -q $$($(BIN)/python -c "import ironlaw, pathlib; print(pathlib.Path(ironlaw.__file__).parent)")
	touch $@

$(VENV)/dev: $(VENV)/bin/python requirements/dev.txt
	$(PIP) install -r requirements/dev.txt
	touch $@

$(VENV)/torch: $(VENV)/dev requirements/torch.txt
	$(PIP) install -r requirements/torch.txt
	touch $@

$(VENV)-rivals/installed: requirements/rivals.txt
	$(PYTHON) -m venv $(VENV)-rivals
	$(VENV)-rivals/bin/python -m pip --disable-pip-version-check --quiet install -r requirements/rivals.txt
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-rivals build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
