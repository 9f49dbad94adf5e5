"""Weights of a folder: single files and shards, dtypes, unused and tied tensors, memory use."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.hub.folder import SourceCheckpoint, find_family_map, read_config, read_weights, write_config, write_weights
from regard.hub.match_state_dict import unique_state_dict
from regard.hub.weights import SAFE_INDEX, SAFE_WEIGHTS, read_headers
from regard.models import MODELS
from regard.parts.heads import Classifier, Model, TokenClassifier
from regard.parts.pooling import POOLINGS

V, CLASSES = 19, 5
SMALL: dict[str, dict[str, Any]] = {
    "gpt": {"vocab": V, "context": 11, "layers": 2, "hidden": 20, "dim": 12, "heads": 3, "pad": 1},
    "bert": {"vocab": V, "context": 11, "layers": 2, "hidden": 20, "dim": 12, "heads": 3, "pad": 0, "segments": 4},
    "llama": {"vocab": V, "context": 11, "layers": 2, "hidden": 20, "dim": 24, "heads": 6, "kv_heads": 2, "pad": 1},
    "transformer": {
        "vocab": V, "context": 11, "dim": 12, "encoder_layers": 1, "decoder_layers": 1, "heads": 3, "hidden": 20,
    },
}  # fmt: skip


def vocabulary(body: Any) -> nn.Module:
    return body.lm_head()


def per_token(body: Any) -> nn.Module:
    return TokenClassifier(body.config.dim, CLASSES)


def mean(body: Any) -> nn.Module:
    return Classifier(body.config.dim, CLASSES, POOLINGS["mean"](body.config.dim))


def make_model(name: str, head: Callable[[Any], nn.Module] = vocabulary, **overrides: Any) -> Model:
    torch.manual_seed(1)
    family = MODELS[name]
    body = next(iter(family.bodies.values()))(family.config(**SMALL[name] | overrides))
    return Model(body, head(body)).eval()


def write(folder: Path, model: Model, source: SourceCheckpoint | None = None, task_keys: Any = None) -> Path:
    folder.mkdir(exist_ok=True)
    write_config(folder, model, task_keys, source)
    write_weights(folder / SAFE_WEIGHTS, model, source)
    return folder


def read(folder: Path, head: Callable[[Any], nn.Module] = vocabulary, only: str = "") -> tuple[Model, SourceCheckpoint]:
    names, config = read_config(folder)
    torch.manual_seed(2)
    body = next(iter(MODELS[names.model].bodies.values()))(config)
    model = Model(body, head(body))
    return model.eval(), read_weights(folder, names, model, only)


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def same(first: nn.Module, second: nn.Module) -> bool:
    return all(
        torch.equal(tensor, unique_state_dict(second)[name]) for name, tensor in unique_state_dict(first).items()
    )


def read_json_config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def write_json_config(folder: Path, config: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def write_tensors(folder: Path, tensors: dict[str, Tensor]) -> None:
    save_file(tensors, folder / SAFE_WEIGHTS, {"format": "pt"})


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A folder with its weights in several files, as Hugging Face's own library splits them."""
    folder = write(tmp_path / "sharded", make_model("gpt"))
    tensors = load_file(folder / SAFE_WEIGHTS)
    (folder / SAFE_WEIGHTS).unlink()
    save_torch_state_dict(tensors, folder, max_shard_size=2500)
    return folder


def test_sharded_weights_load_like_a_single_file(sharded: Path) -> None:
    assert len({*json.loads((sharded / SAFE_INDEX).read_text())["weight_map"].values()}) > 3
    assert len({tensor.file for tensor in read_headers(sharded).values()}) > 3
    assert same(read(sharded)[0], make_model("gpt"))


def read_index(folder: Path) -> tuple[dict[str, Any], str, list[str]]:
    """The index, its first tensor, and its files."""
    index = json.loads((folder / SAFE_INDEX).read_text())
    return index, min(index["weight_map"]), sorted({*index["weight_map"].values()})


def test_an_index_that_contradicts_its_shards_is_refused(sharded: Path) -> None:
    index, name, shards = read_index(sharded)
    home = index["weight_map"][name]
    shard = next(candidate for candidate in shards if candidate != home)

    def refused(change: dict[str, Any], *words: str) -> None:
        (sharded / SAFE_INDEX).write_text(json.dumps(index | {"weight_map": index["weight_map"] | change}))
        with pytest.raises(ValueError, match="safetensors") as refusal:
            read_headers(sharded)
        assert all(word in str(refusal.value) for word in words), refusal.value

    refused({name: shard}, name, home, shard)
    refused({"unheard.of": home}, "unheard.of", home)
    refused({name: "model-00009-of-00009.safetensors"}, "model-00009-of-00009.safetensors")
    del index["weight_map"][name]
    refused({}, name, home)


