"""Tiny models of every family and for every task, with random weights of which none is zero."""

import copy
from dataclasses import fields

import pytest
import torch
from tokenizers import Tokenizer as Engine

from regard.check.probe_texts import bundled
from regard.data.bundled.paths import paths
from regard.data.mels import Mels
from regard.data.molecules import Molecules, asked_for
from regard.data.pictures import Pictures
from regard.data.pieces import READING, TRANSLATING, WRITING, Pieces, learn
from regard.data.residues import spelling
from regard.data.tokens import Tokenizer
from regard.load import Loaded
from regard.models import MODELS, ability_for
from regard.tasks import TASKS
from regard.training.run import Run

SMALL = {
    "context": 64, "dim": 24, "layers": 2, "encoder_layers": 2, "decoder_layers": 2, "heads": 3, "kv_heads": 1,
    "hidden": 20, "dropout": 0.0, "stages": 2, "patch": 4, "image_dim": 12, "image_layers": 1, "image_heads": 2,
    "joint": 8, "image_hidden": 16,
}  # fmt: skip
LEARNT = {
    "classify": {"labels": ["a", "b", "c"]},
    "tag": {"tags": ["O", "B-x", "I-x"]},
    "regress": {"mean": 2.0, "spread": 3.0},
}
SOUNDS = Mels(8000, 10, 4, 256, 80)
PICTURES = Pictures(8, 3, (0.5, 0.4, 0.3), (0.2, 0.3, 0.2))
LAYOUTS = {"translate": TRANSLATING, "write": WRITING}


@pytest.fixture(scope="session")
def tokenizers():
    """One for each layout, of all texts that ship: none of them has an unknown token."""
    texts = [side for kind in TASKS.values() for pair in bundled(object.__new__(kind)) for side in pair if side]
    return {layout.single: learn(texts, Pieces(), layout) for layout in (TRANSLATING, READING, WRITING)}


@pytest.fixture(scope="session")
def made(tokenizers):
    def make(kind, family, aim=None, **config):
        torch.manual_seed(0)
        one, able = MODELS[family], ability_for(family, kind, TASKS[kind].asks)
        readers = {}
        if able == "bonds":
            readers["molecules"] = Molecules.fit(asked_for(path.smiles) for path in paths(20))
        elif able not in ("sees", "hears"):
            shared = tokenizers[LAYOUTS.get(kind, READING).single]
            readers["tokenizer"] = Tokenizer(Engine.from_str(shared.engine.to_str()), shared.roles)
        if able == "spells":
            readers["tokenizer"] = spelling()
        if able in ("sees", "matches"):
            readers["pictures"] = PICTURES
        if able in ("hears", "transcribes"):
            readers["sounds"] = SOUNDS
        task = TASKS[kind](**readers, **LEARNT.get(kind, {}), **(aim or {}))
        known = {field.name for field in fields(one.config)}
        said = {name: value for name, value in (SMALL | task.sizes() | config).items() if name in known}
        model = task.head(one.bodies[able](one.config(**said))).eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if name != "body.scale":
                    weight.add_(torch.randn_like(weight) * 0.1)
        return Loaded(model, task)

    kept = {}

    def copied(kind, family, aim=None, **config):
        """A copy of one that is made only once."""
        key = (kind, family, str(aim), str(config))
        if key not in kept:
            kept[key] = make(kind, family, aim, **config)
        tokenizer = kept[key].tokenizer
        memo = (
            {}
            if tokenizer is None
            else {id(tokenizer): Tokenizer(Engine.from_str(tokenizer.engine.to_str()), tokenizer.roles)}
        )
        return Loaded(copy.deepcopy(kept[key].model), copy.deepcopy(kept[key].task, memo))

    return copied


@pytest.fixture(scope="session")
def folder_of(made, tmp_path_factory):
    """The folder that such a model would be saved in."""

    def write(kind, family, **config):
        loaded = made(kind, family, **config)
        run = Run.new(tmp_path_factory.mktemp("folders") / f"{kind}-{family}")
        run.describe(loaded.model, loaded.task, {})
        run.publish(loaded.model)
        return run.folder

    return write
