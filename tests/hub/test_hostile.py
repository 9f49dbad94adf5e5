"""Folders that were made to do harm: each is refused by a message that names the file, and none of its code is run."""

import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.data.tokenizer_train import GPT_LAYOUT, TokenizerOptions, train_tokenizer
from regard.engine.arena import no_init_weights
from regard.hub.folder import read_config, write_config, write_weights
from regard.hub.tables import KNOWN
from regard.hub.weights import INDEX, WHOLE
from regard.load import load
from regard.models import MODELS
from regard.purpose import write_task
from regard.tasks.write import Write

TEXT = "the quick brown fox jumps over the lazy dog"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A folder that writes text, and loads."""
    folder = tmp_path_factory.mktemp("good")
    task = Write(tokenizer=train_tokenizer([TEXT], TokenizerOptions("characters"), GPT_LAYOUT))
    family = MODELS["gpt"]
    config = family.config(
        vocab=len(task.tokenizer), context=11, layers=1, hidden=20, dim=12, heads=3, pad=task.tokenizer.pad_token_id
    )
    torch.manual_seed(1)
    model = task.head(family.bodies["writes"](config))
    write_config(folder, model)
    write_weights(folder / WHOLE, model)
    write_task(folder, task)
    assert load(folder, "cpu")("the ")
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def folder(good: dict[str, bytes], tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    for name, content in good.items():
        (tmp_path / "folder" / name).write_bytes(content)
    return tmp_path / "folder"


def refused(folder: Path, file: str, *words: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        load(folder, "cpu")
    told = str(refusal.value)
    assert file in told, told
    assert all(word in told for word in words), told
    assert len(told) < 1000, "one clear message"
    assert told.isprintable()


# The weights


def cut(content: bytes) -> tuple[dict[str, Any], bytes]:
    length = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:length]), content[length:]


def bound(header: bytes | dict[str, Any], numbers: bytes) -> bytes:
    told = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(told)) + told + numbers


def edited(change: Callable[[dict[str, Any], str, str], Any]) -> Callable[[bytes], bytes]:
    """The header after a change to it; given are also the names of the tensors that come first and second."""

    def edit(content: bytes) -> bytes:
        header, numbers = cut(content)
        header.pop("__metadata__", None)
        first, second = sorted(header, key=lambda name: header[name]["data_offsets"])[:2]
        made = change(header, first, second)
        return bound(header if made is None else made, numbers)

    return edit


def told(key: str, value: Any) -> Callable[[bytes], bytes]:
    """The first tensor says something else about itself."""
    return edited(lambda header, first, second: header[first].update({key: value}))


def moved(begin: int, end: int) -> Callable[[bytes], bytes]:
    """The second tensor lies elsewhere."""

    def move(header: dict[str, Any], first: str, second: str) -> None:
        span = header[second]["data_offsets"]
        header[second]["data_offsets"] = [span[0] + begin, span[1] + end]

    return edited(move)


def twice(content: bytes) -> bytes:
    header, numbers = cut(content)
    name = next(name for name in header if name != "__metadata__")
    return bound(json.dumps(header)[:-1].encode() + b"," + json.dumps({name: header[name]})[1:].encode(), numbers)


def crowd(content: bytes) -> bytes:
    header, numbers = cut(content)
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return bound(header | {f"transformer.h.{i}.x": empty for i in range(100_000)}, numbers)


def renamed(name: str) -> Callable[[bytes], bytes]:
    return edited(lambda header, first, second: header.update({name: header.pop(first)}))


class Canary:
    """A pickle that leaves a mark if it is ever opened."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ.get("CANARY", "canary"),)


