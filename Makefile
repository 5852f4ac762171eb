# The two commands a newcomer needs are `make demo` and `make test`; both set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := src tests benchmarks examples recipes
SAMPLES := chrf2,chrf4,chrf6,chrfpp,ter100

.PHONY: demo test lint check-data benchmark docs clean

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "doubtless needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

# The stamps remember what was installed, so that a second call costs nothing.
$(VENV)/.core: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ $(VENV)/.core

demo: $(VENV)/.core
	@echo "Two systems, scored by the bundled model: no network, no reference."
	$(BIN)/doubtless score examples/segments.tsv --where "split = 'new'" --words --pretty
	@echo
	@echo "Five lexical metrics of the same translations, calibrated on 56 judged segments: what can they promise?"
	$(BIN)/doubtless evaluate examples/forecasts.tsv --samples $(SAMPLES) --by lp --alpha 0.2 --range 0,100

lint: $(VENV)/.dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

test: lint
	$(BIN)/pytest src tests

# Needs the real data sets: DOUBTLESS_DATA=DIR make check-data
check-data: $(VENV)/.dev
	@test -n "$$DOUBTLESS_DATA" || { echo "set DOUBTLESS_DATA to the directory of the data sets"; exit 2; }
	$(BIN)/pytest tests -m data

benchmark: $(VENV)/.dev
	$(BIN)/python benchmarks/conformal.py

docs: | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
