# VeilMQ. `make demo` and `make test` need Python >= 3.11, git and make, nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
RUNS   := $(VENV)/.runs
PLAIN  := $(VENV)/.plain
OLD_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
  { echo "veilmq: $(PYTHON) is older than 3.11; install a newer one or say make PYTHON=python3.12" >&2; exit 2; }
# Tests of processes mostly wait for them, so that two cores bear four workers.
WORKERS ?= 4
# Each role is a process: without byte code on disk each would compile all modules again, which doubles what a start costs.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv wheel release audit demo test test-quick test-slow soak mutate mutate-broker check style docs tools bench bench-keys bench-broker bench-forwarding bench-availability bench-ingest bench-fairness bench-papers clean

help:            ## what there is
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+:  *##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | sort | expand -t 14

venv: $(STAMP)   ## .venv with the package and all it needs
$(STAMP): pyproject.toml
	@$(OLD_PYTHON)
	@echo "veilmq: installs VeilMQ with all that tests and documentation need into $(VENV), once" >&2
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[spark,schemas,sinks,sim,real,dev,plugins,dashboard,docs,otel,pkcs11]'
	@$(BIN)/python -m compileall -q keys bridge gateway papers spark_ingest
	@touch $@ $(RUNS) $(PLAIN)

# What the demo needs, and no more: no tools of tests and documentation. A `.venv` with everything has it.
$(RUNS): pyproject.toml
	@$(OLD_PYTHON)
	@echo "veilmq: installs VeilMQ and Spark into $(VENV), once; Spark and its Java are some hundred megabytes" >&2
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[spark]'
	@touch $@ $(PLAIN)

# What building a package needs.
$(PLAIN): pyproject.toml
	@$(OLD_PYTHON)
	@echo "veilmq: installs VeilMQ into $(VENV), once" >&2
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --editable .
	@touch $@

demo: $(RUNS)    ## the whole system on loopback with this machine's telemetry; DEMO_ARGS="--seconds 20 --json"
	$(BIN)/veilmq demo $(DEMO_ARGS)

test: venv style ## everything that CI runs
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

test-quick: venv ## before each commit, in a minute: ruff, and the tests of single rooms that start no process
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest --quick -m "not slow and not long" --hypothesis-profile quick -n 2 --dist worksteal $(PYTEST_ARGS)

test-slow: venv  ## the long runs, hours; names each test, and goes on where it was cut as long as no file changes
	$(BIN)/python -m pytest -vv -m slow -n 2 --dist loadfile --resume .slow-passed $(PYTEST_ARGS)

soak: venv       ## half an hour of storms, restarts and stopped members; fails on growth or loss; SOAK_ARGS="--minutes 3"
	$(BIN)/python -m tests.bench.soak $(SOAK_ARGS)

mutate: venv     ## small faults in keys, admission and tracing that the tests must notice, a score per module (hours); MUTATE_ARGS="--part 1/5 bridge/wire"
	$(BIN)/python -m tests.mutation $(or $(MUTATE_ARGS),--own keys bridge/wire bridge/membership bridge/traces bridge/tracking bridge/devices)

mutate-broker: venv ## faults in codec and sessions that the conformance table must notice (4 minutes); MUTATE_ARGS="quota"
	$(BIN)/python -m tests.conformance.mutate $(MUTATE_ARGS)

style: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

check: style     ## ruff, mypy strict, import contract, purity, documentation
	$(BIN)/python -m pytest tests/test_repository.py tests/test_documentation.py tests/test_prose.py

docs: venv       ## the documentation as a site in site/; a dead link or an undocumented key fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

tools:           ## Debian packages and npm clients that the interop tests drive (root)
	tests/interop/install-tools.sh

wheel: $(PLAIN)   ## dist/: the wheel, tried in a clean environment without extras; the manual page
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(BIN)/veilmq man > dist/veilmq.1
	$(BIN)/python -m tests.serve_wheel dist/*.whl

release: venv wheel ## the wheel built twice, its bill of materials (CycloneDX), and the hashes that a release is attested by
	$(BIN)/python -m tests.release dist/*.whl

.PHONY: deb
deb: wheel       ## dist/: a Debian package of the wheel and its libraries, for this Python and architecture; tried by unpacking it (root)
	$(BIN)/python -m tests.debian dist/*.whl

audit: venv        ## known weaknesses of the libraries, where the registry gives advisories
	$(BIN)/python -m tests.audit

bench: bench-keys bench-broker bench-forwarding bench-availability bench-ingest bench-fairness bench-papers ## all benches; BENCH_ARGS=--json for lines that a program reads

bench-keys: venv   ## sharing, sealing, batches, signatures
	$(BIN)/python -m tests.bench.keys $(BENCH_ARGS)

bench-broker: venv ## our broker beside Mosquitto, rumqttd, amqtt; MOSQUITTO=PATH takes another one; BENCH_ARGS="--fleet --runs 5": a fleet's rows (10 minutes)
	$(BIN)/python -m tests.bench.broker $(BENCH_ARGS)

.PHONY: bench-quick
bench-quick: venv  ## eleven rows beside another version, two minutes: BASE=DIRECTORY of a worktree of it
	BASE=$(BASE) $(BIN)/python -m tests.bench.quick $(BENCH_ARGS)

bench-forwarding: venv ## sealed across an overlay beside bridged Mosquittos, and where each process spends its time (50 minutes); BASE=DIRECTORY: beside another version, too (25 more)
	BASE=$(BASE) $(BIN)/python -m tests.bench.forwarding $(BENCH_ARGS)
	$(if $(findstring --json,$(BENCH_ARGS)),,$(BIN)/python -m tests.bench.forwarding_profile)

bench-availability: venv ## what tracing tells how soon, beside other detectors, and what it costs (for a quarter of an hour; BENCH_ARGS=--long for all, hours)
	$(BIN)/python -m tests.bench.availability $(BENCH_ARGS)

bench-ingest: venv ## sealed rows into Spark beside parquet, receiver, delay, growth (a quarter of an hour; BENCH_ARGS="--only rows" for a part)
	$(BIN)/python -m tests.bench.ingest $(BENCH_ARGS)

bench-fairness: venv ## one bad client beside a hundred good ones: nothing lost, p99 (4 minutes; BENCH_ARGS="--only publish" for one)
	$(BIN)/python -m tests.bench.fairness $(BENCH_ARGS)

bench-papers: venv ## a live evaluation for each of the five papers beside its baseline, with 95 % intervals (ten minutes; root for `planes`; BENCH_ARGS="--only traces" for one)
	$(BIN)/python -m tests.bench.papers $(BENCH_ARGS)

peers: venv      ## installs brokers, clients and device libraries of others (root), asks each, writes docs/reference/peers.md (10 minutes); MOSQUITTO=PROGRAM for another Mosquitto
	$(BIN)/python -m tests.peers $(PEERS_ARGS)

clean:           ## drop what was built
	rm -rf $(VENV) .slow-passed .mypy_cache .ruff_cache .pytest_cache .hypothesis .tools dist site
