"""Rules of the code base: imports, the tree of docs/architecture.md, identifiers, sizes of files, frozen options."""

import ast
import importlib.util
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import regard
from regard.modalities import MODALITIES
from regard.models import MODELS
from regard.options import option_flag
from regard.training.settings import options

PACKAGE = Path(regard.__file__).parent
ROOT = PACKAGE.parent
FILES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES, MAX_README_LINES = 300, 170
# Words of the first version that are no names: a name says what a thing is or does.
BANNED = {"told", "said", "asked", "found", "given", "wanted", "handfuls", "what_may_be_seen"}
LOOP_ONLY = {"one", "some"}  # allowed as the variable of a comprehension or of a loop of one line
# Folders whose file names a protocol fixes: a command, an experiment, a family; and the files of a modality.
FIXED_NAMES = ("cli/", "lab/", "hub/tables/")
MODALITY_FILES = ("/modality.py", "/preprocessor.py")
COMMON = """
    --data --valid --test --fields --separator --encoding --valid-share --skip-bad --steps --epochs --minutes
    --revisions --batch-tokens --grad-accum --optimizer --lr --schedule --warmup-steps --decay-share --weight-decay
    --grad-clip --max-nonfinite --ema --seed --layer-decay --output-dir --from --download --new-head --freeze --vectors
    --resume --overwrite --allow-changed --evals --eval-examples --keep --patience --average-checkpoints --device
    --threads --shards --recompute --compile --dtype --log
"""
TEXT = "--tokenizer --vocab-size --lowercase"
OPTIONS = {
    ("translate", "transformer"): f"""
        --max-words {TEXT} --label-smoothing --both-ways --context --dim --encoder-layers --decoder-layers --heads
        --hidden --activation --dropout --post-norm --scale-embedding
    """,
    ("translate", "recurrent"): f"""
        --max-words {TEXT} --label-smoothing --both-ways --context --dim --layers --cell --unidirectional --bptt-length
        --dropout --attention
    """,
    ("write", "nanochat"): f"""
        {TEXT} --documents --cache --context --dim --layers --heads --kv-heads --hidden --dropout --tie-embeddings
        --softcap --rope-theta --norm-eps
    """,
    ("fill", "bert"): f"""
        {TEXT} --documents --cache --mask-prob --whole-words --context --dim --layers --heads --hidden
        --activation --dropout --segments --norm-eps --positions-after-pad
    """,
    (
        "classify",
        "pooled",
    ): f"--max-words {TEXT} --pooling --multi-label --label-smoothing --context --dim --hidden --dropout",
    ("classify", "vit"): """
        --image-size --shift --flip --rotate --zoom --color-jitter --pooling --multi-label --label-smoothing
        --patch-size --dim --layers --heads --hidden --activation --dropout --conv-stem --class-token --qkv-bias
        --embed-norm --norm-eps
    """,
    ("classify", "audio_encoder"): """
        --mels --stride --shift --tempo --vtlp --pitch --random-eq --noise --spec-augment --pooling --multi-label
        --label-smoothing --context --dim --layers --heads --hidden --dropout --norm-eps
    """,
    ("translate", "speech2text"): f"""
        --max-words {TEXT} --label-smoothing --both-ways --mels --stride --shift --tempo --vtlp --pitch --random-eq
        --noise --spec-augment --context --dim --encoder-layers --decoder-layers --heads --hidden --dropout
    """,
    ("regress", "llama"): f"""
        --max-words {TEXT} --pooling --context --dim --layers --heads --kv-heads --head-dim --hidden
        --activation --biases --tie-embeddings --dropout --rope-theta --rope-factor --rope-original-context --norm-eps
    """,
    ("regress", "graphormer"): "--pooling --dim --layers --heads --hidden --dropout --pair-bias --norm-eps",
    ("tag", "gpt"): f"""
        --max-words {TEXT} --label-smoothing --context --dim --layers --heads --hidden --activation --tie-embeddings
        --dropout --norm-eps
    """,
    (
        "decide",
        "world_model",
    ): "--top-fraction --returns --patch-size --context --dim --layers --heads --hidden --dropout --norm-eps",
    ("tag", "protein_encoder"): """
        --label-smoothing --context --dim --conv-layers --kernel-size --layers --heads --hidden --activation --dropout
        --rope-theta --norm-eps
    """,
    ("embed", "bert"): f"""
        --max-words {TEXT} --pooling --temperature --context --dim --layers --heads --hidden --activation
        --dropout --segments --norm-eps --positions-after-pad
    """,
    ("predict", "world_model"): """
        --patch-size --env --hide --real-steps --history --context --dim --layers --heads --hidden --dropout --norm-eps
    """,
    ("predict", "world_model", "series"): """
        --season --env --hide --real-steps --history --context --dim --layers --heads --hidden --dropout --norm-eps
    """,
    ("regress", "audio_encoder", "series"): """
        --patch-length --pooling --context --dim --layers --heads --hidden --dropout --norm-eps
    """,
}
file_cases = pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
IMPORTERS = [file for file in FILES if file != PACKAGE / "__init__.py"]


