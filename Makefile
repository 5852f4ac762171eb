# The two commands a newcomer needs are `make demo` and `make test`; both set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
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
	@echo "Five lexical metrics of each translation, calibrated on 56 judged segments: what can they promise?"
	@mkdir -p $(VENV)/demo
	$(BIN)/doubtless calibrate examples/forecasts.tsv --samples $(SAMPLES) --where "split = 'calibration'" \
	  --range 0,100 --alpha 0.2 --distribution -o $(VENV)/demo/calibration.json
	$(BIN)/doubtless apply $(VENV)/demo/calibration.json examples/forecasts.tsv --where "split = 'new'" \
	  --human human --below 50 --pretty
	$(BIN)/doubtless evaluate examples/forecasts.tsv --samples $(SAMPLES) --by lp --alpha 0.2 --range 0,100

lint: $(VENV)/.dev
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/ruff check src tests benchmarks examples
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
