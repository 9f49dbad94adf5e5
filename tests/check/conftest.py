"""Tiny models of every family and for every task, with random weights, none of them 0."""

import copy
from dataclasses import fields

import pytest
import torch
from tokenizers import Tokenizer as Engine

from regard.check.probe_texts import bundled_texts
from regard.data.bundled.paths import paths
from regard.data.image_transform import ImageTransform
from regard.data.logmel import LogMel
from regard.data.molecules import MoleculeFeaturizer, parse_molecule
from regard.data.protein_alphabet import protein_tokenizer
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import BERT_LAYOUT, GPT_LAYOUT, MARIAN_LAYOUT, TokenizerOptions, train_tokenizer
from regard.load import LoadedModel
from regard.models import MODELS, ability_for
from regard.tasks import TASKS
from regard.training.run_folder import RunFolder

SIZES = {
    "context": 64, "dim": 24, "layers": 2, "encoder_layers": 2, "decoder_layers": 2, "heads": 3, "kv_heads": 1,
    "hidden": 20, "dropout": 0.0, "stages": 2, "patch_size": 4, "image_dim": 12, "image_layers": 1, "image_heads": 2,
    "projection_dim": 8, "image_hidden": 16,
}  # fmt: skip
FITTED = {
    "classify": {"labels": ["a", "b", "c"]},
    "tag": {"tags": ["O", "B-x", "I-x"]},
    "regress": {"mean": 2.0, "std": 3.0},
}
AUDIO_READER = LogMel(8000, 10, 4, 256, 80)
IMAGE_READER = ImageTransform(8, 3, (0.5, 0.4, 0.3), (0.2, 0.3, 0.2))
LAYOUT_OF_TASK = {"translate": MARIAN_LAYOUT, "write": GPT_LAYOUT}


@pytest.fixture(scope="session")
def tokenizers():
    """One for each layout, trained on all bundled texts, so that none has an unknown token."""
    texts = [side for kind in TASKS.values() for pair in bundled_texts(object.__new__(kind)) for side in pair if side]
    return {
        layout.single: train_tokenizer(texts, TokenizerOptions(), layout)
        for layout in (MARIAN_LAYOUT, BERT_LAYOUT, GPT_LAYOUT)
    }


@pytest.fixture(scope="session")
def make_model(tokenizers):
    def build(kind, family, task_options=None, **config):
        torch.manual_seed(0)
        family_entry, ability = MODELS[family], ability_for(family, kind, TASKS[kind].requires)
        readers = {}
        if ability == "bonds":
            readers["molecules"] = MoleculeFeaturizer.fit(parse_molecule(path.smiles) for path in paths(20))
        elif ability not in ("sees", "hears"):
            shared = tokenizers[LAYOUT_OF_TASK.get(kind, BERT_LAYOUT).single]
            readers["tokenizer"] = Tokenizer(Engine.from_str(shared.backend_tokenizer.to_str()), shared.roles)
        if ability == "spells":
            readers["tokenizer"] = protein_tokenizer()
        if ability in ("sees", "matches"):
            readers["image_processor"] = IMAGE_READER
        if ability in ("hears", "transcribes"):
            readers["feature_extractor"] = AUDIO_READER
        task = TASKS[kind](**readers, **FITTED.get(kind, {}), **(task_options or {}))
        known = {field.name for field in fields(family_entry.config)}
        config_values = {name: value for name, value in (SIZES | task.sizes() | config).items() if name in known}
        model = task.head(family_entry.bodies[ability](family_entry.config(**config_values))).eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if name != "body.scale":
                    weight.add_(torch.randn_like(weight) * 0.1)
        return LoadedModel(model, task)

    cached = {}

    def make_copy(kind, family, task_options=None, **config):
        """A copy of a model that is built once."""
        key = (kind, family, str(task_options), str(config))
        if key not in cached:
            cached[key] = build(kind, family, task_options, **config)
        tokenizer = cached[key].tokenizer
        memo = (
            {}
            if tokenizer is None
            else {id(tokenizer): Tokenizer(Engine.from_str(tokenizer.backend_tokenizer.to_str()), tokenizer.roles)}
        )
        return LoadedModel(copy.deepcopy(cached[key].model), copy.deepcopy(cached[key].task, memo))

    return make_copy


@pytest.fixture(scope="session")
def save_model(make_model, tmp_path_factory):
    """Save such a model; returns its folder."""

    def save(kind, family, **config):
        loaded = make_model(kind, family, **config)
        run = RunFolder.new(tmp_path_factory.mktemp("folders") / f"{kind}-{family}")
        run.describe(loaded.model, loaded.task, {})
        run.publish(loaded.model)
        return run.folder

    return save
