# Every target sets up .venv once, and again only if pyproject.toml or constraints.txt changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt
CORE := $(VENV)/.installed-core
DEV := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help demo quick test lint bench docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-6s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(CORE) ## train four small networks on rotated digits and write demo/report.html
	$(BIN)/steerformer demo

quick: lint ## style, types and the fast tests: run it at every change
	OMP_NUM_THREADS=1 JAXTYPING_DISABLE=1 $(BIN)/python -m pytest -n 2 --dist loadscope -m "not slow" tests

test: lint ## all checks: style, types, tests, doctests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope

lint: $(DEV) ## style and types only
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(DEV) ## measure speed and memory for half an hour, and write docs/benchmarks.md
	$(BIN)/python benchmarks/run.py

docs: $(CORE) ## write the generated pages and figures of docs/ again
	$(BIN)/python docs/programs/kernels.py
	$(BIN)/python docs/programs/layers.py
	$(BIN)/python docs/programs/attention.py
	$(BIN)/python docs/programs/local_attention.py
	$(BIN)/python docs/programs/kernel_families.py
	$(BIN)/python docs/programs/escnn_page.py
	$(BIN)/python docs/programs/comparison.py
	$(BIN)/python docs/programs/real_fields.py
	$(BIN)/steerformer reproduce results
	$(BIN)/python docs/programs/readme_results.py

clean: ## remove the virtual environment, caches and build products
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || \
		{ echo "steerformer needs Python 3.10 or newer, and '$(PYTHON)' is not; try: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The interpreter is an order-only prerequisite: its modification time is not that of the installation.
$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing steerformer into $(VENV) (a few minutes the first time)"
	$(INSTALL) --editable '.[demo]'
	@touch $@

# Includes the core, so a demo after a test installs nothing.
$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing steerformer and its development tools into $(VENV) (a few minutes the first time)"
	$(INSTALL) --editable '.[dev]'
	@touch $(CORE) $@
