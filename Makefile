# Two commands are all a newcomer needs: `make train` and `make test`. Each sets up what it uses.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What `make train` needs is the core and `synth`; `make test` adds the rest to the same environment.
FOR_TRAINING := $(VENV)/.installed-train
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
WORKERS ?= 2
export OMP_NUM_THREADS ?= 1
export PYTHONHASHSEED ?= random

.DEFAULT_GOAL := help
.PHONY: help install browser train check lint types test test-all bench docs clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-10s %s\n", $$1, $$2}'

install: $(INSTALLED) browser  ## create .venv and install everything; instant when nothing changed

$(FOR_TRAINING): setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.10 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 10) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[synth]'
	@touch $@

$(INSTALLED): $(FOR_TRAINING)
	$(PIP) -e '.[synth,dev,docs,bpe,normalizers,remote,serve,export,wandb,mlflow]'
	@touch $@

# Dashboards are tested in a real browser, Debian's; without it these tests are skipped and say so.
browser:
	@command -v chromium >/dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing chromium for the tests of dashboards"; \
		apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1 || \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 || \
		echo "chromium could not be installed: tests that need a browser will be skipped"; \
	else echo "there is no chromium, and only root can install it: tests that need a browser will be skipped"; fi

# After an edit of the config that the run in this folder cannot take over, name another one: make train RUN=runs/las-2
RUN ?= runs/las

train: $(FOR_TRAINING)  ## train the default recogniser in runs/las, on speech made on the spot; or go on with it
	@echo "$(BIN)/sonosco train --config configs/las.yaml --run-dir $(RUN) --resume auto"
	@$(BIN)/sonosco train --config configs/las.yaml --run-dir $(RUN) --resume auto || { code=$$?; \
		if [ $$code = 2 ] && [ -e $(RUN)/config.yaml ]; then \
		echo "To train an edited configs/las.yaml in a folder of its own: make train RUN=$(RUN)-2"; fi; exit $$code; }

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

check: lint types test-quick  ## before every commit: lint, types, tests

test: lint types test-quick  ## lint, types and every test that is not slow

.PHONY: test-quick
test-quick: install
	$(BIN)/python -m pytest -m 'not slow' -n $(WORKERS)

test-all: lint types  ## as test, with the slow tests too
	$(BIN)/python -m pytest -n $(WORKERS)

# The frameworks that we are measured against are an extra that nothing else needs; BENCH='step --quick' is passed on.
$(VENV)/.installed-bench: $(INSTALLED)
	$(PIP) -e '.[bench]'
	@touch $@

bench: $(VENV)/.installed-bench  ## measure, against the bare tools and other frameworks; one table
	$(BIN)/python -m benchmarks $(BENCH)

docs: install  ## build the documentation into site/; warnings are errors
	$(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

clean:  ## remove .venv and everything that was built
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .ruff_cache .hypothesis
