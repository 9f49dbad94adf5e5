"""The weights of a folder: in one file or several, in the type they came in, and what we do not use as it was."""

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

from regard.hub.folder import (
    SourceCheckpoint,
    find_family_map,
    read_config,
    read_weights,
    unique_state_dict,
    write_config,
    write_weights,
)
from regard.hub.weights import INDEX, WHOLE, stored_in
from regard.models import MODELS
from regard.parts.heads import Classifier, Model, PerToken
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
    return body.vocabulary()


def per_token(body: Any) -> nn.Module:
    return PerToken(body.config.dim, CLASSES)


def mean(body: Any) -> nn.Module:
    return Classifier(body.config.dim, CLASSES, POOLINGS["mean"](body.config.dim))


def made(name: str, head: Callable[[Any], nn.Module] = vocabulary, **other: Any) -> Model:
    torch.manual_seed(1)
    family = MODELS[name]
    body = next(iter(family.bodies.values()))(family.config(**SMALL[name] | other))
    return Model(body, head(body)).eval()


def write(folder: Path, model: Model, origin: SourceCheckpoint | None = None, facts: Any = None) -> Path:
    folder.mkdir(exist_ok=True)
    write_config(folder, model, facts, origin)
    write_weights(folder / WHOLE, model, origin)
    return folder


def read(folder: Path, head: Callable[[Any], nn.Module] = vocabulary, only: str = "") -> tuple[Model, SourceCheckpoint]:
    names, config = read_config(folder)
    torch.manual_seed(2)
    body = next(iter(MODELS[names.model].bodies.values()))(config)
    model = Model(body, head(body))
    return model.eval(), read_weights(folder, names, model, only)


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(tensor, unique_state_dict(other)[name]) for name, tensor in unique_state_dict(one).items())


