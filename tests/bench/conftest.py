"""Folders of tiny models with random weights, made once."""

import pytest
import torch

from regard.data.bundled import phrasebook, stories
from regard.data.pictures import Pictures
from regard.data.pieces import READING, TRANSLATING, WRITING, Pieces, learn
from regard.models import MODELS
from regard.tasks import TASKS
from regard.training.run import Run

MADE = {
    "gpt": ("write", "gpt", {"context": 48, "dim": 64, "layers": 2, "heads": 2, "hidden": 96}),
    "llama": ("write", "llama", {"context": 48, "dim": 64, "layers": 2, "heads": 4, "kv_heads": 2, "hidden": 96}),
    "gru": ("write", "recurrent", {"context": 48, "dim": 32, "layers": 1, "cell": "gru"}),
    "transformer": (
        "translate",
        "transformer",
        {"context": 96, "dim": 32, "encoder_layers": 1, "decoder_layers": 1, "heads": 2, "hidden": 64},
    ),
    "vectors": ("embed", "bert", {"context": 48, "dim": 32, "layers": 1, "heads": 2, "hidden": 64}),
    "labels": ("classify", "bert", {"context": 48, "dim": 32, "layers": 1, "heads": 2, "hidden": 64}),
    "tags": ("tag", "modernbert", {"context": 48, "dim": 32, "layers": 1, "heads": 2, "hidden": 64}),
    "pictures": ("classify", "vit", {"patch": 4, "dim": 32, "layers": 1, "heads": 2, "hidden": 64}),
}
LEARNT = {"classify": {"labels": ["a", "b", "c"]}, "tag": {"tags": ["O", "B-x", "I-x"]}}


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    kept = {}

    def make(name):
        if name in kept:
            return kept[name]
        task_name, family, sizes = MADE[name]
        layout = {"write": WRITING, "translate": TRANSLATING}.get(task_name, READING)
        texts = [*stories.stories(2)] if task_name == "write" else [p.english for p in phrasebook.phrases(50)]
        reader = {"pictures": Pictures(8, 3, (0.5,) * 3, (0.2,) * 3)}
        if name != "pictures":
            reader = {"tokenizer": learn(texts, Pieces(vocab=300), layout)}
        task = TASKS[task_name](**reader, **LEARNT.get(task_name, {}))
        torch.manual_seed(3)
        one = MODELS[family]
        ability = next(ability for ability in task.asks if ability in one.bodies)
        known = one.config.__dataclass_fields__
        config = {key: value for key, value in (sizes | task.sizes()).items() if key in known}
        model = task.head(one.bodies[ability](one.config(**config))).eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight) * 0.1)
        run = Run.new(tmp_path_factory.mktemp("made") / name)
        run.describe(model, task, {})
        run.publish(model)
        kept[name] = run.folder
        return run.folder

    return make
