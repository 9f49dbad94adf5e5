"""What tests share: one thread a process, and a small run that took a second to train."""

import gc
from pathlib import Path

import hypothesis
import pytest
import torch

# Seeded, and no test fails because the machine is slow.
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


# What can depend on the kernels that a processor runs: `make test-processors` runs these again as on other ones.
HERE = Path(__file__).parent
PROCESSOR = [
    HERE / name
    for name in ("parts", "models", "engine", "view/test_tree.py", "test_every_model.py", "test_generate.py")
    + ("test_reproducible.py", "training/test_loop.py", "bench/test_peers.py", "lab/test_kernel.py")
]


def pytest_collection_modifyitems(items):
    for item in items:
        if any(item.path.is_relative_to(place) for place in PROCESSOR):
            item.add_marker("processor")


def pytest_collection_finish():
    """Thousands of tests and all modules stay to the end: garbage collection need not look at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def pairs_file(tmp_path_factory):
    """120 pairs that are a word-for-word translation."""
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
    assert main([*args, "--lr", "0.02", "--evals", "2", "--held-out", "0.02", *small]) == 0
    return folder
