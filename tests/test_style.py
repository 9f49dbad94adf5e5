"""The architecture, held by tests: who may import whom, what docs/architecture.md lists, which options exist."""

import ast
import importlib.util
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import regard

ROOT = Path(regard.__file__).parent
HOUSE = ROOT.parent
FILES = sorted(ROOT.rglob("*.py"))


@cache
def tree():
    """The files that the tree of docs/architecture.md names, in its order."""
    block = (HOUSE / "docs" / "architecture.md").read_text(encoding="utf-8").split("```tree\n")[1].split("```")[0]
    told, folders = [], []
    for line in block.splitlines():
        bars, name = re.match(r"((?:│   |    |├── |└── )*)(\S+)", line).groups()
        folders = folders[: len(bars) // 4]
        if name.endswith("/"):
            folders = [*folders, name]
        else:
            told.append("".join(folders) + name)
    return told


def imported(file):
    """The files of ours that a file imports."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name.name}" for name in node.names]
        for path in (HOUSE / name.replace(".", "/") for name in names if name.startswith("regard")):
            found = (path.with_suffix(".py"), path / "__init__.py", path.parent.with_suffix(".py"))
            yield next((f for f in found if f.exists()), path.parent / "__init__.py")


@pytest.mark.parametrize(
    "file", [f for f in FILES if f != ROOT / "__init__.py"], ids=lambda f: str(f.relative_to(ROOT))
)
def test_a_file_imports_only_from_what_stands_above_it(file):
    """A folder's __init__ gathers its files: it stands below them, and above what follows."""
    place = {name: i for i, name in enumerate(tree())}

    def height(one):
        if one.name != "__init__.py" or one.parent in (ROOT, ROOT / "cli"):
            return place[str(one.relative_to(HOUSE))]
        folder = f"{one.parent.relative_to(HOUSE)}/"
        return max(i for name, i in place.items() if name.startswith(folder)) + 0.5

    here = height(file)
    ahead = [str(there.relative_to(HOUSE)) for there in imported(file) if height(there) > here]
    assert ahead == []


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_a_file_is_one_idea(file):
    text = file.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), "it opens with what it is"
    assert text.count("\n") <= 350
    assert not re.search(r"\b(TODO|FIXME|XXX)\b", text)
    assert file.stem not in ("utils", "helpers", "common", "base")


def test_no_pickle_no_shell_no_eval():
    banned = re.compile(
        r"(import pickle|\bpickle\.|\btorch\.load|\btorch\.save\(|\bos\.system|shell=True|\beval\(|\bexec\()"
    )
    assert [str(f) for f in FILES if banned.search(f.read_text(encoding="utf-8").replace(".eval()", ""))] == []


def test_the_readme_prints_the_real_tree():
    real = [f for f in FILES if f.name != "__init__.py" or f.parent in (ROOT, ROOT / "cli")]
    assert sorted(tree()) == sorted(str(f.relative_to(HOUSE)) for f in real)


@pytest.mark.parametrize("file", sorted((HOUSE / "benchmarks").glob("*.py")), ids=lambda f: f.stem)
def test_what_a_benchmark_imports_is_there(file):
    """They run for minutes or hours, so no test runs them."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regard"):
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name) or importlib.util.find_spec(f"{node.module}.{name.name}"), name.name


def test_help_does_not_wait_for_torch():
    code = "import sys; from regard.cli import main; main(['--help']); assert not {'torch', 'tyro'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_options_of_train_are_frozen():
    """A new option needs a reason why it is not a new class; then it is added here."""
    from regard.models import MODELS
    from regard.tasks import TASKS
    from regard.training.settings import options

    common = """
        data valid test fields separator encoding held_out skip_bad
        steps epochs minutes revisions batch_tokens grad_accum optimizer lr schedule warmup_steps decay_share
        weight_decay grad_clip max_nonfinite ema seed
        layer_decay output_dir from_ download new_head freeze vectors
        resume overwrite allow_changed evals eval_examples keep patience average_checkpoints device threads compile
    """
    text = "pieces vocab lowercase"
    more = {
        ("translate", "transformer"): f"""longest {text} smoothing both_ways
            context dim encoder_layers decoder_layers heads hidden activation dropout norm_last scaled""",
        ("translate", "recurrent"): f"""longest {text} smoothing both_ways
            context dim layers cell one_way truncate dropout attention""",
        ("write", "nano"): f"""{text} documents cache
            context dim layers heads kv_heads hidden dropout tied softcap base eps""",
        ("fill", "bert"): f"""{text} documents cache share whole_words
            context dim layers heads hidden activation dropout segments eps after_pad""",
        ("classify", "pooled"): f"longest {text} pooling many smoothing context dim hidden dropout",
        ("classify", "vit"): """longest side shift flip turn zoom tint pooling many smoothing
            patch dim layers heads hidden activation dropout convolution class_token qkv_bias embed_norm eps""",
        ("classify", "listener"): """mels stride shift tempo tract pitch colour noise masks
            pooling many smoothing context dim layers heads hidden dropout eps""",
        ("translate", "transcriber"): f"""longest {text} smoothing both_ways
            mels stride shift tempo tract pitch colour noise masks
            context dim encoder_layers decoder_layers heads hidden dropout""",
        ("regress", "llama"): f"""longest {text} pooling context dim layers heads kv_heads head_dim hidden
            activation biases tied dropout base stretch trained eps""",
        ("regress", "graph"): "pooling dim layers heads hidden dropout bias eps",
        ("tag", "gpt"): f"longest {text} smoothing context dim layers heads hidden activation tied dropout eps",
        ("decide", "world"): "best returns patch context dim layers heads hidden dropout eps",
        ("tag", "chain"): """smoothing
            context dim near_layers width layers heads hidden activation dropout base eps""",
        ("embed", "bert"): f"""longest {text} pooling temperature
            context dim layers heads hidden activation dropout segments eps after_pad""",
        ("predict", "world"): "patch env hide real_steps memory context dim layers heads hidden dropout eps",
    }
    for (task, model), names in more.items():
        found = options(task, model, next(iter(MODELS[model].sizes)))
        assert set(found) == set((common + names).split()) - TASKS[task].unused
        assert [name for name, option in found.items() if not option.help] == []
