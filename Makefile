# `make demo` shows the whole chain at work, `make test` proves it. Both need only python3 (3.11 or later), venv and make.
PYTHON ?= python3
SECONDS ?= 20
ARGS ?=
UPGRADE ?=
ROUNDS ?= 20
RESULTS ?= 108000
MINUTES ?= 5

VENV := .venv
BIN := $(VENV)/bin
# Unused packages are never compiled, which makes the first start a third faster; what is imported compiles itself.
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input install -qq --no-compile --progress-bar off
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
UV_COMPILE := build/uv/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-annotate \
	--no-emit-index-url --custom-compile-command "make lock" --group build --extra demo $(UPGRADE)

.DEFAULT_GOAL := help
.PHONY: help demo test check bench ladder kills outage faults flat lock clean packages units
.DELETE_ON_ERROR:

help:
	@echo 'make demo   the whole chain on a simulated line, for $(SECONDS) s (SECONDS=60, ARGS="--json")'
	@echo 'make test   every test (ARGS="tests/unit -k lane")'
	@echo 'make check  lint, types, YAML, systemd unit'
	@echo 'make bench  figures of this PC beside the budgets, then the ladder'
	@echo 'make ladder what articles on asynchronous OpenVINO recommend, beside our pool and daemon; with a plot'
	@echo 'make kills  kill -9 of every part, $(ROUNDS) times each (ROUNDS=4)'
	@echo 'make faults the fault matrix: each kind once (ALL=1: pairs and slow ones too)'
	@echo 'make outage a broker that was away for $(RESULTS) results: caught up, live verdicts on time meanwhile'
	@echo 'make flat   memory and descriptors under full load for $(MINUTES) minutes (MINUTES=60)'
	@echo 'make lock   pin the dependencies again (UPGRADE=--upgrade for newer ones)'
	@echo 'make clean  remove everything that was made here'

demo: $(RUNTIME)
	@$(BIN)/inspectd demo --seconds $(SECONDS) $(ARGS)

test: $(DEV) packages
	$(BIN)/python -m pytest $(ARGS)

check: $(DEV) packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/yamllint --strict .
	$(MAKE) --no-print-directory units
	@if [ -d ansible ]; then $(BIN)/ansible-lint ansible; fi

# The unit's own program is not installed here: another one stands for it.
units:
	@rm -rf build/units && mkdir -p build/units
	@for unit in systemd/*.service; do \
		sed 's|^ExecStart=/opt/inspectd/[^ ]*|ExecStart=/bin/true|' "$$unit" > "build/units/$${unit##*/}" || exit 1; \
	done
	@if ! command -v systemd-analyze > /dev/null; then echo 'units: not verified, no systemd-analyze here'; \
	else systemd-analyze verify --man=no build/units/*.service && echo 'units: verified'; fi

# Who gives ARGS wants these figures alone.
bench: $(DEV) packages
	$(BIN)/python -m tests.bench $(ARGS)
	$(if $(ARGS),,@$(MAKE) --no-print-directory ladder)

ladder: $(DEV) packages
	@mkdir -p build
	$(BIN)/python -m tests.bench.ladder --plot build/ladder.png $(ARGS)

kills: $(DEV) packages
	INSPECTD_KILL_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest tests/integration/test_kills.py tests/integration/test_plc_simulator.py

faults: $(DEV) packages
	PYTHONPATH=. $(BIN)/python -m tests.faults $(if $(ALL),--all) $(ARGS)

outage: $(DEV) packages
	INSPECTD_OUTAGE_RESULTS=$(RESULTS) $(BIN)/python -m pytest -s tests/integration/test_outbox_door.py -k outage

flat: $(DEV) packages
	PYTHONPATH=. $(BIN)/python -m tests.bench.flat --minutes $(MINUTES)

packages:
	@bash .ci/packages mosquitto systemd-analyze npm ip nft faketime

lock: build/uv
	$(UV_COMPILE) pyproject.toml -o requirements.lock
	$(UV_COMPILE) --extra dev --constraint requirements.lock pyproject.toml -o requirements-dev.lock

build/uv:
	$(PYTHON) -m venv $@
	$@/bin/python -m pip --disable-pip-version-check install -qq uv

$(RUNTIME): requirements.lock pyproject.toml
	@echo 'Installing into $(VENV): half a minute to a minute, once ...'
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or later: make PYTHON=python3.11 ...")'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(DEV): requirements-dev.lock $(RUNTIME)
	@echo 'Installing what tests and checks need ...'
	@$(PIP) --require-hashes -r requirements-dev.lock
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find daemon tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
