# make run | test | test-engines | lint | setup | record-histories | lock
# Needs git, make and Python 3.11 or newer; everything else is installed into .venv.

PYTHON ?= python3
TESTS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
LOCK := $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
	--generate-hashes --no-header --no-annotate --no-emit-index-url

# A venv does not survive a move of its checkout, or the end of the Python that made it.
ifneq ($(wildcard $(VENV)/.installed),)
ifneq ($(CURDIR),$(shell $(BIN)/python -c 'print(open("$(VENV)/.installed").read(), end="")' 2>/dev/null))
$(shell rm -rf $(VENV))
endif
endif

.PHONY: run test test-engines lint format setup setup-dev record-histories lock clean
.DEFAULT_GOAL := run

run: setup
	@$(BIN)/steady up

test: setup-dev
	@$(BIN)/python -m pytest $(TESTS)

# Installs real vLLM and llama.cpp into .engines (4 GB), and needs 8 GB of memory and the better part of an hour.
test-engines: setup-dev
	@$(BIN)/python -m pytest -o addopts="--strict-markers --strict-config -ra" $(or $(TESTS),tests/engines)

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Replaces the newest set in tests/histories with what the present workflows write; those of earlier
# releases, in its folders, stay.
record-histories: setup-dev
	$(BIN)/python -m tests.record

setup: $(VENV)/.installed
setup-dev: $(VENV)/.installed-dev

$(VENV)/.installed: requirements.lock pyproject.toml
	$(call install,requirements.lock)
	@printf %s "$(CURDIR)" > $@

$(VENV)/.installed-dev: requirements-dev.lock pyproject.toml | $(VENV)/.installed
	$(call install,requirements-dev.lock)
	@touch $@

# Pins anew to the latest releases that pyproject.toml allows.
lock: setup-dev
	$(LOCK) --upgrade --group build --output-file requirements.lock
	$(LOCK) --upgrade --group dev --constraint requirements.lock --output-file requirements-dev.lock

clean:
	rm -rf $(VENV)

# Every file that pip takes is checked against a hash in the lock, the build tools included.
define install
	@$(BIN)/python -c 'import pip, sys; assert sys.version_info >= (3, 11)' 2>/dev/null || { $(NEW_VENV); }
	@echo "installing $(1) into $(VENV)"
	@$(PIP) install --require-hashes -r $(1)
	@$(PIP) install --no-build-isolation --no-deps --editable .
endef

define NEW_VENV
command -v $(PYTHON) >/dev/null || { \
	echo "steady needs Python 3.11 or newer, and there is no $(PYTHON): name one, like make PYTHON=/usr/bin/python3.12" >&2; exit 1; }; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "steady needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1): name another, like make PYTHON=python3.12" >&2; exit 1; }; \
$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	echo "$(PYTHON) can't make a virtual environment: on Debian and Ubuntu, apt install python3-venv" >&2; exit 1; }; \
$(PYTHON) -m venv --clear $(VENV)
endef
