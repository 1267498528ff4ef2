# Two commands do everything on a fresh machine with Python and Java: make demo, make test.

PYTHON := .venv/bin/python
READY := .venv/.ready
SOURCES := txtopo state_backends tests examples benchmarks docker/topologies docs/conf.py

SEEDS := 10000
PROGRAMS := 2000
KILLS := 1000
INPUTS := 100000
MINUTES := 30
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)

.PHONY: help demo demo-kafka test check docs fast bench bench-commits bench-kafka bench-latency bench-nexmark bench-pacing bench-page bench-reliable bench-scale bench-start bench-stores bench-wide long stores delta-jar cluster compose versitygw secrets kafka flink jars-try object-store services services-postgresql release versions licences simulate simulate-all simulate-slots simulate-streams mutants power fuzz faults rows networks pictures screenshots servers soak test-all format clean java

help:  ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'
	@echo '  ARGS="…" is passed on, e.g.: make demo ARGS="--kills 5 --seed 7"'

demo: java $(READY)  ## count the NYC flights of 2013, killed at random moments, and compare with plain pandas
	$(PYTHON) -m examples.demo $(ARGS)

demo-kafka: java kafka $(READY)  ## count words from Kafka while driver and broker are killed, and compare with plain Python
	$(PYTHON) -m examples.kafka_demo $(ARGS)

test: java services jars-try $(READY)  ## the sharpest tests of each wing, against whichever servers are installed; 13 minutes
	@.ci/test $(ARGS)

check: $(READY)  ## check format, lint, types, layers and layout
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy --num-workers $(CORES) $(SOURCES)
	.venv/bin/lint-imports
	$(PYTHON) -m pytest -q tests/unit/test_layout.py tests/unit/test_exports.py

fast: $(READY)  ## the tests that need no Java, server or other process; 100 seconds
	@.ci/test --fast $(ARGS)

bench: java services $(READY)  ## compare txtopo, a bare Spark loop and Structured Streaming
	$(PYTHON) -m benchmarks $(ARGS)

bench-commits: java $(READY)  ## measure a commit of one record, and one of 1,000 partitions
	$(PYTHON) -m benchmarks.commits $(ARGS)

bench-reliable: java $(READY)  ## measure an at-least-once word count on Spark: speed, cost of acks, latency
	$(PYTHON) -m benchmarks.reliable $(ARGS)

bench-kafka: java services kafka $(READY)  ## compare Kafka into PostgreSQL with a plain loop
	$(PYTHON) -m benchmarks.kafka $(ARGS)

bench-latency: java services kafka $(READY)  ## measure the latency from a record to its commit, as another process sees it
	$(PYTHON) -m benchmarks.latency $(ARGS)

bench-nexmark: java services $(if $(findstring flink,$(ARGS)),flink) $(READY)  ## compare the NEXMark queries with Structured Streaming, plain Python and Flink
	$(PYTHON) -m benchmarks.nexmark $(ARGS)

bench-pacing: $(READY)  ## measure how pacing changes batch size, latency and lag
	$(PYTHON) -m benchmarks.pacing $(ARGS)

bench-page: $(READY)  ## measure the processor time that a page takes from a run
	$(PYTHON) -m benchmarks.page $(ARGS)

bench-scale: java $(READY)  ## measure what a second executor adds and what the driver costs; estimate a thousand executors
	$(PYTHON) -m benchmarks.scale $(ARGS)

bench-wide: java services $(READY)  ## measure what a txid costs with many partitions, bolts, keys and topologies
	$(PYTHON) -m benchmarks.wide $(ARGS)

long: java services $(READY)  ## run a million txids, for hours: time, memory and files after each tenth
	$(PYTHON) -m benchmarks.long $(ARGS)

bench-start: java services $(READY)  ## measure start() up to the first job, step by step, and stop()
	$(PYTHON) -m benchmarks.start $(ARGS)

bench-stores: java services jars-try $(READY)  ## measure a commit in each store, and in Delta through Spark's JVM
	$(PYTHON) -m benchmarks.stores $(ARGS)
	$(PYTHON) -m benchmarks.delta_commits

stores: java services jars-try object-store $(READY)  ## run the suites of all stores, half an hour; writes docs/reference/stores.md
	$(PYTHON) -m tests.unit.testing.conformance.stores_page $(ARGS)

delta-jar: $(READY)  ## fetch the jars with which Spark reads and writes Delta tables
	@.ci/delta-jar

kafka: java  ## fetch the Kafka broker that tests and make demo-kafka start
	@.ci/kafka

flink: java  ## fetch the Flink cluster that make bench-nexmark ARGS="--ways flink" starts
	@.ci/flink

object-store: $(READY)  ## install the object store (S3) that the tests of Delta start
	@.ci/object-store

jars-try: java $(READY)
	@.ci/kafka --try
	@.ci/delta-jar --try
	@.ci/compose --try

compose:  ## build the tool that checks docker/compose.yml without Docker; needs Go
	@.ci/compose

versitygw:  ## build the S3 store of docker/compose.yml, which make test-all starts; needs Go
	@.ci/versitygw