def zipped(content: bytes) -> bytes:
    from io import BytesIO

    with zipfile.ZipFile(stream := BytesIO(), "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Canary()))
        archive.writestr("archive/data/0", content)
    return stream.getvalue()


WEIGHTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda c: b"", "only 0 bytes"),
    "seven bytes": (lambda c: c[:7], "only 7 bytes"),
    "length alone": (lambda c: c[:8], "only 8 bytes"),
    "header of length 0": (lambda c: struct.pack("<Q", 0) + c[8:], "cannot be read"),
    "header of length 7": (lambda c: struct.pack("<Q", 7) + c[8:], "cannot be read"),
    "header of length 2^63": (lambda c: struct.pack("<Q", 2**63) + c[8:], "9,223,372,036,854,775,808"),
    "header of length 2^64 - 1": (lambda c: b"\xff" * 8 + c[8:], "18,446,744,073,709,551,615"),
    "header as long as the file": (lambda c: struct.pack("<Q", len(c)) + c[8:], "header would have"),
    "header over 100 MB": (lambda c: struct.pack("<Q", 100_000_001) + c[8:], "header would have 100,000,001"),
    "no JSON": (lambda c: bound(b"{not json}", cut(c)[1]), "cannot be read as safetensors"),
    "a list": (lambda c: bound(b"[1, 2]", cut(c)[1]), "does not begin with {"),
    "cut header": (lambda c: bound(json.dumps(cut(c)[0]).encode()[:-9], cut(c)[1]), "cannot be read"),
    "deep JSON": (lambda c: bound(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, cut(c)[1]), "recursion"),
    "deep shape": (told("shape", [[[[1]]]]), "a shape is a list"),
    "two headers": (lambda c: bound(json.dumps(cut(c)[0]).encode() * 2, cut(c)[1]), "Extra data"),
    "a key twice": (twice, "is there twice"),
    "overlap": (moved(-4, -4), "begins at byte"),
    "gap": (moved(4, 4), "begins at byte"),
    "bytes after the end": (lambda c: c + b"\0" * 4, "cut off, or too long"),
    "a zip after the end": (lambda c: c + zipped(c), "cut off, or too long"),
    "cut off": (lambda c: c[:-4], "cut off, or too long"),
    "nothing after the header": (lambda c: c[: len(c) - len(cut(c)[1])], "cut off, or too long"),
    "negative offset": (told("data_offsets", [-4, 4]), "data_offsets"),
    "offsets the wrong way": (told("data_offsets", [8, 0]), "data_offsets"),
    "offsets of 2^64": (told("data_offsets", [0, 2**64]), "data_offsets"),
    "three offsets": (told("data_offsets", [0, 4, 8]), "data_offsets"),
    "offsets that are text": (told("data_offsets", "ab"), "data_offsets"),
    "negative shape": (told("shape", [-3, -4]), "a shape is a list"),
    "broken shape": (told("shape", [1.5]), "a shape is a list"),
    "true shape": (told("shape", [True]), "a shape is a list"),
    "no shape": (told("shape", None), "a shape is a list"),
    "endless shape": (told("shape", [10**30]), "a shape is a list"),
    "shape that overflows": (told("shape", [2**32, 2**32]), "bytes do not hold the shape"),
    "shape of 10^12": (told("shape", [10**6, 10**6]), "bytes do not hold the shape"),
    "shape of 10^5 dimensions": (told("shape", [1] * 100_000), "at most 8"),
    "type of another size": (told("dtype", "F16"), "bytes do not hold the shape"),
    "unknown type": (told("dtype", "F128"), "F128"),
    "type that is a list": (told("dtype", []), "of the type"),
    "more to tell": (told("code", "import os"), "nothing else"),
    "less to tell": (edited(lambda h, a, b: h[a].pop("dtype") and None), "nothing else"),
    "a tensor that is none": (edited(lambda h, a, b: h.update({a: 7})), "must have a dtype"),
    "nothing inside another": (
        edited(lambda h, a, b: h.update(x={"dtype": "F32", "shape": [0], "data_offsets": [4, 4]})),
        "begins at byte 4",
    ),
    "NaN": (told("shape", [float("nan")]), "is not a number"),
    "notes that are numbers": (edited(lambda h, a, b: h.update(__metadata__={"a": 1})), "__metadata__"),
    "notes that are a list": (edited(lambda h, a, b: h.update(__metadata__=[])), "__metadata__"),
    "a number of 10^5 digits": (lambda c: bound(b'{"a": ' + b"9" * 100_000 + b"}", cut(c)[1]), "digits"),
    "not UTF-8": (lambda c: bound(b'{"\xff\xfe": 1}', cut(c)[1]), "decode"),
    "half a character": (edited(lambda h, a, b: b'{"\\ud800": 1}'), "surrogates"),
    "a name that clears the screen": (renamed("\x1b[2J"), "is no name"),
    "a name of 10^5 letters": (renamed("x" * 100_000), "is no name"),
    "10^5 tensors": (crowd, "tensors, but the weights are"),
    "a pickle": (lambda c: pickle.dumps(Canary(), 4), "pickle"),
    "an old pickle": (lambda c: pickle.dumps(Canary(), 0), "cannot be read"),
    "a zipped pickle": (zipped, "pickle"),
    "GGUF": (lambda c: b"GGUF\3\0\0\0" + c, "GGUF"),
    "HDF5": (lambda c: b"\x89HDF\r\n\x1a\n" + c, "TensorFlow"),
    "a note of git": (lambda c: b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull"),
}


