"""Hostile folders: each is refused by a message that names the file, and none of its code is run."""

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
from regard.hub.tables import HF_FAMILIES
from regard.hub.task_config import write_task
from regard.hub.weights import SAFE_INDEX, SAFE_WEIGHTS
from regard.load import load
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.models import MODELS
from regard.tasks.write import Write

TEXT = "the quick brown fox jumps over the lazy dog"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a folder that loads."""
    folder = tmp_path_factory.mktemp("good")
    tokenizer = train_tokenizer([TEXT], TokenizerOptions("characters"), GPT_LAYOUT)
    task = Write(preprocessor=TextPreprocessor(tokenizer))
    family = MODELS["gpt"]
    config = family.config(
        vocab=len(tokenizer), context=11, layers=1, hidden=20, dim=12, heads=3, pad=tokenizer.pad_token_id
    )
    torch.manual_seed(1)
    model = task.head(family.bodies["decoder"](config))
    write_config(folder, model)
    write_weights(folder / SAFE_WEIGHTS, model)
    write_task(folder, task)
    assert load(folder, "cpu")("the ")
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def folder(good: dict[str, bytes], tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    for name, content in good.items():
        (tmp_path / "folder" / name).write_bytes(content)
    return tmp_path / "folder"


def assert_refused(folder: Path, file: str, *words: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        load(folder, "cpu")
    message = str(refusal.value)
    assert file in message, message
    assert all(word in message for word in words), message
    assert len(message) < 1000, "one clear message"
    assert message.isprintable()


# The weights


def split_file(content: bytes) -> tuple[dict[str, Any], bytes]:
    length = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:length]), content[length:]


def join_file(header: bytes | dict[str, Any], data: bytes) -> bytes:
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(content)) + content + data


def edit_header(change: Callable[[dict[str, Any], str, str], Any]) -> Callable[[bytes], bytes]:
    """Edits the header; `change` gets it and the names of the first two tensors."""

    def edit(content: bytes) -> bytes:
        header, data = split_file(content)
        header.pop("__metadata__", None)
        first, second = sorted(header, key=lambda name: header[name]["data_offsets"])[:2]
        replaced = change(header, first, second)
        return join_file(header if replaced is None else replaced, data)

    return edit


def with_entry(key: str, value: Any) -> Callable[[bytes], bytes]:
    """Replaces a value in the first tensor's entry."""
    return edit_header(lambda header, first, second: header[first].update({key: value}))


def move_second(begin: int, end: int) -> Callable[[bytes], bytes]:
    """Moves the second tensor's offsets."""

    def move(header: dict[str, Any], first: str, second: str) -> None:
        span = header[second]["data_offsets"]
        header[second]["data_offsets"] = [span[0] + begin, span[1] + end]

    return edit_header(move)


def duplicate_entry(content: bytes) -> bytes:
    header, data = split_file(content)
    name = next(name for name in header if name != "__metadata__")
    return join_file(json.dumps(header)[:-1].encode() + b"," + json.dumps({name: header[name]})[1:].encode(), data)


def many_entries(content: bytes) -> bytes:
    header, data = split_file(content)
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return join_file(header | {f"transformer.h.{i}.x": empty for i in range(100_000)}, data)


def rename_first(name: str) -> Callable[[bytes], bytes]:
    return edit_header(lambda header, first, second: header.update({name: header.pop(first)}))


