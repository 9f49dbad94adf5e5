"""Models of well-known shapes with random weights, written as Hugging Face folders that every peer reads.

GPT-2 small    12 layers of 768, 12 heads, 50,257 tokens           Radford et al. 2019
LLaMA 135M     30 layers of 576, 9 heads, 3 kv heads, 49,152       the shape of SmolLM-135M
Marian         6 + 6 layers of 512, 8 heads, 58,101 tokens         the shape of the OPUS-MT models
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers, processors

from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import GPT_LAYOUT, MARIAN_LAYOUT, TokenizerLayout
from regard.loaded_model import LoadedModel
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.models import MODELS
from regard.tasks import TASKS
from regard.tasks.compatibility import body_class

SHAPES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": (
        "write",
        "gpt",
        {"vocab": 50257, "context": 1024, "dim": 768, "layers": 12, "heads": 12, "hidden": 3072},
    ),
    "llama": (
        "write",
        "llama",
        {
            "vocab": 49152, "context": 1024, "dim": 576, "layers": 30, "heads": 9, "kv_heads": 3, "hidden": 1536,
            "tie_embeddings": True,
        },
    ),
    "marian": (
        "translate",
        "transformer",
        {
            "vocab": 58101, "context": 512, "dim": 512, "encoder_layers": 6, "decoder_layers": 6, "heads": 8,
            "hidden": 2048, "post_norm": True, "activation": "silu",
        },
    ),
}  # fmt: skip


def word_tokenizer(vocab: int, texts: Iterable[str], layout: TokenizerLayout) -> Tokenizer:
    """One token per word of the texts, filled up to `vocab` with words that do not occur."""
    words = dict.fromkeys(word for text in texts for word in text.split())
    size = vocab - len(layout.first) - len(layout.last)
    unused = (f"word{i}" for i in range(size))
    middle = [*dict.fromkeys([*[*words][:size], *unused])][:size]
    ids = {token: i for i, token in enumerate([*layout.first, *middle, *layout.last])}
    engine = Engine(models.WordLevel(ids, unk_token=layout.roles["unk_token"]))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if layout.single:
        end = layout.roles["eos_token"]
        engine.post_processor = processors.TemplateProcessing(layout.single, special_tokens=[(end, ids[end])])
    return Tokenizer(engine, layout.roles)


def model_folder(shape: str, output_dir: Path, texts: Iterable[str] = (), **overrides: Any) -> Path:
    """The folder of a model of this shape; an existing one is reused."""
    task_name, family, sizes = SHAPES[shape]
    folder = output_dir / shape
    if (folder / "model.safetensors").exists():
        return folder
    sizes = sizes | overrides
    layout = GPT_LAYOUT if task_name == "write" else MARIAN_LAYOUT
    task = TASKS[task_name](preprocessor=TextPreprocessor(word_tokenizer(sizes["vocab"], texts, layout)))
    torch.manual_seed(1)
    body = body_class(task, family)
    model = task.head(body(MODELS[family].config(**(sizes | {"pad": task.tokenizer.pad_token_id})))).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and "blocks" in name:  # large enough that the output depends on the input
                weight.normal_(std=2 * weight.size(1) ** -0.5)
    LoadedModel(model, task).save_pretrained(folder)
    return folder