secrets:  ## create the passwords for docker/compose.yml
	@.ci/secrets

services-postgresql:
	@.ci/services postgresql

services:  ## install the servers that the tests use (as root on Debian; elsewhere, list what is missing)
	@.ci/services

simulate: $(READY)  ## simulate SEEDS=10000 runs and PROGRAMS=2000 programs of streams under faults; SEED=7 replays one
	$(PYTHON) -m txtopo.testing.simulation.command $(if $(SEED),--seed $(SEED) --trace,--seeds $(SEEDS) \
		--processes $(CORES) --report docs/proof/simulation.md) $(ARGS)
	$(if $(SEED),,@$(MAKE) simulate-streams)

simulate-slots: $(READY)  ## the same for resident slots: SEEDS=10000 runs, or SEED=7
	$(PYTHON) -m tests.faults.slots.command $(if $(SEED),--seed $(SEED) --trace,--seeds $(SEEDS) \
		--processes $(CORES)) $(ARGS)

simulate-all: $(READY)  ## 100,000 seeds (plain, groups, spouts, slots), for hours; resumes where it stopped (build/seeds.jsonl)
	@mkdir -p build
	$(PYTHON) -m tests.faults.simulated.proof --results build/seeds.jsonl --processes $(CORES) $(ARGS)
	$(PYTHON) -m tests.faults.simulated.proof --results build/seeds.jsonl --page

simulate-streams: $(READY)  ## the same for random programs of streams: PROGRAMS=2000 seeds, two programs each
	$(PYTHON) -m tests.unit.streams --seeds $(PROGRAMS) --processes $(CORES) --report docs/proof/simulation.md

mutants: java services kafka $(READY)  ## plant bugs in a copy, one at a time, and show which tests catch them
	$(PYTHON) -m tests.faults.mutants $(ARGS)

power: java services jars-try $(READY)  ## measure what each test costs and which planted bugs it catches, for hours; writes docs/proof/power.md
	$(PYTHON) -m tests.faults.power $(ARGS)

fuzz: $(READY)  ## feed INPUTS=100000 mutated inputs to every reader: no crash, no hang, no wrong rows
	$(PYTHON) -m tests.faults.fuzz --inputs $(INPUTS) $(ARGS)

faults: java services $(READY)  ## crash at every point, run two coordinators in every order, and kill KILLS=1000 times
	$(PYTHON) -m tests.faults.simulated.crash_points
	$(PYTHON) -m tests.faults.processes.campaign --kills $(KILLS) $(ARGS)

rows: java services jars-try $(READY)  ## run the tests of the 57 rows of the fault matrix; writes docs/proof/faults.md
	$(PYTHON) -m tests.faults.matrix $(ARGS)

servers: java services-postgresql kafka $(READY)  ## start ZooKeeper, Kafka and PostgreSQL on their usual ports, for the tutorial
	@$(PYTHON) -m examples.servers

release: $(READY)  ## build the sdist and the wheel of the last commit into dist/, and check them
	$(PYTHON) -m tests.harness.release

versions: java services $(READY)  ## run the tests with other versions, an hour; writes docs/reference/versions.md
	$(PYTHON) -m tests.harness.versions $(ARGS)

licences: $(READY)  ## list the licence of each dependency in docs/proof/licences.md
	$(PYTHON) -m tests.harness.licences

screenshots: services $(READY)  ## take the pictures of docs/how-to/pages.md with Chromium
	$(PYTHON) -m tests.services.pages.screenshots

pictures: $(READY)  ## draw the pictures of docs/explanation; ARGS=--record runs the demo again
	$(PYTHON) -m tests.faults.pictures $(ARGS)

soak: java services $(READY)  ## count flights in a loop for MINUTES=30 under faults of all kinds; writes docs/proof/soak.md
	$(PYTHON) -m tests.faults.soak --minutes $(MINUTES) $(ARGS)

networks: java services $(READY)  ## break each network link of a run while it counts, 200 rounds each; writes docs/proof/networks.md
	$(PYTHON) -m tests.faults.networks $(ARGS)

cluster: java services kafka $(READY)  ## run on Spark standalone while machines die, hang, join and leave; writes docs/proof/cluster.md
	$(PYTHON) -m tests.services.cluster $(ARGS)

docs: $(READY)  ## build the site of docs into docs/_build; warnings are errors
	$(PYTHON) -m sphinx -q -W --keep-going -j auto docs docs/_build $(ARGS)

test-all: java services jars-try object-store $(READY)  ## every test, for hours; ARGS="--shard 2/6" runs the second of six parts
	@.ci/versitygw --try
	@.ci/test --all $(ARGS)

format: $(READY)  ## format the code and fix what tools can fix
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

clean:  ## remove .venv, caches, and files left by the demo and the examples
	rm -rf .venv .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	rm -rf build dist txtopo-demo txtopo-zookeeper spark-warehouse metastore_db derby.log *.egg-info docs/_build
	rm -f *.db *.db-lock *.db-shm *.db-wal

java:
	@.ci/java

$(READY): setup.cfg constraints.txt pyproject.toml
	@.ci/venv
	@touch $@
