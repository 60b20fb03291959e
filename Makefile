# Needs Python 3.11 or later and make; everything else comes from the package registries.

PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
UNIT := $(PYTEST) tests/unit --random-order -n 2 -q
# Most tests wait for brokers, so six at a time on two cores; a module's servers stay together, and
# long modules come first, as do all that share one Spark (tests/conftest.py).
SIDE_BY_SIDE := -n 6 --dist loadscope --no-loadscope-reorder --maxschedchunk 1 --durations=20
# `make test REQUIRED=` skips what needs a service that cannot be had here.
REQUIRED := --require-services
SERVICES := tests/comparison tests/conformance tests/containers tests/integration tests/packages \
	tests/faults tests/hostile tests/soak
# Exhaustive tests may take up to an hour each; by default a test that takes 1,000 s ends its process.
ALL := -m "exhaustive or not exhaustive" -o faulthandler_timeout=4000
# The core on the last release of each older minor version of Kafka.
OLDER_KAFKA = $(BIN)/python -c "from eosframework.embedded.jars import kafka_versions as versions; \
	print(*versions()[:-1])"
CORE := tests/integration/test_run_worker.py tests/integration/kafka/test_transactional_producer.py
ON_CONTAINERS = $(PYTEST) tests/integration tests/faults -m "every_provider and not exhaustive" \
	--eos-provider=containers $(REQUIRED) $(SIDE_BY_SIDE)
ON_SPARK := tests/integration/backfill tests/integration/demo/test_demo_spark.py \
	tests/faults/test_backfill_jobs.py tests/faults/test_workers_on_spark.py
# Other versions than those of .venv and of the wheel; an interpreter that is not here is passed over.
PYTHONS ?= 3.12 3.13 3.14
POSTGRES ?= 14 15 16 17
ON_PYTHON := tests/integration/kafka/test_transactional_producer.py tests/faults/test_window_crashes.py
ON_POSTGRES := $(addprefix tests/integration/,postgres/test_row_store.py postgres/test_tables.py \
	postgres/test_row_refusals.py postgres/test_column_values.py \
	postgres/test_leased_ids.py postgres/test_migrating.py outbox/test_relay_outbox.py)
INDEX = index=$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null || true)}; \
	[ -z "$$index" ] || export UV_DEFAULT_INDEX="$$index";
COMPILE = $(INDEX) $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links --python-version 3.11 \
	pyproject.toml
EXTRAS := $(addprefix --extra ,arrow containers demo embedded postgres registry spark tracing web)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start thousands of processes, each of which would compile all that it imports: 2 s instead of 1.
unexport PYTHONDONTWRITEBYTECODE
# uv brings its own certificates; a registry behind a company's proxy needs those of the system.
SYSTEM_CERTIFICATES := /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt
export UV_SYSTEM_CERTS ?= $(if $(wildcard $(SYSTEM_CERTIFICATES)),1,0)

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: .venv ## Run real flights through killed workers and read the verdict
	$(BIN)/eosframework demo flights

.PHONY: demo-transfer
demo-transfer: .venv ## Send money between two banks while all is killed (OPTIONS=--together: one decision)
	$(BIN)/eosframework demo transfer $(OPTIONS)

.PHONY: demo-backfill
demo-backfill: .venv ## Backfill a year of flights while Spark is killed, go on live, and compare
	$(BIN)/eosframework demo backfill

.PHONY: demo-spark
demo-spark: .venv ## Kill Spark while it writes flights to a topic and a table, and compare
	$(BIN)/eosframework demo spark

.PHONY: test
test: check ## Run check and one case of each kind against real services: 20 minutes
	$(PYTEST) $(SERVICES) $(REQUIRED) $(SIDE_BY_SIDE)

.PHONY: test-all
test-all: check ## The same with every case, on containers too, and a longer soak: over an hour
	$(UNIT) -m exhaustive
	$(PYTEST) $(SERVICES) $(ALL) $(REQUIRED) $(SIDE_BY_SIDE)
	$(MAKE) --no-print-directory older-kafka
	$(ON_CONTAINERS)
	$(MAKE) --no-print-directory earlier-sparks test-pythons test-postgres

