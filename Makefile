# Every target sets up .venv by itself, once: it installs again only if pyproject.toml or constraints.txt changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt
CORE := $(VENV)/.installed-core
DEV := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-6s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(CORE) ## install the library and run its demonstration
	$(BIN)/steerformer demo

test: lint ## all checks: style, types, tests, doctests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(DEV) ## style and types only
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(DEV) ## measure speed and memory
	$(BIN)/python benchmarks/run.py

docs: $(CORE) ## draw the figures of docs/ again
	$(BIN)/steerformer reproduce kernels --out docs
	$(BIN)/steerformer reproduce layers --out docs
	$(BIN)/steerformer reproduce attention --out docs
	$(BIN)/steerformer reproduce results --out docs

clean: ## remove the virtual environment, caches and build products
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || \
		{ echo "steerformer needs Python 3.10 or newer, and '$(PYTHON)' is not; try: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The interpreter is an order-only prerequisite: its date is the system's and says nothing about the install.
$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing steerformer into $(VENV) (a few minutes the first time)"
	$(INSTALL) --editable '.[demo]'
	@touch $@

# Holds all of the core, so a demo after a test has nothing to install.
$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing steerformer and its development tools into $(VENV) (a few minutes the first time)"
	$(INSTALL) --editable '.[dev]'
	@touch $(CORE) $@
