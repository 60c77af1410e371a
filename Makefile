# `make run` and `make test` are all a newcomer needs: on a machine with Python 3.11 or later, make and a C compiler they set up
# everything else. What has been set up is remembered by stamp files in .make/; `make clean` forgets it.

PYTHON ?= python3
MINUTES ?= 60
JOBS ?= $(shell $(PYTHON) -c 'import os; print(min((os.cpu_count() or 1) + 1, 4))')
DATA ?= tidelog-data-demo
# Tests start thousands of processes of Python, and without its caches each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
FETCH := scripts/try_again.sh
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --retries 10 --timeout 60
PYTEST := $(BIN)/python -m pytest -n $(JOBS)
KAFKA_LIB := .make/kafka/lib

.DEFAULT_GOAL := help
.PHONY: help run test test-change test-all test-spark42 soak rows lint format kafka spark-kafka opensearch connect bench-broker bench-record bench-log bench-compaction bench-spark bench-pipelines bench-views bench-capture bench-sourcing checkpoint-jar lock clean

help:
	@echo "make run           the demo: a broker, a shop on Spark, its live page; data in ./$(DATA) (ARGS='--minutes 2 --no-browser')"
	@echo "make test          the quick tests, and the slower ones that show a capability once; needs pip only (5 minutes)"
	@echo "make test-change   what a change must pass, and a slice of the rest; needs Maven, kcat, redis-server, mariadb-server, zsh, fish (26 minutes)"
	@echo "make test-all      all tests, in shards: broker, views, spark, pipelines (SHARD=views or SHARD=2/4 for one of them)"
	@echo "make test-spark42  the tests of Spark with PySpark 4.2, the oldest that will do"
	@echo "make soak          seeded fault runs for MINUTES=$(MINUTES), written to docs/soak.md"
	@echo "make lint          ruff, mypy, sizes and names, budgets of tests and unsteady tests"
	@echo "make rows          what each capability is proved by: tests, guide page, example; imports every test"
	@echo "make bench-broker  this broker beside Apache Kafka (ARGS='--only latency'); also bench-record, bench-log, bench-compaction"
	@echo "make bench-spark   topics as DataFrames beside Spark's own Kafka connector (ARGS='--only read')"
	@echo "make bench-pipelines  operators beside hand-written PySpark, Quix Streams, Bytewax and PyFlink (ARGS='--only state')"
	@echo "make bench-sourcing  an event store beside the eventsourcing library on SQLite and PostgreSQL"
	@echo "make bench-views   stores of views beside upserts by hand in foreachBatch, freshness, feeds (ARGS='--only updates')"
	@echo "make bench-capture capture by log and by triggers beside Debezium (ARGS='--only delay')"
	@echo "make lock          resolve requirements.lock anew from pyproject.toml"
	@echo "make clean         remove what was set up or built; data folders stay"

# Set-up -------------------------------------------------------------------------------------------------------------------

.make/venv:
	@mkdir -p .make
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed; name one by make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "no virtual environment; on Debian: apt-get install python3-venv"; exit 1; }
	@touch $@