class Canary:
    """A pickle that creates a folder when opened."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ.get("CANARY", "canary"),)


def zip_pickle(content: bytes) -> bytes:
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
    "no JSON": (lambda c: join_file(b"{not json}", split_file(c)[1]), "cannot be read as safetensors"),
    "a list": (lambda c: join_file(b"[1, 2]", split_file(c)[1]), "does not begin with {"),
    "cut header": (lambda c: join_file(json.dumps(split_file(c)[0]).encode()[:-9], split_file(c)[1]), "cannot be read"),
    "deep JSON": (lambda c: join_file(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, split_file(c)[1]), "recursion"),
    "deep shape": (with_entry("shape", [[[[1]]]]), "a shape is a list"),
    "two headers": (lambda c: join_file(json.dumps(split_file(c)[0]).encode() * 2, split_file(c)[1]), "Extra data"),
    "a key twice": (duplicate_entry, "occurs twice"),
    "overlap": (move_second(-4, -4), "begins at byte"),
    "gap": (move_second(4, 4), "begins at byte"),
    "bytes after the end": (lambda c: c + b"\0" * 4, "cut off, or too long"),
    "a zip after the end": (lambda c: c + zip_pickle(c), "cut off, or too long"),
    "cut off": (lambda c: c[:-4], "cut off, or too long"),
    "nothing after the header": (lambda c: c[: len(c) - len(split_file(c)[1])], "cut off, or too long"),
    "negative offset": (with_entry("data_offsets", [-4, 4]), "data_offsets"),
    "offsets the wrong way": (with_entry("data_offsets", [8, 0]), "data_offsets"),
    "offsets of 2^64": (with_entry("data_offsets", [0, 2**64]), "data_offsets"),
    "three offsets": (with_entry("data_offsets", [0, 4, 8]), "data_offsets"),
    "offsets that are text": (with_entry("data_offsets", "ab"), "data_offsets"),
    "negative shape": (with_entry("shape", [-3, -4]), "a shape is a list"),
    "broken shape": (with_entry("shape", [1.5]), "a shape is a list"),
    "true shape": (with_entry("shape", [True]), "a shape is a list"),
    "no shape": (with_entry("shape", None), "a shape is a list"),
    "endless shape": (with_entry("shape", [10**30]), "a shape is a list"),
    "shape that overflows": (with_entry("shape", [2**32, 2**32]), "bytes do not hold the shape"),
    "shape of 10^12": (with_entry("shape", [10**6, 10**6]), "bytes do not hold the shape"),
    "shape of 10^5 dimensions": (with_entry("shape", [1] * 100_000), "at most 8"),
    "type of another size": (with_entry("dtype", "F16"), "bytes do not hold the shape"),
    "unknown type": (with_entry("dtype", "F128"), "F128"),
    "type that is a list": (with_entry("dtype", []), "has dtype"),
    "an extra key": (with_entry("code", "import os"), "nothing else"),
    "a missing key": (edit_header(lambda h, a, b: h[a].pop("dtype") and None), "nothing else"),
    "a tensor that is none": (edit_header(lambda h, a, b: h.update({a: 7})), "must have a dtype"),
    "nothing inside another": (
        edit_header(lambda h, a, b: h.update(x={"dtype": "F32", "shape": [0], "data_offsets": [4, 4]})),
        "begins at byte 4",
    ),
    "NaN": (with_entry("shape", [float("nan")]), "is not a number"),
    "notes that are numbers": (edit_header(lambda h, a, b: h.update(__metadata__={"a": 1})), "__metadata__"),
    "notes that are a list": (edit_header(lambda h, a, b: h.update(__metadata__=[])), "__metadata__"),
    "a number of 10^5 digits": (lambda c: join_file(b'{"a": ' + b"9" * 100_000 + b"}", split_file(c)[1]), "digits"),
    "not UTF-8": (lambda c: join_file(b'{"\xff\xfe": 1}', split_file(c)[1]), "decode"),
    "half a character": (edit_header(lambda h, a, b: b'{"\\ud800": 1}'), "surrogates"),
    "a name that clears the screen": (rename_first("\x1b[2J"), "is not a valid tensor name"),
    "a name of 10^5 letters": (rename_first("x" * 100_000), "is not a valid tensor name"),
    "10^5 tensors": (many_entries, "tensors, but the weights are"),
    "a pickle": (lambda c: pickle.dumps(Canary(), 4), "pickle"),
    "an old pickle": (lambda c: pickle.dumps(Canary(), 0), "cannot be read"),
    "a zipped pickle": (zip_pickle, "pickle"),
    "GGUF": (lambda c: b"GGUF\3\0\0\0" + c, "GGUF"),
    "HDF5": (lambda c: b"\x89HDF\r\n\x1a\n" + c, "TensorFlow"),
    "a note of git": (lambda c: b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull"),
}


@pytest.mark.parametrize(("change", "word"), WEIGHTS.values(), ids=WEIGHTS)
def test_a_hostile_file_of_weights_is_refused(change: Callable[[bytes], bytes], word: str, folder: Path) -> None:
    content = (folder / SAFE_WEIGHTS).read_bytes()
    (folder / SAFE_WEIGHTS).write_bytes(change(content))
    assert_refused(folder, "config.json" if "the weights are" in word else SAFE_WEIGHTS, word)


def test_a_header_of_200_MB_is_refused(folder: Path) -> None:
    (folder / SAFE_WEIGHTS).write_bytes(struct.pack("<Q", 200_000_000) + b"{")
    os.truncate(folder / SAFE_WEIGHTS, 300_000_000)
    assert_refused(folder, SAFE_WEIGHTS, "at most 25,000,000 are allowed")


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
def test_weights_in_other_formats_are_refused_by_file_name(file: str, words: tuple[str, ...], folder: Path) -> None:
    (folder / SAFE_WEIGHTS).unlink()
    (folder / file).write_bytes(pickle.dumps(Canary()))
    assert_refused(folder, "folder" if file == "README.md" else file, *words)


def test_a_pickle_beside_the_weights_is_ignored(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Canary()))
    assert load(folder, "cpu")("the ")


# Not regular files


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


@pytest.mark.parametrize(
    "file", ["config.json", SAFE_WEIGHTS, SAFE_INDEX, "shard.safetensors", "generation_config.json"]
)
@pytest.mark.parametrize(("make", "word"), NOT_FILES.values(), ids=NOT_FILES)
def test_pipes_devices_and_outside_links_are_refused_without_blocking(
    make: Callable[[Path], None], word: str, file: str, folder: Path
) -> None:
    if file == "shard.safetensors":
        (folder / SAFE_INDEX).write_text(
            json.dumps({"weight_map": dict.fromkeys(load_file(folder / SAFE_WEIGHTS), file)})
        )
        (folder / SAFE_WEIGHTS).unlink()
    (folder / (SAFE_WEIGHTS if file == SAFE_INDEX else file)).unlink(missing_ok=True)
    make(folder / file)
    assert_refused(folder, file, word)


# The index


def shard(folder: Path, files: Any, name: str = "a.safetensors") -> None:
    tensors = load_file(folder / SAFE_WEIGHTS)
    (folder / SAFE_WEIGHTS).rename(folder / name)
    listed = files if isinstance(files, dict) else dict.fromkeys(tensors, files)
    (folder / SAFE_INDEX).write_text(json.dumps({"weight_map": listed}))


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
    (folder.parent / "outside.safetensors").write_bytes((folder / SAFE_WEIGHTS).read_bytes())
    shard(folder, name)
    assert_refused(folder, SAFE_INDEX, "is not the plain name of a safetensors file")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "must hold a JSON object"),
        ("{}", "no weight_map"),
        ('{"weight_map": []}', "no weight_map"),
        ('{"weight_map": {}}', "no weight_map"),
        ('{"weight_map": {"a": "a.safetensors", "a": "b.safetensors"}}', "occurs twice"),
        ('{"weight_map": {"a": "a.safetensors"}, "metadata": {"total_size": 1e400}}', "is not a number"),
        ('{"weight_map": {"a": "b.safetensors"}}', "names b.safetensors, which is not in its folder"),
        ('{"weight_map": {"a": "a.safetensors"}}', "does not list it"),
    ],
)
def test_a_hostile_index_is_refused(content: str, word: str, folder: Path) -> None:
    shard(folder, "a.safetensors")
    (folder / SAFE_INDEX).write_text(content)
    assert_refused(folder, SAFE_INDEX, word)


def test_a_pickle_among_the_shards_is_refused(folder: Path) -> None:
    shard(folder, "a.safetensors")
    (folder / "a.safetensors").write_bytes(zip_pickle(b""))
    assert_refused(folder, "a.safetensors", "pickle")


# config.json


def with_keys(**change: Any) -> Callable[[str], str]:
    return lambda text: json.dumps(json.loads(text) | change)


def with_raw_value(key: str, value: str) -> Callable[[str], str]:
    """A value that JSON does not allow."""
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
    "500 levels": (with_raw_value("a", "[" * 500 + "]" * 500), "levels deep"),
    "a key twice": (lambda text: '{"n_layer": 1, ' + text.lstrip()[1:], "'n_layer' occurs twice"),
    "a key twice inside": (with_raw_value("a", '{"b": 1, "b": 2}'), "'b' occurs twice"),
    "NaN": (with_raw_value("n_embd", "NaN"), "NaN is not a number"),
    "NaN that we do not use": (with_raw_value("a", "[NaN]"), "NaN is not a number"),
    "infinite": (with_raw_value("resid_pdrop", "-Infinity"), "-Infinity is not a number"),
    "1e400": (with_raw_value("layer_norm_epsilon", "1e400"), "1e400 is not a number"),
    "10^5 digits": (with_raw_value("n_embd", "9" * 100_000), "digits"),
    "10^4 digits after the point": (with_raw_value("n_embd", "0." + "9" * 10_000), "dim must be a int"),
    "no model_type": (with_keys(model_type=None), 'add "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]'),
    "a number for model_type": (with_keys(model_type=7), "marian"),
    "a list for model_type": (with_keys(model_type=["gpt2"]), "marian"),
    "a model_type nearby": (with_keys(model_type="gpt-2"), "did you mean gpt2? regard reads marian"),
    "a model_type of its own": (with_keys(model_type="x", auto_map={"AutoModel": "x.X"}), "regard reads marian"),
    "width 10^9": (with_keys(n_embd=3 * 10**9), "dim is 3,000,000,000"),
    "width 10^100": (with_keys(n_embd=3 * 10**100), "dim is 3"),
    "width -12": (with_keys(n_embd=-12), "dim must be at least 1"),
    "width 0": (with_keys(n_embd=0), "dim must be at least 1"),
    "width of text": (with_keys(n_embd="12"), "dim must be a int"),
    "width of lists": (with_keys(n_embd=[12]), "dim must be a int"),
    "width 12.0": (with_keys(n_embd=12.0), "dim must be a int"),
    "width true": (with_keys(n_embd=True), "dim must be a int"),
    "no width": (with_keys(n_embd=None), "n_embd"),
    "inner width 10^15": (with_keys(n_inner=10**15), "hidden is 1,000,000,000,000,000"),
    "inner width 2^22": (with_keys(n_inner=2**22), "these sizes need"),
    "10^6 layers": (with_keys(n_layer=10**6), "layers is 1,000,000"),
    "10^18 layers": (with_keys(n_layer=10**18), "layers is"),
    "-1 layers": (with_keys(n_layer=-1), "layers must be"),
    "vocabulary 10^12": (with_keys(vocab_size=10**12), "vocab is 1,000,000,000,000"),
    "another vocabulary": (with_keys(vocab_size=20), "vocab"),
    "context 2^40": (with_keys(n_positions=2**40), "context is"),
    "context 2^23": (with_keys(n_positions=2**23), "these sizes need"),
    "heads that do not divide": (with_keys(n_head=5), "must divide"),
    "0 heads": (with_keys(n_head=0), "heads must be at least 1"),
    "10^9 heads": (with_keys(n_head=10**9), "heads"),
    "dropout 7": (with_keys(resid_pdrop=7.0), "dropout must be"),
    "dropout of text": (with_keys(resid_pdrop="0"), "dropout must be"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "word"), CONFIGS.values(), ids=CONFIGS)
def test_a_hostile_config_is_refused(change: Callable[[str], str], word: str, folder: Path) -> None:
    file = folder / "config.json"
    file.write_text(change(file.read_text(encoding="utf-8")), encoding="utf-8")
    assert_refused(folder, "folder" if word == "vocab" else "config.json", word)


def test_a_config_in_another_encoding_is_refused(folder: Path) -> None:
    file = folder / "config.json"
    file.write_bytes(file.read_text().encode("utf-16"))
    assert_refused(folder, "config.json", "cannot be read as JSON")


def test_a_config_of_a_gigabyte_is_not_read(folder: Path) -> None:
    os.truncate(folder / "config.json", 2**30)
    assert_refused(folder, "config.json", "1,073,741,824 bytes")


def test_a_hostile_generation_config_is_refused(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": NaN}')
    assert_refused(folder, "generation_config.json", "NaN is not a number")


@pytest.mark.parametrize("value", [None, 1, 3, "2", [2]])
def test_a_task_json_of_another_format_is_refused(value: Any, folder: Path) -> None:
    content = json.loads((folder / "task.json").read_text())
    assert content.pop("format") == 2
    (folder / "task.json").write_text(json.dumps(content if value is None else content | {"format": value}))
    assert_refused(
        folder, "task.json", f"has format {value!r} instead of 2", "older, unreleased version", "train again"
    )


VALUES = [10**9, 10**40, -1, 0, 1.5, 1e308, True, None, "x", [], {"a": 1}]


@pytest.mark.parametrize("family", HF_FAMILIES)
def test_any_value_of_any_config_key_is_read_or_refused(family: str, tmp_path: Path) -> None:
    """No other exception than ValueError, and nothing of that size is allocated."""
    names = HF_FAMILIES[family]
    kind = MODELS[names.model]
    sizes = {
        "vocab": 19,
        "context": 11,
        "dim": 24,
        "heads": 6,
        "image_size": 8,
        "patch_size": 4,
        "image_dim": 16,
        "image_heads": 4,
    }
    sizes |= dict.fromkeys(("layers", "encoder_layers", "decoder_layers", "image_layers"), 1) | {
        "hidden": 20,
        "projection_dim": 6,
    }
    fields = kind.config.__dataclass_fields__
    config = kind.config(**{key: value for key, value in (sizes | names.fixed_fields).items() if key in fields})
    body = next(iter(kind.bodies.values()))(config)
    save_file(
        names.tensors_to_hf({f"body.{key}": tensor.detach() for key, tensor in body.named_parameters()}),
        tmp_path / SAFE_WEIGHTS,
    )
    hf_config = names.config_to_hf(asdict(config))
    inner = [f"{key}.{name}" for key, value in hf_config.items() if isinstance(value, dict) for name in value]
    for key in [*hf_config, *inner, *(old for before in names.aliases.values() for old in before)]:
        for value in VALUES:
            altered = json.loads(json.dumps(hf_config))
            *path, last = key.split(".")
            inside = altered
            for part in path:
                inside = inside.setdefault(part, {}) if isinstance(inside.get(part, {}), dict) else {}
            inside[last] = value
            (tmp_path / "config.json").write_text(json.dumps(altered))
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
    values = [str(getattr(arg, "co_filename", arg)) for arg in args if arg is not None]
    inside = any(folder in value for folder in folders for value in values)
    ran = event in ("compile", "exec", "import", "ctypes.dlopen")
    ran |= event == "open" and values[0].endswith((".py", ".pyc", ".pth", ".so", ".bin", ".pkl", ".pt"))
    if event in run or (inside and ran) or (event == "import" and "evil" in values[0]):
        seen.append((event, values))


load(clean, "cpu")("t")  # lazy imports happen now
sys.addaudithook(watch)
for folder in folders:
    seen.clear()
    try:
        outcome = "loaded " + load(folder, "cpu")("t")[:0]
    except ValueError as error:
        outcome = "refused"
    print(outcome.strip(), seen)
"""


