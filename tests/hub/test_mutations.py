"""Damaged weights: each tensor of each family and head, deleted, renamed, reshaped, retyped or doubled, is refused by
name, and the model stays unchanged."""

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
from regard.hub.folder import read_config, read_weights
from regard.hub.match_state_dict import unique_state_dict
from regard.hub.tables import HF_FAMILIES
from regard.models import MODELS
from regard.parts.heads import Classifier, Model, ProjectionHead, SpanHead, TokenClassifier
from regard.parts.pooling import POOLINGS

V, CLASSES = 19, 5
TEXT = {"vocab": V, "context": 11, "layers": 1, "hidden": 20, "pad": 1}
SMALL: dict[str, dict[str, Any]] = {  # one layer of each kind; all sizes differ
    "transformer": {
        "vocab": V, "context": 11, "dim": 12, "encoder_layers": 1, "decoder_layers": 1, "heads": 3, "hidden": 20,
    },
    "gpt": TEXT | {"dim": 12, "heads": 3},
    "llama": TEXT | {"dim": 24, "heads": 6, "kv_heads": 2},
    "nanochat": TEXT | {"dim": 24, "heads": 6, "kv_heads": 2},
    "bert": TEXT | {"dim": 12, "heads": 3, "segments": 4},
    "modernbert": TEXT | {"dim": 12, "heads": 3},
    "vit": {"image_size": 12, "channels": 2, "patch_size": 4, "dim": 18, "layers": 1, "heads": 3, "hidden": 10},
    "clip": {
        "vocab": V, "context": 11, "dim": 12, "layers": 1, "heads": 3, "pad": 0,
        "image_size": 8, "channels": 1, "patch_size": 4, "image_dim": 16, "image_layers": 1, "image_heads": 4,
        "projection_dim": 6,
    },
}  # fmt: skip
CASES = [(family, head) for family, names in HF_FAMILIES.items() for head in ((), *names.heads)]


def case_id(case: Any) -> str:
    return case if isinstance(case, str) else " ".join(kind.__name__ for kind in case) or "bare"


def make_model(names: FamilyMap, kinds: tuple[type, ...]) -> Model:
    torch.manual_seed(1)
    family = MODELS[names.model]
    body: Any = next(iter(family.bodies.values()))(family.config(**SMALL[names.model] | names.fixed_fields))
    if not kinds:
        return Model(body, nn.Identity())
    dim: int = body.config.dim
    if kinds[1:]:
        pooling = next(pooling for pooling in (kind(dim) for kind in POOLINGS.values()) if type(pooling) is kinds[1])
        classifies = kinds[0] is Classifier
        return Model(body, Classifier(dim, CLASSES, pooling) if classifies else ProjectionHead(pooling, dim, CLASSES))
    head = {TokenClassifier: lambda: TokenClassifier(dim, CLASSES), SpanHead: lambda: SpanHead(dim)}.get(
        kinds[0], body.lm_head
    )
    return Model(body, head())


def write_folder(folder: Path, names: FamilyMap, model: Model) -> dict[str, Tensor]:
    (folder / "config.json").write_text(json.dumps(names.config_to_hf(asdict(model.body.config))))
    tables = {theirs: model.get_buffer(ours).clone() for theirs, ours in names.computed.items()}
    return names.tensors_to_hf({name: tensor.detach() for name, tensor in unique_state_dict(model).items()}) | tables


def body_tensors(model: Model) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in unique_state_dict(model).items() if name.startswith("body.")}


def aliases(names: FamilyMap, name: str) -> Iterator[str]:
    """Other names that a tensor is read under."""
    for new, before in names.aliases.items():
        if name.endswith(new):
            yield from (name.removesuffix(new) + old for old in before)
    if names.prefix:
        yield name.removeprefix(names.prefix) if name.startswith(names.prefix) else names.prefix + name


def mutations(names: FamilyMap, name: str, tensor: Tensor) -> Iterator[tuple[str, dict[str, Tensor | None]]]:
    """Kind of damage, and the changed tensors of the file by name."""
    if name not in names.computed:  # these follow from config.json
        yield "deleted", {name: None}
        yield "renamed", {name: None, name + "_": tensor}
    shapes = [tensor[None]]
    if tensor.dim():
        shapes += [tensor[:-1], tensor.transpose(0, -1), tensor[0] if len(tensor) == 1 else tensor]
    for reshaped in shapes:
        if reshaped.shape != tensor.shape:
            yield "reshaped", {name: reshaped}
    for dtype in (torch.int8, torch.bool, torch.float64):
        yield "retyped", {name: tensor.to(dtype)}
    for alias in aliases(names, name):
        yield "doubled", {alias: tensor.clone()}


def write_zeros(file: Path, tensors: Mapping[str, Tensor | None]) -> None:
    """A safetensors file of zeros, whose data is never read."""
    kinds = {torch.float32: "F32", torch.float64: "F64", torch.int8: "I8", torch.bool: "BOOL"}
    header, place = {}, 0
    for name, tensor in tensors.items():
        if tensor is not None:
            span = [place, place := place + tensor.numel() * tensor.itemsize]
            header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": span}
    header_bytes = json.dumps(header).encode()
    file.write_bytes(len(header_bytes).to_bytes(8, "little") + header_bytes + bytes(place))


COUNTS: Counter[str] = Counter()


@pytest.mark.parametrize(("family", "head"), CASES, ids=case_id)
def test_every_damaged_tensor_is_refused_by_name(family: str, head: tuple[type, ...], tmp_path: Path) -> None:
    model = make_model(HF_FAMILIES[family], head)
    names = HF_FAMILIES[family].with_head(model.head)
    tensors = write_folder(tmp_path, names, model)
    file = tmp_path / "model.safetensors"
    save_file(tensors, file)
    names_read, _ = read_config(tmp_path)
    assert read_weights(tmp_path, names_read, model)
    before = {name: (tensor.clone(), tensor._version) for name, tensor in unique_state_dict(model).items()}
    prefix = HF_FAMILIES[family].prefix
    body = (
        {name.removeprefix(prefix) for name in HF_FAMILIES[family].tensors_to_hf(body_tensors(model))}
        if head
        else set()
    )
    for number, (name, tensor) in enumerate(tensors.items()):
        # The body is the same under every head: there, a quarter of the damages in turn, and all without a head.
        selected = slice(number % 4, None, 4) if name.removeprefix(prefix) in body else slice(None)
        for kind, change in [*mutations(names, name, tensor)][selected]:
            write_zeros(file, tensors | change)
            with pytest.raises(ValueError) as refusal:  # noqa: PT011
                read_weights(tmp_path, names_read, model)
            message = str(refusal.value)
            assert any(key in message for key in (name, *change)), f"{name} {kind} {[*change]}: {message}"
            assert str(tmp_path) in message
            COUNTS[kind] += 1
    after = unique_state_dict(model)
    assert all(after[name]._version == version for name, (_, version) in before.items())
    assert all(torch.equal(after[name], tensor) for name, (tensor, _) in before.items())


def test_all_kinds_of_damage_were_tried() -> None:
    print(f"{COUNTS.total()} damaged files refused: {dict(COUNTS)}")
    assert not COUNTS or COUNTS.keys() == {"deleted", "renamed", "reshaped", "retyped", "doubled"}