.PHONY: earlier-sparks
earlier-sparks: spark-4.0 spark-4.1 ## Run the tests of sinks and backfills on Spark 4.0 and 4.1

# Each has an environment of its own, with the pyspark of requirements/spark-VERSION.lock.
.PHONY: spark-4.0 spark-4.1
spark-4.0 spark-4.1: spark-%: build/spark-%/complete
	build/$@/bin/python -m pytest $(ON_SPARK) $(ALL) $(REQUIRED) $(SIDE_BY_SIDE)

.PHONY: older-kafka
older-kafka: .venv ## Run the tests of the core on each older version of Kafka
	for version in $$($(OLDER_KAFKA)); do \
		EOS_TEST_KAFKA_VERSION=$$version $(PYTEST) $(CORE) $(REQUIRED) -n 2 || exit 1; done

.PHONY: test-pythons
test-pythons: .venv ## Run the unit tests and a part of the core on other Pythons: PYTHONS=
	@set -e; for version in $(PYTHONS); do \
		python=; for each in python$$version $(HOME)/.pyenv/versions/$$version.*/bin/python; do \
			"$$each" -c "" 2>/dev/null && python="$$each"; \
		done; \
		if [ -z "$$python" ]; then echo "not tested: Python $$version is not here"; continue; fi; \
		"$$python" -m venv --without-pip build/python$$version; \
		own=build/python$$version/bin/python; \
		$(INDEX) $(BIN)/uv pip sync --quiet --python $$own --require-hashes requirements/dev.lock; \
		$(BIN)/uv pip install --quiet --python $$own --no-deps --no-build-isolation --editable .; \
		$$own --version; \
		$$own -m pytest tests/unit $(ON_PYTHON) $(REQUIRED) -n 2 --dist loadscope -q; \
	done

.PHONY: test-postgres
test-postgres: .venv ## Run tables, outbox, ids and migrations on other PostgreSQLs: POSTGRES=
	@set -e; for version in $(POSTGRES); do \
		echo "PostgreSQL $$version"; \
		$(PYTEST) $(ON_POSTGRES) --postgres-version $$version $(REQUIRED) -n 2 --dist loadscope -q; \
	done

.PHONY: check
check: .venv ## Format, lint, types, imports and unit tests: about six minutes
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/lint-imports --no-logo
	$(MAKE) --no-print-directory --jobs 2 types unit collected

.PHONY: types
types: .venv ## Check the types, which keeps one core busy
	$(BIN)/basedpyright

# One process compiles all modules of tests before six would, each all of them: 30 s instead of 95.
.PHONY: collected
collected: .venv ## Collect the tests against real services, and run none
	$(PYTEST) $(SERVICES) --collect-only -qqq > .venv/collected || { cat .venv/collected; exit 1; }

.PHONY: unit
unit: .venv ## Run the unit tests: no sockets, some minutes
	$(UNIT)

.PHONY: conformance
conformance: .venv ## Run one suite per port against each of its adapters
	$(PYTEST) tests/conformance

.PHONY: integration
integration: .venv ## Run the tests against a real Kafka
	$(PYTEST) tests/integration

.PHONY: containers
containers: .venv ## Run the tests of the core against Kafka and PostgreSQL in containers
	$(PYTEST) tests/containers $(REQUIRED)
	$(ON_CONTAINERS)

.PHONY: local-images
local-images: .venv ## Build what stands in for official images where no registry is reached
	$(BIN)/python -m tests.support.servers.local_images

.PHONY: pin-images
pin-images: .venv ## Write the digests of the images that docker/ uses behind their tags
	$(BIN)/python -m tests.support.servers.pinned_images

.PHONY: faults
faults: .venv ## Run the tests that kill, stop and cut
	$(PYTEST) tests/faults

MINUTES ?= 10
NODES ?= 1
HOSTILE ?= 2

.PHONY: soak
soak: .venv ## Break everything at random and check the history: MINUTES=10 SEED= NODES=1 HOSTILE=2
	$(BIN)/python -m tests.soak --minutes $(MINUTES) --nodes $(NODES) --hostile $(HOSTILE) \
		$(if $(SEED),--seed $(SEED))