@pytest.mark.parametrize(("change", "word"), WEIGHTS.values(), ids=WEIGHTS)
def test_a_hostile_file_of_weights_is_refused(change: Callable[[bytes], bytes], word: str, folder: Path) -> None:
    content = (folder / WHOLE).read_bytes()
    (folder / WHOLE).write_bytes(change(content))
    refused(folder, "config.json" if "the weights are" in word else WHOLE, word)


def test_a_header_of_200_MB_that_is_really_there_is_refused(folder: Path) -> None:
    (folder / WHOLE).write_bytes(struct.pack("<Q", 200_000_000) + b"{")
    os.truncate(folder / WHOLE, 300_000_000)
    refused(folder, WHOLE, "at most 25,000,000 are allowed")


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("pytorch_model.bin", ("only as a pickle", "safe_serialization=True", "revision")),
        ("pytorch_model-00001-of-00002.bin", ("only as a pickle",)),
        *((f"model.{kind}", ("only as a pickle",)) for kind in ("pt", "pth", "ckpt", "pkl", "bin")),
        ("tf_model.h5", ("TensorFlow",)),
        ("flax_model.msgpack", ("Flax",)),
        ("model-q4.gguf", ("GGUF",)),
        ("model.onnx", ("ONNX",)),
        ("adapter_model.safetensors", ("safetensors under another name",)),
        ("README.md", ("has no weights",)),
    ],
)
def test_weights_in_other_forms_are_named_and_refused(file: str, words: tuple[str, ...], folder: Path) -> None:
    (folder / WHOLE).unlink()
    (folder / file).write_bytes(pickle.dumps(Canary()))
    refused(folder, "folder" if file == "README.md" else file, *words)


def test_a_pickle_beside_the_weights_is_left_alone(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Canary()))
    assert load(folder, "cpu")("the ")


# Files that are none


def link(place: str) -> Callable[[Path], None]:
    return lambda file: file.symlink_to(place)


NOT_FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe": (os.mkfifo, "a pipe or a device"),
    "folder": (lambda file: file.mkdir(), "it is a folder"),
    "endless": (link("/dev/zero"), "a pipe or a device"),
    "silent": (link("/dev/tty"), ""),
    "link out": (link("/etc/passwd"), "a link out of its folder"),
    "link up": (link("../../../../../../../../etc/passwd"), "a link out of its folder"),
    "link to itself": (lambda file: file.symlink_to(file), "cannot be read"),
    "link to nothing": (link("nothing"), "cannot be read"),
    "link to a pipe": (lambda file: (os.mkfifo(file.parent / "pipe"), file.symlink_to("pipe"))[-1], "a pipe"),
}


@pytest.mark.parametrize("file", ["config.json", WHOLE, INDEX, "shard.safetensors", "generation_config.json"])
@pytest.mark.parametrize(("make", "word"), NOT_FILES.values(), ids=NOT_FILES)
def test_what_is_no_file_of_the_folder_is_refused_without_waiting(
    make: Callable[[Path], None], word: str, file: str, folder: Path
) -> None:
    if file == "shard.safetensors":
        (folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(load_file(folder / WHOLE), file)}))
        (folder / WHOLE).unlink()
    (folder / (WHOLE if file == INDEX else file)).unlink(missing_ok=True)
    make(folder / file)
    refused(folder, file, word)


# The index


def shard(folder: Path, files: Any, name: str = "a.safetensors") -> None:
    tensors = load_file(folder / WHOLE)
    (folder / WHOLE).rename(folder / name)
    listed = files if isinstance(files, dict) else dict.fromkeys(tensors, files)
    (folder / INDEX).write_text(json.dumps({"weight_map": listed}))


@pytest.mark.parametrize(
    "name",
    [
        "../outside.safetensors", "/etc/passwd", "/tmp/a.safetensors", "sub/a.safetensors", "..", ".", "", "a", "a.bin",
        "a.safetensors/", "./a.safetensors", "..\\a.safetensors", "C:\\a.safetensors", "a.safetensors\0",
        "~/a.safetensors", "a\n.safetensors", "file:///a.safetensors", "..%2fa.safetensors",
        None, 7, ["a.safetensors"], {"a": 1},
    ],
    ids=repr,
)  # fmt: skip
def test_an_index_may_name_only_plain_files_of_its_folder(name: Any, folder: Path) -> None:
    (folder.parent / "outside.safetensors").write_bytes((folder / WHOLE).read_bytes())
    shard(folder, name)
    refused(folder, INDEX, "is not the plain name of a safetensors file")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "must hold a JSON object"),
        ("{}", "no weight_map"),
        ('{"weight_map": []}', "no weight_map"),
        ('{"weight_map": {}}', "no weight_map"),
        ('{"weight_map": {"a": "a.safetensors", "a": "b.safetensors"}}', "is there twice"),
        ('{"weight_map": {"a": "a.safetensors"}, "metadata": {"total_size": 1e400}}', "is not a number"),
        ('{"weight_map": {"a": "b.safetensors"}}', "names b.safetensors, which is not in its folder"),
        ('{"weight_map": {"a": "a.safetensors"}}', "does not list it"),
    ],
)
def test_a_hostile_index_is_refused(content: str, word: str, folder: Path) -> None:
    shard(folder, "a.safetensors")
    (folder / INDEX).write_text(content)
    refused(folder, INDEX, word)


def test_a_pickle_among_the_shards_is_refused(folder: Path) -> None:
    shard(folder, "a.safetensors")
    (folder / "a.safetensors").write_bytes(zipped(b""))
    refused(folder, "a.safetensors", "pickle")


# config.json


def keyed(**change: Any) -> Callable[[str], str]:
    return lambda text: json.dumps(json.loads(text) | change)


def raw(key: str, value: str) -> Callable[[str], str]:
    """A value that JSON cannot have, in its place."""
    return lambda text: json.dumps(json.loads(text) | {key: "HERE"}).replace('"HERE"', value)


