# `make demo` and `make test` are all that a newcomer needs: both set everything up first. Repeated, the setup takes no time.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# Bytecode is kept: else every process of the tests and of the demo compiles our modules anew, half a second each
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
# what runs is installed; so is what tests, lint and docs need
RUNS := $(VENV)/.gonogo-run
STAMP := $(VENV)/.gonogo-setup
BUNDLE := $(VENV)/.gonogo-bundle
BYTECODE := $(VENV)/.gonogo-bytecode
# where a release is written
DIST ?= dist
LOCKS ?= $(wildcard locks/run-py3*.txt)
# A process that imports NumPy starts a thread of BLAS for each further processor, and each spins for 50 ms; the tests start hundreds of such processes
test test-all test-servers explore: export OPENBLAS_NUM_THREADS ?= 1

# `make test` computes, so it has a process for each processor of a small machine; of the time of test-all a third is waiting
PYTEST_WORKERS ?= 2
ALL_WORKERS ?= 4
# a file's tests share one service, so one process runs them all; in the order of tests/conftest.py, not by the number of a file's tests
SPREAD = --dist loadfile --no-loadscope-reorder
TESTS ?= tests/unit tests/integration
# An interpreter with torch, which is too large for our own locks: for the tests of the torch executor, kept between clones
TORCH_VENV ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gonogo/torch-2.13.0
# What fuzzes by coverage: not in the locks, as it has no package for every Python, and kept between clones
ATHERIS_VERSION := 3.0.0
ATHERIS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gonogo/atheris-$(ATHERIS_VERSION)
# the seconds for each parser
FUZZ_S ?= 60
# What plants faults, with what it alone needs of its requirements: not in the locks either
MUTMUT_VERSION := 3.8.1
MUTMUT_PACKAGES := mutmut==$(MUTMUT_VERSION) libcst==1.9.0 'pyyaml-ft==8.0.0; python_version == "3.13"'
MUTMUT ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gonogo/mutmut-$(MUTMUT_VERSION)
# the tests of the modules that [tool.coverage.run] of pyproject.toml names
COVERING ?= tests/unit/domain/judgment tests/unit/domain/judging tests/unit/domain/public tests/unit/domain/spec tests/integration/api tests/integration/background tests/integration/storage
# what the pages' scripts and styles are made of
FRONT := $(shell find dashboards/web dashboards/gonogo_dashboards/build.py -name node_modules -prune -o -type f -print 2>/dev/null)

.PHONY: help setup demo up bytecode test test-all test-servers test-documentation test-simulated explore fuzz fuzz-coverage docs docs-test test-sim wormhole-sim torch libraries corpus lint bench chaos mutants coverage pictures lock audit release sbom pin clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1	/' | expand -t 20

setup: $(STAMP) ## make .venv from the locks, build the pages' scripts (all other targets do it by themselves)
	@$(MAKE) --no-print-directory $(BUNDLE)

# Install the lock $(1). The first of $(PYTHON) and these that runs (a shim may exist and fail) and has a lock; 3.14 comes last, as no test has run on it.
define install
	@set -euo pipefail; \
	for python in $(PYTHON) python3.12 python3.11 python3.13 python3 python3.14; do \
	  tag=$$("$$python" -c 'import sys; print("py%d%d" % sys.version_info[:2])' 2>/dev/null) || continue; \
	  case $$tag in py311|py312|py313|py314) break ;; *) tag= ;; esac; \
	done; \
	if [ -z "$${tag:-}" ]; then echo "GoNoGo needs Python 3.11, 3.12 or 3.13: apt-get install -y python3 python3-venv, or name one: make PYTHON=/path/to/python" >&2; exit 2; fi; \
	version=$${tag/py3/3.}; \
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "$$python can't make virtual environments; run: apt-get install -y python$$version-venv" >&2; exit 2; fi; \
	if ! [ -x $(BIN)/python ] || [ "$$($(BIN)/python -c 'import sys; print("py%d%d" % sys.version_info[:2])' 2>/dev/null)" != "$$tag" ]; then \
	  echo "making $(VENV) with $$python ($$version)"; "$$python" -m venv --clear $(VENV); fi; \
	echo "installing the locked packages"; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes --only-binary :all: -r locks/$(1)-$$tag.txt; \
	echo "installing gonogo and building the pages' scripts"; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	touch $(RUNS) $(BUNDLE)
endef

$(STAMP): $(wildcard locks/dev-py3*.txt) pyproject.toml hatch_build.py
	$(call install,dev)
	@touch $@

$(RUNS): $(wildcard locks/demo-py3*.txt) pyproject.toml hatch_build.py
	$(call install,demo)

