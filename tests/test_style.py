"""The plan of the house, held by tests: who may import whom, what the README says is there, which options exist."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import regard

ROOT = Path(regard.__file__).parent
HOUSE = ROOT.parent
ORDER = [
    "__init__", "choose", "device", "look", "parts", "models", "hub", "data", "generate", "scores", "tasks", "training",
    "load", "speed", "check", "view", "lab", "serve", "cli", "__main__",
]  # fmt: skip
FILES = sorted(ROOT.rglob("*.py"))


def room(file: Path) -> str:
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_a_file_imports_only_from_what_stands_above_it(file):
    here = ORDER.index(room(file))
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regard.") and room(file) != "__init__":
            there = node.module.split(".")[1]
            assert ORDER.index(there) <= here, f"{file.relative_to(HOUSE)} reaches ahead to {there}"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_a_file_is_one_idea(file):
    text = file.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), "it opens with what it is"
    assert text.count("\n") <= 350
    assert not re.search(r"\b(TODO|FIXME|XXX)\b", text)
    assert file.stem not in ("utils", "helpers", "common", "base")


def test_no_pickle_no_shell_no_eval():
    banned = re.compile(r"\b(pickle|torch\.load|torch\.save|os\.system|shell=True|eval\(|exec\()")
    assert [str(f) for f in FILES if banned.search(f.read_text(encoding="utf-8").replace(".eval()", ""))] == []


def test_the_readme_prints_the_real_tree():
    block = (HOUSE / "README.md").read_text(encoding="utf-8").split("```tree\n")[1].split("```")[0]
    told, folders = set(), []
    for line in block.splitlines():
        bars, names = re.fullmatch(r"((?:│   |    |├── |└── )*)(.*)", line).groups()
        folders = folders[: len(bars) // 4]
        for name in names.split("  ")[0].split():
            if name.endswith("/"):
                folders = [*folders, name]
            else:
                told.add("".join(folders) + name)
    real = {str(f.relative_to(HOUSE)) for f in FILES if f.name != "__init__.py" or f.parent in (ROOT, ROOT / "cli")}
    assert told == real


def test_help_does_not_wait_for_torch():
    code = "import sys; from regard.cli import main; main(['--help']); assert not {'torch', 'tyro'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_options_of_train_are_frozen():
    """A new option needs a reason why it is not a new class; then it is added here."""
    from regard.training.settings import options

    known = """
        data valid test fields held_out longest skip_bad
        steps epochs minutes batch_tokens accumulate optimizer rate schedule warmup decay weight_decay clip average seed
        out resume overwrite checks check_pairs keep patience average_last device threads compile
        pieces vocab smoothing
        context dim encoder_layers decoder_layers heads hidden dropout norm_last
    """
    found = options("translate", "transformer", "tiny")
    assert set(found) == set(known.split())
    assert [name for name, option in found.items() if not option.help] == []