@cache
def parse(file):
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def documented_files():
    """The files in the tree of docs/architecture.md, in its order."""
    block = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("```tree\n")[1].split("```")[0]
    files, folders = [], []
    for line in block.splitlines():
        bars, name = re.match(r"((?:│   |    |├── |└── )*)(\S+)", line).groups()
        folders = folders[: len(bars) // 4]
        if name.endswith("/"):
            folders = [*folders, name]
        else:
            files.append("".join(folders) + name)
    return files


def imported_files(file):
    """The files of the package that a file imports."""
    for node in ast.walk(parse(file)):
        names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name.name}" for name in node.names]
        for path in (ROOT / name.replace(".", "/") for name in names if name.startswith("regard")):
            candidates = (path.with_suffix(".py"), path / "__init__.py", path.parent.with_suffix(".py"))
            yield next((f for f in candidates if f.exists()), path.parent / "__init__.py")


def position(file):
    """The position of a file in the tree. The __init__ of a folder imports its files: it comes after them, and before
    the next folder."""
    positions = {name: i for i, name in enumerate(documented_files())}
    if file.name != "__init__.py" or file.parent in (PACKAGE, PACKAGE / "cli"):
        return positions[str(file.relative_to(ROOT))]
    folder = f"{file.parent.relative_to(ROOT)}/"
    return max(i for name, i in positions.items() if name.startswith(folder)) + 0.5


