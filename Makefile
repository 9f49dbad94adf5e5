# Everything runs in .venv, which is made here: Python 3.11 or newer and make are all that is needed.
PYTHON ?= python3
BIN := .venv/bin
# On Linux the default PyTorch brings CUDA. For the small CPU build give its index: make setup PIP_FLAGS="--extra-index-url ..."
PIP_FLAGS ?=

.PHONY: setup demo test test-processors lint shots lab prove bench scores clean

setup: .venv/ready

.venv/ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("regard needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) --editable ".[dev]"
	touch .venv/ready

demo: setup
	$(BIN)/regard demo --out runs/demo

test: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto  # a thread for each of as many processes as there are cores

# What can depend on the processor, once more: with AVX2 and no more, and with what every x86 processor has.
PROCESSOR_TESTS = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto -m processor
test-processors: setup
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 NUMBA_CPU_NAME=haswell $(PROCESSOR_TESTS)
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 NUMBA_CPU_NAME=generic $(PROCESSOR_TESTS)

lint: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/mypy

# Screenshots of every tab of every kind of page, to look at after a change; needs Chromium.
shots: setup
	$(BIN)/python tests/view/screenshots.py runs/shots

# Every claim of the lectures, with its full size: about ten minutes on two cores.
lab: setup
	$(BIN)/regard lab --all --out runs/lab

# The long proofs, and their figures into docs/reliability.md; two need strace, and accelerate from the extra "bench".
prove: setup
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/prove.py

# The tables of speed in docs/benchmarks.md, printed at the end: about an hour and a quarter on two cores that do nothing else.
bench: setup
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --editable ".[bench]"
	$(BIN)/python benchmarks/bench.py

# What docs/benchmarks.md says about trained models: about five hours on two cores, and the data beside the project.
scores: setup
	for each in multi30k shakespeare ewt snips clinc finetune fashion emoji recurrent optimizers family pretrain \
		ball cartpole offline speech digit_strings esol tox21 molecule_paths proteins; do \
		$(BIN)/python benchmarks/$$each.py || exit 1; \
	done

clean:
	rm -rf .venv runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