def test_a_tensor_in_two_files_is_refused(sharded: Path) -> None:
    index, name, shards = read_index(sharded)
    shard = next(candidate for candidate in shards if candidate != index["weight_map"][name])
    save_file(load_file(sharded / shard) | {name: torch.ones(2)}, sharded / shard)
    with pytest.raises(ValueError, match=f"{shard} holds {name}, but .* says {index['weight_map'][name]}"):
        read_headers(sharded)


def test_a_single_file_takes_precedence_over_shards(sharded: Path) -> None:
    model = make_model("gpt", dropout=0.0)
    write_weights(sharded / SAFE_WEIGHTS, model)
    (sharded / SAFE_INDEX).write_text("{")
    assert same(read(sharded)[0], model)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_half_precision_loads_as_fp32_and_saves_as_stored(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", make_model(name))
    half = {key: tensor.to(dtype) for key, tensor in load_file(folder / SAFE_WEIGHTS).items()}
    write_tensors(folder, half)
    model, source = read(folder)
    assert source.dtype == dtype
    assert {tensor.dtype for tensor in unique_state_dict(model).values()} == {torch.float32}
    names = find_family_map(model.body).with_head(model.head)
    ours = {key: tensor.detach() for key, tensor in unique_state_dict(model).items()}
    assert all(torch.equal(tensor, half[key].float()) for key, tensor in names.tensors_to_hf(ours).items())
    saved = write(tmp_path / "ours", model, source)
    assert files(saved)[SAFE_WEIGHTS] == files(folder)[SAFE_WEIGHTS]


def test_saving_keeps_the_dtype_of_every_tensor_and_the_dtype_key(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", make_model("bert"))
    kinds = [torch.float16, torch.float32, torch.bfloat16, torch.float16]
    write_tensors(
        folder,
        {key: tensor.to(kinds[i % 4]) for i, (key, tensor) in enumerate(load_file(folder / SAFE_WEIGHTS).items())},
    )
    config = read_json_config(folder)
    del config["dtype"]
    write_json_config(folder, config | {"torch_dtype": "float16"})
    model, source = read(folder)
    assert files(write(tmp_path / "ours", model, source)) == files(folder)
    source.config.pop("torch_dtype")
    assert read_json_config(write(tmp_path / "silent", model, source))["dtype"] == str(source.dtype).removeprefix(
        "torch."
    )


def test_a_weight_that_overflows_its_dtype_is_saved_as_fp32(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", make_model("gpt"))
    write_tensors(folder, {key: tensor.half() for key, tensor in load_file(folder / SAFE_WEIGHTS).items()})
    model, source = read(folder)
    with torch.no_grad():
        model.body.norm.bias[0] = 1e5
    saved = load_file(write(tmp_path / "ours", model, source) / SAFE_WEIGHTS)
    full = [key for key, tensor in saved.items() if tensor.dtype != torch.float16]
    assert full == ["transformer.ln_f.bias"]
    assert saved[full[0]][0] == 1e5


def test_a_new_head_is_saved_in_the_dtype_of_the_body(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", make_model("bert"))
    write_tensors(folder, {key: tensor.bfloat16() for key, tensor in load_file(folder / SAFE_WEIGHTS).items()})
    model, source = read(folder, per_token, only="body.")
    saved = load_file(write(tmp_path / "ours", model, source) / SAFE_WEIGHTS)
    assert saved["classifier.weight"].dtype == torch.bfloat16
    assert read_json_config(tmp_path / "ours")["architectures"] == ["BertForTokenClassification"]
    assert len(read_json_config(tmp_path / "ours")["id2label"]) == CLASSES


EXTRA = {
    "zebra": [1, {"b": None, "a": 1e-7}],
    "_name_or_path": "x/y",
    "transformers_version": "4.6.0.dev0",
    "Ünter": "é",
}


@pytest.mark.parametrize("name", SMALL)
def test_saving_twice_gives_the_same_bytes_with_any_extra_config_keys(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", make_model(name))
    config = {**EXTRA, **dict(reversed(read_json_config(folder).items()))}
    (folder / "config.json").write_text(json.dumps(config))
    generation = {"top_k": 50, "_from_model_config": True, "bos_token_id": 7}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    first = write(tmp_path / "first", *read(folder))
    assert [*read_json_config(first).items()] == [*config.items()]
    assert json.loads((first / "generation_config.json").read_text()) == generation
    second = write(tmp_path / "second", *read(first))
    assert files(second) == files(first)


def test_unread_config_values_are_preserved(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", make_model("gpt", hidden=48))
    (folder / "generation_config.json").unlink()
    config = read_json_config(folder) | {"n_inner": None, "embd_pdrop": 0.3, "eos_token_id": 9, "bos_token_id": 8}
    write_json_config(folder, config)
    first = write(tmp_path / "first", *read(folder))
    assert read_json_config(first) == config
    assert not (first / "generation_config.json").exists(), "there was none"


def test_changed_fields_update_their_config_keys(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", make_model("bert"))
    write_json_config(folder, EXTRA | read_json_config(folder) | {"architectures": ["BertForPreTraining"]})
    (folder / "generation_config.json").write_text('{"eos_token_id": 1, "top_k": 3}')
    _, source = read(folder)
    before = json.dumps(source.generation)
    model = make_model("bert", per_token, dropout=0.25, segments=3)
    labels = {"id2label": dict(enumerate("abcde")), "label2id": {letter: i for i, letter in enumerate("abcde")}}
    now = read_json_config(write(tmp_path / "ours", model, source, labels | {"eos_token_id": 4}))
    changed_keys = {key for key in now if now[key] != source.config.get(key)}
    assert changed_keys == {
        "architectures", "hidden_dropout_prob", "type_vocab_size", "id2label", "label2id", "eos_token_id",
    }  # fmt: skip
    assert (now["hidden_dropout_prob"], now["type_vocab_size"], now["id2label"]["4"]) == (0.25, 3, "e")
    generation = json.loads((tmp_path / "ours" / "generation_config.json").read_text())
    assert generation == {"eos_token_id": 4, "top_k": 3}
    assert json.dumps(source.generation) == before, "saving does not change the source"
    assert read(tmp_path / "ours", per_token)[0].body.config == model.body.config


UNUSED = {
    "bert.pooler.dense.weight": torch.full((12, 12), 0.5, dtype=torch.float16),
    "bert.pooler.dense.bias": torch.arange(12.0),
    "cls.seq_relationship.weight": torch.ones(2, 12),
}


def test_unused_tensors_are_saved_again(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", make_model("bert"))
    write_tensors(folder, load_file(folder / SAFE_WEIGHTS) | UNUSED)
    model, source = read(folder)
    assert source.preserved.keys() == UNUSED.keys()
    assert files(write(tmp_path / "ours", model, source)) == files(folder)
    with_head = write(tmp_path / "tagging", read(folder, per_token, only="body.")[0], source)
    assert all(torch.equal(load_file(with_head / SAFE_WEIGHTS)[key], tensor) for key, tensor in UNUSED.items())


def test_unused_tensors_get_the_prefix_of_the_others(tmp_path: Path) -> None:
    folder = write(tmp_path / "bare", make_model("bert", mean))  # not a head of Hugging Face: names without prefix
    pooler = {"pooler.dense.weight": torch.ones(12, 12), "pooler.dense.bias": torch.ones(12)}
    write_tensors(folder, load_file(folder / SAFE_WEIGHTS) | pooler)
    model, source = read(folder, mean)
    assert source.preserved.keys() == pooler.keys()
    assert files(write(tmp_path / "ours", model, source)) == files(folder)
    with_classifier = read(folder, per_token, only="body.")[0]
    saved = load_file(write(tmp_path / "headed", with_classifier, source) / SAFE_WEIGHTS)
    assert {f"bert.{name}" for name in pooler} < saved.keys()
    assert not pooler.keys() & saved.keys()
    _, source = read(tmp_path / "headed", per_token)
    saved = load_file(write(tmp_path / "back", model, source) / SAFE_WEIGHTS)
    assert pooler.keys() < saved.keys()


def test_an_unused_tensor_that_is_stored_twice_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", make_model("bert"))
    write_tensors(folder, load_file(folder / SAFE_WEIGHTS) | UNUSED | {"pooler.dense.bias": torch.ones(12)})
    with pytest.raises(ValueError, match=r"pooler.dense.bias occurs twice"):
        read(folder)


def repeated_tensors(model: Model) -> list[tuple[str, str, Tensor]]:
    """Tied weights: the repeated name, the first name, and the tensor."""
    names = find_family_map(model.body).with_head(model.head)
    stored = names.tensors_to_hf({name: tensor.detach() for name, tensor in unique_state_dict(model).items()})
    stored_names = {names.canonical_name(name): name for name in stored}
    return [
        (repeated, stored_names[first], stored[stored_names[first]].clone())
        for repeated, first in names.tied.items()
        if first in stored_names
    ]


def test_a_tied_lm_head_may_be_stored_twice_if_equal(tmp_path: Path) -> None:
    for name in ("gpt", "llama"):
        ours = make_model(name, **{"tie_embeddings": True} if name == "llama" else {})
        folder = write(tmp_path / name, ours)
        tensors = load_file(folder / SAFE_WEIGHTS)
        assert "lm_head.weight" not in tensors
        words = next(key for key in tensors if key.endswith(("wte.weight", "embed_tokens.weight")))
        write_tensors(folder, tensors | {"lm_head.weight": tensors[words].clone()})
        assert same(read(folder)[0], ours)
        write_tensors(folder, tensors | {"lm_head.weight": tensors[words] + 1e-6})
        with pytest.raises(ValueError, match="are one weight in this model, but differ") as refusal:
            read(folder)
        assert words in str(refusal.value)
        assert "lm_head.weight" in str(refusal.value)


def test_an_untied_lm_head_must_be_stored(tmp_path: Path) -> None:
    folder = write(tmp_path, make_model("llama"))
    tensors = load_file(folder / SAFE_WEIGHTS)
    del tensors["lm_head.weight"]
    write_tensors(folder, tensors)
    with pytest.raises(ValueError, match=r"lacks 1 weights of this model: head.weight \(lm_head.weight\)"):
        read(folder)


@pytest.mark.parametrize("name", ["bert", "transformer"])
def test_a_tied_weight_may_be_stored_under_either_name_or_twice_if_equal(name: str, tmp_path: Path) -> None:
    ours = make_model(name)
    folder = write(tmp_path, ours)
    tensors = load_file(folder / SAFE_WEIGHTS)
    assert repeated_tensors(ours)
    for repeated, first, tensor in repeated_tensors(ours):
        write_tensors(folder, tensors | {repeated: tensor})
        model, _ = read(folder)
        assert same(model, ours)
        wrong = tensor.clone()
        wrong.view(-1)[3] += 1e-3
        versions = [weight._version for weight in model.parameters()]
        for replacement in (wrong, tensor[:1], tensor.half()):
            write_tensors(folder, tensors | {repeated: replacement.clone()})
            with pytest.raises(ValueError, match="one weight in this model, but differ") as refusal:
                read_weights(folder, read_config(folder)[0], model)
            assert repeated in str(refusal.value)
            assert first in str(refusal.value)
        assert same(model, ours)
        assert versions == [weight._version for weight in model.parameters()], "nothing was partially loaded"
        write_tensors(folder, {key: value for key, value in tensors.items() if key != first} | {repeated: tensor})
        assert same(read(folder)[0], ours), "either name is accepted"


def test_a_stored_position_table_must_equal_the_computed_one(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", make_model("transformer"))
    tensors = load_file(folder / SAFE_WEIGHTS)
    name = "model.encoder.embed_positions.weight"
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        write_tensors(folder, {key: tensor.to(dtype) for key, tensor in tensors.items()})
        assert files(write(tmp_path / "ours", *read(folder)))[SAFE_WEIGHTS] == files(folder)[SAFE_WEIGHTS]
    write_tensors(folder, tensors | {name: tensors[name] + 0.01})
    model = make_model("transformer")
    before = [weight._version for weight in model.parameters()]
    with pytest.raises(ValueError, match=f"{name} .* is not the table"):
        read_weights(folder, read_config(folder)[0], model)
    assert before == [weight._version for weight in model.parameters()]


def snapshot(cache: Path, folder: Path, shared: bool) -> Path:
    """The folder in the layout of Hugging Face's cache; with `shared`, blobs that repositories share."""
    repo = cache / "models--owner--name"
    place, blobs = repo / "snapshots" / "0123abcd", repo / "blobs"
    for path in (place, blobs, cache / "blobs" / "ab"):
        path.mkdir(parents=True)
    for i, file in enumerate(sorted(folder.iterdir())):
        (place / file.name).symlink_to(Path("../../blobs") / f"blob{i}")
        if shared:
            file.rename(cache / "blobs" / "ab" / f"hash{i}")
            (blobs / f"blob{i}").symlink_to(Path("../../blobs/ab") / f"hash{i}")
        else:
            file.rename(blobs / f"blob{i}")
    return place


@pytest.mark.parametrize("shared", [False, True])
def test_links_of_hugging_faces_cache_are_followed(shared: bool, sharded: Path, tmp_path: Path) -> None:
    place = snapshot(tmp_path / "cache", sharded, shared)
    assert same(read(place)[0], make_model("gpt"))
    (tmp_path / "link").symlink_to(place)
    assert same(read(tmp_path / "link")[0], make_model("gpt"))


@pytest.mark.parametrize("file", ["config.json", SAFE_INDEX, "shard", "generation_config.json"])
def test_other_links_out_of_the_folder_are_refused(file: str, sharded: Path, tmp_path: Path) -> None:
    name = read_index(sharded)[2][1] if file == "shard" else file
    (sharded / name).rename(tmp_path / "elsewhere")
    (sharded / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="is a link out of its folder") as refusal:
        read(sharded)
    assert name in str(refusal.value)
    (tmp_path / "elsewhere").rename(sharded / "inside")
    (sharded / name).unlink()
    (sharded / name).symlink_to("inside")
    assert same(read(sharded)[0], make_model("gpt"))


def test_reading_a_config_draws_no_random_number(tmp_path: Path) -> None:
    folder = write(tmp_path, make_model("bert"))
    state = torch.get_rng_state()
    read_config(folder)
    assert torch.equal(state, torch.get_rng_state())


MEASURE = """
import resource, sys
from pathlib import Path
from regard.hub.folder import read_config, read_weights
from regard.models import MODELS
from regard.parts.heads import Model

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

for name in sys.argv[2:]:
    body = model = None
    before = peak()
    try:
        names, config = read_config(Path(name))
        if sys.argv[1] == "weights":
            body = next(iter(MODELS[names.model].bodies.values()))(config)
            model = Model(body, body.lm_head())
            before = peak()
            read_weights(Path(name), names, model)
        outcome = "read"
    except ValueError as error:
        outcome = f"refused {error}"
    print(peak() - before, outcome)
"""


def measure_peak_growth(stage: str, *folders: Path) -> list[tuple[int, str]]:
    """Growth of the peak memory in megabytes by each folder, and the outcome."""
    command = [sys.executable, "-c", MEASURE, stage, *map(str, folders)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == len(folders)
    return [(int(grown), outcome) for grown, outcome in (line.split(" ", 1) for line in lines)]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 100 MB of zeros, as a sparse file."""
    folder = tmp_path_factory.mktemp("large")
    model = make_model("gpt", dim=768, heads=3, hidden=768, vocab=20_000, layers=3)
    write(folder, model)
    with (folder / SAFE_WEIGHTS).open("r+b") as stream:
        length = 8 + int.from_bytes(stream.read(8), "little")
        size = os.path.getsize(folder / SAFE_WEIGHTS)
        stream.truncate(length)
        stream.truncate(size)
    assert size > 80e6
    return folder


def test_weights_are_memory_mapped_and_not_read_if_a_name_does_not_fit(large: Path, tmp_path: Path) -> None:
    last, size = max(read_headers(large)), os.path.getsize(large / SAFE_WEIGHTS)
    with (large / SAFE_WEIGHTS).open("rb") as stream:
        begin = stream.read(8)
        header = stream.read(int.from_bytes(begin, "little"))
    wrong = last[:-1] + "_"
    (tmp_path / "config.json").write_bytes((large / "config.json").read_bytes())
    (tmp_path / SAFE_WEIGHTS).write_bytes(begin + header.replace(last.encode(), wrong.encode()))
    os.truncate(tmp_path / SAFE_WEIGHTS, size)
    (refused, why), (grown, outcome) = measure_peak_growth("weights", tmp_path, large)
    assert why.startswith("refused")
    assert wrong in why
    assert refused < 10
    assert outcome == "read"
    assert grown < size / 1e6 + 30, "the pages of the file, and no copy of them"


TOO_LARGE = [
    {"n_embd": 3 * 10**9}, {"n_embd": 3 * 2**20}, {"n_inner": 10**9}, {"n_inner": 2**22}, {"n_layer": 10**6},
    {"vocab_size": 10**12}, {"n_positions": 10**10}, {"n_embd": 3 * 10**4, "n_inner": 10**4},
]  # fmt: skip


def test_a_config_larger_than_its_weights_allocates_nothing(tmp_path: Path) -> None:
    folders = [write(tmp_path / str(i), make_model("gpt")) for i in range(len(TOO_LARGE))]
    for folder, change in zip(folders, TOO_LARGE, strict=True):
        write_json_config(folder, read_json_config(folder) | change)
    for change, (grown, outcome) in zip(TOO_LARGE, measure_peak_growth("config", *folders), strict=True):
        assert outcome.startswith("refused"), change
        assert "config.json" in outcome
        assert grown < 20, change