# After a change of the front end alone: build the scripts again, leave the packages.
$(BUNDLE): $(FRONT)
	@$(BIN)/python hatch_build.py
	@touch $@

demo: $(RUNS) ## start everything and show the pass that isn't (ARGS=--exit: then stop)
	@$(MAKE) --no-print-directory $(BUNDLE)
	@$(BIN)/gonogo demo $(ARGS)

up: $(RUNS) ## run the service here until Ctrl-C
	@$(MAKE) --no-print-directory $(BUNDLE)
	@$(BIN)/gonogo up $(ARGS)

# in a fresh clone, the bytecode of all tests, before several processes make it at the same time
bytecode: $(BYTECODE)

$(BYTECODE): | setup
	@$(BIN)/python -m pytest --collect-only -q >/dev/null 2>&1; touch $@

test: setup bytecode ## what a newcomer needs, in four minutes: no PostgreSQL, browser, compiler, torch or simulator; TESTS and ARGS choose
	@$(BIN)/python -m pytest -n $(PYTEST_WORKERS) $(SPREAD) -m "not slow" -rs $(TESTS) $(ARGS)

# two at a time: each part waits now and then
test-all: setup bytecode docs ## every test, as CI runs them: servers, kills, browser, wheel, gtest, torch, documentation, simulator
	@$(MAKE) --no-print-directory --keep-going --jobs 2 --output-sync=line test-servers test-documentation test-simulated

test-servers: bytecode
	@GONOGO_TEST_TORCH_PYTHON="$${GONOGO_TEST_TORCH_PYTHON:-$(wildcard $(TORCH_VENV)/bin/python)}" \
	  $(BIN)/python -m pytest -n $(ALL_WORKERS) $(SPREAD) -rs --ignore=tests/simulator --ignore=tests/docs tests $(ARGS)

explore: setup bytecode ## all tests of properties, each night with new examples (.ci/nightly); `make test` has the same ones each time
	@$(BIN)/python -m pytest -n $(ALL_WORKERS) $(SPREAD) --hypothesis-profile=nightly -m hypothesis --timeout=1800 $(ARGS)

fuzz: setup ## hostile input for hours: every parser of strangers' input, every address (tests/checks/fuzz.py)
	@$(BIN)/python -m pytest --hypothesis-profile=fuzz --timeout=0 tests/unit/project/test_hostile_input.py tests/acceptance/test_openapi.py $(ARGS)
	@$(MAKE) --no-print-directory fuzz-coverage

fuzz-coverage: setup # each parser for FUZZ_S seconds, by coverage, where atheris has a package for this Python; a crash is a file in .fuzz
	@set -euo pipefail; \
	folder="$(ATHERIS)-$$($(BIN)/python -c 'import sys; print("py%d%d" % sys.version_info[:2])')"; \
	if [ ! -d "$$folder/atheris" ] && ! $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --target "$$folder" atheris==$(ATHERIS_VERSION); then \
	  rm -rf "$$folder"; echo "atheris $(ATHERIS_VERSION) has no package for this Python: hypothesis alone has tried the parsers" >&2; exit 0; fi; \
	mkdir -p .fuzz; PYTHONPATH="$$folder" $(BIN)/python -m tests.checks.fuzz all -max_total_time=$(FUZZ_S) -timeout=20 -verbosity=0 -artifact_prefix=.fuzz/

docs: setup ## the manual as a site, in dashboards/gonogo_dashboards/manual; the service shows it under /manual
	@$(BIN)/python -m tests.checks.manual

docs-test: docs ## paste every command of README and docs, compare what they print, follow every link
	@$(MAKE) --no-print-directory test-documentation

test-documentation: bytecode
	@GONOGO_TEST_TORCH_PYTHON="$${GONOGO_TEST_TORCH_PYTHON:-$(wildcard $(TORCH_VENV)/bin/python)}" \
	  $(BIN)/python -m pytest -n 2 --dist worksteal tests/docs $(ARGS)

wormhole-sim: setup ## a simulated Wormhole that runs real ttnn kernels, in the cache folder (docs/wormhole.md)
	@$(BIN)/python -m tests.wormhole

test-sim: wormhole-sim ## tests of the real ttnn kernels on it
	@GONOGO_REQUIRE=$${GONOGO_REQUIRE:-simulator} $(MAKE) --no-print-directory test-simulated

test-simulated: bytecode
	@$(BIN)/python -m pytest -n 2 $(SPREAD) -rs tests/simulator $(ARGS)

torch: setup ## an interpreter with torch in the cache folder; `make test-all` then runs the torch executor, too
	@$(BIN)/python -m benchmarks.kernels.environments torch

