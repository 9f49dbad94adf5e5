# Everything runs in .venv, which `make setup` creates. Requires Python 3.11 or newer and make.
PYTHON ?= python3
BIN := .venv/bin
# On Linux the default PyTorch includes CUDA. For the small CPU build pass its index: make setup PIP_FLAGS="--extra-index-url ..."
PIP_FLAGS ?=

.PHONY: setup demo test test-processors lint shots lab prove bench scores clean

setup: .venv/ready

.venv/ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("regard needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) --editable ".[dev]"
	touch .venv/ready

demo: setup
	$(BIN)/regard demo --output-dir runs/demo

test: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto  # one process per core, one thread each

# The tests marked `processor` again, with AVX2 only, and with the baseline of every x86 CPU.
PROCESSOR_TESTS = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto -m processor
test-processors: setup
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 NUMBA_CPU_NAME=haswell $(PROCESSOR_TESTS)
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 NUMBA_CPU_NAME=generic $(PROCESSOR_TESTS)

lint: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/mypy

# Screenshots of every tab of every kind of page, for review after a change; needs Chromium.
shots: setup
	$(BIN)/python tests/view/screenshots.py runs/shots

# Every experiment of the lab in full size: about ten minutes on two cores.
lab: setup
	$(BIN)/regard lab --all --output-dir runs/lab

# The reliability proofs; writes their tables to docs/reliability.md. Two need strace, and accelerate from the extra "bench".
prove: setup
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/prove.py

# The speed tables of docs/benchmarks.md: about 75 minutes on two idle cores.
bench: setup
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --editable ".[bench]"
	$(BIN)/python benchmarks/bench.py

# The trained models of docs/benchmarks.md: about five hours on two cores, with the public data sets beside the project.
scores: setup
	for each in multi30k shakespeare ewt snips clinc finetune fashion emoji recurrent optimizers family pretrain \
		ball cartpole offline speech digit_strings esol tox21 molecule_paths proteins series; do \
		$(BIN)/python benchmarks/$$each.py || exit 1; \
	done

clean:
	rm -rf .venv runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