def test_no_code_of_a_folder_is_run(folder: Path, tmp_path: Path) -> None:
    """Canaries in every file that other libraries would run, in a folder that loads and in refused ones."""
    clean = tmp_path / "clean"
    evil = [folder, *(tmp_path / name for name in ("typed", "pickled", "tokens"))]
    for target in (clean, *evil[1:]):
        target.mkdir()
        for file in folder.iterdir():
            (target / file.name).write_bytes(file.read_bytes())
    for target in evil:
        for name in PLACES:
            (target / name).parent.mkdir(exist_ok=True)
            (target / name).write_text("import evil" if name.endswith(".pth") else CODE)
        for name in PICKLES:
            (target / name).write_bytes(pickle.dumps(Canary()))
        classes = ("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoTokenizer", "AutoProcessor")
        mapped = {"auto_map": dict.fromkeys(classes, "modeling_evil.Evil"), "trust_remote_code": True}
        mapped |= {
            "custom_pipelines": {"evil": {"impl": "pipeline.Evil"}},
            "sub_config": mapped | {"model_type": "evil"},
        }
        for name in ("config.json", "generation_config.json", "tokenizer_config.json", "task.json"):
            (target / name).write_text(json.dumps(json.loads((target / name).read_text()) | mapped))
    hf_config = json.loads((evil[1] / "config.json").read_text())
    (evil[1] / "config.json").write_text(json.dumps(hf_config | {"model_type": "evil"}))
    (evil[2] / SAFE_WEIGHTS).write_bytes(pickle.dumps(Canary()))
    (evil[3] / "tokenizer.json").write_bytes(pickle.dumps(Canary()))
    result = subprocess.run(
        [sys.executable, "-c", WATCH, str(clean), *map(str, evil)],
        capture_output=True, text=True, cwd=clean, env=os.environ | {"CANARY": str(tmp_path / "canary")},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["loaded []", *["refused []"] * 3]
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


def test_refused_folders_take_no_memory(folder: Path, good: dict[str, bytes], tmp_path: Path) -> None:
    contents = [good | {SAFE_WEIGHTS: WEIGHTS[name][0](good[SAFE_WEIGHTS])} for name in HEAVY]
    text = good["config.json"].decode()
    heavy = [name for name, (_, word) in CONFIGS.items() if " is " in word or "ask for" in word or "levels" in name]
    contents += [good | {"config.json": CONFIGS[name][0](text).encode()} for name in heavy]
    contents += [good | {SAFE_WEIGHTS: struct.pack("<Q", 24_000_000) + b"{"}, good | {"config.json": b"{"}]
    for i, files in enumerate(contents):
        (tmp_path / str(i)).mkdir()
        for name, content in files.items():
            (tmp_path / str(i) / name).write_bytes(content)
    os.truncate(tmp_path / str(len(contents) - 2) / SAFE_WEIGHTS, 2**31)
    os.truncate(tmp_path / str(len(contents) - 1) / "config.json", 2**31)
    folders = [str(tmp_path / str(i)) for i in range(len(contents))]
    result = subprocess.run([sys.executable, "-c", MEASURE, str(folder), *folders], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    grown = [*map(int, result.stdout.split())]
    assert len(grown) == len(contents) > 15
    assert max(grown) < 50, grown


# The tokenizer


def edit_tokenizer(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    def edit(text: str) -> str:
        content = json.loads(text)
        change(content)
        return json.dumps(content)

    return edit


TOKENIZERS: dict[str, Callable[[str], str]] = {
    "empty": lambda text: "",
    "a list": lambda text: "[]",
    "cut off": lambda text: text[:-9],
    "Python": lambda text: "__import__('os').mkdir('canary')",
    "10^5 levels": lambda text: '{"a":' * 100_000 + "1" + "}" * 100_000,
    "an id of 2^32 - 1": edit_tokenizer(lambda t: t["model"]["vocab"].update(evil=2**32 - 1)),
    "an id of 2^40": edit_tokenizer(lambda t: t["model"]["vocab"].update(evil=2**40)),
    "a negative id": edit_tokenizer(lambda t: t["model"]["vocab"].update(evil=-1)),
    "no model": edit_tokenizer(lambda t: t.pop("model")),
    "a model of its own": edit_tokenizer(lambda t: t["model"].update(type="Evil")),
    "no vocabulary": edit_tokenizer(lambda t: t["model"].pop("vocab")),
    "more pieces than the model": edit_tokenizer(lambda t: t["model"]["vocab"].update(evil=len(t["model"]["vocab"]))),
}


@pytest.mark.parametrize("change", TOKENIZERS.values(), ids=TOKENIZERS)
def test_a_hostile_tokenizer_is_refused(change: Callable[[str], str], folder: Path) -> None:
    file = folder / "tokenizer.json"
    file.write_text(change(file.read_text(encoding="utf-8")), encoding="utf-8")
    assert_refused(folder, "folder")


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


def test_a_tokenizer_that_grows_texts_is_refused(folder: Path, good: dict[str, bytes], tmp_path: Path) -> None:
    """In a process limited to 300 MB more than the good folder needs."""
    harmless = [swap("1/2", String="\u00bd"), swap("TM", String="\u2122"), swap("...", String="\u2026")] * 5
    harmless += [swap(" ", Regex=" {2,}"), {"type": "NFKD"}]
    tokenizer = json.loads(good["tokenizer.json"])
    variants = [*GROWING.values(), {"normalizer": steps("normalizers", *harmless)}]
    for i, parts in enumerate(variants):
        (tmp_path / str(i)).mkdir()
        for name, content in (good | {"tokenizer.json": json.dumps(tokenizer | parts).encode()}).items():
            (tmp_path / str(i) / name).write_bytes(content)
    folders = [str(tmp_path / str(i)) for i in range(len(variants))]
    result = subprocess.run([sys.executable, "-c", LIMITED, str(folder), *folders], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    *refusals, last = result.stdout.splitlines()
    assert last == "loaded"
    for refusal, where, parts in zip(refusals, folders, variants, strict=False):
        part = "decoder" if "decoder" in parts else "normalizer"
        expected = f"{where}/tokenizer.json is not a tokenizer: its {part} can expand one character to over 128"
        assert refusal == f"{expected}, which is the limit"


def test_a_tokenizer_file_that_is_too_large_is_not_read(folder: Path) -> None:
    (folder / "extra.model").touch()
    os.truncate(folder / "extra.model", 2**31)
    assert_refused(folder, "extra.model", "at most 134,217,728 are read")
