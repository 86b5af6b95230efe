# `make` lists the targets. All of them make .venv first; nothing is installed elsewhere.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup setup-spark setup-dev packages check demo test test-slow test-interpreted test-all models sim chaos \
	fuzz fuzz-frames bench lint types docs build clean

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
INSTALLED = env $(KEEPING) -u PYTHONPATH
# Two processes for each core: they and the nodes that they start keep all cores busy, and with three each test is
# slower, until real nodes miss their timeouts. tests/support/shares.py shares out.
PYTEST = -m pytest -q -n $$((2 * $(JOBS)))
# The slow tests, and those on the sources, compute more: with two for each core Spark runs into timeouts.
SLOW_PYTEST = -m pytest -q -n $$(($(JOBS) + 1))
# What the compiler touches; the users' side is Python in both runs, and real nodes run the same code.
INTERPRETED_TESTS = $(addprefix tests/,server core tubes wire store iproto spec golden compat sim/test_sim_seeds.py)
# Tests that replace functions need the sources, which have them as Python.
SOURCES_TESTS = $(if $(ARGS),$(ARGS),$(shell grep -rl --include='test_*.py' 'mark\.sources' tests))
WHY_SOURCES = $(PY) tools/setup_env.py --venv "$(VENV)" --why-sources

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup setup-spark setup-dev packages:
	@python="$$($(FIND_PYTHON))"; \
	if [ -z "$$python" ]; then \
		echo "error: no Python 3.11 or later found. On Debian or Ubuntu: apt-get install python3 python3-venv" >&2; exit 1; fi; \
	"$$python" tools/setup_env.py --venv "$(VENV)" $(if $(filter packages,$@),--for dev --keep-build,--for $(if $(filter setup,$@),run,$(@:setup-%=%)))

setup: ## make .venv: server, client, worker, reports; compiled if there is a C compiler
setup-spark: ## make .venv with PySpark, too
setup-dev: ## make .venv with all that tests, lint and benches need
# What reads the sources alone does not wait until those that were changed are compiled again.
packages:

demo: setup-spark ## run three nodes, workers and crashes over the standard library, then the Spark report
	@PYTHONPATH="$(CURDIR)/examples" $(PY) -m demo $(ARGS)

check: lint types ## style, types, layers, golden traces and the rules of the core
	@$(SOURCES) $(PY) $(PYTEST) -m "not slow and not long" tests/golden tests/house tests/core tests/spec $(ARGS)

# Modules that were changed since they were compiled are tested on the sources, without a wait for the compiler.
test: packages ## run the tests, but for the slow ones: on the compiled modules, after an edit of these on the sources
	@why="$$($(WHY_SOURCES))"; \
	if [ -n "$$why" ]; then \
		echo "== on the sources: $$why"; exec $(SOURCES) $(PY) $(PYTEST) -m "not slow" $(ARGS); fi; \
	failed=0; \
	$(INSTALLED) TUQUE_EXPECT_COMPILED=1 $(PY) -P $(PYTEST) -m "not slow and not sources" $(ARGS) || \
		[ $$? = $(if $(ARGS),5,none) ] || failed=1; \
	$(SOURCES) $(PY) $(SLOW_PYTEST) -m "not slow and sources" $(SOURCES_TESTS) || \
		[ $$? = $(if $(ARGS),5,none) ] || failed=1; \
	exit $$failed

test-slow: setup-dev ## run the slow tests: long seeds, chaos, Spark's clusters and kills, the demo
	@failed=0; \
	$(INSTALLED) $(PY) -P $(SLOW_PYTEST) -m "slow and not sources" $(ARGS) || failed=1; \
	$(SOURCES) $(PY) $(SLOW_PYTEST) -m "slow and sources" tests/sim || failed=1; \
	exit $$failed

test-interpreted: packages ## run the tests of what is compiled again, on the sources
	@$(SOURCES) $(PY) $(PYTEST) -m "not slow and not sources" $(INTERPRETED_TESTS) $(ARGS)

test-all: test test-slow test-interpreted ## run all tests

models: setup-dev ## ask the tubes 200,000 things that plain models of them answer, too
	@$(SOURCES) TUQUE_TUBE_OPS=40000 $(PY) -m pytest -q tests/tubes/test_tube_models.py $(ARGS)

sim: setup-dev ## run seeds of the simulated cluster (ARGS="--minutes 5"), on what is installed
	@env PYTHONPATH="$(CURDIR)" $(PY) -P -m sim --jobs $(JOBS) --past tests/sim/past_failures.txt $(ARGS)

chaos: setup-dev ## real nodes, and Spark, killed and cut off for long (ARGS="--minutes 10 --nodes 5")
	@env -u PYTHONPATH $(PY) -P tests/e2e/cluster_chaos.py $(ARGS)
	@env -u PYTHONPATH $(PY) -P tests/e2e/cluster_chaos.py --outages --minutes 1
	@env -u PYTHONPATH $(PY) -P -m pytest -q -s tests/e2e/spark_chaos*.py

fuzz: setup-dev ## say a million things to a node that are almost right, on all its ports (ARGS="--seconds 60")
	@env -u PYTHONPATH $(PY) -P fuzz/talk.py $(ARGS)

fuzz-frames: setup-dev ## feed the reader of IPROTO with nonsense (needs atheris; SPAN=600 seconds)
	@$(PY) -c 'import atheris' 2>/dev/null || $(PY) -m pip install -q atheris==3.0.0
	@mkdir -p build/fuzz
	@cd build/fuzz && PYTHONPATH="$(CURDIR)/src" "$(CURDIR)/$(PY)" "$(CURDIR)/fuzz/iproto.py" -max_total_time=$(SPAN)

bench: setup-dev ## measure against redis-server and beanstalkd, where installed
	@$(PY) bench/run.py $(ARGS)

lint: packages ## check style, sizes, names and the layers
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(PY) tools/tidy.py
	@$(SOURCES) $(VENV)/bin/lint-imports

types: packages ## check types, strictly
	@$(VENV)/bin/mypy

docs: setup-dev ## write what is made (pages from the tables, the client for threads), and build the site
	@$(PY) tools/docs.py
	@$(PY) tools/faces.py
	@$(PY) tools/site_pages.py

build: ## make wheels in dist/: one for each Python 3.11+ of this machine, and a pure one
	@python="$$($(FIND_PYTHON))"; "$$python" tools/wheels.py $(ARGS)

clean: ## remove .venv and everything that was built
	@rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
