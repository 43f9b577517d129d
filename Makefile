# `make demo` and `make test` each do everything on a fresh machine; both can be repeated.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# One process more than cores, since some tests wait; tests/conftest.py says what stays together and what comes first.
PARALLEL := -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) --maxprocesses 8 --dist loadfile --no-loadscope-reorder
# The tests start hundreds of interpreters: each would compile every module anew where compiled ones are not kept.
unexport PYTHONDONTWRITEBYTECODE

NO_GPU   := not gpu and not multi_gpu and not sanitizer
NOT_HERE := $(NO_GPU) and not acceptance
# What was built from older sources is refused; without a compiler what needs it is skipped.
BUILT    := $(BIN)/python -m kernels.build --arch x86-64-v3 > /dev/null || true

.PHONY: setup demo test quick gpu lint types acceptance clean

setup: $(STAMP)

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(BIN)/python pyproject.toml constraints.txt
	@echo "== installing torch (once, about half a minute)"
	$(BIN)/pip install --disable-pip-version-check --progress-bar off -c constraints.txt "torch==2.13.0"
	@echo "== installing everything else (once, about two minutes)"
	$(BIN)/pip install --disable-pip-version-check --progress-bar off -c constraints.txt -e '.[dev]'
	@# An oracle of the drafter's tests; of its pinned dependencies it imports torch and transformers alone.
	$(BIN)/pip install --disable-pip-version-check --progress-bar off -c constraints.txt --no-deps dflash
	@touch $@

demo: $(STAMP)
	$(BIN)/campaign run campaign.startups=3  # one more than a smoke test has: enough for an interval
	$(BIN)/campaign run campaign=speculation campaign.pairs=1  # what the drafter is worth; an effect this wide needs few pairs

test: $(STAMP)
	@$(BUILT)
	$(BIN)/python -m pytest $(PARALLEL) -m '$(NOT_HERE)'

quick: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) -m '$(NOT_HERE) and not ray and not slow'

acceptance: $(STAMP)
	@$(BUILT)
	$(BIN)/python -m pytest -m 'acceptance and $(NO_GPU)' --durations=20 --timeout=3600

# Eight contexts share a GPU; what no library was built for is skipped, so all are built first.
gpu: $(STAMP)
	$(BIN)/python -m kernels.build --jobs 16
	$(BIN)/python -m pytest -n 8 --dist loadfile --no-loadscope-reorder -m 'gpu and not acceptance' tests/runtime tests/kernels

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
