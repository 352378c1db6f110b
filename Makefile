# Every command sets up what it needs. `make help` lists them; the text after `##` is what it prints.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
STAMP := .venv/.installed
PYTEST := $(BIN)/python -m pytest
# Test runs start many Python processes. Without compiled files each of them would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
# More than cores: many tests wait for disks and processes. Spark has threads of its own.
WORKERS ?= 3
SPARK_WORKERS ?= 2
# Where tests with the mark `spark` are. To collect the others takes longer than to start Spark.
SPARK_TESTS := tests/spark tests/cluster tests/test_toolchain.py
# Planted defects at a time.
JOBS ?= 2
BACKUPS ?= 100

.PHONY: help demo docs test test-local test-spark faults backups sensitivity bench traffic tables studio screenshots package smoke check format generate clean

help: ## Show this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '  make %-12s %s\n' "$$name" "$$text"; done

demo: $(STAMP) ## Walk through what works today on a small example
	@scripts/bootstrap java
	@scripts/demo

docs: $(STAMP) ## Build the documentation site in build/site; broken links and anchors are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Spark waits for its processes most of the time, so its tests run beside the others. They need processes of their own:
# Spark starts by forking, which a process that has opened thousands of graphs may be refused.
test: $(STAMP) ## Run every test (WORKERS=n and SPARK_WORKERS=n set how many at a time)
	@scripts/bootstrap java strace chromium
	@mkdir -p build
	@$(MAKE) --no-print-directory --keep-going --jobs 2 SPARK_LOG=build/test-spark.log test-spark test-local

# Tests of a file share their set-up, so they stay on one worker. By default the files with the fewest tests come last;
# those are the slowest here, and the workers would not end together.
test-local: $(STAMP) ## Run only the tests that need no Spark
	@scripts/bootstrap strace chromium
	$(PYTEST) -m "not spark and not long" --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 15

# With SPARK_LOG the output comes at the end, as one piece.
test-spark: $(STAMP) ## Run only the tests that need Spark
	@scripts/bootstrap java
	$(PYTEST) $(SPARK_TESTS) -m "spark and not long" --numprocesses $(SPARK_WORKERS) --dist loadfile --durations 15 \
		$(if $(SPARK_LOG),> $(SPARK_LOG) 2>&1; status=$$?; cat $(SPARK_LOG); exit $$status)

faults: $(STAMP) ## Cut writers off at every step, fail every request, all of what Spark runs (takes a while)
	@scripts/bootstrap strace
	OMNIGRAPH_CUTS=all $(PYTEST) tests src tests/faults -m faults --numprocesses $(WORKERS) --dist load --durations 15
	OMNIGRAPH_CUTS=all $(PYTEST) tests/cost
	@scripts/bootstrap java
	OMNIGRAPH_CUTS=all $(PYTEST) $(SPARK_TESTS) -m "spark or long" --durations 15
	OMNIGRAPH_CUTS=all $(PYTEST) -m "long and not spark" --ignore tests/spark --ignore tests/cluster --numprocesses $(WORKERS) --dist worksteal

backups: $(STAMP) ## Make 100 backups on disk and 100 on S3 beside writers, an optimizer and a collector (BACKUPS=n)
	OMNIGRAPH_BACKUPS=$(BACKUPS) $(PYTEST) tests/faults/test_copies_beside_writers.py -k every_backup --durations 2

sensitivity: $(STAMP) ## Plant each known defect in a copy and run the tests that must catch it (JOBS=n, RESUME=1)
	@scripts/bootstrap java strace chromium
	$(BIN)/python -m tests.sensitivity.defects --jobs $(JOBS) $(if $(RESUME),--resume)

bench: $(STAMP) ## Compare with peers on a generated graph and print the ratios
	@$(BIN)/python -c 'import ladybug' 2>/dev/null || $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt ladybug
	$(BIN)/python -m bench.run
	@scripts/bootstrap java
	$(BIN)/python -m bench.loads
	@test -x build/lancedb/bin/python || { $(BIN)/python -m venv build/lancedb && build/lancedb/bin/pip --disable-pip-version-check install --quiet lancedb==0.40.0 duckdb==1.5.5 duckdb-extension-fts==1.5.5; }
	$(BIN)/python -m bench.search --peer lancedb=build/lancedb/bin/python --peer lance=$(BIN)/python
	$(BIN)/python -m bench.text_search --peer lancedb=build/lancedb/bin/python --peer duckdb=build/lancedb/bin/python

traffic: $(STAMP) ## Clients of other processes against a server, undisturbed and with kills, and the proof
	$(BIN)/python -m bench.traffic

tables: $(STAMP) ## Compute the parser tables anew after a change of a grammar or of lark
	@scripts/parser-tables

generate: $(STAMP) ## Write the async API anew after a change of the Graph interface
	@scripts/generate-async

# The built files are in the repository, so only a change of the sources needs Node.
studio: ## Build the Studio from its sources in studio/ (needs Node 20 and npm)
	@cd studio && npm ci --no-audit --no-fund && npm run check && npm run build

screenshots: $(STAMP) ## Take the pictures of the Studio in docs/assets (needs Chromium)
	$(BIN)/python -m tests.studio.screenshots docs/assets

package: $(STAMP) ## Build the wheel and the source distribution in dist
	rm -rf dist
	$(BIN)/python -m hatchling build

smoke: package ## Test the wheel in an empty virtual environment outside the checkout
	scripts/smoke-wheel dist

check: $(STAMP) ## Lint, check the formatting, check the types (changes nothing)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(STAMP) ## Fix what ruff can fix and format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## Remove .venv, caches and build results
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis dist build spark-warehouse
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt scripts/bootstrap
	@scripts/bootstrap python
	@touch $@
