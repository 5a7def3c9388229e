# One word for each task; .ci/run calls the same words. `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
LOGDIR ?= runs
# What `make nightly` installs.
PACKAGE ?= tf-nightly
# Test files that run at the same time. On two cores six: many wait for an allocator that tries again, a child process
# or a page.
TEST_JOBS ?= 6
# Scenarios that train at the same time; on a GPU one.
JOBS ?= $(if $(shell command -v nvidia-smi 2>/dev/null),1,2)
# What is predicted or compared from few steps, whose peaks other trainings beside change: apart from the other tests.
SCENARIOS := tests/integration/test_scenarios.py
DEMO := tests/integration/test_demo.py
PYTEST = $(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder
# Seconds of generated damage in `make test-all`, and trainings of its small table of accuracy.
HOSTILE_SECONDS ?= 30
SMALL_ACCURACY := build/accuracy
# All benchmarks run, also after one that fails.
BENCHMARKS = failed=0; for file in tests/benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file $(1) || failed=1; done; exit $$failed
BIN := $(VENV)/bin
# Python compiles what it imports; compiling all of TensorFlow and its tools at once takes longer.
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --progress-bar off --no-compile
# With an NVIDIA card the CUDA libraries come along, as TensorFlow's own packages.
CUDA := $(if $(shell command -v nvidia-smi 2>/dev/null),"tensorflow[and-cuda]")
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.DEFAULT_GOAL := help
.PHONY: help demo train test install check build dist release-check bench format fresh clean test-all test-typescript test-docs test-beam bench-smallest screenshots animation accuracy accuracy-small scenarios docs programs nightly

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 18

demo: $(VENV)/.record ## train for real and start TensorBoard with the Memory tab, after the first run; prints the address last
	@$(BIN)/python demo/serve.py $(LOGDIR) --train

train: $(VENV)/.record
	$(BIN)/python demo/out_of_memory.py --logdir $(LOGDIR)
	$(BIN)/python demo/leak.py --logdir $(LOGDIR)
	$(BIN)/python demo/frozen_backbone.py --logdir $(LOGDIR)

# The browser's packages are installed, and the page's own tests run, while pip unpacks.
test: ## install what the tests need and run the quick tests of everything
	$(MAKE) -j4 install browser test-typescript
	$(PYTEST) -m "not long" tests/unit tests/integration tests/hostile tests/browser

test-all: ## every test, a small `make accuracy`, the benchmarks at their smallest size, the transform for Apache Beam
	$(MAKE) -j4 install $(VENV)/.bench browser test-typescript
	HOSTILE_SECONDS=$(HOSTILE_SECONDS) $(PYTEST) tests/unit tests/integration tests/hostile tests/browser --ignore $(SCENARIOS) --ignore $(DEMO)
	$(BIN)/python -m pytest -n $(JOBS) $(SCENARIOS)
	$(BIN)/python -m pytest $(DEMO)
	$(MAKE) accuracy-small bench-smallest test-beam

test-beam: $(BIN)/python ## the tests of the transform for Apache Beam, in an environment of its own
	$(BIN)/python -m venv $(VENV)/beam
	$(VENV)/beam/bin/pip install -q -e ".[beam]" pytest pytest-timeout hypothesis
	$(VENV)/beam/bin/python -m pytest tests/unit/test_beam.py

test-docs: $(VENV)/.test ## run every code block of README and docs, and compare its output
	$(PYTEST) tests/integration/test_documented_code.py tests/integration/test_tutorial.py tests/integration/test_first_trainings.py tests/integration/test_docs.py

test-typescript: frontend/node_modules/.package-lock.json
	cd frontend && npm test

install: $(VENV)/.test frontend/node_modules/.package-lock.json ## everything for development, in $(VENV) and frontend/node_modules

check: install ## ruff, mypy --strict, tsc, eslint, rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cd frontend && npm run check
	$(BIN)/python -m pytest -q tests/unit/test_architecture.py

build: frontend/node_modules/.package-lock.json ## build the page into tb_memplugin/static (committed)
	cd frontend && npm run build

dist: $(VENV)/.test ## build the source distribution and the wheel into dist/ and check their metadata
	rm -rf dist build
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

release-check: dist ## build, install the wheel into fresh environments, use it and run the quick start; PYTHON="python3.10 python3.13" for others
	$(BIN)/python tests/release_check.py --quick-start dist $(PYTHON)

# `python3`, the default of PYTHON, is not always the newest.
nightly: ## record the quick start with tf-nightly and the newest Python that has a wheel; PYTHON="python3.13 python3.12" for others
	python3 tests/nightly.py build/nightly $(PACKAGE) $(filter-out python3,$(PYTHON))

fresh: build ## fail if the committed page is not what its sources give
	@git diff --exit-code --stat -- tb_memplugin/static && test -z "$$(git status --porcelain -- tb_memplugin/static)" \
	  || { echo "tb_memplugin/static differs from a fresh build: run 'make build' and commit it"; exit 1; }

bench: browser $(VENV)/.bench frontend/node_modules/.package-lock.json ## benchmarks of recording, reading and serving; fails if a limit does not hold
	$(call BENCHMARKS,)

accuracy: install ## compare predictions with real trainings, into docs/accuracy.md; takes long
	$(BIN)/python tests/accuracy/measure.py --write docs/accuracy.md

bench-smallest: browser $(VENV)/.bench frontend/node_modules/.package-lock.json
	$(call BENCHMARKS,--smallest)

accuracy-small: $(VENV)/.test
	rm -rf $(SMALL_ACCURACY)
	$(BIN)/python tests/accuracy/measure.py --small --cache $(SMALL_ACCURACY)

programs: install ## run the programs of tests/programs, into docs/development/programs.md
	$(BIN)/python -m pip install --progress-bar off -e ".[programs]"
	$(BIN)/python tests/programs/table.py --write

scenarios: $(VENV)/.record ## train the scenarios of demo/scenarios, into docs/advice.md and docs/advice/; about 4 minutes on 2 cores
	$(BIN)/python demo/scenarios/run_all.py --logdir $(LOGDIR)/scenarios --jobs $(JOBS) --write

screenshots: browser $(VENV)/.test ## pictures of the tab on the demos' runs, into docs/screenshots
	test -d $(LOGDIR)/leak -a -d $(LOGDIR)/frozen || $(MAKE) train
	$(BIN)/python tests/browser/screenshots.py $(LOGDIR) docs/screenshots

animation: browser $(VENV)/.test ## the animated picture at the top of the README, into docs/images
	test -d $(LOGDIR)/out_of_memory -a -d $(LOGDIR)/frozen || $(MAKE) train
	$(BIN)/python tests/browser/animation.py $(LOGDIR) docs/images

docs: $(VENV)/.test ## the documentation's site, into build/docs; its sample report shows the demos' runs
	test -d $(LOGDIR)/leak -a -d $(LOGDIR)/frozen || $(MAKE) train
	$(BIN)/python docs/site/build.py $(LOGDIR) build/docs

format: install ## format the Python and TypeScript sources
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .
	cd frontend && npm run format

clean: ## remove environments and builds
	rm -rf $(VENV) frontend/node_modules build dist *.egg-info

$(BIN)/python:
	$(firstword $(PYTHON)) -m venv $(VENV) || { $(SUDO) apt-get update && $(SUDO) apt-get install -y python3-venv && $(firstword $(PYTHON)) -m venv --clear $(VENV); }

$(VENV)/.record: pyproject.toml setup.py $(BIN)/python
	$(PIP) -e ".[record]" $(CUDA)
	touch $@

# In one go; `make demo` alone needs less, the benchmarks more.
$(VENV)/.test: pyproject.toml setup.py $(BIN)/python
	$(PIP) -e ".[record,test]" $(CUDA)
	touch $(VENV)/.record $@

$(VENV)/.bench: pyproject.toml setup.py $(VENV)/.test
	$(PIP) -e ".[record,test,bench]"
	touch $@

frontend/node_modules/.package-lock.json: frontend/package-lock.json
	cd frontend && npm ci --no-audit --no-fund

# Chromium, and what the Node that Playwright brings needs: a minimal Debian has neither. After the environment, which may
# need apt as well.
.PHONY: browser
browser: | $(BIN)/python
	@set --; \
	command -v chromium >/dev/null || command -v google-chrome >/dev/null || command -v chromium-browser >/dev/null || set -- chromium; \
	/sbin/ldconfig -p | grep -q libatomic.so.1 || set -- "$$@" libatomic1; \
	test $$# -eq 0 || { $(SUDO) apt-get update && $(SUDO) apt-get install -y --no-install-recommends "$$@"; }
