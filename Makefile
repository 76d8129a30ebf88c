# Two commands do everything: `make demo` and `make test`. The rest is for those who work on Holdfast.
# Needs Python 3.11 or newer and make; everything else goes into .venv.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
export UV_PYTHON_DOWNLOADS := never
export UV_LINK_MODE := copy
# Tests start many processes: what they load is compiled once, and nothing of it is left beside the sources.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/pycache

# One worker more than there are cores: some tests wait for leases, timers and other processes.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

.PHONY: demo test test-browser test-adapters check format bench bench-web bench-adapters torture langgraph-upstream lock clean

demo: .venv/.ready
	@$(BIN)/python -m holdfast.demo

test: .venv/.ready
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# A part of `make test`: the page in a real browser, /usr/bin/chromium. Without it these tests are skipped.
test-browser: .venv/.ready
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/web/browser $(ARGS)

# Each adapter with its framework, in an environment of its own: make test-adapters NAMES="burr adk" OLDEST=1
test-adapters: .venv/.ready
	$(BIN)/python scripts/test_adapters.py $(if $(OLDEST),--oldest) $(NAMES)

check: .venv/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_sizes.py
	$(BIN)/python scripts/check_imports.py

format: .venv/.ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The tests that other days run, then the long campaign. Counts are arguments: make torture KILLS=2000 CUTS=100000 …
torture: .venv/.ready
	$(if $(ONLY),,$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m torture --ignore tests/faults --ignore tests/attack)
	$(BIN)/python -m tests.faults $(foreach name,KILLS CUTS SYNCS FAULTS FULL CLAIM_S WRITERS_S FORKS RACES DIR_CUTS DIR_SYNCS DIR_FAULTS PG_S ENGINE_KILLS ENGINE_STOPS ENGINE_ANSWERS ENGINE_RUNS FORMATS_ROUNDS FORMATS_BESIDE FORMATS_CUTS ATTACK MACHINE SEED ONLY,$(if $($(name)),$(name)=$($(name))))

# LangGraph's own tests on our saver, compared with its own savers; not a part of `make test`, needs pip and some minutes:
# make langgraph-upstream ARGS="1.2.11 --store sqlite --strict-msgpack"
langgraph-upstream: .venv/.ready
	$(BIN)/python -m tests.adapters.langgraph.upstream $(ARGS)

bench: .venv-bench/.ready
	.venv-bench/bin/python -m bench $(ARGS)

# The page with 200 open pages, and its first paint with 10,000 gates; needs /usr/bin/chromium: make bench-web ARGS="--rounds 5"
bench-web: .venv/.ready
	$(BIN)/python -m bench.web_load $(ARGS)

# The storages of agent frameworks beside ours, each in the environment of its framework:
# make bench-adapters ARGS="--rounds 5 --docs docs/benchmarks.md burr adk"
bench-adapters: .venv/.ready
	$(BIN)/python -m bench.adapters $(ARGS)

.venv/.ready: requirements/dev.txt requirements/uv.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Holdfast needs Python 3.11 or newer; none was found"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

.venv-bench/.ready: .venv/.ready requirements/bench.txt
	$(PYTHON) -m venv .venv-bench
	$(BIN)/uv pip install --quiet --python .venv-bench/bin/python --require-hashes -r requirements/bench.txt
	$(BIN)/uv pip install --quiet --python .venv-bench/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

# The lock: exact versions with hashes, for every supported Python.
lock: .venv/.ready
	echo 'uv' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock" -o requirements/uv.txt -
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock" --group dev --extra cli --extra postgres --extra langgraph --extra web --extra mcp -o requirements/dev.txt pyproject.toml
	$(BIN)/python scripts/test_adapters.py --lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock" --group bench --group build --group servers --extra postgres -o requirements/bench.txt pyproject.toml

clean:
	rm -rf .venv .venv-bench .venv-adapters
