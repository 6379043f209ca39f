# Every target that needs tools first sets up .venv with the versions of constraints.txt.

PYTHON ?= python3
PIP_FLAGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
TYPES := build/types/guarded_moments
JOB := build/main-job
TRAINERS := build/trainers

# The installed names, for mypy.
LINKS := $(TYPES)/reference $(TYPES)/oracle $(TYPES)/proofs

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup test audit report picture trajectory open-loop trade parts bench figures docs faults fuzz trainers large format lint types imports check changelog clean

help: ## list the targets
	@echo 'usage: make TARGET'
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'PYTHON=python3.12 chooses the interpreter for a new .venv; PIP_FLAGS=... is passed to pip install.'

setup: $(INSTALLED) ## make .venv, with the pinned tools and this project in it

test: setup ## run the tests
	$(BIN)/pytest -n auto

audit: setup ## train a small model, then compress, recover and audit its optimizer state
	$(BIN)/python examples/train_language_model.py --output-dir $(JOB)
	$(BIN)/gmc compress $(JOB)/optimizer.pt $(JOB)/optimizer.gmc --tolerance 0.01 --grad-bound 1.0 --force
	$(BIN)/gmc recover $(JOB)/optimizer.gmc $(JOB)/optimizer.recovered.pt --force
	$(BIN)/gmc audit $(JOB)/optimizer.gmc --native $(JOB)/optimizer.pt --json $(JOB)/audit.json --force
	@echo
	@echo 'results, in $(JOB)/'
	@echo '  optimizer.pt            as torch saved it'
	@echo '  optimizer.gmc           compressed, with its guarantee'
	@echo '  optimizer.recovered.pt  recovered, for optimizer.load_state_dict'
	@echo '  audit.json              what the audit found'

report: audit ## write what an auditor reads of the same job
	$(BIN)/gmc audit $(JOB)/optimizer.gmc --native $(JOB)/optimizer.pt --report $(JOB)/report.html --report $(JOB)/report.json --attestation $(JOB)/optimizer.intoto.json --force
	$(BIN)/gmc verify $(JOB)/optimizer.gmc --native $(JOB)/optimizer.pt --attestation $(JOB)/optimizer.intoto.json
	@echo
	@echo 'the report: report.html and report.json, in $(JOB)/; the attestation: optimizer.intoto.json'

# Without the sandbox, which chromium has not where it is run by root; the page is ours and runs no script.
picture: report ## draw the beginning of that report for docs/, with chromium
	chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --window-size=1000,1000 --screenshot=docs/report.png $(JOB)/report.html

trajectory: audit ## resume its training from native, recovered and control states (a quarter of an hour)
	$(BIN)/gmc trajectory $(JOB)/optimizer.gmc --native $(JOB)/optimizer.pt --training examples/train_language_model.py:resume --json $(JOB)/trajectory.json --output docs/trajectory.md --plot docs/trajectory.png --force

faults: setup ## kill writers, flip and cut files, fuzz the reader, and count what was tried
	GM_TEST_BUDGET=10 $(BIN)/pytest tests/faults -q

fuzz: setup ## fuzz the reader for ten minutes, guided by coverage
	$(BIN)/python -m pip install $(PIP_FLAGS) --quiet --constraint constraints.txt --no-build-isolation --editable '.[fuzz]'
	@mkdir -p build/fuzz
	$(BIN)/python tests/faults/fuzz_reader.py -max_total_time=600 -artifact_prefix=build/fuzz/ build/fuzz/corpus

trainers: $(TRAINERS)/installed ## run the examples in Lightning and Hugging Face's Trainer, in an environment of their own
	$(TRAINERS)/bin/pytest tests/examples/test_resuming.py

open-loop: audit ## drive native and recovered states with a training's own gradients, and compare every update
	$(BIN)/python benchmarks/open_loop.py --checkpoint $(JOB)/optimizer.pt --output docs/open-loop.md

