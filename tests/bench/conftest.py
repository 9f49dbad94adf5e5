"""Folders of tiny models with random weights, built once."""

import pytest
import torch

from regard.data.tokenizer_train import BERT_LAYOUT, GPT_LAYOUT, MARIAN_LAYOUT, TokenizerOptions, train_tokenizer
from regard.modalities.audio.logmel import LogMel
from regard.modalities.audio.preprocessor import AudioPreprocessor
from regard.modalities.image.image_transform import ImageTransform
from regard.modalities.image.preprocessor import ImagePreprocessor
from regard.modalities.protocols import FitOptions
from regard.modalities.synthetic import phrasebook, stories
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.models import MODELS
from regard.tasks import TASKS
from regard.tasks.compatibility import find_fit
from regard.training.run_folder import RunFolder

MODEL_SPECS = {
    "gpt": ("write", "gpt", {"context": 48, "dim": 64, "layers": 2, "heads": 2, "hidden": 96}),
    "llama": ("write", "llama", {"context": 48, "dim": 64, "layers": 2, "heads": 4, "kv_heads": 2, "hidden": 96}),
    "gru": ("write", "recurrent", {"context": 48, "dim": 32, "layers": 1, "cell": "gru"}),
    "transformer": (
        "translate",
        "transformer",
        {"context": 96, "dim": 32, "encoder_layers": 1, "decoder_layers": 1, "heads": 2, "hidden": 64},
    ),
    "embeddings": ("embed", "bert", {"context": 48, "dim": 32, "layers": 1, "heads": 2, "hidden": 64}),
    "labels": ("classify", "bert", {"context": 48, "dim": 32, "layers": 1, "heads": 2, "hidden": 64}),
    "tags": ("tag", "modernbert", {"context": 48, "dim": 32, "layers": 1, "heads": 2, "hidden": 64}),
    "images": ("classify", "vit", {"patch_size": 4, "dim": 32, "layers": 1, "heads": 2, "hidden": 64}),
    "speech": (
        "translate",
        "speech2text",
        {"context": 96, "dim": 32, "encoder_layers": 1, "decoder_layers": 1, "heads": 2, "hidden": 64},
    ),
    "pairs": (
        "match",
        "clip",
        {"context": 48, "dim": 32, "layers": 1, "heads": 2, "hidden": 64, "patch_size": 4, "image_dim": 32}
        | {"image_layers": 1, "image_heads": 2, "image_hidden": 64, "projection_dim": 16},
    ),
    "episodes": ("predict", "world_model", {"context": 4, "dim": 32, "layers": 1, "heads": 2, "hidden": 64}),
}
FITTED = {"classify": {"labels": ["a", "b", "c"]}, "tag": {"tags": ["O", "B-x", "I-x"]}}


def fit_to_synthetic(modality, target):
    return modality.fit([*modality.synthetic(target)["valid"]][:5], FitOptions(target))


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    folders = {}

    def build(name):
        if name in folders:
            return folders[name]
        task_name, family, sizes = MODEL_SPECS[name]
        layout = {"write": GPT_LAYOUT, "translate": MARIAN_LAYOUT}.get(task_name, BERT_LAYOUT)
        texts = [*stories.stories(2)] if task_name == "write" else [p.english for p in phrasebook.phrases(50)]
        kind = TASKS[task_name]
        fit = find_fit(task_name, kind, family)
        tokenizer = train_tokenizer(texts, TokenizerOptions(vocab_size=300), layout)
        preprocessors = {
            "text": lambda: TextPreprocessor(tokenizer),
            "image": lambda: ImagePreprocessor(ImageTransform(8, 3, (0.5,) * 3, (0.2,) * 3)),
            "audio": lambda: AudioPreprocessor(LogMel(8000, 10, 4, 256, 80)),
            "trajectory": lambda: fit_to_synthetic(fit.modality, kind.target),
        }
        output = preprocessors[fit.output.name]() if fit.output and fit.output is not fit.modality else None
        task = kind(preprocessor=preprocessors[fit.modality.name](), output=output, **FITTED.get(task_name, {}))
        torch.manual_seed(3)
        family_entry = MODELS[family]
        known = family_entry.config.__dataclass_fields__
        config = {key: value for key, value in (sizes | task.sizes()).items() if key in known}
        model = task.head(fit.body(family_entry.config(**config))).eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight) * 0.1)
        run = RunFolder.new(tmp_path_factory.mktemp("models") / name)
        run.describe(model, task, {})
        run.publish(model)
        folders[name] = run.folder
        return run.folder

    return build