@pytest.mark.parametrize("file", IMPORTERS, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_file_imports_only_from_files_above_it(file):
    below = [str(target.relative_to(ROOT)) for target in imported_files(file) if position(target) > position(file)]
    assert below == []


def test_the_architecture_page_lists_every_file():
    files = [f for f in FILES if f.name != "__init__.py" or f.parent in (PACKAGE, PACKAGE / "cli")]
    assert sorted(documented_files()) == sorted(str(f.relative_to(ROOT)) for f in files)


@file_cases
def test_a_file_is_short_and_documented(file):
    text = file.read_text(encoding="utf-8")
    assert ast.get_docstring(parse(file)), "a file opens with a docstring"
    assert text.count("\n") <= MAX_LINES
    assert not re.search(r"\b(TODO|FIXME|XXX)\b", text)
    assert file.stem not in ("utils", "helpers", "common", "base")


def test_the_readme_is_short():
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("\n") <= MAX_README_LINES


def identifiers(node):
    """The identifiers that a syntax node holds, without those of its children."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.alias(asname=name):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.keyword(arg=name) | ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return [name]
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return names
    return []


def loop_variables(tree):
    """(line, name) of every use of a name that is the variable of a comprehension, or of a loop of one line."""
    for node in ast.walk(tree):
        comprehensions = getattr(node, "generators", [])
        targets = [generator.target for generator in comprehensions]
        if isinstance(node, ast.For) and node.end_lineno - node.lineno <= 1:
            targets.append(node.target)
        names = {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        yield from ((n.lineno, n.id) for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in names)


@file_cases
def test_no_identifier_is_a_bare_participle_or_pronoun(file):
    nodes = [(getattr(node, "lineno", 0), name) for node in ast.walk(parse(file)) for name in identifiers(node)]
    exempt = {*loop_variables(parse(file))}
    misused = [use for use in nodes if use[1] in BANNED or (use[1] in LOOP_ONLY and use not in exempt)]
    assert misused == []


def duplicates(pairs):
    locations = defaultdict(list)
    for name, location in pairs:
        locations[name].append(location)
    return {name: paths for name, paths in locations.items() if len(paths) > 1}


def test_no_class_name_is_defined_twice():
    classes = (
        (node.name, f"{file.relative_to(ROOT)}:{node.lineno}")
        for file in FILES
        for node in ast.walk(parse(file))
        if isinstance(node, ast.ClassDef)
    )
    assert duplicates(classes) == {}


def test_no_file_name_exists_twice():
    paths = [str(file.relative_to(PACKAGE)) for file in FILES if file.name != "__init__.py"]
    free = [path for path in paths if not path.startswith(FIXED_NAMES) and not path.endswith(MODALITY_FILES)]
    assert duplicates((Path(path).name, path) for path in free) == {}


def test_no_pickle_no_shell_no_eval():
    banned = re.compile(
        r"(import pickle|\bpickle\.|\btorch\.load|\btorch\.save\(|\bos\.system|shell=True|\beval\(|\bexec\()"
    )
    assert [str(f) for f in FILES if banned.search(f.read_text(encoding="utf-8").replace(".eval()", ""))] == []


@pytest.mark.parametrize("file", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda file: file.stem)
def test_every_import_of_a_benchmark_exists(file):
    """Benchmarks run for minutes or hours, so no test runs them."""
    for node in ast.walk(parse(file)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regard"):
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name) or importlib.util.find_spec(f"{node.module}.{name.name}"), name.name


MODALITY_FREE = ("tasks", "check", "bench", "cli", "training")  # folders that know no kind of input
MODALITY_WORD = re.compile(
    r"^(image|picture|audio|molecule|protein|trajectory|trajectories|series|video|fasta|smiles)s?$"
)
HF_NAMES = ("training/task_aliases.py", "check/transformers_parity.py")  # names of Hugging Face


@pytest.mark.parametrize("folder", MODALITY_FREE)
def test_no_modality_is_named(folder):
    """Not by an import, an identifier or a string; `text` is also the word for a string of characters."""
    named = []
    for file in sorted((PACKAGE / folder).rglob("*.py")):
        if str(file.relative_to(PACKAGE)) in HF_NAMES:
            continue
        for node in ast.walk(parse(file)):
            names = [part for name in identifiers(node) for part in re.findall("[A-Z]?[a-z]+", name or "")]
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regard.modalities."):
                named += [
                    f"{file.relative_to(ROOT)}: {node.module}" for part in node.module.split(".") if part in MODALITIES
                ]
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names += [node.value] if node.value in MODALITIES and node.value != "text" else []
            named += [f"{file.relative_to(ROOT)}:{node.lineno}: {n}" for n in names if MODALITY_WORD.match(n.lower())]
    assert named == []


@file_cases
def test_no_ability(file):
    assert not re.search(r"\babilit(y|ies)\b", file.read_text(encoding="utf-8"), re.IGNORECASE)


MAX_ANY = 8  # explicit Any in 1,000 lines


def test_any_is_rare():
    """Outside of the kernels, which are generated code; a use of an alias of Any counts as one."""
    trees = {file: parse(file) for file in FILES if "kernels" not in file.parts}
    aliases = {"Any"}
    for _ in range(3):  # aliases of aliases
        for node in (node for tree in trees.values() for node in tree.body):
            is_alias = isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp | ast.Name)
            if is_alias and aliases & {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}:
                aliases |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    uses = [
        node
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in aliases
    ]
    lines = sum(file.read_text(encoding="utf-8").count("\n") for file in trees)
    assert len(uses) <= MAX_ANY * lines / 1000


def test_help_does_not_import_torch():
    code = "import sys; from regard.cli import main; main(['--help']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("fit", OPTIONS, ids="-".join)
def test_the_options_of_train_are_frozen(fit):
    """A new option needs a reason why it is not a new class; then it is added here."""
    task, model, *modality = fit
    actual = options(task, model, next(iter(MODELS[model].sizes)), *modality)
    unused = MODALITIES[(modality or MODELS[model].inputs)[0]].unused_options
    expected = {*COMMON.split(), *OPTIONS[fit].split()} - {*map(option_flag, unused)}
    assert {*map(option_flag, actual)} == expected
    assert [name for name, option in actual.items() if not option.help] == []