libraries: setup ## an environment for every library of the corpus in the cache folder (ARGS=jax: only that one)
	@$(BIN)/python -m benchmarks.kernels.environments $(ARGS)

corpus: setup ## recorded runs of kernels, and what the judge says of each, beside the committed table (ARGS="--sample 1000": 10 minutes)
	@$(BIN)/python -m benchmarks.corpus $(ARGS)

lint: setup ## ruff, mypy --strict, the layers of packages, names and docstrings
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.checks.words
	@$(BIN)/python -m tests.checks.structure

bench: setup ## every speed figure with its ratio; ARGS choose
	@$(BIN)/python -m benchmarks $(ARGS)

chaos: setup bytecode ## random faults on a whole service, 10 minutes on each database; ARGS choose (docs/reliability.md)
	@$(BIN)/python -m benchmarks.chaos $(ARGS)

mutants: setup ## small faults, 60 in each area of tests/checks/mutants.py, and those that its tests miss (AREA=auth; ARGS="--count 300 --seed 2")
	@set -euo pipefail; \
	folder="$(MUTMUT)-$$($(BIN)/python -c 'import sys; print("py%d%d" % sys.version_info[:2])')"; \
	[ -d "$$folder/mutmut" ] || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --target "$$folder" $(MUTMUT_PACKAGES); \
	PYTHONPATH="$$folder" $(BIN)/python -m tests.checks.mutants $(AREA) $(ARGS)

coverage: setup ## the share of lines of the judge, the verdicts, jobs and results that their own tests run: at least 95 %
	@$(BIN)/python -m coverage run -m pytest -q -m "not slow" $(COVERING)
	@$(BIN)/python -m coverage report

pictures: setup ## the pictures of the pages in docs/pictures anew; ARGS choose
	@$(BIN)/python -m benchmarks.pictures $(ARGS)

lock: ## make the locks anew; needs three interpreters (PYTHON311, PYTHON312, PYTHON313); ARGS=--keep only adds what is missing
	@set -euo pipefail; lock() { \
	  folder=$$(mktemp -d); "$$1" -m venv $$folder; $$folder/bin/python -m pip install --quiet "$$2"; \
	  $$folder/bin/python locks/lock.py $(ARGS) "$${@:3}"; rm -rf $$folder; }; \
	lock $(or $(PYTHON311),python3.11) pip-tools; \
	lock $(or $(PYTHON312),python3.12) pip-tools; \
	lock $(or $(PYTHON313),python3.13) pip-tools; \
	lock $(or $(PYTHON313),python3.13) uv --for 3.14

audit: setup ## known vulnerabilities of all that the locks install (needs the network: a package that can't be looked up is an error)
	@for lock in locks/run-py3*.txt locks/dev-py3*.txt; do echo "$$lock"; \
	  $(BIN)/pip-audit --strict --disable-pip --require-hashes --progress-spinner off -r "$$lock" || exit 1; done

release: docs ## wheel (with the manual), sdist, SBOMs and their checksums in dist/
	@rm -rf $(DIST)
	@$(BIN)/python -m hatchling build -d $(DIST)
	@$(BIN)/python -m zipfile --list $(DIST)/gonogo-*.whl | grep gonogo_dashboards/manual/index.html >/dev/null
	@$(MAKE) --no-print-directory sbom
	@cd $(DIST) && sha256sum -- * >SHA256SUMS && cat SHA256SUMS

# by the locks, so that an SBOM has the versions and hashes that were tested
sbom: ## the software bill of materials (CycloneDX) of each run lock, in dist/
	@mkdir -p $(DIST)
	@for lock in $(LOCKS); do \
	  $(BIN)/python -W ignore -m cyclonedx_py requirements "$$lock" --pyproject pyproject.toml --output-reproducible \
	    -o "$(DIST)/gonogo-$$(basename "$$lock" .txt | sed s/run-//).cdx.json"; done

pin: ## docker-compose.digests.yml, which pins the images by digest (needs Docker and the network)
	@docker compose --profile monitoring pull --quiet --ignore-buildable
	@docker compose --profile monitoring config --images | sort -u | while read -r image; do \
	  docker image inspect --format '{{json (index .RepoDigests 0)}}' "$$image" 2>/dev/null | sed "s|^|$$image |" || true; done \
	  | $(or $(wildcard $(BIN)/python),python3) locks/pin.py

clean: ## remove what the targets above made (var/, the demo's database, too)
	rm -rf $(VENV) var dist build dashboards/gonogo_dashboards/static dashboards/gonogo_dashboards/manual dashboards/web/node_modules .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
