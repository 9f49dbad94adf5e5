"""Folders of tiny models with random weights, built once."""

import pytest
import torch

from regard.data.bundled import phrasebook, stories
from regard.data.image_transform import ImageTransform
from regard.data.tokenizer_train import BERT_LAYOUT, GPT_LAYOUT, MARIAN_LAYOUT, TokenizerOptions, train_tokenizer
from regard.models import MODELS
from regard.tasks import TASKS
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
}
FITTED = {"classify": {"labels": ["a", "b", "c"]}, "tag": {"tags": ["O", "B-x", "I-x"]}}


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    folders = {}

    def build(name):
        if name in folders:
            return folders[name]
        task_name, family, sizes = MODEL_SPECS[name]
        layout = {"write": GPT_LAYOUT, "translate": MARIAN_LAYOUT}.get(task_name, BERT_LAYOUT)
        texts = [*stories.stories(2)] if task_name == "write" else [p.english for p in phrasebook.phrases(50)]
        preprocessors = {"image_processor": ImageTransform(8, 3, (0.5,) * 3, (0.2,) * 3)}
        if name != "images":
            preprocessors = {"tokenizer": train_tokenizer(texts, TokenizerOptions(vocab_size=300), layout)}
        task = TASKS[task_name](**preprocessors, **FITTED.get(task_name, {}))
        torch.manual_seed(3)
        family_entry = MODELS[family]
        ability = next(ability for ability in task.requires if ability in family_entry.bodies)
        known = family_entry.config.__dataclass_fields__
        config = {key: value for key, value in (sizes | task.sizes()).items() if key in known}
        model = task.head(family_entry.bodies[ability](family_entry.config(**config))).eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight) * 0.1)
        run = RunFolder.new(tmp_path_factory.mktemp("models") / name)
        run.describe(model, task, {})
        run.publish(model)
        folders[name] = run.folder
        return run.folder

    return build