CONFIGS: dict[str, tuple[Callable[[str], str], str]] = {
    "empty": (lambda text: "", "cannot be read as JSON"),
    "a list": (lambda text: f"[{text}]", "must hold a JSON object"),
    "a pickle": (lambda text: pickle.dumps(Canary(), 0).decode(), "cannot be read as JSON"),
    "Python": (lambda text: "__import__('os').mkdir('canary')", "cannot be read as JSON"),
    "zeros": (lambda text: "\0" * 100, "cannot be read as JSON"),
    "cut off": (lambda text: text[:-3], "cannot be read as JSON"),
    "two of them": (lambda text: text * 2, "cannot be read as JSON"),
    "a mark in front": (lambda text: "\ufeff" + text, "cannot be read as JSON"),
    "half a character": (lambda text: text.replace("gpt2", "\\ud800", 1), "surrogates"),
    "10^5 levels": (lambda text: '{"a":' * 100_000 + "1" + "}" * 100_000, "cannot be read as JSON"),
    "500 levels": (raw("a", "[" * 500 + "]" * 500), "levels deep"),
    "a key twice": (lambda text: '{"n_layer": 1, ' + text.lstrip()[1:], "'n_layer' is there twice"),
    "a key twice inside": (raw("a", '{"b": 1, "b": 2}'), "'b' is there twice"),
    "NaN": (raw("n_embd", "NaN"), "NaN is not a number"),
    "NaN that we do not use": (raw("a", "[NaN]"), "NaN is not a number"),
    "infinite": (raw("resid_pdrop", "-Infinity"), "-Infinity is not a number"),
    "1e400": (raw("layer_norm_epsilon", "1e400"), "1e400 is not a number"),
    "10^5 digits": (raw("n_embd", "9" * 100_000), "digits"),
    "10^4 digits after the point": (raw("n_embd", "0." + "9" * 10_000), "dim must be a int"),
    "no model_type": (keyed(model_type=None), 'add "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]'),
    "a number for model_type": (keyed(model_type=7), "marian"),
    "a list for model_type": (keyed(model_type=["gpt2"]), "marian"),
    "a model_type nearby": (keyed(model_type="gpt-2"), "did you mean gpt2? regard reads marian"),
    "a model_type of its own": (keyed(model_type="x", auto_map={"AutoModel": "modeling_x.X"}), "regard reads marian"),
    "width 10^9": (keyed(n_embd=3 * 10**9), "dim is 3,000,000,000"),
    "width 10^100": (keyed(n_embd=3 * 10**100), "dim is 3"),
    "width -12": (keyed(n_embd=-12), "dim must be at least 1"),
    "width 0": (keyed(n_embd=0), "dim must be at least 1"),
    "width of text": (keyed(n_embd="12"), "dim must be a int"),
    "width of lists": (keyed(n_embd=[12]), "dim must be a int"),
    "width 12.0": (keyed(n_embd=12.0), "dim must be a int"),
    "width true": (keyed(n_embd=True), "dim must be a int"),
    "no width": (keyed(n_embd=None), "n_embd"),
    "inner width 10^15": (keyed(n_inner=10**15), "hidden is 1,000,000,000,000,000"),
    "inner width 2^22": (keyed(n_inner=2**22), "these sizes ask for"),
    "10^6 layers": (keyed(n_layer=10**6), "layers is 1,000,000"),
    "10^18 layers": (keyed(n_layer=10**18), "layers is"),
    "-1 layers": (keyed(n_layer=-1), "layers must be"),
    "vocabulary 10^12": (keyed(vocab_size=10**12), "vocab is 1,000,000,000,000"),
    "another vocabulary": (keyed(vocab_size=20), "vocab"),
    "context 2^40": (keyed(n_positions=2**40), "context is"),
    "context 2^23": (keyed(n_positions=2**23), "these sizes ask for"),
    "heads that do not divide": (keyed(n_head=5), "must divide"),
    "0 heads": (keyed(n_head=0), "heads must be at least 1"),
    "10^9 heads": (keyed(n_head=10**9), "heads"),
    "dropout 7": (keyed(resid_pdrop=7.0), "dropout must be"),
    "dropout of text": (keyed(resid_pdrop="0"), "dropout must be"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "word"), CONFIGS.values(), ids=CONFIGS)
def test_a_hostile_config_is_refused(change: Callable[[str], str], word: str, folder: Path) -> None:
    file = folder / "config.json"
    file.write_text(change(file.read_text(encoding="utf-8")), encoding="utf-8")
    refused(folder, "folder" if word == "vocab" else "config.json", word)


def test_a_config_in_another_encoding_is_refused(folder: Path) -> None:
    file = folder / "config.json"
    file.write_bytes(file.read_text().encode("utf-16"))
    refused(folder, "config.json", "cannot be read as JSON")


def test_a_config_of_a_gigabyte_is_not_even_read(folder: Path) -> None:
    os.truncate(folder / "config.json", 2**30)
    refused(folder, "config.json", "1,073,741,824 bytes")


