"""No damage is silent: every tensor of every family under every head, deleted, renamed, reshaped, retyped or doubled in
turn, is refused by its name, and the model is left as it was."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.hub.family_map import FamilyMap
from regard.hub.folder import read_config, read_weights, unique_state_dict
from regard.hub.tables import HF_FAMILIES
from regard.models import MODELS
from regard.parts.heads import Classifier, Model, PerToken, Projection, SpanScores
from regard.parts.pooling import POOLINGS

V, CLASSES = 19, 5
TEXT = {"vocab": V, "context": 11, "layers": 1, "hidden": 20, "pad": 1}
SMALL: dict[str, dict[str, Any]] = {  # one layer of each kind; no two sizes are the same
    "transformer": {
        "vocab": V, "context": 11, "dim": 12, "encoder_layers": 1, "decoder_layers": 1, "heads": 3, "hidden": 20,
    },
    "gpt": TEXT | {"dim": 12, "heads": 3},
    "llama": TEXT | {"dim": 24, "heads": 6, "kv_heads": 2},
    "nano": TEXT | {"dim": 24, "heads": 6, "kv_heads": 2},
    "bert": TEXT | {"dim": 12, "heads": 3, "segments": 4},
    "modernbert": TEXT | {"dim": 12, "heads": 3},
    "vit": {"image": 12, "channels": 2, "patch": 4, "dim": 18, "layers": 1, "heads": 3, "hidden": 10},
    "clip": {
        "vocab": V, "context": 11, "dim": 12, "layers": 1, "heads": 3, "pad": 0,
        "image": 8, "channels": 1, "patch": 4, "image_dim": 16, "image_layers": 1, "image_heads": 4, "joint": 6,
    },
}  # fmt: skip
CASES = [(family, head) for family, names in HF_FAMILIES.items() for head in ((), *names.heads)]


def named(case: Any) -> str:
    return case if isinstance(case, str) else " ".join(kind.__name__ for kind in case) or "bare"


def made(names: FamilyMap, kinds: tuple[type, ...]) -> Model:
    torch.manual_seed(1)
    family = MODELS[names.model]
    body: Any = next(iter(family.bodies.values()))(family.config(**SMALL[names.model] | names.ours))
    if not kinds:
        return Model(body, nn.Identity())
    dim: int = body.config.dim
    if kinds[1:]:
        pooling = next(one for one in (kind(dim) for kind in POOLINGS.values()) if type(one) is kinds[1])
        classifies = kinds[0] is Classifier
        return Model(body, Classifier(dim, CLASSES, pooling) if classifies else Projection(pooling, dim, CLASSES))
    head = {PerToken: lambda: PerToken(dim, CLASSES), SpanScores: lambda: SpanScores(dim)}.get(
        kinds[0], body.vocabulary
    )
    return Model(body, head())


def written(folder: Path, names: FamilyMap, model: Model) -> dict[str, Tensor]:
    (folder / "config.json").write_text(json.dumps(names.config_to_theirs(asdict(model.body.config))))
    tables = {theirs: model.get_buffer(ours).clone() for theirs, ours in names.computed.items()}
    return names.to_theirs({name: tensor.detach() for name, tensor in unique_state_dict(model).items()}) | tables


def of_body(model: Model) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in unique_state_dict(model).items() if name.startswith("body.")}


def respelled(names: FamilyMap, name: str) -> Iterator[str]:
    """Other names under which a tensor is read."""
    for new, before in names.older.items():
        if name.endswith(new):
            yield from (name.removesuffix(new) + old for old in before)
    if names.prefix:
        yield name.removeprefix(names.prefix) if name.startswith(names.prefix) else names.prefix + name


def mutants(names: FamilyMap, name: str, tensor: Tensor) -> Iterator[tuple[str, dict[str, Tensor | None]]]:
    """What is done to a tensor, and what stands in the file after it under some names."""
    if name not in names.computed:  # which tell nothing that config.json does not
        yield "deleted", {name: None}
        yield "renamed", {name: None, name + "_": tensor}
    shapes = [tensor[None]]
    if tensor.dim():
        shapes += [tensor[:-1], tensor.transpose(0, -1), tensor[0] if len(tensor) == 1 else tensor]
    for other in shapes:
        if other.shape != tensor.shape:
            yield "reshaped", {name: other}
    for dtype in (torch.int8, torch.bool, torch.float64):
        yield "retyped", {name: tensor.to(dtype)}
    for other in respelled(names, name):
        yield "doubled", {other: tensor.clone()}


def put(file: Path, tensors: Mapping[str, Tensor | None]) -> None:
    """A safetensors file of zeros: none of them should ever be read."""
    kinds = {torch.float32: "F32", torch.float64: "F64", torch.int8: "I8", torch.bool: "BOOL"}
    header, place = {}, 0
    for name, tensor in tensors.items():
        if tensor is not None:
            span = [place, place := place + tensor.numel() * tensor.itemsize]
            header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": span}
    told = json.dumps(header).encode()
    file.write_bytes(len(told).to_bytes(8, "little") + told + bytes(place))


DONE: Counter[str] = Counter()


@pytest.mark.parametrize(("family", "head"), CASES, ids=named)
def test_every_tensor_that_is_not_as_it_should_be_is_refused_by_name(
    family: str, head: tuple[type, ...], tmp_path: Path
) -> None:
    model = made(HF_FAMILIES[family], head)
    names = HF_FAMILIES[family].with_head(model.head)
    whole = written(tmp_path, names, model)
    file = tmp_path / "model.safetensors"
    save_file(whole, file)
    told, _ = read_config(tmp_path)
    assert read_weights(tmp_path, told, model)
    before = {name: (tensor.clone(), tensor._version) for name, tensor in unique_state_dict(model).items()}
    prefix = HF_FAMILIES[family].prefix
    body = {one.removeprefix(prefix) for one in HF_FAMILIES[family].to_theirs(of_body(model))} if head else set()
    for number, (name, tensor) in enumerate(whole.items()):
        # The body is the same under every head: there, each tensor in two ways, by turns, and bare in all.
        some = slice(number % 4, None, 4) if name.removeprefix(prefix) in body else slice(None)
        for what, change in [*mutants(names, name, tensor)][some]:
            put(file, whole | change)
            with pytest.raises(ValueError) as refusal:  # noqa: PT011
                read_weights(tmp_path, told, model)
            said = str(refusal.value)
            assert any(key in said for key in (name, *change)), f"{name} {what} {[*change]}: {said}"
            assert str(tmp_path) in said
            DONE[what] += 1
    after = unique_state_dict(model)
    assert all(after[name]._version == version for name, (_, version) in before.items())
    assert all(torch.equal(after[name], tensor) for name, (tensor, _) in before.items())


def test_enough_was_tried() -> None:
    print(f"{DONE.total()} mutants refused: {dict(DONE)}")
    assert not DONE or DONE.keys() == {"deleted", "renamed", "reshaped", "retyped", "doubled"}
