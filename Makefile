# Every target sets itself up: a fresh clone needs Python 3.10 or later, and npm for the encoders on the npm registry.
PYTHON ?= python3
BIN = .venv/bin

# STS data and corpora, where this project keeps them beside its checkout.
ifneq ($(wildcard ../shared/data),)
export ENSEMBED_DATA ?= $(abspath ../shared/data)
endif

# Installed libraries are compiled when they are first imported: without the result every process would do it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test quick suite suite-libraries suite-rest fuzz coverage lint bench figures docs notebooks dist system browser postgres clean

demo: .venv/ready
	$(BIN)/python -m experiments.demo $(ENCODERS)

# Everything: what the tests need, then all tests, with the checks of `lint` beside them.
test:
	$(MAKE) --jobs 2 .venv/dev system
	$(MAKE) --jobs 3 lint suite-libraries suite-rest

# BLAS on one core: with matrices as small as the tests', threads of several processes wait for each other. Files on a
# disk in memory, where there is one: tests write and sync many small ones.
PYTEST = $(if $(wildcard /dev/shm/.),TMPDIR=/dev/shm) OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/pytest

# The offline unit tests, in less than a minute: no network, real encoders, torch, TensorFlow, Ray, browser or PostgreSQL.
quick: .venv/dev
	$(PYTEST) --quick --numprocesses 2 --dist loadfile -p no:schemathesis

# In three processes, because many tests wait for processes that they start. One process runs a whole file. A process
# imports the files of all the others, too: one is enough for the large libraries, which take half a minute.
LIBRARIES = tests/integrations $(wildcard tests/encoders/test_consent*.py) tests/encoders/test_st.py \
	$(wildcard tests/encoders/test_st_*.py)

suite: .venv/dev
	$(MAKE) --jobs 2 suite-libraries suite-rest

suite-libraries: .venv/dev
	$(PYTEST) $(LIBRARIES)

suite-rest: .venv/dev
	$(PYTEST) --numprocesses 2 --dist loadfile $(LIBRARIES:%=--ignore=%)

# Mutated files of every format that we read: make fuzz SECONDS=3600 SEED=7, or INPUTS=100000, or FORMATS='model index'.
# New failures are added to tests/fuzz/past_failures.json, which the tests replay. REPORT=results writes the table there.
fuzz: .venv/dev
	PYTHONPATH=.:tests:tests/encoders:tests/paper $(BIN)/python -m fuzz $(FORMATS) --keep --seed $(or $(SEED),0) \
		$(if $(INPUTS),--inputs $(INPUTS),--seconds $(or $(SECONDS),600)) $(if $(REPORT),--report $(REPORT)) \
		$(if $(ADD),--add)

# The same, with the lines that the tests reach: this makes them a fifth slower.
coverage: .venv/dev system
	$(PYTEST) --numprocesses 3 --dist loadfile --cov=ensembed --cov-report=term:skip-covered

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# The stubs of the last numpy and scipy for Python 3.10 know too little: types are checked from 3.11 on.
	if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then $(BIN)/mypy; fi
	$(BIN)/lint-imports --no-cache

bench: .venv/dev
	$(INSTALL) '.[bench]'
	$(BIN)/python -m benchmarks $(AREAS)

# The figures of README and docs/explanation/results.md: after a change of methods or weights run this, `make notebooks`,
# and tests/test_readme.py, which names the sentences that are no longer true. Finished parts are kept in the cache.
figures: .venv/dev
	$(BIN)/python -m experiments.demo
	$(BIN)/python -m experiments.demo use-lite wordllama
	$(BIN)/ensembed reproduce --corpus ../shared/data/corpus/leipzig_eng_news_2016_raw.txt.gz --corpus stsb-train \
		--out results/reproduce --no-texts
	$(BIN)/python -m experiments.before_after

# The site, in build/site: open build/site/index.html. Every warning, such as a link that leads nowhere, is an error.
docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/mkdocs build --strict
	@echo 'The site is in build/site: open build/site/index.html.'

# The notebooks with their output, and the pictures.
notebooks: .venv/dev
	$(BIN)/python -m website.pictures
	$(BIN)/python -m website.notebooks $(NOTEBOOKS)

# A release: sdist and wheel in dist/, checked, and tried in empty environments of the Pythons that there are.
dist: .venv/release
	$(BIN)/python -m website.release

# One after the other: both use the package manager of the system.
system:
	$(MAKE) browser
	$(MAKE) postgres

# Tests open the report in a real browser. Text needs a font, which a bare machine lacks.
browser:
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
		if command -v $$name >/dev/null; then exit 0; fi; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; then exit 0; fi; \
	echo 'There is no Chromium: the tests of the report in a browser are skipped.'

# Tests of pgvector start a real PostgreSQL, which this unpacks beside the environment where the system has none.
postgres:
	@sh tests/install_postgres.sh .postgres || echo 'There is no PostgreSQL with pgvector: its tests are skipped.'

# Every version is pinned in constraints.txt; the stamps make a change of either file reinstall. The demo needs the light
# core, torch to train an autoencoder, and what tables are made with; the tests need every extra: TensorFlow is another
# gigabyte. Python compiles what is imported: compiling everything beforehand takes longer than all other steps.
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
INSTALL = $(PIP) --editable

# The pip that comes with Python 3.11 takes three times as long to find out what to install.
VENV = $(PYTHON) -m venv .venv && $(PIP) --upgrade pip

.venv/ready: pyproject.toml constraints.txt
	$(VENV)
	$(INSTALL) '.[ae,report]'
	touch $@

.venv/dev: pyproject.toml constraints.txt
	$(VENV)
	$(INSTALL) '.[all,dev,docs]'
	touch .venv/ready .venv/docs $@

.venv/docs: pyproject.toml constraints.txt
	$(VENV)
	$(INSTALL) '.[docs]'
	touch $@

.venv/release: pyproject.toml constraints.txt
	$(VENV)
	$(INSTALL) '.[release]'
	touch $@

clean:
	rm -rf .venv .postgres