def test_generation_config_is_read_as_carefully(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": NaN}')
    refused(folder, "generation_config.json", "NaN is not a number")


VALUES = [10**9, 10**40, -1, 0, 1.5, 1e308, True, None, "x", [], {"a": 1}]


@pytest.mark.parametrize("family", KNOWN)
def test_every_key_of_every_family_is_read_or_refused_whatever_it_says(family: str, tmp_path: Path) -> None:
    """No other error, and nothing of that size is ever made."""
    names = KNOWN[family]
    kind = MODELS[names.model]
    sizes = {
        "vocab": 19,
        "context": 11,
        "dim": 24,
        "heads": 6,
        "image": 8,
        "patch": 4,
        "image_dim": 16,
        "image_heads": 4,
    }
    sizes |= dict.fromkeys(("layers", "encoder_layers", "decoder_layers", "image_layers"), 1) | {
        "hidden": 20,
        "joint": 6,
    }
    known = kind.config.__dataclass_fields__
    config = kind.config(**{key: value for key, value in (sizes | names.ours).items() if key in known})
    body = next(iter(kind.bodies.values()))(config)
    save_file(
        names.to_theirs({f"body.{key}": tensor.detach() for key, tensor in body.named_parameters()}), tmp_path / WHOLE
    )
    said = names.config_to_theirs(asdict(config))
    inner = [f"{key}.{name}" for key, value in said.items() if isinstance(value, dict) for name in value]
    for key in [*said, *inner, *(old for before in names.older.values() for old in before)]:
        for value in VALUES:
            changed = json.loads(json.dumps(said))
            *path, last = key.split(".")
            inside = changed
            for part in path:
                inside = inside.setdefault(part, {}) if isinstance(inside.get(part, {}), dict) else {}
            inside[last] = value
            (tmp_path / "config.json").write_text(json.dumps(changed))
            try:
                with no_init_weights():  # as in `load`
                    read_config(tmp_path)
            except ValueError as refusal:
                assert str(tmp_path) in str(refusal), (key, value)  # noqa: PT017


# Code

CODE = "import os\nos.mkdir(os.environ['CANARY'])\n"
PLACES = (
    "modeling_evil.py", "configuration_evil.py", "tokenization_evil.py", "processing_evil.py", "__init__.py",
    "sitecustomize.py", "usercustomize.py", "conftest.py", "setup.py", "handler.py", "pipeline.py", "torch.py",
    "regard.py", "json.py", "safetensors.py", "evil.pth", "custom_generate/generate.py", "regard/__init__.py",
)  # fmt: skip
PICKLES = ("pytorch_model.bin", "training_args.bin", "tokenizer.pkl", "tokenizer.model", "scheduler.pt", "vocab.pkl")
WATCH = """
import os, sys
from regard.load import load

clean, *folders = sys.argv[1:]
run, seen = ("os.system", "subprocess.Popen", "pickle.find_class", "os.mkdir", "os.exec", "socket.connect"), []


def watch(event, args):
    told = [str(getattr(one, "co_filename", one)) for one in args if one is not None]
    inside = any(folder in one for folder in folders for one in told)
    ran = event in ("compile", "exec", "import", "ctypes.dlopen")
    ran |= event == "open" and told[0].endswith((".py", ".pyc", ".pth", ".so", ".bin", ".pkl", ".pt"))
    if event in run or (inside and ran) or (event == "import" and "evil" in told[0]):
        seen.append((event, told))


load(clean, "cpu")("t")  # what is imported only when it is needed is imported now
sys.addaudithook(watch)
for folder in folders:
    seen.clear()
    try:
        said = "loaded " + load(folder, "cpu")("t")[:0]
    except ValueError as error:
        said = "refused"
    print(said.strip(), seen)
"""


def test_no_code_of_a_folder_is_ever_run(folder: Path, tmp_path: Path) -> None:
    """Canaries in every place that other libraries run, in a folder that loads and in folders that are refused."""
    clean = tmp_path / "clean"
    evil = [folder, *(tmp_path / name for name in ("typed", "pickled", "tokens"))]
    for other in (clean, *evil[1:]):
        other.mkdir()
        for file in folder.iterdir():
            (other / file.name).write_bytes(file.read_bytes())
    for other in evil:
        for name in PLACES:
            (other / name).parent.mkdir(exist_ok=True)
            (other / name).write_text("import evil" if name.endswith(".pth") else CODE)
        for name in PICKLES:
            (other / name).write_bytes(pickle.dumps(Canary()))
        classes = ("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoTokenizer", "AutoProcessor")
        mapped = {"auto_map": dict.fromkeys(classes, "modeling_evil.Evil"), "trust_remote_code": True}
        mapped |= {
            "custom_pipelines": {"evil": {"impl": "pipeline.Evil"}},
            "sub_config": mapped | {"model_type": "evil"},
        }
        for name in ("config.json", "generation_config.json", "tokenizer_config.json", "task.json"):
            (other / name).write_text(json.dumps(json.loads((other / name).read_text()) | mapped))
    said = json.loads((evil[1] / "config.json").read_text())
    (evil[1] / "config.json").write_text(json.dumps(said | {"model_type": "evil"}))
    (evil[2] / WHOLE).write_bytes(pickle.dumps(Canary()))
    (evil[3] / "tokenizer.json").write_bytes(pickle.dumps(Canary()))
    done = subprocess.run(
        [sys.executable, "-c", WATCH, str(clean), *map(str, evil)],
        capture_output=True, text=True, cwd=clean, env=os.environ | {"CANARY": str(tmp_path / "canary")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["loaded []", *["refused []"] * 3]
    assert not (tmp_path / "canary").exists()


# Memory

MEASURE = """
import resource, sys
from regard.load import load

load(sys.argv[1], "cpu")("t")
for folder in sys.argv[2:]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        load(folder, "cpu")
    except ValueError as error:
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
HEAVY = (
    "deep JSON",
    "10^5 tensors",
    "shape that overflows",
    "shape of 10^12",
    "a zipped pickle",
    "a name of 10^5 letters",
)


def test_what_is_refused_takes_no_memory(folder: Path, good: dict[str, bytes], tmp_path: Path) -> None:
    contents = [good | {WHOLE: WEIGHTS[name][0](good[WHOLE])} for name in HEAVY]
    text = good["config.json"].decode()
    heavy = [name for name, (_, word) in CONFIGS.items() if " is " in word or "ask for" in word or "levels" in name]
    contents += [good | {"config.json": CONFIGS[name][0](text).encode()} for name in heavy]
    contents += [good | {WHOLE: struct.pack("<Q", 24_000_000) + b"{"}, good | {"config.json": b"{"}]
    for i, files in enumerate(contents):
        (tmp_path / str(i)).mkdir()
        for name, content in files.items():
            (tmp_path / str(i) / name).write_bytes(content)
    os.truncate(tmp_path / str(len(contents) - 2) / WHOLE, 2**31)
    os.truncate(tmp_path / str(len(contents) - 1) / "config.json", 2**31)
    folders = [str(tmp_path / str(i)) for i in range(len(contents))]
    done = subprocess.run([sys.executable, "-c", MEASURE, str(folder), *folders], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    grown = [*map(int, done.stdout.split())]
    assert len(grown) == len(contents) > 15
    assert max(grown) < 50, grown


# The tokenizer


def pieces(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    def edit(text: str) -> str:
        told = json.loads(text)
        change(told)
        return json.dumps(told)

    return edit


TOKENIZERS: dict[str, Callable[[str], str]] = {
    "empty": lambda text: "",
    "a list": lambda text: "[]",
    "cut off": lambda text: text[:-9],
    "Python": lambda text: "__import__('os').mkdir('canary')",
    "10^5 levels": lambda text: '{"a":' * 100_000 + "1" + "}" * 100_000,
    "an id of 2^32 - 1": pieces(lambda t: t["model"]["vocab"].update(evil=2**32 - 1)),
    "an id of 2^40": pieces(lambda t: t["model"]["vocab"].update(evil=2**40)),
    "a negative id": pieces(lambda t: t["model"]["vocab"].update(evil=-1)),
    "no model": pieces(lambda t: t.pop("model")),
    "a model of its own": pieces(lambda t: t["model"].update(type="Evil")),
    "no vocabulary": pieces(lambda t: t["model"].pop("vocab")),
    "more pieces than the model": pieces(lambda t: t["model"]["vocab"].update(evil=len(t["model"]["vocab"]))),
}


@pytest.mark.parametrize("change", TOKENIZERS.values(), ids=TOKENIZERS)
def test_a_hostile_tokenizer_is_refused(change: Callable[[str], str], folder: Path) -> None:
    file = folder / "tokenizer.json"
    file.write_text(change(file.read_text(encoding="utf-8")), encoding="utf-8")
    refused(folder, "folder")


def steps(kind: str, *more: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", kind: [*more]}


def swap(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


TWICE = [swap("ee", String="e")] * 40
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
GROWING: dict[str, dict[str, Any]] = {
    "replaced": {"normalizer": steps("normalizers", *TWICE)},
    "nested": {"normalizer": steps("normalizers", *[steps("normalizers", *TWICE[:8])] * 5)},
    "in turns": {"normalizer": steps("normalizers", *[swap("oo", String="e"), swap("ee", String="o")] * 20)},
    "by an expression": {"normalizer": steps("normalizers", *[swap("$0$0", Regex="e|$")] * 40)},
    "all at once": {"normalizer": swap("e" * 10**6, String="e" * 1000)},
    "decoded": {"decoder": steps("decoders", *TWICE)},
    "bytes as letters": {"normalizer": steps("normalizers", swap("\u0101", String="e"), *[{"type": "ByteLevel"}] * 40)},
    "words of bytes": {
        "normalizer": swap("\u0101", String="e"),
        "pre_tokenizer": steps("pretokenizers", *[BYTES] * 40),
    },
}
LIMITED = """
import resource, sys
from regard.load import load

load(sys.argv[1], "cpu")("t")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20),) * 2)
for folder in sys.argv[2:]:
    try:
        load(folder, "cpu")("the e")
        print("loaded")
    except ValueError as error:
        print(error)