def said(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def say(folder: Path, config: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def put(folder: Path, tensors: dict[str, Tensor]) -> None:
    save_file(tensors, folder / WHOLE, {"format": "pt"})


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A folder with its weights in several files, as Hugging Face's own library splits them."""
    folder = write(tmp_path / "sharded", made("gpt"))
    tensors = load_file(folder / WHOLE)
    (folder / WHOLE).unlink()
    save_torch_state_dict(tensors, folder, max_shard_size=2500)
    return folder


def test_weights_in_several_files_are_the_same(sharded: Path) -> None:
    assert len({*json.loads((sharded / INDEX).read_text())["weight_map"].values()}) > 3
    assert len({tensor.file for tensor in stored_in(sharded).values()}) > 3
    assert same(read(sharded)[0], made("gpt"))


def listed(folder: Path) -> tuple[dict[str, Any], str, list[str]]:
    """The index, one of its tensors, and its files."""
    index = json.loads((folder / INDEX).read_text())
    return index, min(index["weight_map"]), sorted({*index["weight_map"].values()})


def test_an_index_and_its_files_must_agree(sharded: Path) -> None:
    index, name, shards = listed(sharded)
    home = index["weight_map"][name]
    other = next(shard for shard in shards if shard != home)

    def refused(change: dict[str, Any], *words: str) -> None:
        (sharded / INDEX).write_text(json.dumps(index | {"weight_map": index["weight_map"] | change}))
        with pytest.raises(ValueError, match="safetensors") as refusal:
            stored_in(sharded)
        assert all(word in str(refusal.value) for word in words), refusal.value

    refused({name: other}, name, home, other)
    refused({"unheard.of": home}, "unheard.of", home)
    refused({name: "model-00009-of-00009.safetensors"}, "model-00009-of-00009.safetensors")
    del index["weight_map"][name]
    refused({}, name, home)


def test_a_tensor_in_two_files_is_refused(sharded: Path) -> None:
    index, name, shards = listed(sharded)
    other = next(shard for shard in shards if shard != index["weight_map"][name])
    save_file(load_file(sharded / other) | {name: torch.ones(2)}, sharded / other)
    with pytest.raises(ValueError, match=f"{other} holds {name}, but .* says {index['weight_map'][name]}"):
        stored_in(sharded)


def test_one_file_is_taken_before_several(sharded: Path) -> None:
    model = made("gpt", dropout=0.0)
    write_weights(sharded / WHOLE, model)
    (sharded / INDEX).write_text("{")
    assert same(read(sharded)[0], model)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_half_precision_is_computed_in_full_and_written_as_it_came(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    folder = write(tmp_path / "theirs", made(name))
    half = {key: tensor.to(dtype) for key, tensor in load_file(folder / WHOLE).items()}
    put(folder, half)
    model, origin = read(folder)
    assert origin.dtype == dtype
    assert {tensor.dtype for tensor in unique_state_dict(model).values()} == {torch.float32}
    names = find_family_map(model.body).with_head(model.head)
    ours = {key: tensor.detach() for key, tensor in unique_state_dict(model).items()}
    assert all(torch.equal(tensor, half[key].float()) for key, tensor in names.to_theirs(ours).items())
    again = write(tmp_path / "ours", model, origin)
    assert files(again)[WHOLE] == files(folder)[WHOLE]


def test_every_tensor_keeps_its_own_type_and_config_its_word_for_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", made("bert"))
    kinds = [torch.float16, torch.float32, torch.bfloat16, torch.float16]
    put(folder, {key: tensor.to(kinds[i % 4]) for i, (key, tensor) in enumerate(load_file(folder / WHOLE).items())})
    config = said(folder)
    del config["dtype"]
    say(folder, config | {"torch_dtype": "float16"})
    model, origin = read(folder)
    assert files(write(tmp_path / "ours", model, origin)) == files(folder)
    origin.config.pop("torch_dtype")
    assert said(write(tmp_path / "silent", model, origin))["dtype"] == str(origin.dtype).removeprefix("torch.")


def test_a_weight_that_has_outgrown_its_type_is_written_in_full(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", made("gpt"))
    put(folder, {key: tensor.half() for key, tensor in load_file(folder / WHOLE).items()})
    model, origin = read(folder)
    with torch.no_grad():
        model.body.norm.bias[0] = 1e5
    written = load_file(write(tmp_path / "ours", model, origin) / WHOLE)
    full = [key for key, tensor in written.items() if tensor.dtype != torch.float16]
    assert full == ["transformer.ln_f.bias"]
    assert written[full[0]][0] == 1e5


def test_a_new_head_is_written_in_the_type_of_the_rest(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", made("bert"))
    put(folder, {key: tensor.bfloat16() for key, tensor in load_file(folder / WHOLE).items()})
    model, origin = read(folder, per_token, only="body.")
    written = load_file(write(tmp_path / "ours", model, origin) / WHOLE)
    assert written["classifier.weight"].dtype == torch.bfloat16
    assert said(tmp_path / "ours")["architectures"] == ["BertForTokenClassification"]
    assert len(said(tmp_path / "ours")["id2label"]) == CLASSES


EXTRA = {
    "zebra": [1, {"b": None, "a": 1e-7}],
    "_name_or_path": "x/y",
    "transformers_version": "4.6.0.dev0",
    "Ünter": "é",
}


@pytest.mark.parametrize("name", SMALL)
def test_the_second_save_is_the_first_to_the_byte_whatever_else_config_says(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", made(name))
    config = {**EXTRA, **dict(reversed(said(folder).items()))}
    (folder / "config.json").write_text(json.dumps(config))
    generation = {"top_k": 50, "_from_model_config": True, "bos_token_id": 7}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    first = write(tmp_path / "first", *read(folder))
    assert [*said(first).items()] == [*config.items()]
    assert json.loads((first / "generation_config.json").read_text()) == generation
    second = write(tmp_path / "second", *read(first))
    assert files(second) == files(first)


def test_what_config_says_in_other_words_stays_in_those_words(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", made("gpt", hidden=48))
    (folder / "generation_config.json").unlink()
    config = said(folder) | {"n_inner": None, "embd_pdrop": 0.3, "eos_token_id": 9, "bos_token_id": 8}
    say(folder, config)
    first = write(tmp_path / "first", *read(folder))
    assert said(first) == config
    assert not (first / "generation_config.json").exists(), "there was none"


def test_what_is_no_longer_so_is_said_anew(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", made("bert"))
    say(folder, EXTRA | said(folder) | {"architectures": ["BertForPreTraining"]})
    (folder / "generation_config.json").write_text('{"eos_token_id": 1, "top_k": 3}')
    _, origin = read(folder)
    before = json.dumps(origin.generation)
    other = made("bert", per_token, dropout=0.25, segments=3)
    labels = {"id2label": dict(enumerate("abcde")), "label2id": {letter: i for i, letter in enumerate("abcde")}}
    now = said(write(tmp_path / "ours", other, origin, labels | {"eos_token_id": 4}))
    changed = {key for key in now if now[key] != origin.config.get(key)}
    assert changed == {
        "architectures", "hidden_dropout_prob", "type_vocab_size", "id2label", "label2id", "eos_token_id",
    }  # fmt: skip
    assert (now["hidden_dropout_prob"], now["type_vocab_size"], now["id2label"]["4"]) == (0.25, 3, "e")
    told = json.loads((tmp_path / "ours" / "generation_config.json").read_text())
    assert told == {"eos_token_id": 4, "top_k": 3}
    assert json.dumps(origin.generation) == before, "what was read stays what was read"
    assert read(tmp_path / "ours", per_token)[0].body.config == other.body.config


KEPT = {
    "bert.pooler.dense.weight": torch.full((12, 12), 0.5, dtype=torch.float16),
    "bert.pooler.dense.bias": torch.arange(12.0),
    "cls.seq_relationship.weight": torch.ones(2, 12),
}


def test_tensors_that_we_do_not_use_are_given_back(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", made("bert"))
    put(folder, load_file(folder / WHOLE) | KEPT)
    model, origin = read(folder)
    assert origin.kept.keys() == KEPT.keys()
    assert files(write(tmp_path / "ours", model, origin)) == files(folder)
    with_head = write(tmp_path / "tagging", read(folder, per_token, only="body.")[0], origin)
    assert all(torch.equal(load_file(with_head / WHOLE)[key], tensor) for key, tensor in KEPT.items())


def test_what_is_given_back_has_the_prefix_of_the_rest(tmp_path: Path) -> None:
    folder = write(tmp_path / "bare", made("bert", mean))  # a head of ours: their names have no prefix
    pooler = {"pooler.dense.weight": torch.ones(12, 12), "pooler.dense.bias": torch.ones(12)}
    put(folder, load_file(folder / WHOLE) | pooler)
    model, origin = read(folder, mean)
    assert origin.kept.keys() == pooler.keys()
    assert files(write(tmp_path / "ours", model, origin)) == files(folder)
    headed = read(folder, per_token, only="body.")[0]
    written = load_file(write(tmp_path / "headed", headed, origin) / WHOLE)
    assert {f"bert.{name}" for name in pooler} < written.keys()
    assert not pooler.keys() & written.keys()
    _, origin = read(tmp_path / "headed", per_token)
    back = load_file(write(tmp_path / "back", model, origin) / WHOLE)
    assert pooler.keys() < back.keys()


def test_a_tensor_kept_beside_the_same_one_in_use_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", made("bert"))
    put(folder, load_file(folder / WHOLE) | KEPT | {"pooler.dense.bias": torch.ones(12)})
    with pytest.raises(ValueError, match=r"pooler.dense.bias is there twice"):
        read(folder)


def shared_twice(model: Model) -> list[tuple[str, str, Tensor]]:
    """Names of theirs for a weight that is there already: the second, the first, and what they hold."""
    names = find_family_map(model.body).with_head(model.head)
    stored = names.to_theirs({name: tensor.detach() for name, tensor in unique_state_dict(model).items()})
    found = {names.respelled(name.removeprefix(names.prefix)): name for name in stored}
    return [(twin, found[one], stored[found[one]].clone()) for twin, one in names.twins.items() if one in found]


def test_words_that_are_read_and_written_by_the_same_weights_may_be_stored_twice(tmp_path: Path) -> None:
    for name in ("gpt", "llama"):
        ours = made(name, **{"tied": True} if name == "llama" else {})
        folder = write(tmp_path / name, ours)
        whole = load_file(folder / WHOLE)
        assert "lm_head.weight" not in whole
        words = next(key for key in whole if key.endswith(("wte.weight", "embed_tokens.weight")))
        put(folder, whole | {"lm_head.weight": whole[words].clone()})
        assert same(read(folder)[0], ours)
        put(folder, whole | {"lm_head.weight": whole[words] + 1e-6})
        with pytest.raises(ValueError, match="are one weight in this model, but differ") as refusal:
            read(folder)
        assert words in str(refusal.value)
        assert "lm_head.weight" in str(refusal.value)


def test_an_output_layer_of_its_own_must_be_there(tmp_path: Path) -> None:
    folder = write(tmp_path, made("llama"))
    whole = load_file(folder / WHOLE)
    del whole["lm_head.weight"]
    put(folder, whole)
    with pytest.raises(ValueError, match=r"lacks 1 weights of this model: head.weight \(lm_head.weight\)"):
        read(folder)


@pytest.mark.parametrize("name", ["bert", "transformer"])
def test_a_weight_that_is_used_twice_may_be_stored_twice_if_it_is_the_same(name: str, tmp_path: Path) -> None:
    ours = made(name)
    folder = write(tmp_path, ours)
    whole = load_file(folder / WHOLE)
    assert shared_twice(ours)
    for twin, first, tensor in shared_twice(ours):
        put(folder, whole | {twin: tensor})
        model, _ = read(folder)
        assert same(model, ours)
        wrong = tensor.clone()
        wrong.view(-1)[3] += 1e-3
        versions = [weight._version for weight in model.parameters()]
        for other in (wrong, tensor[:1], tensor.half()):
            put(folder, whole | {twin: other.clone()})
            with pytest.raises(ValueError, match="one weight in this model, but differ") as refusal:
                read_weights(folder, read_config(folder)[0], model)
            assert twin in str(refusal.value)
            assert first in str(refusal.value)
        assert same(model, ours)
        assert versions == [weight._version for weight in model.parameters()], "nothing was half-loaded"
        put(folder, {key: value for key, value in whole.items() if key != first} | {twin: tensor})
        assert same(read(folder)[0], ours), "either of the two names will do"


def test_a_table_that_they_store_and_we_compute_must_be_the_right_one(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", made("transformer"))
    whole = load_file(folder / WHOLE)
    name = "model.encoder.embed_positions.weight"
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        put(folder, {key: tensor.to(dtype) for key, tensor in whole.items()})
        assert files(write(tmp_path / "ours", *read(folder)))[WHOLE] == files(folder)[WHOLE]
    put(folder, whole | {name: whole[name] + 0.01})
    model = made("transformer")
    before = [weight._version for weight in model.parameters()]
    with pytest.raises(ValueError, match=f"{name} .* is not the table"):
        read_weights(folder, read_config(folder)[0], model)
    assert before == [weight._version for weight in model.parameters()]


def snapshot(cache: Path, folder: Path, shared: bool) -> Path:
    """The folder as Hugging Face's cache lays it out; what many repositories share lies one step further."""
    repo = cache / "models--owner--name"
    place, blobs = repo / "snapshots" / "0123abcd", repo / "blobs"
    for made in (place, blobs, cache / "blobs" / "ab"):
        made.mkdir(parents=True)
    for i, file in enumerate(sorted(folder.iterdir())):
        (place / file.name).symlink_to(Path("../../blobs") / f"blob{i}")
        if shared:
            file.rename(cache / "blobs" / "ab" / f"hash{i}")
            (blobs / f"blob{i}").symlink_to(Path("../../blobs/ab") / f"hash{i}")
        else:
            file.rename(blobs / f"blob{i}")
    return place


@pytest.mark.parametrize("shared", [False, True])
def test_the_links_of_hugging_faces_cache_are_followed(shared: bool, sharded: Path, tmp_path: Path) -> None:
    place = snapshot(tmp_path / "cache", sharded, shared)
    assert same(read(place)[0], made("gpt"))
    (tmp_path / "link").symlink_to(place)
    assert same(read(tmp_path / "link")[0], made("gpt"))


@pytest.mark.parametrize("file", ["config.json", INDEX, "shard", "generation_config.json"])
def test_other_links_that_leave_the_folder_are_not(file: str, sharded: Path, tmp_path: Path) -> None:
    name = listed(sharded)[2][1] if file == "shard" else file
    (sharded / name).rename(tmp_path / "elsewhere")
    (sharded / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="is a link out of its folder") as refusal:
        read(sharded)
    assert name in str(refusal.value)
    (tmp_path / "elsewhere").rename(sharded / "inside")
    (sharded / name).unlink()
    (sharded / name).symlink_to("inside")
    assert same(read(sharded)[0], made("gpt"))


def test_reading_a_config_draws_no_random_number(tmp_path: Path) -> None:
    folder = write(tmp_path, made("bert"))
    before = torch.get_rng_state()
    read_config(folder)
    assert torch.equal(before, torch.get_rng_state())


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
            model = Model(body, body.vocabulary())
            before = peak()
            read_weights(Path(name), names, model)
        said = "read"
    except ValueError as error:
        said = f"refused {error}"
    print(peak() - before, said)
"""


def measured(what: str, *folders: Path) -> list[tuple[int, str]]:
    """Megabytes by which the peak of the memory grew with each folder, and what was said."""
    command = [sys.executable, "-c", MEASURE, what, *map(str, folders)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == len(folders)
    return [(int(grown), told) for grown, told in (line.split(" ", 1) for line in lines)]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 100 MB, all zeros, of which the disk holds almost nothing."""
    folder = tmp_path_factory.mktemp("large")
    model = made("gpt", dim=768, heads=3, hidden=768, vocab=20_000, layers=3)
    write(folder, model)
    with (folder / WHOLE).open("r+b") as stream:
        length = 8 + int.from_bytes(stream.read(8), "little")
        size = os.path.getsize(folder / WHOLE)
        stream.truncate(length)
        stream.truncate(size)
    assert size > 80e6
    return folder


def test_numbers_are_read_once_and_not_at_all_if_a_name_does_not_fit(large: Path, tmp_path: Path) -> None:
    last, size = max(stored_in(large)), os.path.getsize(large / WHOLE)
    with (large / WHOLE).open("rb") as stream:
        begin = stream.read(8)
        header = stream.read(int.from_bytes(begin, "little"))
    wrong = last[:-1] + "_"
    (tmp_path / "config.json").write_bytes((large / "config.json").read_bytes())
    (tmp_path / WHOLE).write_bytes(begin + header.replace(last.encode(), wrong.encode()))
    os.truncate(tmp_path / WHOLE, size)
    (refused, why), (grown, told) = measured("weights", tmp_path, large)
    assert why.startswith("refused")
    assert wrong in why
    assert refused < 10
    assert told == "read"
    assert grown < size / 1e6 + 30, "the pages of the file, and no copy of them"


ASKED = [
    {"n_embd": 3 * 10**9}, {"n_embd": 3 * 2**20}, {"n_inner": 10**9}, {"n_inner": 2**22}, {"n_layer": 10**6},
    {"vocab_size": 10**12}, {"n_positions": 10**10}, {"n_embd": 3 * 10**4, "n_inner": 10**4},
]  # fmt: skip


def test_a_config_that_asks_for_more_than_the_file_holds_gets_no_memory(tmp_path: Path) -> None:
    folders = [write(tmp_path / str(i), made("gpt")) for i in range(len(ASKED))]
    for folder, change in zip(folders, ASKED, strict=True):
        say(folder, said(folder) | change)
    for change, (grown, told) in zip(ASKED, measured("config", *folders), strict=True):
        assert told.startswith("refused"), change
        assert "config.json" in told
        assert grown < 20, change