.PHONY: fuzz
fuzz: .venv ## Feed records that a seed draws, and account for each: MINUTES=5 SEED=
	$(BIN)/python -m tests.hostile --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

.PHONY: model
model: ## Check the protocol's model, whole and with each rule taken out
	$(PYTHON) docs/model/check.py
	$(PYTHON) docs/model/watermarks.py

.PHONY: model-deep
model-deep: ## Check larger configurations of the model, in about four minutes
	$(PYTHON) docs/model/check.py --deep

NAMES ?=
OUT ?= docs/benchmarks

.PHONY: bench
bench: .venv ## Measure speed and memory, as ratios in one run: NAMES= OUT=docs/benchmarks
	$(BIN)/python -m benchmarks $(NAMES) --out $(OUT)

.PHONY: bench-check
bench-check: .venv ## Fail if a record costs more than it did, in minutes and on any machine
	$(BIN)/python -m benchmarks check

.PHONY: docs
docs: .venv ## Write the generated pages of docs/ again
	$(BIN)/eosframework explain errors --markdown > docs/errors.md
	$(BIN)/eosframework explain metrics --markdown > docs/metrics.md
	$(BIN)/eosframework explain alerts > docker/prometheus/alerts.yml
	$(BIN)/eosframework doctor --markdown > docs/reference/doctor.md
	$(BIN)/python -m tests.support.documents.api_reference
	$(BIN)/python -m tests.support.documents.reference_pages

.PHONY: docs-site
docs-site: .venv ## Build the documentation site into build/site, and check its links
	$(BIN)/python -m tests.support.documents.site

.PHONY: lock
lock: $(BIN)/uv ## Resolve the dependencies again into requirements/*.lock
	$(COMPILE) $(EXTRAS) -o requirements/users.lock
	$(COMPILE) $(EXTRAS) --extra dev -o requirements/dev.lock
	$(MAKE) bill-of-materials

.PHONY: vendored
vendored: .venv ## Fetch the files of other projects that the console serves again
	$(BIN)/python -m tests.support.documents.vendored

.PHONY: bill-of-materials
bill-of-materials: .venv ## Write the bill of materials of the locked packages and jars again
	$(BIN)/python -m tests.support.documents.bill_of_materials

AUDIT ?=

.PHONY: audit-dependencies
audit-dependencies: .venv ## Fail if a locked package has a known vulnerability; asks a feed: AUDIT=
	$(BIN)/pip-audit --strict --require-hashes --disable-pip --progress-spinner off \
		--requirement requirements/dev.lock --requirement requirements/users.lock $(AUDIT)

.PHONY: dist
dist: .venv ## Build the wheel and the source distribution into dist/
	rm -rf dist
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist .

.PHONY: clean
clean: ## Remove what make made; broker data and downloaded jars stay
	rm -rf .venv build dist .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# pip installs uv, with the hashes of the lock; uv, asking the index that pip is configured for,
# installs the rest, also what builds the package.
# The stamp comes last: an installation that was interrupted is repeated.
.venv: .venv/complete

.venv/complete: requirements/dev.lock pyproject.toml | $(BIN)/uv
	$(INDEX) $(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements/dev.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps \
		--no-build-isolation --editable .
	@touch $@

build/spark-%/complete: requirements/spark-%.lock requirements/dev.lock pyproject.toml | .venv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(@D)
	$(INDEX) $(BIN)/uv pip sync --quiet --python $(@D)/bin/python --require-hashes \
		requirements/dev.lock
	$(INDEX) $(BIN)/uv pip install --quiet --python $(@D)/bin/python --require-hashes --no-deps \
		--requirement $<
	$(BIN)/uv pip install --quiet --python $(@D)/bin/python --no-deps \
		--no-build-isolation --editable .
	@touch $@

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than Python 3.11; run: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	awk '/^[a-z]/ { wanted = /^uv==/ } wanted' requirements/dev.lock > .venv/uv.lock
	$(BIN)/python -m pip install --quiet --require-hashes -r .venv/uv.lock
