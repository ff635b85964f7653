# Two commands do all the set-up: `make estimate` and `make test`. Each makes its own environment when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SOURCES := pyproject.toml README.md $(shell find src -name '*.py' -o -name '*.toml' 2>/dev/null)
export PYTHONDONTWRITEBYTECODE :=

.PHONY: estimate serve test test-all test-browser lint types test-quick test-oldest test-slow test-torch test-stacks numbers bench bench-check bench-rivals docs pictures schemas check-schemas same-answers clean

# Sets up, then estimates Llama 3 70B on 512 H100s from its config.json.
estimate: $(VENV)/installed
	$(BIN)/ironlaw estimate examples/llama-3-70b-512-h100.toml

# Sets up, then serves the page on this machine.
serve: $(VENV)/dev $(VENV)/installed
	$(BIN)/ironlaw serve

# Sets up, then checks that everything is right: style, types, and every quick test. No figure of time decides.
test: lint types test-quick

# What is slower and not in `make test`. The figures of `bench` are a report: one over its budget fails only `make bench-check`.
test-all: test-slow test-browser test-torch numbers bench

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev $(VENV)/installed
	$(BIN)/mypy

# One process for each core; `worksteal` gives neighbouring tests to one process, so that they share their fixtures.
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

test-quick: $(VENV)/dev $(VENV)/installed
	$(PYTEST) -m "not slow"

# Quick tests of what dependencies do, with the lowest versions that pyproject.toml allows; a minute or two on two cores.
OLDEST := $(VENV)-oldest
test-oldest: $(OLDEST)/installed
	PYTHONPATH=src $(OLDEST)/bin/python -m pytest -n auto --dist worksteal -m "not slow" $(OLDEST_TESTS)
	PYTHONPATH=src $(OLDEST)/bin/python -m pytest -n 0 -W ignore::DeprecationWarning tests/test_server.py

OLDEST_TESTS := tests/test_dependencies.py tests/test_units.py tests/catalog/test_folders.py tests/catalog/test_packages.py \
	tests/cli/test_commands.py tests/cli/test_completion.py tests/cli/test_help.py tests/interface/test_answers.py tests/test_files.py \
	tests/test_frozen.py tests/test_reports.py tests/question tests/trainers tests/checks tests/measure/read tests/estimate/test_public_cases.py tests/questions/test_sweep.py

$(OLDEST)/installed: pyproject.toml requirements/oldest.txt
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip --disable-pip-version-check --quiet install -r requirements/oldest.txt httpx pytest pytest-xdist hypothesis
	touch $@

# The tests marked slow, and the tests of properties once more, on newly drawn examples.
test-slow: $(VENV)/dev $(VENV)/installed
	$(PYTEST) -m "slow or hypothesis" --hypothesis-profile random

# The page in a real browser, the API against its description, and the server under attack; brings Debian's Chromium where it is missing.
test-browser: $(VENV)/browser $(VENV)/installed
	command -v chromium > /dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium)
	PYTHONPATH=src $(BIN)/python -m pytest -n 0 tests/browser

# The laws against what torch counts.
test-torch: $(VENV)/torch $(VENV)/installed
	$(BIN)/python -m pytest tests/torch

# The launch flags against what the frameworks' own classes refuse.
test-stacks: $(VENV)/stacks $(VENV)/installed
	$(BIN)/python -m pytest tests/stacks

# What a change moves of the held-out errors, family by family; fails where one grew.
numbers: $(VENV)/dev $(VENV)/installed
	$(BIN)/python tools/ratchet.py --check

# Time and memory beside their budgets, printed and written to build/benchmarks.txt.
bench: $(VENV)/dev $(VENV)/installed
	$(BIN)/python benchmarks/run.py --out build/benchmarks.txt

bench-check: $(VENV)/dev $(VENV)/installed
	$(BIN)/python benchmarks/run.py --check

# Traces of 55 MB and 1 GB, also against HolisticTraceAnalysis in an environment of its own; takes minutes, 10 GB of memory and 2 GB of disk.
bench-rivals: $(VENV)/dev $(VENV)/installed $(VENV)-rivals/installed
	$(BIN)/python benchmarks/run.py traces --full --rival $(VENV)-rivals/bin/python --check

# Compares every number of many answers with those of another commit: make same-answers BASE=main
same-answers: $(VENV)/dev $(VENV)/installed
	$(BIN)/python tools/same_answers.py since $(BASE)

docs: $(VENV)/dev $(VENV)/installed
	$(BIN)/python tools/stub.py
	$(BIN)/python tools/notebooks.py
	$(BIN)/python tools/docs.py

# The pictures of the page in the documentation, from a server of this checkout in Chromium.
pictures: $(VENV)/browser $(VENV)/installed
	PYTHONPATH=src $(BIN)/python tools/pictures.py

# The JSON Schemas of all verbs, from a thousand answers; minutes.
schemas: $(VENV)/dev $(VENV)/installed
	$(BIN)/python tools/schemas.py
	$(BIN)/python tools/check_schemas.py --write

check-schemas: $(VENV)/dev $(VENV)/installed
	$(BIN)/python tools/check_schemas.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python $(SOURCES)
	$(PIP) install .
	$(BIN)/python -m compileall -q $$($(BIN)/python -c "import ironlaw, pathlib; print(pathlib.Path(ironlaw.__file__).parent)")
	touch $@

$(VENV)/dev: $(VENV)/bin/python requirements/dev.txt
	$(PIP) install -r requirements/dev.txt
	touch $@

$(VENV)/browser: $(VENV)/dev requirements/browser.txt
	$(PIP) install -r requirements/browser.txt
	touch $@

$(VENV)/torch: $(VENV)/dev requirements/torch.txt
	$(PIP) install -r requirements/torch.txt
	touch $@

$(VENV)/stacks: $(VENV)/torch requirements/stacks.txt
	$(PIP) install --no-deps -r requirements/stacks.txt
	touch $@

$(VENV)-rivals/installed: requirements/rivals.txt
	$(PYTHON) -m venv $(VENV)-rivals
	$(VENV)-rivals/bin/python -m pip --disable-pip-version-check --quiet install -r requirements/rivals.txt
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-rivals $(OLDEST) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