# The broker with its extras for HTTP, schemas and Spark (Java comes with it), and the compiled codec. Pins come from the
# lock, used as constraints.
.make/package: .make/venv pyproject.toml setup.py requirements.lock $(wildcard src/tidelog/record/*.pyx src/tidelog/record/*.pxi src/tidelog/record/*.h src/tidelog/schema/decoding/*.pyx src/tidelog/schema/decoding/*.h)
	@echo "installing tidelog, Spark and Java into .venv: about 1 GB, some minutes the first time"
	@$(FETCH) $(PIP) install --constraint requirements.lock setuptools cython
	@$(FETCH) $(PIP) install --constraint requirements.lock --no-build-isolation --editable '.[http,schemas,spark]'
	@touch $@

# Everything that tests, lint and benchmarks import.
.make/dev: .make/package requirements.lock
	@echo "installing the development tools into .venv"
	@$(FETCH) $(PIP) install --requirement requirements.lock
	@touch $@

# Apache Kafka's jars, for its clients and command-line tools in the tests and for the server in the benchmarks.
.make/kafka/done: tests/against/java/pom.xml
	@command -v mvn > /dev/null || { echo "Maven is needed for Apache Kafka's jars; on Debian: apt-get install maven"; exit 1; }
	@mkdir -p $(KAFKA_LIB)
	$(FETCH) mvn --batch-mode --quiet --update-snapshots --file $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(KAFKA_LIB)
	@touch $@

kafka: .make/kafka/done

# Spark's own Kafka connector, to compare ours with.
.make/spark-kafka/done: tests/spark/pom.xml
	@command -v mvn > /dev/null || { echo "Maven is needed for Spark's Kafka connector; on Debian: apt-get install maven"; exit 1; }
	@mkdir -p .make/spark-kafka/lib
	$(FETCH) mvn --batch-mode --quiet --update-snapshots --file $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/.make/spark-kafka/lib
	@touch $@

spark-kafka: .make/spark-kafka/done

# A real OpenSearch node, for the tests of views in it.
.make/opensearch/done: tests/views/stores/opensearch/pom.xml
	@command -v mvn > /dev/null || { echo "Maven is needed for OpenSearch's jars; on Debian: apt-get install maven"; exit 1; }
	@mkdir -p .make/opensearch/lib
	$(FETCH) mvn --batch-mode --quiet --update-snapshots --file $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/.make/opensearch/lib
	@touch $@

opensearch: .make/opensearch/done

# A worker of Kafka Connect with Debezium's connector for PostgreSQL: by the very file that the guide has users take.
.make/connect/done: examples/kafka_connect/pom.xml
	@command -v mvn > /dev/null || { echo "Maven is needed for Kafka Connect's jars; on Debian: apt-get install maven"; exit 1; }
	@mkdir -p .make/connect
	$(FETCH) mvn --batch-mode --quiet --update-snapshots --file $< package -Dfolder=$(CURDIR)/.make/connect
	@touch $@

connect: .make/connect/done

# Debezium's connector for MariaDB, for the figures alone; the newest that Maven's central repository has.
.make/connect-mariadb/done: examples/kafka_connect/pom.xml
	@mkdir -p .make/connect-mariadb
	$(FETCH) mvn --batch-mode --quiet --file $< package -Dfolder=$(CURDIR)/.make/connect-mariadb \
		-Dconnector=debezium-connector-mariadb -Ddebezium=3.5.0.Final
	@touch $@

# Spark's classes as a JVM has them in memory: all tests start hundreds of JVMs, most of them for seconds. Where it fails,
# the tests do without, and the next run tries again.
.make/classes: .make/dev scripts/archive_classes.py src/tidelog/spark/checkpoint/checkpoint.jar
	@echo "archiving Spark's classes for the JVMs of the tests"
	@rm -f .make/spark.jsa
	@if $(BIN)/python scripts/archive_classes.py .make/spark.jsa 2> .make/classes.log; then touch $@; \
		else tail -n 20 .make/classes.log; echo "it failed; the tests do without"; fi

# The two commands ---------------------------------------------------------------------------------------------------------

run: .make/package
	$(BIN)/tidelog demo --folder $(DATA) $(ARGS)

test: .make/dev
	$(PYTEST) --tiers test

# The other tiers ----------------------------------------------------------------------------------------------------------

EVERYTHING := .make/dev .make/kafka/done .make/spark-kafka/done .make/opensearch/done .make/connect/done .make/classes

test-change: $(EVERYTHING)
	JOBS=$(JOBS) $(BIN)/python scripts/try_change.py

test-all: $(EVERYTHING)
	JOBS=$(JOBS) $(BIN)/python scripts/try_all.py $(SHARD)

# The oldest PySpark that will do, in a folder of its own that comes before the environment's on the path. All else is the lock's.
.make/spark42/done: .make/dev
	@echo "installing PySpark 4.2 beside the one of the lock"
	@mkdir -p .make/spark42
	@$(FETCH) $(PIP) install --no-deps --upgrade --target .make/spark42/site 'pyspark>=4.2,<4.3'
	@touch $@

test-spark42: export PYTHONPATH := $(CURDIR)/.make/spark42/site
test-spark42: .make/spark42/done
	@$(BIN)/python -c 'import pyspark; print("PySpark", pyspark.__version__); assert pyspark.__version__.startswith("4.2.")'
	$(PYTEST) -m "not external" tests/spark tests/pipelines/driver

soak: .make/dev
	$(BIN)/python scripts/soak.py --minutes $(MINUTES)

rows: .make/dev
	$(BIN)/python scripts/rows.py --check

lint: .make/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python scripts/try_change.py --faults
	$(BIN)/python -m pytest -p no:cacheprovider --tiers lint tests/test_tidy.py

format: .make/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Figures ------------------------------------------------------------------------------------------------------------------

bench-broker: .make/dev .make/kafka/done
	$(BIN)/python -m bench.broker $(ARGS)

bench-record: .make/dev
	$(BIN)/python bench/record.py $(ARGS)

bench-log: .make/dev
	$(BIN)/python bench/log.py $(ARGS)

bench-compaction: .make/dev .make/kafka/done
	$(BIN)/python -m bench.broker --only compaction $(ARGS)

bench-spark: .make/dev .make/kafka/done .make/spark-kafka/done
	$(BIN)/python -m bench.spark $(ARGS)

bench-pipelines: .make/dev
	$(BIN)/python -m bench.pipelines $(ARGS)

bench-sourcing: .make/dev
	$(BIN)/python -m pip install -q --no-deps --upgrade --target .make/eventsourcing eventsourcing psycopg-pool
	$(BIN)/python -m bench.sourcing $(ARGS)

bench-views: .make/dev
	$(BIN)/python -m bench.views $(ARGS)

bench-capture: .make/dev .make/connect/done .make/connect-mariadb/done
	$(BIN)/python -m bench.capture $(ARGS)

# The file system of Spark's checkpoints: its jar is in the repository, and is built anew where its sources change.
checkpoint-jar: .make/dev
	$(BIN)/python scripts/build_checkpoint_jar.py

# Housekeeping -------------------------------------------------------------------------------------------------------------

lock: .make/venv
	$(PIP) install uv
	$(BIN)/uv pip compile --universal --python-version 3.11 --extra dev --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" --upgrade --output-file requirements.lock pyproject.toml

clean:
	rm -rf .make .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f src/tidelog/record/_codec.c src/tidelog/record/_codec*.so src/tidelog/schema/decoding/_decode.c src/tidelog/schema/decoding/_decode*.so
