# Users need two commands: `make demo` and `make test`. The others are for people who work on Rollscope.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready

# A package index may fail for a moment, so every install is tried three times.
TRY := sh -c '"$$@" || { sleep 10; "$$@"; } || { sleep 30; "$$@"; }' sh
PIP := -m pip install -q --disable-pip-version-check

.PHONY: help setup demo test lint bench trainers viewer wheel chromium clean

help:
	@echo "make demo      set up, train the small demo policy, open the viewer (VIEW=0: do not open it)"
	@echo "make test      set up, lint, run every test"
	@echo "make lint      ruff and mypy"
	@echo "make races     run the browser tests with late answers and a slow browser"
	@echo "make bench     measure speed and size, beside Trackio, MLflow and Weave"
	@echo "make bench-scale  the same questions of 10 thousand to 10 million rollouts (SIZES=10000,100000: fewer)"
	@echo "make checks    measure how many planted faults the checks find, and write the table in docs/checks.md"
	@echo "make generated write what is made from the code: tables of the docs, types of the page"
	@echo "make tutorial  run the demo, and write its answers into the tutorial"
	@echo "make viewer    build the web page into the package (needs npm)"
	@echo "make wheel     build the wheel, with the viewer inside"
	@echo "make trainers  run the adapters against the real trainers (T=verl: against one of them; ALL=1: older versions too; T=verl HEAD=path: a source of yours; HEAD=1 SOURCES=folder: several)"

setup: $(READY)

$(READY): requirements/base.txt requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(TRY) $(PY) $(PIP) -r requirements/dev.txt
	$(TRY) $(PY) $(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# The peers live in an environment of their own, because nothing else needs their packages.
PEERS := .venv-peers/.ready
PEERS_PY := .venv-peers/bin/python

$(PEERS): requirements/base.txt requirements/peers.txt pyproject.toml
	$(PYTHON) -m venv .venv-peers
	$(TRY) $(PEERS_PY) $(PIP) -r requirements/peers.txt
	$(TRY) $(PEERS_PY) $(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# Programs that read our exports, and some whose files we import. They live apart because one of them
# needs an older engine, and Rollscope is not installed there.
READERS := .venv-readers/.ready

$(READERS): requirements/readers.txt requirements/readers.nodeps.txt
	$(PYTHON) -m venv .venv-readers
	$(TRY) .venv-readers/bin/python $(PIP) -r requirements/readers.txt
	$(TRY) .venv-readers/bin/python $(PIP) --no-deps -r requirements/readers.nodeps.txt
	@touch $@

lint: setup
	$(VENV)/bin/ruff format --check -q src tests bench
	$(VENV)/bin/ruff check -q src tests bench
	$(VENV)/bin/mypy

test: lint viewer viewer-tests chromium $(PEERS) $(READERS)
	$(PY) -m pytest -n 2 --dist loadfile --ignore=tests/browser
	$(PY) -m pytest -n 2 --dist loadfile tests/browser  # apart: the browser keeps an event loop
	$(PEERS_PY) -m pytest -n 2 --dist loadfile tests/peers  # the sinks, against the real systems
	.venv-readers/bin/python -m pytest --confcutdir=tests/readers tests/readers  # exports opened, files imported

# Finds code that works only if answers come soon: here they come late, in any order, to a slow browser.
.PHONY: races
races: setup viewer chromium
	TEST_LATE=0.6 $(PY) -m pytest -n 2 --dist loadfile tests/browser

# The demo writes to the usual store, so that `rollscope ls` and the other commands find it.
demo: setup $(if $(filter 0,$(VIEW)),,viewer)
	$(VENV)/bin/rollscope demo $(if $(filter 0,$(VIEW)),--no-view)

# -- the web page ------------------------------------------------------------------------

PAGE := src/rollscope/viewer/static/index.html

viewer: $(PAGE)

viewer/node_modules/.package-lock.json: viewer/package-lock.json
	cd viewer && $(TRY) npm ci --no-audit --no-fund
	@touch $@

$(PAGE): viewer/node_modules/.package-lock.json viewer/index.html viewer/vite.config.ts \
         $(shell find viewer/src viewer/public -type f 2>/dev/null)
	cd viewer && npm run -s build

.PHONY: viewer-tests
viewer-tests: viewer/node_modules/.package-lock.json
	cd viewer && npm run -s check && npm run -s test

# After a change of the schema, the query language or the API: writes everything that is made from the
# code: tables of the documents, the API's description, the page's types and columns, and the answers
# that its tests are held against.
.PHONY: generated
generated: setup viewer/node_modules/.package-lock.json
	$(PY) docs/generate.py
	$(PY) tests/server/vectors.py
	cd viewer && npm run -s api

# The pictures of docs/viewer.md are the screenshots that the browser tests last took of the demo.
.PHONY: pictures
pictures:
	for picture in docs/images/*.png; do cp out/screenshots/demo-$$(basename $$picture) $$picture; done

# The answers in the tutorial are those of a demo. Read the page afterwards: it speaks of them.
.PHONY: tutorial
tutorial: setup
	ROLLSCOPE_DIR=out/tutorial $(VENV)/bin/rollscope demo --no-view
	ROLLSCOPE_DIR=out/tutorial $(PY) docs/run.py docs/tutorial.md

# The browser of the tests: Debian's, installed if it is missing.
chromium:
	@command -v chromium >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    $(TRY) apt-get install -y -q chromium chromium-driver; \
	  else echo "install chromium to run the browser tests; they are skipped without it"; fi; }

wheel: setup viewer
	$(PY) -m hatchling build -t wheel -d dist

trainers: setup
	$(if $(SOURCES),SOURCES=$(SOURCES)) $(PY) tests/trainers/run.py $(T) $(if $(ALL),--all) $(if $(HEAD),--head=$(HEAD))

bench: $(PEERS) wheel
	$(PEERS_PY) bench

# What is measured already is kept in out/scale, so it may be stopped and begun again.
.PHONY: bench-scale
bench-scale: setup
	nice -n 10 $(PY) bench/scale.py

# Trains the demo first, if out/checks has none. What it plants faults into lies beside the repository.
.PHONY: checks
checks: setup
	$(PY) -m tests.checks.measure out/checks
	$(PY) docs/generate.py

clean:
	rm -rf $(VENV) .venv-* out dist build
