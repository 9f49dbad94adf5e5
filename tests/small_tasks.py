"""Small untrained models of several tasks, built in memory. Their weights are large, so that answers differ."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import BERT_LAYOUT, GPT_LAYOUT, TokenizerLayout, TokenizerOptions, train_tokenizer
from regard.loaded_model import LoadedModel
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.models import MODELS
from regard.tasks.answer import QuestionAnswering
from regard.tasks.classify import Classify
from regard.tasks.embed import Embed
from regard.tasks.fill import Fill
from regard.tasks.regress import Regress
from regard.tasks.tag import Tag
from regard.tasks.task import Task
from regard.tasks.translate import Translate
from regard.tasks.write import Write

TEXTS = ["tea and water please.", "milk, bread and tea", "No water", "Please, no milk and no bread!", "?"]
SIZES: dict[str, Any] = {
    "context": 48, "dim": 24, "hidden": 32, "heads": 2, "layers": 1, "encoder_layers": 1, "decoder_layers": 1,
    "dropout": 0.0,
}  # fmt: skip


def tokenizer(layout: TokenizerLayout | None = None) -> Tokenizer:
    options = TokenizerOptions("characters")
    return train_tokenizer(TEXTS, options) if layout is None else train_tokenizer(TEXTS, options, layout)


def text(layout: TokenizerLayout | None = None) -> dict[str, TextPreprocessor]:
    return {"preprocessor": TextPreprocessor(tokenizer(layout))}


def loaded_model(task: Task, family: str, structure: str, seed: int = 3, **sizes: int) -> LoadedModel:
    config: Any = MODELS[family].config
    options = {name: value for name, value in (SIZES | sizes).items() if name in config.__dataclass_fields__}
    known = {name: value for name, value in task.sizes().items() if name in config.__dataclass_fields__}
    torch.manual_seed(seed)
    model = task.head(MODELS[family].bodies[structure](config(**options | known))).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) * 0.3)
    return LoadedModel(model, task)


@cache
def small(name: str) -> LoadedModel:
    match name:
        case "write":
            return loaded_model(Write(**text(GPT_LAYOUT)), "gpt", "decoder")
        case "translate":
            return loaded_model(Translate(**text(), max_train_length=30), "transformer", "encoder-decoder")
        case "recurrent":  # which the engine does not support
            return loaded_model(Translate(**text(), max_train_length=30), "recurrent", "encoder-decoder")
        case "classify":
            return loaded_model(Classify(**text(BERT_LAYOUT), labels=["a", "b", "c"]), "bert", "encoder")
        case "regress":
            return loaded_model(Regress(**text(BERT_LAYOUT), mean=2.0, std=3.0), "bert", "encoder")
        case "tag":
            return loaded_model(Tag(**text(BERT_LAYOUT), tags=["O", "B-x", "I-x"]), "bert", "encoder")
        case "answer":
            return loaded_model(QuestionAnswering(**text(BERT_LAYOUT)), "bert", "encoder")
        case "embed":
            return loaded_model(Embed(**text(BERT_LAYOUT)), "bert", "encoder")
    assert name == "fill"
    return loaded_model(Fill(**text(BERT_LAYOUT)), "bert", "encoder")
