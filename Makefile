# Two commands do everything on a fresh machine: `make run` and `make test`.
# Both set up .venv when it is missing or when what it was made from has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# torch first and alone: a later package's wide range must not pull another build of it.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: run test lint browser benchmarks manual confirm pin clean help

# Compiled modules are kept: some machines forbid that, and every process would compile genbench anew, a second each.
unexport PYTHONDONTWRITEBYTECODE

run: $(READY)  ## set up, then score path_norm on the embedded suite
	$(BIN)/genbench run --measure path_norm

# One worker more than there are cores: a tenth of the tests' time is waiting (for Ray, for limits to pass).
WORKERS = $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')

# The linters run beside the tests: mypy without its cache takes 20 s that the tests' start leaves idle.
test: $(READY) browser  ## set up, then all tests beside ruff, mypy and import-linter
	@$(BIN)/python -m compileall -q -j 0 genbench plugins
	@$(MAKE) --no-print-directory lint & lint=$$!; \
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup; tests=$$?; \
	wait $$lint && exit $$tests

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

browser:  ## Chromium, in which the leaderboard site is tested, where apt can install it
	@command -v chromedriver >/dev/null || { command -v apt-get >/dev/null \
	&& $$(test "$$(id -u)" = 0 || echo sudo -n) apt-get install -qq -y --no-install-recommends chromium chromium-driver >/dev/null 2>&1; } \
	|| echo "no Chromium here and none can be installed: the browser tests of the leaderboard site are skipped"

benchmarks: $(READY)  ## speed claims, each a ratio within one run
	$(BIN)/python -m pytest benchmarks

manual: $(READY)  ## the manual, as build/manual/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

confirm: $(READY)  ## after a change of code: are all results the same bits? AGAINST=REV on another machine
	$(BIN)/python tests/versions.py confirm $(if $(AGAINST),--against $(AGAINST))

pin: $(READY)  ## after a raised version or something new: pin code and samples
	$(BIN)/python tests/versions.py pin $(if $(AGAINST),--against $(AGAINST))

$(READY): pyproject.toml constraints.txt plugins/genbench-example/pyproject.toml plugins/genbench-weightwatcher/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "genbench needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) --editable '.[dev,lite,ray,lightning]' --editable plugins/genbench-example --editable plugins/genbench-weightwatcher
	rm -rf genbench.egg-info  # pytest would take it for a plugin's, and rewrite the assertions of all its modules
	touch $@

clean:  ## remove the virtual environment and caches (not .genbench, the results)
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache

help:
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'
