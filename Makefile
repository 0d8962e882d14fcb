# Two commands: `make demo` and `make test`. The rest serves people who work on Rollscope.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready

.PHONY: help setup demo test lint bench trainers clean

help:
	@echo "make demo      set up, train the small demo policy, open the viewer (VIEW=0: do not)"
	@echo "make test      set up, lint, run every test"
	@echo "make lint      ruff and mypy"
	@echo "make bench     measure speed and size beside Trackio, MLflow and Weave"
	@echo "make trainers  run the adapters against the real trainers (T=verl: against one)"

setup: $(READY)

$(READY): requirements/base.txt requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q --disable-pip-version-check -r requirements/dev.txt
	$(PY) -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

lint: setup
	$(VENV)/bin/ruff format --check -q src tests bench
	$(VENV)/bin/ruff check -q src tests bench
	$(VENV)/bin/mypy

test: lint
	$(PY) -m pytest -n 2 --dist loadfile

trainers: setup
	$(PY) tests/trainers/run.py $(T)

clean:
	rm -rf $(VENV) .venv-* out dist build
