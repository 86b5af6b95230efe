# `make` lists the targets. All of them make .venv first; nothing is installed elsewhere.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup setup-spark setup-dev packages built check demo test test-deep sim models chaos fuzz fuzz-frames test-bridges bench lint types docs build clean

VENV ?= .venv
PY := $(VENV)/bin/python
JOBS ?= 2
ARGS ?=
SPAN ?= 600

# The first Python 3.11+ that answers; python3 may be an older one.
FIND_PYTHON = for one in $${PYTHON:-} python3.11 python3 python3.12 python3.13 python3.14; do \
	if "$$one" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo "$$one"; break; fi; done
# The tests start some thousand programs: each would compile all it imports, were no bytecode kept.
KEEPING = -u PYTHONHOME -u PYTHONDONTWRITEBYTECODE
SOURCES = env $(KEEPING) PYTHONPATH="$(CURDIR)/src:$(CURDIR):$(CURDIR)/examples"
PYTEST = -m pytest -q --slots $$((2 * $(JOBS)))

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup setup-spark setup-dev packages built:
	@python="$$($(FIND_PYTHON))"; \
	if [ -z "$$python" ]; then \
		echo "error: no Python 3.11 or later found. On Debian or Ubuntu: apt-get install python3 python3-venv" >&2; exit 1; fi; \
	"$$python" tools/setup_env.py --venv "$(VENV)" $(SETUP)

setup: ## make .venv: server, client, worker, reports; compiled if there is a C compiler
setup-spark: ## make .venv with PySpark, too
setup-dev: ## make .venv with all that tests, lint and benches need
setup: SETUP = --for run
setup-spark: SETUP = --for spark
setup-dev: SETUP = --for dev
# What reads the sources alone needs no Tuque in .venv.
packages: SETUP = --for dev --packages-only
# Tests do not wait until sources that were changed are compiled again.
built: SETUP = --for dev --keep-build

demo: setup-spark ## run three nodes, workers and crashes over the standard library, then the Spark report
	@PYTHONPATH="$(CURDIR)/examples" $(PY) -m demo $(ARGS)

check: lint types ## style, types, layers, golden traces and the rules of the core
	@$(SOURCES) $(PY) $(PYTEST) -m "not slow and not long" tests/golden tests/house tests/core tests/spec $(ARGS)

# Modules that were changed since they were compiled are tested on the sources, without a wait for the compiler.
test: built ## what everybody runs before a push (ARGS="tests/server" or "-k name" for a part of it)
	@env $(KEEPING) $(PY) tools/run_tests.py quick --jobs $(JOBS) $(ARGS)

test-deep: setup-dev ## all that a release needs: slow tests, 400 seeds, chaos, fuzz, all on the sources (ARGS="--only chaos")
	@env $(KEEPING) $(PY) tools/run_tests.py deep --jobs $(JOBS) $(ARGS)

sim: setup-dev ## run seeds of the simulated cluster (ARGS="--minutes 5"), on what is installed
	@env PYTHONPATH="$(CURDIR)" $(PY) -P -m sim --jobs $(JOBS) --past tests/sim/past_failures.txt $(ARGS)

models: packages ## walk through the model of who leads a tube, then with each of its rules broken (ARGS="--minutes 10")
	@env PYTHONPATH="$(CURDIR)" $(PY) -P -m spec.model --jobs $(JOBS) $(ARGS)

chaos: setup-dev ## real nodes, and Spark, killed and cut off for long (ARGS="--minutes 10 --nodes 5")
	@env PYTHONPATH="$(CURDIR):$(CURDIR)/tests/tools" $(PY) -P tests/e2e/cluster_chaos.py $(ARGS)
	@env PYTHONPATH="$(CURDIR):$(CURDIR)/tests/tools" $(PY) -P tests/e2e/cluster_chaos.py --outages --minutes 1
	@env -u PYTHONPATH $(PY) -P -m pytest -q -s tests/e2e/spark_chaos*.py

fuzz: setup-dev ## say a million things to a node that are almost right, on all its ports (ARGS="--seconds 60")
	@env -u PYTHONPATH $(PY) -P fuzz/talk.py $(ARGS)

fuzz-frames: setup-dev ## feed the reader of IPROTO with nonsense (needs atheris; SPAN=600 seconds)
	@$(PY) -c 'import atheris' 2>/dev/null || $(PY) -m pip install -q atheris==3.0.0
	@mkdir -p build/fuzz
	@cd build/fuzz && PYTHONPATH="$(CURDIR)/src" "$(CURDIR)/$(PY)" "$(CURDIR)/fuzz/iproto.py" -max_total_time=$(SPAN)

test-bridges: packages ## the suites of Django, Celery and others, with our bridges in the place of their parts (ARGS="django-6.1")
	@env PYTHONPATH="$(CURDIR)/src" $(PY) -P tools/bridges.py $(ARGS)

bench: setup-dev ## measure against redis-server and beanstalkd, where installed
	@$(PY) bench/run.py $(ARGS)

lint: packages ## check style, sizes, names and the layers
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(PY) tools/tidy.py
	@$(SOURCES) $(VENV)/bin/lint-imports

# What runs elsewhere is checked for there, with a cache each: mypy empties one of another platform.
WINDOWS = $(addprefix -p tuque.,client cli clusterview metrics testing worker.app worker.workflow) \
	$(addprefix -m tuque.,aio completion errors lazygroup logtext main nodeoptions platforms smallfile terminal tlsstream)
MACOS = $(addprefix -p tuque.,cli server testing web worker)

types: packages ## check types, strictly, for Linux, and for macOS and Windows what runs there
	@$(VENV)/bin/mypy
	@$(PY) tools/compiled_types.py
	@$(VENV)/bin/mypy --platform darwin --cache-dir .mypy_cache/macos $(MACOS)
	@$(VENV)/bin/mypy --platform win32 --cache-dir .mypy_cache/windows --follow-imports silent $(WINDOWS)

docs: setup-dev ## write what is made (pages from the tables, the client for threads), and build the site
	@$(PY) tools/docs.py
	@$(PY) tools/faces.py
	@$(PY) tools/site_pages.py

build: ## make sdists and wheels in dist/, compiled for each Python 3.11+ of this machine, and try them
	@python="$$($(FIND_PYTHON))"; "$$python" tools/wheels.py $(ARGS)

clean: ## remove .venv and everything that was built
	@rm -rf $(VENV) build node/build node/.mypy_cache dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
