# The commands for working on mirror. `make` alone lists them.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
SOURCES := mirror tests

# Optional variables: `make demo DEMO_ARGS=--keep`, `make bench BENCH_ARGS="--peers mirror"`,
# `make image RELEASE=1 IMAGE_ARGS="--build-arg DEBIAN=debian@sha256:..."`,
# `make bench-chart BENCH_FILES="ONE.json OTHER.json"` (default: the latest file).
PYTHON ?=
DEMO_ARGS ?=
TEST_ARGS ?=
TEST_WORKERS ?= 4
BENCH_ARGS ?=
IMAGE_ARGS ?=
RELEASE ?=
BENCH_FILES ?= $(lastword $(sort $(wildcard artifacts/bench/*.json)))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## list these targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: install
install: $(STAMP) ## create .venv with mirror, compiled, and its locked dependencies

$(STAMP): requirements.lock pyproject.toml
	@set -e; chosen=; \
	for python in $(PYTHON) python3.13 python3.12 python3.11 python3; do \
	    if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	        chosen=$$python; break; \
	    fi; \
	done; \
	if [ -z "$$chosen" ]; then \
	    echo "mirror needs Python 3.11 or newer with venv: install e.g. Debian's python3 and python3-venv, or pass make PYTHON=/path/to/python3." >&2; \
	    exit 1; \
	fi; \
	if ! $(BIN)/python -c 'import pip' >/dev/null 2>&1; then \
	    rm -rf $(VENV); \
	    echo "making $(VENV) with $$chosen"; \
	    $$chosen -m venv $(VENV); \
	fi
	$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/mirror compile
	@touch $@

.PHONY: demo
demo: install ## run two real clusters and a flow, kill workers, count records
	$(BIN)/mirror demo $(DEMO_ARGS)

# The longest first: short ones fill the gaps at the end.
TESTS := tests/acceptance tests/integration tests/unit

# Tests with services and brokers mostly wait, so there are more workers than cores
# (tests/conftest.py deals the tests out).
.PHONY: test
test: install ## a case of everything, against real brokers
	$(PYTEST) -n $(TEST_WORKERS) -m "not full" $(TEST_ARGS) $(TESTS)

.PHONY: test-full
test-full: install ## all tests: every case, much of everything, far clusters
	$(PYTEST) -n $(TEST_WORKERS) $(TEST_ARGS) $(TESTS)

.PHONY: test-quick
test-quick: install ## the unit tier, one flow, one kill, one failover of a group
	$(PYTEST) -n $(TEST_WORKERS) -m "unit or quick" $(TEST_ARGS) $(TESTS)

.PHONY: test-unit
test-unit: install ## run the tests that need neither brokers nor Java
	$(PYTEST) -n auto $(TEST_ARGS) tests/unit

SEEDS ?= 500

.PHONY: simulate
simulate: install ## histories from seeds against a model of Kafka; SEEDS=n: how many
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --kind groups
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --kind same
	$(BIN)/python -m tests.simulation --seeds $$(( $(SEEDS) * 3 / 10 )) --kind switches

.PHONY: faults
faults: install ## faults on purpose, on real clusters; writes docs/explanation/failures.md
	mkdir -p artifacts
	$(PYTEST) -m fault -o junit_family=xunit1 --junitxml=artifacts/faults.xml $(TEST_ARGS) tests/acceptance/test_fault_matrix.py
	$(BIN)/python -m tests.faults artifacts/faults.xml

HOURS ?= 2

.PHONY: soak
soak: install ## kills, elections and new topics for hours; what the service uses stays flat; HOURS=n
	$(BIN)/python -m tests.soak $(HOURS)

.PHONY: tools
tools: install ## install what some tests also need: promtool, helm, a browser, a KDC, a registry, a Pushgateway
	$(BIN)/python -m tests.tools

.PHONY: settings
settings: install ## regenerate the JSON schema, the annotated file and the reference
	$(BIN)/mirror config schema > config/mirror.schema.json
	$(BIN)/mirror config schema --form yaml > config/mirror.reference.yaml
	$(BIN)/mirror config schema --form markdown > docs/reference/settings.md
	$(BIN)/python -c 'from mirror.checks.permissions.rights import reference; print(reference(), end="")' > docs/reference/permissions.md
	$(BIN)/python -m mirror.cli.reference > docs/reference/cli.md
	$(BIN)/python -m mirror.status.reference > docs/reference/status.md
	$(BIN)/python -c 'from mirror.config.settings import for_chart; print(for_chart(), end="")' > deploy/helm/mirror/settings.yaml

.PHONY: kafka-keys
kafka-keys: install ## list the keys of Kafka's classes for the tests, after an update
	$(BIN)/python -m tests.harness.kafka_keys

.PHONY: lint
lint: install ## check rules and format with ruff
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

.PHONY: types
types: install ## check types with mypy, strict
	$(BIN)/mypy

.PHONY: bench
bench: install ## compare with MirrorMaker 2 and a loop in Go; about twenty minutes
	$(BIN)/python -m tests.benchmarks $(BENCH_ARGS)

.PHONY: bench-chart
bench-chart: install ## update docs/benchmarks and README from the measurements
	$(BIN)/python -m tests.benchmarks.chart $(BENCH_FILES)

# One user's uv settings must not decide what everyone gets.
.PHONY: lock
lock: install ## resolve the dependencies again into requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	env -u UV_FIND_LINKS $(BIN)/uv --no-config --quiet pip compile pyproject.toml \
	    --group dev --universal --python-version 3.11 --upgrade \
	    --generate-hashes --no-emit-index-url --no-emit-find-links \
	    --custom-compile-command "make lock" --output-file requirements.lock
	env -u UV_FIND_LINKS $(BIN)/uv --no-config --quiet pip compile pyproject.toml \
	    --group build --universal --python-version 3.11 --constraint requirements.lock \
	    --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links \
	    --custom-compile-command "make lock" --output-file requirements.runtime.lock
	env -u UV_FIND_LINKS $(BIN)/uv --no-config --quiet pip compile \
	    --group kerberos --universal --python-version 3.11 --constraint requirements.lock \
	    --generate-hashes --no-emit-index-url --no-emit-find-links \
	    --custom-compile-command "make lock" --output-file requirements.kerberos.lock

# Helm's version for Kubernetes is that of its build, which may be none.
.PHONY: kubernetes
kubernetes: ## render deploy/kubernetes from the chart; needs helm
	helm template mirror deploy/helm/mirror -f deploy/kubernetes/values.yaml \
	    --kube-version 1.34.0 > deploy/kubernetes/mirror.yaml

.PHONY: wheel
wheel: install ## build dist/mirror-VERSION-py3-none-any.whl, for pip, pipx and uv
	$(BIN)/python -m hatchling build --target wheel --directory dist

.PHONY: sbom
sbom: install ## write artifacts/mirror.cdx.json, a CycloneDX bill of materials
	@mkdir -p artifacts
	$(BIN)/python deploy/image/sbom.py > artifacts/mirror.cdx.json

.PHONY: image
image: ## build the container image mirror:VERSION; RELEASE=1 wants a pinned base
	@if [ -n "$(RELEASE)" ] && ! echo '$(IMAGE_ARGS)' | grep -Eq 'DEBIAN=[^ ]+@sha256:[0-9a-f]{64}( |$$)'; then \
	    echo 'make image: RELEASE=1 needs a base image pinned by digest: IMAGE_ARGS="--build-arg DEBIAN=docker.io/library/debian@sha256:..."' >&2; \
	    exit 2; \
	fi
	@set -e; version=$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' mirror/__init__.py); \
	if command -v buildah >/dev/null; then \
	    buildah build --format docker --layers $(IMAGE_ARGS) -t mirror:$$version .; \
	else \
	    docker build $(IMAGE_ARGS) -t mirror:$$version .; \
	fi

.PHONY: clean
clean: ## remove .venv and everything built, cached or measured
	rm -rf $(VENV) artifacts dist spark-warehouse
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