"""


def test_a_tokenizer_that_makes_texts_grow_is_refused(folder: Path, good: dict[str, bytes], tmp_path: Path) -> None:
    """In a process that gets 300 MB more than the good folder took."""
    harmless = [swap("1/2", String="\u00bd"), swap("TM", String="\u2122"), swap("...", String="\u2026")] * 5
    harmless += [swap(" ", Regex=" {2,}"), {"type": "NFKD"}]
    tokenizer = json.loads(good["tokenizer.json"])
    told = [*GROWING.values(), {"normalizer": steps("normalizers", *harmless)}]
    for i, parts in enumerate(told):
        (tmp_path / str(i)).mkdir()
        for name, content in (good | {"tokenizer.json": json.dumps(tokenizer | parts).encode()}).items():
            (tmp_path / str(i) / name).write_bytes(content)
    folders = [str(tmp_path / str(i)) for i in range(len(told))]
    done = subprocess.run([sys.executable, "-c", LIMITED, str(folder), *folders], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *refusals, last = done.stdout.splitlines()
    assert last == "loaded"
    for said, where, parts in zip(refusals, folders, told, strict=False):
        part = "decoder" if "decoder" in parts else "normalizer"
        wanted = f"{where}/tokenizer.json is not a tokenizer: its {part} can expand one character to over 128"
        assert said == f"{wanted}, which is the limit"


def test_a_file_of_a_tokenizer_that_is_too_large_is_not_even_read(folder: Path) -> None:
    (folder / "extra.model").touch()
    os.truncate(folder / "extra.model", 2**31)
    refused(folder, "extra.model", "at most 134,217,728 are read")