trade: audit ## map bits against tolerance for every codec, state and horizon (half an hour)
	$(BIN)/python examples/train_language_model.py --steps 20 --output-dir build/early
	$(BIN)/python benchmarks/trade.py --checkpoint $(JOB)/optimizer.pt --output docs/trade.md --plot docs/trade.png

parts: audit ## measure audits by several processes, and project a large checkpoint from them
	$(BIN)/python benchmarks/parts.py --checkpoint $(JOB)/optimizer.pt --output docs/audit-in-parts.md

figures: trajectory open-loop parts trade ## make all measured pages of docs/ again; fails where one that no clock decides has changed
	$(BIN)/python -m pip install $(PIP_FLAGS) --quiet --constraint constraints-crosscheck.txt --constraint constraints.txt --no-build-isolation --editable '.[dev,crosscheck]'
	$(BIN)/gmc bench $(JOB)/optimizer.pt --rounds 3 --output docs/benchmark.md --force
	$(BIN)/python benchmarks/large_state.py --coordinates 100000000 --output docs/large-state.md
	$(BIN)/gmc crosscheck --output docs/other-implementations.md --force
	$(BIN)/gmc peers > docs/peers.md
	git diff --exit-code -- docs/other-implementations.md

docs: setup ## build the documentation as a site, in build/site
	$(BIN)/python -m pip install $(PIP_FLAGS) --quiet --constraint constraints-docs.txt --constraint constraints.txt 'mkdocs-material>=9.6'
	NO_MKDOCS_2_WARNING=true $(BIN)/python -m mkdocs build --strict
	@echo
	@echo 'the site: build/site/index.html'

format: setup ## format the code and mend what the linter can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lint: setup ## check format and style
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: setup $(LINKS) ## check types
	$(BIN)/mypy

imports: setup ## check which folder imports which
	$(BIN)/lint-imports --no-logo --cache-dir build/import-linter

check: lint types imports test ## all checks

# glibc gives the end of the heap back to the system after a block and asks for it again: page faults, up to a third of a
# time and another share in every run. What is measured here is the code.
bench: export MALLOC_TRIM_THRESHOLD_ = 1000000000
bench: export MALLOC_MMAP_THRESHOLD_ = 1000000000
bench: audit ## time the op models, the searches and the codecs, beside peers and a plain copy
	$(BIN)/python benchmarks/step_models.py
	$(BIN)/python benchmarks/first_step.py
	$(BIN)/python benchmarks/implementations.py
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/triton_kernels.py
	$(BIN)/gmc bench $(JOB)/optimizer.pt --json $(JOB)/bench.json --output $(JOB)/bench.md --force

large: audit ## compress, recover and audit a state of a hundred million coordinates; some minutes, 2 GB of files
	$(BIN)/python benchmarks/large_state.py

changelog: setup ## show the changelog that the fragments in changelog.d make
	$(BIN)/towncrier build --draft --version unreleased

clean: ## remove .venv and everything that was built
	rm -rf $(VENV) build dist .hypothesis .ruff_cache *.egg-info

# A stamp, so that the installation runs again only when one of these changes. The build tool is installed
# first and used as it is: a build of its own would take the newest one.
$(INSTALLED): constraints.txt pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("make: Python 3.11 or newer is needed, and $(PYTHON) is " + sys.version.split()[0] + "; choose another: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_FLAGS) --constraint constraints.txt setuptools
	$(BIN)/python -m pip install $(PIP_FLAGS) --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@

$(TRAINERS)/installed: constraints.txt constraints-trainers.txt pyproject.toml setup.py
	$(PYTHON) -m venv $(TRAINERS)
	$(TRAINERS)/bin/python -m pip install $(PIP_FLAGS) --constraint constraints.txt --constraint constraints-trainers.txt --editable '.[dev,trainers]'
	@touch $@

$(LINKS):
	@mkdir -p $(TYPES)
	ln -sfn ../../../$(@F) $@
