# iosim: everything a fresh machine with Python >= 3.11 and make can do. `make help` lists the targets.
# Variables: PYTHON (the interpreter to build .venv from), VENV, REPORT_DIR, PYTEST_ARGS.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; exit; }; done; echo python3)
VENV ?= .venv
REPORT_DIR ?= iosim-report
PYTEST_ARGS ?= -n 2

PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
RUN_STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev

PIP_COMPILE := CUSTOM_COMPILE_COMMAND="make lock" $(PY) -m piptools compile --quiet --strip-extras \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options

.DEFAULT_GOAL := help
.PHONY: help report test test-browser lint bench gallery lock clean distclean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | column -t -s '|' 2>/dev/null \
		|| sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1  \2/p' $(firstword $(MAKEFILE_LIST))

report: $(RUN_STAMP)  ## the main job on the embedded default (no GPU needed), into ./iosim-report
	@$(PY) -m iosim report --out $(REPORT_DIR)
	@echo "Look at $(REPORT_DIR)/report.html (or report.md); tables and figures lie beside it."

test: lint  ## lint, types and all tests
	$(PY) -m pytest $(PYTEST_ARGS)

test-browser: $(DEV_STAMP)  ## the report in a headless Chromium, phone and desktop, light and dark (part of test)
	$(PY) -m pytest -rs tests/browser

lint: $(DEV_STAMP)  ## ruff and mypy only
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

bench: $(DEV_STAMP)  ## time the tool beside its peers, write docs/performance.md
	$(PY) -m benchmarks.run

gallery: $(RUN_STAMP)  ## rebuild reports/ for A100, H100 and H200, the same bytes every time
	$(PY) reports/build.py

lock: $(DEV_STAMP)  ## resolve requirements/*.txt anew from pyproject.toml
	$(PIP) 'pip-tools>=7.5'
	$(PIP_COMPILE) --upgrade --build-deps-for editable -o requirements/lock.txt pyproject.toml
	$(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"], sep="\n")' \
		| $(PIP_COMPILE) --upgrade -o requirements/dev-lock.txt requirements/lock.txt -

clean:  ## remove what the tools leave behind, keep .venv
	rm -rf build dist $(REPORT_DIR) .pytest_cache .mypy_cache .ruff_cache .hypothesis .bench
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean  ## and .venv as well
	rm -rf $(VENV)

# One environment; a stamp says what it holds, so that a second run installs nothing.
$(RUN_STAMP): requirements/lock.txt pyproject.toml | $(PY)
	$(PIP) -r requirements/lock.txt
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(DEV_STAMP): requirements/dev-lock.txt $(RUN_STAMP)
	$(PIP) -r requirements/dev-lock.txt
	@touch $@

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "make: $(PYTHON): iosim needs Python 3.11 or newer; say which with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "make: $(PYTHON) cannot make a virtual environment (venv or ensurepip is missing);" \
			"install it (on Debian and Ubuntu: apt install python3-venv) or use another: make PYTHON=..." >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }
