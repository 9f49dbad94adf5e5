"""Tiny models of every family and for every task, with random weights, none of them 0."""

import copy
from dataclasses import fields

import pytest
import torch
from tokenizers import Tokenizer as Engine

from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import BERT_LAYOUT, GPT_LAYOUT, MARIAN_LAYOUT, TokenizerOptions, train_tokenizer
from regard.loaded_model import LoadedModel
from regard.modalities import MODALITIES
from regard.modalities.audio.logmel import LogMel
from regard.modalities.audio.preprocessor import AudioPreprocessor
from regard.modalities.image.image_transform import ImageTransform
from regard.modalities.image.preprocessor import ImagePreprocessor
from regard.modalities.molecule.molecules import MoleculeFeaturizer, parse_molecule
from regard.modalities.molecule.preprocessor import MoleculePreprocessor
from regard.modalities.protein.preprocessor import ProteinPreprocessor
from regard.modalities.protein.protein_alphabet import protein_tokenizer
from regard.modalities.protocols import FitOptions, Target
from regard.modalities.synthetic.paths import paths
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.models import MODELS
from regard.tasks import TASKS
from regard.tasks.compatibility import find_fit, fitting_modalities
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
    "decide": {"mean": [5.0, 6.0], "std": [2.0, 3.0], "max_return": 20.0},
}
AUDIO_READER = LogMel(8000, 10, 4, 256, 80)
IMAGE_READER = ImageTransform(8, 3, (0.5, 0.4, 0.3), (0.2, 0.3, 0.2))
LAYOUT_OF_TASK = {"translate": MARIAN_LAYOUT, "write": GPT_LAYOUT}


@pytest.fixture(scope="session")
def tokenizers():
    """One for each layout, trained on all bundled texts, so that none has an unknown token."""
    plain = TextPreprocessor(None)
    rows = [row for target in MODALITIES["text"].formats for row in plain.probes(6, target)]
    rows += ImagePreprocessor(IMAGE_READER).probes(6, Target.TEXT) + AudioPreprocessor(AUDIO_READER).probes(
        6, Target.TEXT
    )
    texts = [text for row in rows for text in (row.key, row.target, *getattr(row.input, "_asdict", dict)().values())]
    texts = [text for text in texts if isinstance(text, str)]
    return {
        layout.single: train_tokenizer(texts, TokenizerOptions(), layout)
        for layout in (MARIAN_LAYOUT, BERT_LAYOUT, GPT_LAYOUT)
    }


@pytest.fixture(scope="session")
def make_model(tokenizers):
    def preprocessor(modality, kind):
        match modality:
            case "text":
                shared = tokenizers[LAYOUT_OF_TASK.get(kind, BERT_LAYOUT).single]
                return TextPreprocessor(Tokenizer(Engine.from_str(shared.backend_tokenizer.to_str()), shared.roles))
            case "image":
                return ImagePreprocessor(IMAGE_READER)
            case "audio":
                return AudioPreprocessor(AUDIO_READER)
            case "molecule":
                return MoleculePreprocessor(MoleculeFeaturizer.fit(parse_molecule(path.smiles) for path in paths(20)))
            case "protein":
                return ProteinPreprocessor(protein_tokenizer())
        rows = [*MODALITIES[modality].synthetic(TASKS[kind].target)["valid"]][:5]
        return MODALITIES[modality].fit(rows, FitOptions(TASKS[kind].target))

    def build(kind, family, task_options=None, **config):
        torch.manual_seed(0)
        family_entry = MODELS[family]
        modality = fitting_modalities(TASKS[kind], family)[0].name
        fit = find_fit(kind, TASKS[kind], family, modality)
        output = preprocessor(fit.output.name, kind) if fit.output and fit.output.name != modality else None
        fitted = FITTED.get(kind, {}) | (task_options or {})
        task = TASKS[kind](preprocessor=preprocessor(modality, kind), output=output, **fitted)
        known = {field.name for field in fields(family_entry.config)}
        config_values = {name: value for name, value in (SIZES | task.sizes() | config).items() if name in known}
        model = task.head(fit.body(family_entry.config(**config_values))).eval()
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
