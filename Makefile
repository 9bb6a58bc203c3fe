# Two commands are enough: `make report` and `make test`. `make` alone lists the rest.
# No virtual environment needs to be active: everything runs in .venv, which `make setup` makes.

SHELL := bash
.DEFAULT_GOAL := help
BIN := .venv/bin
# lock: the tested torch; system: the one this machine brings. Remembered in .venv once chosen.
TORCH ?= $(or $(firstword $(shell cat .venv/made-for 2>/dev/null)),lock)

.PHONY: help report report-all test test-all mutants check gate tested-fuzz tested-soak tested-cases tested-kills tested-coverage book download lab setup clean

help:
	@echo "make report      run the quick experiments here and build the book of them"
	@echo "make test        run the test suite (under 15 minutes)"
	@echo
	@echo "make report-all  every notebook at its quick size, not only the headline ones (under 25 minutes)"
	@echo "make test-all    the slow tests too (under an hour)"
	@echo "make mutants     run the tests of scheduling against changes of its code (about half an hour)"
	@echo "make check       format, lint, types, import rules"
	@echo "make gate        parity of every engine on the real weights"
	@echo "make book        build the published book from the committed runs"
	@echo "make download    the same, and as one zip file to open anywhere"
	@echo "make lab         open the notebooks in JupyterLab"
	@echo "make setup       .venv, packages and weights only (TORCH=system: keep this machine's torch)"
	@echo "make tested-RECORD  cases, fuzz, soak, kills or coverage: what the book says of tests, run anew"
	@echo "make clean       remove what was built here; .venv and the weights stay"

setup:
	@PYTHON="$(PYTHON)" bash .ci/setup $(TORCH)
	@$(BIN)/interleave weights >/dev/null

report: setup
	@$(BIN)/interleave report

report-all: setup
	@$(BIN)/interleave report --all

test: setup
	$(BIN)/python -m pytest -m "not slow" --durations=10

test-all: test
	$(BIN)/python -m pytest -m slow --durations=10

mutants: setup
	@bash scripts/mutation.sh

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_architecture.py tests/test_packaging.py

gate: setup
	$(BIN)/interleave gate --json data/results/gate/smollm2-cpu.json

# Records for the book's page on how this is tested, each as long as it takes.
tested-fuzz: setup
	$(BIN)/python tests/engine/long_run.py --record

tested-soak: setup
	$(BIN)/python tests/engine/soak.py --record

tested-cases tested-kills tested-coverage: tested-%: setup
	$(BIN)/python scripts/tested.py $*

book: setup
	$(BIN)/interleave book

download: setup
	$(BIN)/interleave book --zip

lab: setup
	$(BIN)/jupyter lab notebooks

clean:
	rm -rf _build build dist book/pages .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src kernels tests notebooks book -name __pycache__ -prune -exec rm -rf {} +
	@echo "Left: .venv (remove it to set up afresh) and the weights in the cache folder (interleave weights --help)."
