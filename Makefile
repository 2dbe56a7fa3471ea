# Everything runs in a virtual environment of its own, made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Of each fault test on each server.
ROUNDS ?= 20
# Of the machine, and of each property test.
EXAMPLES ?= 3000
# Of a soak.
MINUTES ?= 15
KILLS ?= 10000
SERVER ?= embedded
# Of `make test-repeated`; BESIDE is nothing, busy or throttled.
TIMES ?= 20
BESIDE ?= nothing
# Tests that run at the same time: most of their time they wait. A subject has few: each worker takes seconds to start.
WORKERS ?= $(if $(P),4,6)
# What is installed for tests.
EXTRAS ?= dev,browser
PYTEST = $(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal
# The laboratory's own environment: what it needs is not needed for tests.
LAB := $(VENV)-bench/lab
# The documentation site's own environment: nothing of it is imported by other tests.
SITE := $(VENV)-docs
RELEASE := $(VENV)-release

.PHONY: demo test test-throttled test-repeated test-all test-rest without test-servers test-pythons test-lowest servers clients sources machine faults series soak check lock format bench bench-report designs screenshots docs release-check clean
.DELETE_ON_ERROR:

demo: $(VENV)/.demo  ## A real server, a real listener, a task of each kind; CLUSTER=1: on a cluster
	@$(BIN)/expirebridge demo $(if $(CLUSTER),--cluster 3)

test: $(VENV)/.dev $(VENV)/fast/hiredis  ## What the product does, in three minutes; P=limits: of one subject, a folder of tests/
	@EXPIREBRIDGE_TEST_PART=quick $(PYTEST) $(P:%=tests/%) $(ARGS)

test-throttled: $(VENV)/.dev $(VENV)/fast/hiredis  ## The same with half a core, as in a container
	@.ci/throttled $(MAKE) --no-print-directory test

test-repeated: $(VENV)/.dev $(VENV)/fast/hiredis  ## The same TIMES times, BESIDE nothing, a busy process, or throttled: is it always green?
	@TIMES=$(TIMES) BESIDE=$(BESIDE) .ci/repeated $(P:%=P=%) $(if $(ARGS),ARGS='$(ARGS)')

test-all: test test-rest test-pythons test-lowest  ## All tests, against every server and SQL database that is found here

test-rest: $(VENV)/.dev $(VENV)/fast/hiredis $(SITE)/.made  ## Those that `make test` leaves out
	@EXPIREBRIDGE_TEST_PART=rest $(PYTEST) $(P:%=tests/%) $(ARGS)

without: $(VENV)/.dev $(VENV)/fast/hiredis  ## The spine's tests on a copy of the package from which a room is taken out: ROOM=moving
	@$(BIN)/python -m tests.kit.without $(ROOM)

machine: $(VENV)/.dev  ## Long random sequences of operations, against the model; and the property tests at length
	@EXPIREBRIDGE_EXAMPLES=$(EXAMPLES) $(BIN)/pytest tests/machine -q $(ARGS)
	@EXPIREBRIDGE_EXAMPLES=$(EXAMPLES) $(PYTEST) --ignore tests/machine --ignore tests/ledger -q -m hypothesis --timeout 900 $(ARGS)

faults: $(VENV)/.dev  ## The fault tests, many rounds of each; the table goes into benchmarks/pages/faults.md
	@ROUNDS=$(ROUNDS) $(PYTEST) tests/faults $(ARGS)

test-servers: $(VENV)/.dev  ## What differs from server to server: make test-servers SERVERS="redis-8.0"
	@EXPIREBRIDGE_TEST_SERVERS="$(SERVERS)" $(PYTEST) -m servers $(ARGS)
	@EXPIREBRIDGE_TEST_SERVERS="$(SERVERS)" $(PYTEST) tests/conformance $(ARGS)

series: $(VENV)/.dev  ## Series for ten minutes, while one of ten listeners is killed every 5 s
	@SERIES_SECONDS=$${SERIES_SECONDS:-600} $(BIN)/pytest tests/faults/test_series.py -q $(ARGS)

soak: $(VENV)/.dev  ## One fault after another for MINUTES, and each task accounted for in the end; KILLS of processes
	@EXPIREBRIDGE_KILLS=$(KILLS) $(BIN)/pytest --quiet --timeout 3600 tests/listener/test_killed_processes.py
	@$(BIN)/python -m tests.faults.soak --minutes $(MINUTES) --server $(SERVER)

test-pythons:  ## A part of the suite with every other Python that is found
	@WORKERS=$(WORKERS) .ci/pythons

test-lowest: $(VENV)/.dev  ## A part of the suite with the lowest versions that pyproject.toml allows
	@WORKERS=$(WORKERS) .ci/lowest

servers: $(VENV)/.dev  ## More servers to test against, in .servers/ (on Debian)
	@PYTHON=$(BIN)/python .ci/servers

screenshots: $(VENV)/.dev  ## The pictures of the docs, a million tasks pending, and how long the dashboard takes
	@$(BIN)/python -m tests.web.screenshots

clients:  ## ioredis and node-redis, for the tests of clients in other languages (with npm)
	@npm install --silent --no-audit --no-fund --no-package-lock --prefix tests/conformance

sources: $(VENV)/.dev  ## BullMQ, Celery, arq and schedulers, for the tests of import --from (with npm)
	@npm install --silent --no-audit --no-fund --no-package-lock --prefix tests/importing
	@for library in celery arq django-celery-beat apscheduler; do \
	  $(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python .venv-sources/$$library && \
	  $(BIN)/uv pip install --quiet --python .venv-sources/$$library/bin/python \
	    --requirement tests/importing/$$library.txt || exit 1; \
	done

check: $(VENV)/.dev  ## Style, spelling and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@git ls-files -z | xargs -0 $(BIN)/codespell
	@$(BIN)/mypy

lock: $(VENV)/.demo  ## uv.lock, after a change of what pyproject.toml requires; ARGS=--upgrade: the newest versions
	@$(call install_uv,$(VENV))
	@$(BIN)/uv lock --system-certs $(ARGS)

format: $(VENV)/.dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(LAB)/.made  ## expirebridge beside its peers: the next piece: make bench ARGS="--quick --next"
	@$(LAB)/bin/python -m benchmarks $(ARGS)

designs: $(VENV)/.demo  ## The designs that people choose from, live and side by side
	@$(BIN)/python -m benchmarks.live

bench-report: $(LAB)/.made  ## benchmarks/pages and the tables of docs/reference/performance.md, from the results
	@$(LAB)/bin/python -m benchmarks.report $(ARGS)

docs: $(SITE)/.made  ## The documentation site, in build/site; fails on links that lead nowhere
	@$(SITE)/bin/python -m website

release-check: $(RELEASE)/.made  ## All of a release that can be done without publishing: TAG=v1.2.3 make release-check
	@TAG=$(TAG) $(RELEASE)/bin/python .ci/release_check.py $(ARGS)

clean:
	rm -rf $(VENV) $(VENV)-* build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# Into an environment, the package with extras, in the versions of uv.lock. uv is asked to trust whom this machine
# trusts, as pip is told to by its settings, and to leave what is there: pip.
comma := ,
install_uv = $(1)/bin/pip install --quiet --disable-pip-version-check 'uv>=0.13'
install = $(install_uv) && \
  UV_PROJECT_ENVIRONMENT=$(1) $(1)/bin/uv sync --quiet --locked --inexact --system-certs --compile-bytecode \
    --python $(1)/bin/python $(patsubst %,--extra %,$(subst $(comma), ,$(2)))

# The environment is made in one piece: the marker is written last.
$(VENV)/.demo: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.12")'
	@echo "setting up $(VENV) ..."
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[server]'
	@touch $@

$(VENV)/.dev: $(VENV)/.demo uv.lock
	@echo "setting up the tools for tests ..."
	@$(call install,$(VENV),$(EXTRAS))
	@# redis-py imports these where they are installed, in each process that a test starts: a fifth of a start.
	@echo "import sys; sys.modules['opentelemetry.sdk.metrics'] = None" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/no_metrics.pth"
	@touch $@

# For processes that tests start with it: in the environment itself, all tests would read replies with it.
$(VENV)/fast/hiredis: $(VENV)/.dev
	@$(BIN)/pip install --quiet --disable-pip-version-check --upgrade --target $(VENV)/fast hiredis
	@touch $@

$(LAB)/.made: uv.lock
	@echo "setting up the laboratory ..."
	@test -x $(LAB)/bin/pip || $(PYTHON) -m venv $(LAB)
	@$(call install,$(LAB),bench)
	@touch $@

$(SITE)/.made: uv.lock
	@echo "setting up the tools for the site ..."
	@test -x $(SITE)/bin/pip || $(PYTHON) -m venv $(SITE)
	@$(call install,$(SITE),docs)
	@touch $@

$(RELEASE)/.made: uv.lock
	@echo "setting up the tools for releases ..."
	@test -x $(RELEASE)/bin/pip || $(PYTHON) -m venv $(RELEASE)
	@$(call install,$(RELEASE),release)
	@touch $@
