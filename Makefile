# Everything works on a machine that has nothing but Python 3.11 and make.
PYTHON ?= python3
VENV ?= .venv
CORE ?= .venv-core
BIN := $(VENV)/bin
JOBS ?= auto

.PHONY: help demo test install lint types core-test docs clean

help:
	@echo "make demo    install, then place and run a real network on this machine"
	@echo "make test    install, then lint, type-check and run all tests"
	@echo "make docs    install, then write these pages as a site: open site/index.html"

# torch first: the pinned release, so that nothing else chooses a larger one.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[onnx,torch,hf,serve,docs,dev]'
	$(BIN)/python -c "from placewright.ahead import compile_all; compile_all()"
	touch $@

$(CORE)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(CORE)
	$(CORE)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . pytest pytest-xdist hypothesis xlwt
	touch $@

install: $(VENV)/installed

demo: install
	$(BIN)/python examples/demo.py

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

test: lint types core-test
	$(BIN)/pytest -n $(JOBS) --doctest-modules src/placewright tests

# Where no extra is installed: what needs one is skipped with a reason, and what no extra can change is left out.
SAME := bounds evaluate max_load offload solvers verify
core-test: $(CORE)/installed
	$(CORE)/bin/pytest -n $(JOBS) -q -m "not slow" $(SAME:%=--ignore tests/%) tests

# Links, anchors and pages that nobody points to are errors; nothing in the site is loaded from elsewhere.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) $(CORE) demo-out site
