"""Shared fixtures: one thread for each process, and a small translation run that trains in a second."""

import gc
from pathlib import Path

import hypothesis
import pytest
import torch

# Seeded, and without deadlines: no test fails because the machine is slow.
hypothesis.settings.register_profile("regard", deadline=None, derandomize=True)
hypothesis.settings.load_profile("regard")

SMALL = "--dim 16 --hidden 24 --heads 2 --encoder-layers 1 --decoder-layers 1 --context 64"
WORDS = {
    "tea": "Tee",
    "water": "Wasser",
    "milk": "Milch",
    "bread": "Brot",
    "and": "und",
    "please": "bitte",
    "no": "kein",
}


# Tests that can depend on the kernels of the CPU: `make test-processors` runs them again as on other CPUs.
TESTS = Path(__file__).parent
PROCESSOR_TESTS = [
    TESTS / name
    for name in ("parts", "models", "engine", "view/test_beam_tree.py", "test_every_model.py", "test_generate.py")
    + (
        "test_decode_batch.py",
        "test_scheduler.py",
        "test_reproducible.py",
        "training/test_loop.py",
        "bench/test_peers.py",
        "lab/test_kernel.py",
    )
]


def pytest_collection_modifyitems(items):
    for item in items:
        if any(item.path.is_relative_to(path) for path in PROCESSOR_TESTS):
            item.add_marker("processor")


def pytest_collection_finish():
    """Thousands of tests and all modules live to the end: exclude them from garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def single_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def pairs_file(tmp_path_factory):
    """120 pairs of a word-for-word translation."""
    file = tmp_path_factory.mktemp("data") / "pairs.tsv"
    words = list(WORDS)
    rows = [[words[(i * 7 + k * (i // 7 + 1)) % len(words)] for k in range(2 + i % 5)] for i in range(120)]
    lines = [" ".join(row) + f" {i}\t" + " ".join(WORDS[w] for w in row) + f" {i}\n" for i, row in enumerate(rows)]
    file.write_text("".join(lines), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def small():
    """Options for a model that trains in a second."""
    return SMALL.split()


@pytest.fixture(scope="session")
def small_run(pairs_file, small, tmp_path_factory):
    from regard.cli import main

    folder = tmp_path_factory.mktemp("runs") / "small"
    args = [
        "train",
        "translate",
        "--data",
        str(pairs_file),
        "--output-dir",
        str(folder),
        "--steps",
        "40",
        "--batch-tokens",
        "300",
    ]
    assert main([*args, "--lr", "0.02", "--evals", "2", "--valid-share", "0.02", *small]) == 0
    return folder
